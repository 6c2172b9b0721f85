"""Methods of installed packages: found by their entry points; one that is broken is a warning, and no other is lost."""

import importlib.metadata
import warnings
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from nearfar import InfoNceConfig, registry
from nearfar.registry import METHODS, MethodEntry, find_entry


@dataclass(frozen=True, kw_only=True)
class ToyConfig(InfoNceConfig):
    """toy: the settings of a method from outside."""


ENTRY = MethodEntry(config=ToyConfig, read_rows=lambda config: None, build=lambda config, context, rows: None)


def install(monkeypatch: pytest.MonkeyPatch, **loads: object) -> None:
    """Entry points of these names; an exception is raised as the entry point is loaded."""

    def load(found: object) -> object:
        if isinstance(found, Exception):
            raise found
        return found

    points = [
        SimpleNamespace(name=name, value=f"package:{name}", load=lambda found=found: load(found))
        for name, found in loads.items()
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points if group == "nearfar.methods" else [])
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(registry, "_searched", [])


def test_a_method_of_an_installed_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, toy=ENTRY)
    assert find_entry("toy") == ENTRY
    assert METHODS["toy"] is ToyConfig
    assert "toy" in list(METHODS)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (ImportError("No module named 'package'"), "No module named 'package'"),
        ({"config": ToyConfig}, "is dict, not a nearfar.registry.MethodEntry"),
    ],
)
def test_a_broken_entry_point_is_a_warning(found: object, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, broken=found, toy=ENTRY)
    with pytest.warns(UserWarning, match=r"the method 'broken' \(package:broken\) cannot be loaded: ") as caught:
        assert "toy" in list(METHODS)
    assert reason in str(caught[0].message)
    assert "broken" not in list(METHODS)
    assert "scl" in list(METHODS)


def test_a_registered_method_hides_the_entry_point_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, toy=RuntimeError("never loaded"))
    registry.register_method("toy", config=ToyConfig, read_rows=ENTRY.read_rows, build=ENTRY.build)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert METHODS["toy"] is ToyConfig
        assert list(METHODS).count("toy") == 1


def test_an_unknown_method_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    assert find_entry("toy") is None
    with pytest.raises(KeyError, match="toy"):
        METHODS["toy"]
