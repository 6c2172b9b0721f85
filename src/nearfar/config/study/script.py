"""The settings of a step that runs a Python script of the study's author."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nearfar.config.bounds import File, Seed
from nearfar.config.files import build
from nearfar.config.values import Settings
from nearfar.types import NearfarError
from nearfar.validation import format_value

Argument: TypeAlias = "str | int | float | bool | tuple[str | int | float, ...]"
DATA_ARGUMENTS = ("data", "evaluate_on")
"""Arguments that name data sets: their content is part of the key of the job."""
_FLAG = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
_GIVEN = ("model", "output")
"""Flags that the study decides."""


@dataclass(frozen=True, kw_only=True)
class _Fixed(Settings):
    """The keys of the step that are not arguments of the script, with their types."""

    file: File
    numbers: tuple[str, ...] = ()
    seed: Seed = 1


@dataclass(frozen=True, kw_only=True)
class ScriptConfig(Settings):
    """Run ``python FILE --model START --output FOLDER --seed N --KEY VALUE ...``, which writes ``FOLDER/model``."""

    file: str
    """The script, relative to the folder of the study file."""
    numbers: tuple[str, ...] = ()
    """Numbers that the script writes into ``FOLDER/numbers.json``; each is a column of the study."""
    seed: int = 1
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    """Name of a flag, with underscores -> its value: a text, a number, true for a flag without value, or a list."""

    def __post_init__(self) -> None:
        """Values are checked by :func:`script_config`: the arguments have no declared types."""

    def command(self) -> list[str]:
        """The arguments as words: ``--learning-rate 2e-05 --languages de fr``."""
        words: list[str] = []
        for name, value in self.arguments.items():
            if value is False:
                continue
            words.append("--" + name.replace("_", "-"))
            if isinstance(value, tuple):
                words += map(str, value)
            elif value is not True:
                words.append(str(value))
        return words


def script_config(values: Mapping[str, Any], *, source: str) -> ScriptConfig:
    """The checked settings of a script step.

    Raises:
        NearfarError: no file; a key that is no name of a flag, or that the study decides; a value that is no text,
            number, boolean or list of texts and numbers.
    """
    names = ("file", "numbers", "seed")
    fixed = build(_Fixed, {name: values[name] for name in names if name in values}, source=source)
    arguments: dict[str, Argument] = {}
    for key, value in values.items():
        if key in names:
            continue
        if not _FLAG.fullmatch(key):
            raise NearfarError(
                f"{source}: {key!r} is no name of a flag; use lower-case letters, digits, '-' and '_', as in "
                "learning_rate = 2e-5 for --learning-rate."
            )
        name = key.replace("-", "_")
        if name in _GIVEN:
            raise NearfarError(f"{source}: {key} is set by the study; leave it out.")
        if name in arguments:
            raise NearfarError(f"{source}: {key} is given twice, with '-' and with '_'.")
        arguments[name] = _argument(key, value, source)
    return ScriptConfig(file=fixed.file, numbers=fixed.numbers, seed=fixed.seed, arguments=arguments)


def _argument(key: str, value: Any, source: str) -> Argument:
    several = isinstance(value, list | tuple)
    parts = list(value) if several else [value]
    if not parts or any(not isinstance(one, str | int | float) or (several and isinstance(one, bool)) for one in parts):
        raise NearfarError(
            f"{source}: {key} = {format_value(value)}: must be a text, a number, true, false, or a list of texts and "
            "numbers."
        )
    return tuple(parts) if several else value
