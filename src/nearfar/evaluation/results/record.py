"""Typed JSON objects and result files, which check what they read, and the provenance of a result."""

import json
import math
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, dataclass_transform, get_args

from msgspec import Meta

from nearfar.disk import read_json, write_text
from nearfar.evaluation.render import Table, to_text
from nearfar.runtime import machine
from nearfar.runtime.versions import package_version
from nearfar.types import NearfarError
from nearfar.validation import InvalidValueError, convert, format_value, join_or

DAMAGED = "is damaged, or was written by another version of nearfar"
OMITTED = {"omit": True}
"""Metadata of a field whose key is left out of the file where the value is None or an empty object."""
MAX_NUMBER = 1e100
Number: TypeAlias = int | Annotated[float, Meta(ge=-MAX_NUMBER, le=MAX_NUMBER)]
"""A number that stays as it is written: 1 is not rewritten as 1.0. NaN and infinity are refused."""


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
@dataclass(frozen=True)
class Record:
    """A JSON object with known keys. Unknown keys are ignored on reading.

    A subclass is a frozen dataclass, with keyword arguments alone unless it is made with ``kw_only=False``.
    ``__post_init__`` of a record raises an :class:`~nearfar.validation.InvalidValueError` where its fields disagree.
    """

    def __init_subclass__(cls, *, kw_only: bool = True) -> None:
        dataclass(frozen=True, kw_only=kw_only, repr=not hasattr(cls, "TABLES"))(cls)

    @classmethod
    def from_dict(cls, content: object, *, source: object = "the result") -> Self:
        """Check and convert the content of a JSON file.

        Args:
            content: what the JSON parser returned.
            source: the file's name, for error messages.

        Raises:
            NearfarError: a missing key or a value of the wrong type; the message names source, key and problem.
        """
        return convert(content, cls, source=f"{source}: {DAMAGED}")

    def to_dict(self) -> dict[str, Any]:
        """The JSON object: plain dicts, lists, texts and numbers, with the keys in the order of the fields."""
        return _plain(self)


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        items = ((key, getattr(value, key.name)) for key in fields(value))
        return {key.name: _plain(item) for key, item in items if "omit" not in key.metadata or item not in (None, {})}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def check_length(numbers: Sized, size: int, *path: str, of: str) -> None:
    """Refuse a list, found at ``path``, whose length is not ``size``, the number in the field ``of``."""
    if len(numbers) != size:
        raise InvalidValueError(f"has {len(numbers)} numbers, and {of!r} is {size}", *path)


def is_number(value: object) -> bool:
    """A finite int or float of a usable size; no bool."""
    return type(value) in (int, float) and abs(value) < MAX_NUMBER and math.isfinite(value)  # type: ignore[arg-type]


SCHEMA = 1
"""The format version that is written and read."""


class Estimate(Record, kw_only=False):
    """A score x 100 with its 95% bootstrap interval; all null where the score is undefined.

    ``low`` and ``high`` alone are null where no resamples were drawn.
    """

    score: float | None
    low: float | None
    high: float | None
    reason: str | None = field(default=None, metadata=OMITTED)
    """Why the score is undefined."""

    @property
    def interval(self) -> str:
        """``[low, high]``; empty where there is none."""
        return "" if self.low is None or self.high is None else f"[{self.low:.1f}, {self.high:.1f}]"


Verdict: TypeAlias = Literal["better", "worse", "level", "no worse", "cannot tell"]
"""What a tested difference says of the first side (:func:`nearfar.evaluation.statistics.verdict`)."""


class TestedDifference(Record):
    """A difference of two scores x 100, first minus second, with its one interval; null with a ``reason``."""

    SCORES: ClassVar[tuple[str, ...]] = ()
    """The fields with the two scores, where the record has them."""

    difference: float | None = None
    low: float | None = None
    """The 95% interval of the difference, from ``low`` to ``high``, over test units and training runs."""
    high: float | None = None
    p: float | None = None
    """Two-sided p of no difference; below 0.05 where the interval leaves out 0."""
    p_holm: float | None = None
    """``p`` after Holm's correction over all tests of its family; ``p`` itself where it is the only one."""
    verdict: Verdict | None = None
    """``better`` or ``worse`` where ``p_holm`` is below the level, else what the interval says against the margin."""
    units: int | None = None
    """The number of independent units that were resampled: rows, or groups of them that share texts."""
    more_units: int | None = field(default=None, metadata=OMITTED)
    """About how many more units would tell, where the verdict is ``cannot tell``; null where units alone do not."""
    reason: str | None = field(default=None, metadata=OMITTED)
    """Why the difference is undefined."""

    def __post_init__(self) -> None:
        """A difference without interval or p."""
        if self.difference is not None:
            for key in (*self.SCORES, "low", "high", "p"):
                if getattr(self, key) is None:
                    raise InvalidValueError("is null, and 'difference' is not", key)


