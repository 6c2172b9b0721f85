"""Lets a command be called from Python with a config object or with the same settings as keyword arguments."""

import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import wraps
from inspect import BoundArguments, Parameter, Signature, signature
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from nearfar.config.encoder import fields_in_order
from nearfar.config.values import Settings, as_lists, make
from nearfar.types import NearfarError
from nearfar.validation import format_value, unknown_name_message

Result = TypeVar("Result")


def accepts_settings(
    kind: type[Settings], recommend: Callable[[Any], Mapping[str, Any]] | None = None
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Decorate a command whose parameter ``config`` is a ``kind``, so that settings can be given by name.

    These three calls are the same::

        encode("model", EncodeConfig(input="a.txt", output="a.npy"))
        encode("model", input="a.txt", output="a.npy")
        encode("model", EncodeConfig(input="a.txt", output="b.npy"), output="a.npy")

    A keyword overrides the value in ``config``. The command's other parameters keep their names, positions and
    defaults. Without a ``config``, settings that are not given are those that ``recommend`` returns for the config of
    the others, else the defaults. Values are checked as flags and TOML values are; in addition, one text or path may
    stand for a list of one. ``help()`` and :func:`inspect.signature` show every setting as a keyword with its type and
    default.

    Raises:
        NearfarError: from the decorated command, for a keyword that is neither a setting nor a parameter, a value that
            the setting does not take, a missing required setting, a ``config`` of another class, or something else than
            a text or path where a parameter is ``str | Path``.
        TypeError: from the decorated command, for too many or missing positional arguments, as in any Python call.
    """

    def decorate(command: Callable[..., Result]) -> Callable[..., Result]:
        own = signature(command)
        source = f"{command.__name__}()"

        @wraps(command)
        def call(*arguments: Any, **keywords: Any) -> Result:
            settings = {name: keywords.pop(name) for name in list(keywords) if name not in own.parameters}
            try:
                bound = own.bind_partial(*arguments, **keywords)
            except TypeError as error:
                raise TypeError(f"{source}: {error}; give settings by name") from None
            _check_paths(bound, source=source)
            known = [field.name for field in fields(kind)]
            for name in settings.keys() - known:
                names = [*known, *(other for other in own.parameters if other not in known)]
                raise NearfarError(f"{source}: {unknown_name_message(name, names, what='setting')}")
            given = bound.arguments.get("config")
            if given is not None and not isinstance(given, kind):
                raise NearfarError(
                    f"{source}: config must be a {kind.__name__}, not {type(given).__name__} {format_value(given)}. "
                    f"Give settings by name, as in {fields_in_order(kind)[0].name}=..."
                )
            settings = as_lists(kind, settings)
            config = make(kind, settings, source=source, given=given)
            if given is None and recommend is not None:
                config = make(kind, {**recommend(config), **settings}, source=source)
            bound.arguments["config"] = config
            return command(*bound.args, **bound.kwargs)

        call.__signature__ = with_settings(own, kind)  # type: ignore[attr-defined]
        return call

    return decorate


def _check_paths(bound: BoundArguments, *, source: str) -> None:
    """Refuse something else than a text or path, such as an open model, where a parameter names a file or folder."""
    for name, value in bound.arguments.items():
        parameter = bound.signature.parameters[name]
        for given in value if parameter.kind is Parameter.VAR_POSITIONAL else (value,):
            if parameter.annotation == str | Path and not isinstance(given, str | os.PathLike):
                kind = type(given).__name__
                raise NearfarError(f"{source}: {name} must be a name or a folder, not a {kind}; save it to one.")


def with_settings(own: Signature, kind: type[Settings]) -> Signature:
    """The command's signature with ``config`` optional, and every setting as a keyword."""
    hints = get_type_hints(kind)  # without bounds, which are Annotated
    parameters = dict(own.parameters)
    if "config" in parameters:
        parameters["config"] = parameters["config"].replace(default=None, annotation=kind | None)
    settings = [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields_in_order(kind)
        if field.name not in parameters
    ]
    return own.replace(parameters=sorted([*settings, *parameters.values()], key=lambda parameter: parameter.kind))
