"""From the arguments of ``nearfar.train`` to the config of a run: a method, a TOML file or a config, and settings."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nearfar.commands.train.choose import choose_method
from nearfar.config.files import build, check_keys, check_values, load_method
from nearfar.config.training import TrainConfig
from nearfar.config.values import Settings, field_types
from nearfar.registry import METHODS

SOURCE = "train()"
"""Where values come from, in messages."""


def resolve_config(method: TrainConfig | str | os.PathLike[str] | None, settings: Mapping[str, Any]) -> TrainConfig:
    """The config of the run that ``nearfar.train(method, **settings)`` asks for.

    ``settings`` override the values of a file or config. A single text or path may stand for a tuple of one. Without a
    method, the columns of ``data`` choose one.

    Raises:
        NearfarError: no such method or file; a setting that the method does not have, with the nearest one; a value of
            the wrong type or out of bounds; a setting that is required and missing.
    """
    if isinstance(method, TrainConfig):
        given = _sequences(type(method), settings)
        return replace(method, **check_values(type(method), given, source=SOURCE)) if given else method
    if method is None:
        data = check_values(TrainConfig, _sequences(TrainConfig, {"data": settings.get("data", ())}), source=SOURCE)
        choice = choose_method(data["data"], settings, model=os.fspath(settings.get("model", TrainConfig.model)))
        kind = METHODS[choice.method]
        return build(kind, {**choice.values, **_sequences(kind, settings)}, source=SOURCE)
    name = os.fspath(method)
    kind, values = load_method(name)
    check_keys(kind, settings, source=SOURCE)
    if not values:
        return build(kind, _sequences(kind, settings), source=SOURCE)
    own = check_values(kind, _sequences(kind, settings), source=SOURCE)
    return build(kind, {**values, **own}, source=name)


def _sequences(kind: type[Settings], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, with a single text or path made a tuple where the setting is a tuple."""
    types = field_types(kind)
    return {
        name: (value,) if isinstance(value, str | os.PathLike) and name in types and types[name].is_sequence else value
        for name, value in settings.items()
    }
