"""The public API: every name of ``nearfar`` can be imported, and importing the package loads nothing heavy."""

import dataclasses
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import nearfar
from nearfar import cli, config
from nearfar.config.training import RunConfig
from nearfar.config.values import Settings
from nearfar.registry import METHODS

OTHERWISE = {"train", "adapt", "tune"}
"""Verbs whose settings are those of a method."""


def run(code: str) -> str:
    """Return the output of ``code`` in a new process."""
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.mark.parametrize(("module", "allowed"), [("nearfar", set()), ("nearfar.mteb", {"numpy"})])
def test_import_loads_nothing_heavy(module: str, allowed: set[str]) -> None:
    configs = "[getattr(nearfar, name) for name in nearfar.__all__ if name.endswith('Config')]"
    loaded = run(f"import sys, nearfar, {module}; dir(nearfar); {configs}; print(*sys.modules)").split()
    assert module in loaded
    heavy = {"torch", "numpy", "transformers", "datasets", "rich", "sklearn", "sentence_transformers", "mteb"}
    assert not (heavy - allowed) & set(loaded)


def test_every_name_exists_and_has_a_docstring() -> None:
    for name in nearfar.__all__:
        found = getattr(nearfar, name)
        assert found.__name__ == name
        assert (inspect.getdoc(found) or "").strip(), name
        assert name in dir(nearfar)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'nearfar' has no attribute 'trian'"):
        nearfar.trian  # noqa: B018


def test_every_config_class_of_a_command_or_method_is_public() -> None:
    modules = [import_module(f"nearfar.config.{file.stem}") for file in Path(config.__file__).parent.glob("[a-z]*.py")]
    kinds = {kind for module in modules for name, kind in vars(module).items() if name.endswith("Config")} - {RunConfig}
    assert len(kinds) > 15
    assert all(getattr(nearfar, kind.__name__) is kind for kind in kinds | set(METHODS.values()))


def test_every_verb_is_a_public_function_and_one_of_its_group_s_module() -> None:
    for verb, entry in cli.VERBS.items():
        name = verb.replace("-", "_")
        assert name in nearfar.__all__
        assert callable(getattr(import_module(f"nearfar.cli.{entry.group.lower()}"), name))


def test_a_command_shows_its_settings() -> None:
    for verb in set(cli.VERBS) - OTHERWISE:
        shown = inspect.signature(getattr(nearfar, verb.replace("-", "_"))).parameters
        settings: type[Settings] = getattr(nearfar, f"{verb.title().replace('-', '')}Config")
        assert shown["config"].default is None, verb
        for field in dataclasses.fields(settings):
            expected: Any = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
            assert shown[field.name].kind is inspect.Parameter.KEYWORD_ONLY, (verb, field.name)
            assert shown[field.name].default == expected, (verb, field.name)
            assert "Bounds object" not in str(shown[field.name]), (verb, field.name)


def test_help_lists_every_verb_once_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    for verb in cli.VERBS:
        assert len(re.findall(rf"^  {verb}\b", text, re.MULTILINE)) == 1, verb
    words = text.replace(",", " ").split()
    assert set(METHODS) <= set(words)
    assert max(map(len, text.splitlines())) <= 100
    assert re.findall(r"^(\w+):$", text, re.MULTILINE) == ["Train", "Evaluate", "Use", "Other", "Methods"]
