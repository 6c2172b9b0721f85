"""What all result files share: a format version, a kind, provenance, and how they are read and written."""

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

from nearfar.disk import read_json, write_text
from nearfar.evaluation.results.record import OMITTED, Record, short_repr
from nearfar.types import NearfarError

SCHEMA = 1
"""The format version that is written and read."""


@dataclass(frozen=True)
class Estimate(Record):
    """A score x 100 with its 95% bootstrap interval; all null where the score is undefined.

    ``low`` and ``high`` alone are null where no resamples were drawn.
    """

    score: float | None
    low: float | None
    high: float | None
    reason: str | None = field(default=None, metadata=OMITTED)
    """Why the score is undefined."""


@dataclass(frozen=True, kw_only=True)
class Result(Record):
    """A result file of any kind."""

    WHAT: ClassVar[str] = "a result file of nearfar"

    schema: Literal[1] = 1
    """The format version."""

    @classmethod
    def from_dict(cls, content: object, *, source: object = "the result") -> Self:
        """Check and convert the content of a result file; see :meth:`Record.from_dict`.

        Raises:
            NearfarError: another kind of file, a file of a newer version, a missing key or a value of the wrong type.
        """
        check_version(content, source=source)
        kinds = cls.kinds()
        assert isinstance(content, dict)
        if content.get("kind") not in kinds:
            found = f"its kind is {short_repr(content['kind'])}" if "kind" in content else "it has no 'kind'"
            raise NearfarError(f"{source}: is not {cls.WHAT}: {found}; expected {kinds[0]!r}.")
        return super().from_dict(content, source=source)

    @classmethod
    def kinds(cls) -> tuple[str, ...]:
        """The values of ``kind``."""
        (kind,) = (field.type for field in fields(cls) if field.name == "kind")
        return get_args(kind)

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


def check_version(content: object, *, source: object) -> None:
    """Refuse content that is no JSON object, or has another format version.

    Raises:
        NearfarError: it says which version the file has, and which ones are read.
    """
    if not isinstance(content, dict):
        raise NearfarError(f"{source}: is not a result file of nearfar: it is not a JSON object.")
    if "schema" not in content:
        raise NearfarError(f"{source}: is not a result file of nearfar: it has no 'schema'.")
    schema = content["schema"]
    if type(schema) is int and schema > SCHEMA:
        raise NearfarError(
            f"{source}: was written by a newer version of nearfar (schema {schema}; this version reads up to "
            f"{SCHEMA}). Update nearfar to read it."
        )
    if type(schema) is not int or schema != SCHEMA:
        raise NearfarError(f"{source}: has schema {short_repr(schema)}; this version of nearfar reads {SCHEMA}.")


def format_json(value: Any, indent: str = "") -> str:
    """JSON with nested objects on lines of their own, and objects of scalars (an estimate) and arrays on one line."""
    if not isinstance(value, dict) or not any(isinstance(item, dict | list) for item in value.values()):
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    deeper = indent + " "
    items = (
        f"\n{deeper}{json.dumps(key, ensure_ascii=False)}: {format_json(item, deeper)}" for key, item in value.items()
    )
    return "{" + ",".join(items) + f"\n{indent}}}"