class Result(Record):
    """A result file of any kind: ``Result.load`` reads them all, a subclass its own."""

    WHAT: ClassVar[str] = "a result file of nearfar"
    TYPES: ClassVar[dict[str, type["Result"]]] = {}
    """``kind`` of a file -> its model."""
    TABLES: ClassVar[Callable[[Any], Sequence[Table]]] = lambda _: ()
    """The tables of a result; set by :mod:`nearfar.evaluation.tables`, which stands on this module."""

    schema: Literal[1] = 1
    """The format version."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Result.TYPES |= {kind: cls for key in fields(cls) if key.name == "kind" for kind in get_args(key.type)}

    @classmethod
    def from_dict(cls, content: object, *, source: object = "the result") -> Self:
        """Check and convert the content of a result file; see :meth:`Record.from_dict`.

        Raises:
            NearfarError: another kind of file, another format version, a missing key or a value of the wrong type.
        """
        types = {kind: of for kind, of in cls.TYPES.items() if issubclass(of, cls)}
        schema, kind = (content.get("schema"), content.get("kind")) if isinstance(content, dict) else (None, None)
        if type(schema) is not int or schema != SCHEMA:
            newer = " Update nearfar to read it." if type(schema) is int and schema > SCHEMA else ""
            why = f"it has schema {format_value(schema)}, and this version reads {SCHEMA}"
            raise NearfarError(f"{source}: is not a result file of nearfar: {why}.{newer}")
        if kind not in list(types):
            why = f"its kind is {format_value(kind)}; expected {join_or(types)}"
            raise NearfarError(f"{source}: is not {cls.WHAT}: {why}.")
        return convert(content, types[kind], source=f"{source}: {DAMAGED}")

    def __repr__(self) -> str:
        """The tables that the command prints."""
        return "\n".join(map(to_text, self.TABLES())) or f"<{type(self).__name__} of nearfar>"

    @classmethod
    def load(cls, file: str | Path) -> Self:
        """Read a file that :meth:`save` wrote.

        Raises:
            NearfarError: no such file, invalid JSON, or what :meth:`from_dict` refuses.
        """
        return cls.from_dict(read_json(Path(file), otherwise="Compute the result again to replace it."), source=file)

    def save(self, file: str | Path) -> None:
        """Write the JSON file, completely or not at all.

        Raises:
            NearfarError: the disk is full or cannot be written.
        """
        write_text(Path(file), self.to_json())

    def to_json(self) -> str:
        """The text of the result file."""
        return format_json(self.to_dict()) + "\n"


def format_json(value: Any, indent: str = "") -> str:
    """JSON with nested objects on lines of their own, and objects of scalars (an estimate) and arrays on one line."""
    if not isinstance(value, dict) or not any(isinstance(item, dict | list) for item in value.values()):
        return _compact(value)
    items = [f"\n{indent} {_compact(key)}: {format_json(item, f'{indent} ')}" for key, item in value.items()]
    return "{" + ",".join(items) + f"\n{indent}}}"


_compact = partial(json.dumps, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_PACKAGES = ("nearfar", "numpy", "scipy", "torch", "transformers", "tokenizers", "sentence-transformers")
_GENERATED = ("docs", "studies/results", "benchmarks/results", "tests/campaign/results")
"""Folders of results and of pages generated from them: changes there do not mark a commit as dirty."""


class Provenance(Record):
    """When, how, with what code and on what machine a result was computed."""

    date: str | None = field(default=None, metadata=OMITTED)
    """UTC, ISO 8601."""
    command: str | None = field(default=None, metadata=OMITTED)
    """The command line."""
    commit: str | None = None
    """Of the nearfar checkout, with ``-dirty`` where code was changed; null where nearfar is installed as a package."""
    versions: dict[str, str | None] | None = field(default=None, metadata=OMITTED)
    """Package -> version; null where the package is not installed."""
    hardware: dict[str, Any] | None = field(default=None, metadata=OMITTED)
    """``machine``, ``processor``, ``instruction_sets``, ``cores``, ``threads``, ``accelerator``."""
    kernels: dict[str, Any] | None = field(default=None, metadata=OMITTED)
    """``used`` (names of the compiled kernels) and how they were built, or ``why_not``; where an encoder was loaded."""


def provenance() -> Provenance:
    """The provenance of a result that is computed now, by this process."""
    program = Path(sys.argv[0]).name
    torch = sys.modules.get("torch")  # if torch was never imported, it computed nothing
    kernels = sys.modules.get("nearfar.encoder.kernels")
    return Provenance.from_dict(
        {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": shlex.join(["nearfar" if program == "__main__.py" else program, *sys.argv[1:]]),
            "commit": _commit(),
            "versions": {"python": platform.python_version()} | {name: package_version(name) for name in _PACKAGES},
            "hardware": {
                "machine": platform.machine(),
                "processor": machine.processor(),
                "instruction_sets": " ".join(machine.instruction_sets()),
                "cores": os.cpu_count(),
                "threads": torch and torch.get_num_threads(),
                "accelerator": torch.cuda.get_device_name() if torch and torch.cuda.is_available() else None,
            },
            **({"kernels": kernels.kernels_status()} if kernels else {}),
        },
        source="the provenance",
    )


def _commit() -> str | None:
    """The commit of the checkout that tracks this file, with -dirty where its code was changed; else None."""
    here = Path(__file__)

    def git(*arguments: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(here.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", here.name)
        excluded = [f":(top,exclude){folder}" for folder in _GENERATED]
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ":(top)", *excluded)
        return git("rev-parse", "HEAD") + "-dirty" * bool(changed)
    except (OSError, subprocess.SubprocessError):
        return None
