"""Configs from and to TOML and plain values, with errors that name the key and the nearest one."""

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import MISSING, asdict, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args

from nearfar.config.finetune import FinetuneConfig, FinetuneStudyConfig
from nearfar.config.methods import METHODS
from nearfar.config.training import RunConfig
from nearfar.config.verbs import BackTranslateConfig, CompareConfig, EncodeConfig, EvaluateConfig, PredictConfig
from nearfar.types import NearfarError

Config = TypeVar(
    "Config", bound=RunConfig | EvaluateConfig | CompareConfig | EncodeConfig | PredictConfig | BackTranslateConfig
)

FINETUNE = "scl-finetune"
FINETUNE_STUDY = "scl-finetune-study"
"""The methods of configs for ``nearfar finetune``; the others, :data:`METHODS`, are for ``nearfar train``."""

_KINDS: dict[str, type[RunConfig]] = {**METHODS, FINETUNE: FinetuneConfig, FINETUNE_STUDY: FinetuneStudyConfig}


def load_toml(file: str | Path) -> tuple[type[RunConfig], dict[str, Any]]:
    """Method class and values of a run's config file; the values are checked by :func:`build`.

    Raises:
        NearfarError: no such file, no TOML, no or an unknown ``method``.
    """
    try:
        values = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise NearfarError(f"{file}: cannot be read as TOML: {error}") from error
    method = values.pop("method", None)
    if method is None:
        raise NearfarError(f"{file}: lacks the key 'method' (one of {', '.join(_KINDS)}).")
    if method not in _KINDS:
        raise NearfarError(f"{file}: {nearest(str(method), _KINDS, what='method')}")
    return _KINDS[method], values


def method_of(config: RunConfig) -> str:
    """The method's name, as a config file has it.

    Raises:
        NearfarError: a config of no method, as is one that several methods share.
    """
    for name, kind in _KINDS.items():
        if type(config) is kind:
            return name
    raise NearfarError(f"{type(config).__name__} is no method's config. The methods are {', '.join(_KINDS)}.")


def build(kind: type[Config], values: Mapping[str, Any], *, source: str | Path) -> Config:
    """A config from plain values, types checked.

    Raises:
        NearfarError: an unknown key (with the nearest valid one), a value of the wrong type, or a key that is missing.
    """
    check_keys(kind, values, source=source)
    nullable = {field.name for field in fields(kind) if type(None) in get_args(field.type)}
    values = {key: None if value == "none" and key in nullable else value for key, value in values.items()}
    missing = [field.name for field in fields(kind) if field.default is MISSING and field.name not in values]
    if missing:
        raise NearfarError(f"{source}: lacks {', '.join(missing)}.")
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        raise NearfarError(f"{source}: {first['loc'][0]} = {first['input']!r}: {first['msg']}.") from error


def check_keys(kind: type[Config], values: Mapping[str, Any], *, source: str | Path) -> None:
    """Refuse keys that ``kind`` does not have."""
    names = [field.name for field in fields(kind)]
    for key in values:
        if key not in names:
            raise NearfarError(f"{source}: {nearest(key, names, what='key')}")


def dump_toml(config: RunConfig, *, without: Collection[str] = ()) -> str:
    """The resolved config as TOML that :func:`load_toml` reads back, but for the keys ``without``.

    TOML has no null: a setting left open (None) is left out, or "none" where the method's default is something else.
    """
    import tomli_w

    values = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
    defaults = {field.name: field.default for field in fields(config)}
    kept = {
        key: "none" if value is None else value
        for key, value in values.items()
        if key not in without and (value != defaults[key] or value)
    }
    return tomli_w.dumps({"method": method_of(config), **kept})


def nearest(name: str, known: Mapping[str, object] | list[str], *, what: str) -> str:
    """A sentence that refuses ``name`` and offers the nearest known one."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}."
    return f"no {what} is called {name!r}. {hint}"
