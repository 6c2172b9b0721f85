"""A job: one call of a function, described by values and identified by their hash."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nearfar.types import NearfarError

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
"""A value that JSON can express."""
KEY_LENGTH = 16
_MAX_WHOLE = 2.0**53


@dataclass(frozen=True, eq=False)
class Job:
    """One call of ``function(settings, inputs, folder)``, which writes its results as files into ``folder``.

    The function gets ``settings`` and ``local`` as one dict, the finished folder of each input as a path, and the
    folder to write to. It returns nothing. After an interrupted attempt it is called again with the same folder, which
    then holds the files of that attempt. A function that handles Ctrl-C itself must end with KeyboardInterrupt.

    Two jobs with the same key are equal.

    Raises:
        NearfarError: the function is not written as ``package.module:name``, or a setting is no JSON value.
    """

    function: str
    """Where the function is: ``package.module:name``."""
    settings: Mapping[str, JSON] = field(default_factory=dict)
    """Values that decide the results. They are copied."""
    inputs: Mapping[str, "Job"] = field(default_factory=dict)
    """Jobs whose results the function reads, by the names it knows them by."""
    local: Mapping[str, JSON] = field(default_factory=dict, kw_only=True)
    """Settings that do not change the results, such as paths and devices of this machine; not part of the key."""
    uses: str | None = field(default=None, kw_only=True)
    """A resource that only one job of a machine at a time may use, such as ``gpu``; not part of the key."""
    key: str = field(init=False)
    """The first 16 hex digits of the SHA-256 of function, settings and the keys of the inputs, as canonical JSON."""

    def __post_init__(self) -> None:
        module, _, name = self.function.partition(":")
        if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
            raise NearfarError(f"job {self.function!r}: the function must be written as package.module:name.")
        if both := sorted(self.settings.keys() & self.local.keys()):
            raise NearfarError(f"job {self.function}: {', '.join(both)}: in both settings and local; keep one.")
        for attribute in ("settings", "local"):
            object.__setattr__(self, attribute, _copy(getattr(self, attribute), f"job {self.function}: {attribute}"))
        object.__setattr__(self, "inputs", dict(self.inputs))
        inputs = {name: job.key for name, job in self.inputs.items()}
        object.__setattr__(self, "key", key_of(self.function, self.settings, inputs))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def describe(self) -> dict[str, Any]:
        """The job in JSON values, inputs by their keys, without ``local``: the content of its ``job.json``."""
        return {
            "key": self.key,
            "function": self.function,
            "settings": self.settings,
            "inputs": {name: job.key for name, job in self.inputs.items()},
        }


def key_of(function: str, settings: Mapping[str, JSON], inputs: Mapping[str, str]) -> str:
    """The key of a job; ``inputs`` are the keys of the jobs whose results it reads."""
    content = {"function": function, "settings": _canonical(settings), "inputs": dict(inputs)}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]


def _canonical(value: Any) -> Any:
    """The value with whole floats as integers, as RFC 8785 writes numbers: 1.0 and 1 are the same setting."""
    if isinstance(value, dict):
        return {name: _canonical(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_canonical(one) for one in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_WHOLE:
        return int(value)
    return value


def _copy(value: Any, where: str) -> Any:
    """A copy of a JSON value, with tuples as lists.

    Raises:
        NearfarError: it is no JSON value; ``where`` begins the message.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if value - value != 0:
            raise NearfarError(f"{where}: {value} is not a finite number.")
        return float(value)
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise NearfarError(f"{where}: the key {name!r} must be a string.")
        return {name: _copy(one, f"{where}.{name}") for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(one, f"{where}[{number}]") for number, one in enumerate(value)]
    raise NearfarError(f"{where}: {type(value).__name__} is no JSON value; use numbers, strings, lists and tables.")
