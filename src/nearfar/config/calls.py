"""Calls from Python: a command takes its config object, or the same settings as keyword arguments."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

from nearfar.config.files import build, check_values
from nearfar.config.values import Settings

Result = TypeVar("Result")


def accepts_settings(kind: type[Settings]) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Decorate a command whose parameter ``config`` is a ``kind``, so that settings can be given by name.

    ``evaluate(model, EvaluateConfig(seed=1))``, ``evaluate(model, seed=1)`` and ``evaluate(model, config, seed=1)`` are
    then the same; a keyword overrides the config's value. Parameters of the command that are no settings keep their
    names. Values are checked as flags and TOML values are.

    Raises:
        NearfarError: a keyword that is neither a setting nor a parameter; a value that its setting does not take.
    """

    def decorate(command: Callable[..., Result]) -> Callable[..., Result]:
        parameters = signature(command)

        @wraps(command)
        def call(*arguments: Any, **keywords: Any) -> Result:
            named = {name: keywords.pop(name) for name in list(keywords) if name not in parameters.parameters}
            bound = parameters.bind_partial(*arguments, **keywords)
            source = f"{command.__name__}()"
            config = bound.arguments.get("config")
            if config is None:
                config = build(kind, named, source=source)
            elif named:
                config = replace(config, **check_values(kind, named, source=source))
            bound.arguments["config"] = config
            return command(*bound.args, **bound.kwargs)

        return call

    return decorate
