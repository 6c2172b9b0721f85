"""Settings from and to TOML and plain values, with errors that name the key, the nearest one and whose it is.

This is above the registry: a file names its method, and a key that a class lacks may be that of a method.
"""

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from nearfar.config.training import RunConfig, TrainConfig
from nearfar.config.values import Settings, convert_values, field_types, make
from nearfar.registry import METHODS, all_methods, find_entry, name_of
from nearfar.types import NearfarError
from nearfar.validation import format_value, unknown_name_message

Config = TypeVar("Config", bound=Settings)
MAX_CONFIG_BYTES = 2**20
"""Bytes of a config file; a larger file is something else."""


def read_toml(file: str | Path) -> dict[str, Any]:
    """The keys and values of a TOML file; they are not checked.

    Raises:
        NearfarError: no such file, no TOML, or too large for settings.
    """
    path = Path(file)
    try:
        if not path.is_file() and path.exists():  # a pipe or device could be read for ever
            raise ValueError("it is no file")
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise ValueError(f"it has over {MAX_CONFIG_BYTES:,} bytes, too many for settings")
        return tomllib.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:  # tomllib's own errors among them
        problem = getattr(error, "strerror", None) or str(error)
        raise NearfarError(f"{file}: cannot be read as TOML: {problem.rstrip('.')}.") from error


def load_toml(file: str | Path) -> tuple[type[RunConfig], dict[str, Any]]:
    """Method class and values of a run's config file; the values are checked by :func:`build`.

    Raises:
        NearfarError: no such file, no TOML, no or an unknown ``method``.
    """
    values = read_toml(file)
    method = values.pop("method", None)
    entry = find_entry(method) if isinstance(method, str) else None
    if entry is not None:
        return entry.config, values
    known = all_methods()
    if isinstance(method, str):
        raise NearfarError(f"{file}: {unknown_name_message(method, known, what='method')}")
    found = "lacks the key 'method'" if method is None else f"method = {format_value(method)}: must be a text"
    raise NearfarError(f"{file}: {found} (one of {', '.join(known)}).")


def load_method(method_or_file: str) -> tuple[type[TrainConfig], dict[str, Any]]:
    """The config class of a method of ``nearfar train``, by its name or by its TOML file, and the file's values.

    Raises:
        NearfarError: no such method, no such file, or a method of ``nearfar finetune``.
    """
    if method_or_file.endswith(".toml"):
        kind, values = load_toml(method_or_file)
        if not issubclass(kind, TrainConfig):
            raise NearfarError(
                f"{method_or_file}: is a config for fine-tuning a classifier; use nearfar finetune {method_or_file}"
            )
        return kind, values
    if method_or_file in METHODS:
        return METHODS[method_or_file], {}
    if method_or_file in all_methods():
        raise NearfarError(f"{method_or_file} fine-tunes a classifier; use nearfar finetune TASK|FILE --output RUN")
    raise NearfarError(unknown_name_message(method_or_file, METHODS, what="method"))


def method_of(config: RunConfig) -> str:
    """The name of the method whose settings ``config`` holds, as a config file has it.

    Raises:
        NearfarError: the class of ``config`` belongs to no method.
    """
    name = name_of(type(config))
    if name is None:
        raise NearfarError(
            f"{type(config).__name__} is no method's config. The methods are {', '.join(all_methods())}."
        )
    return name


def build(kind: type[Config], values: Mapping[str, Any], *, source: str | Path) -> Config:
    """A config from plain values, which are checked as a file's.

    Raises:
        NearfarError: an unknown key (with the nearest valid one), a value of the wrong type or out of bounds, or a key
            that is missing.
    """
    check_keys(kind, values, source=source)
    return make(kind, values, source=source)


def check_values(kind: type[Settings], values: Mapping[str, Any], *, source: str | Path) -> dict[str, Any]:
    """The values of a file, each checked by itself, as the config has them; "none" stands for None.

    Raises:
        NearfarError: an unknown key, or a value of the wrong type or out of bounds.
    """
    check_keys(kind, values, source=source)
    return convert_values(kind, values, source=source)


def check_keys(kind: type[Settings], values: Mapping[str, Any], *, source: str | Path) -> None:
    """Refuse keys that ``kind`` does not have."""
    names = [field.name for field in fields(kind)]
    for key in values:
        if key not in names:
            others = [name for name in METHODS if key in field_types(METHODS[name])]
            belongs = f" {key!r} is a setting of {', '.join(others)}." if others else ""
            raise NearfarError(f"{source}: {unknown_name_message(key, names, what='key')}{belongs}")


def dump_toml(config: RunConfig) -> str:
    """The resolved config as TOML that :func:`load_toml` reads back."""
    import tomli_w

    return tomli_w.dumps(as_table(config))


def as_table(config: RunConfig, *, without: Collection[str] = ()) -> dict[str, Any]:
    """The method of a config and its settings as a TOML table has them, but for the keys ``without``.

    TOML has no null: a setting left open (None) is left out, or "none" where the method's default is something else.
    """
    values = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
    defaults = {field.name: field.default for field in fields(config)}
    kept = {
        key: "none" if value is None else value
        for key, value in values.items()
        if key not in without and (value != defaults[key] or value)
    }
    return {"method": method_of(config), **kept}
