"""A working directory with models to average."""

from pathlib import Path

import pytest

from tests.commands.soup.helpers import write_noisy
from tests.tiny import make_workspace


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory with ``a``, ``b``, ``c``: the encoder ``tiny`` with different noise in its weights."""
    monkeypatch.chdir(make_workspace(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    for number, name in enumerate("abc"):
        write_noisy(name, seed=number)
    return tmp_path
