"""Fixtures of the tests in this folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

Calls = list[tuple[str, str | None, str | None]]
Answer = Callable[[str, str | None, str | None], Any]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder; the hub is offline."""
    monkeypatch.setenv("NEARFAR_DATA", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


@pytest.fixture
def fake_hub(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], Calls]:
    """A function that answers for the hub, by name, config and split; it returns the list of all calls."""

    def install(answer: Answer) -> Calls:
        calls: Calls = []

        def load_dataset(name: str, config: str | None, *, split: str | None) -> Any:
            calls.append((name, config, split))
            return answer(name, config, split)

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        return calls

    return install
