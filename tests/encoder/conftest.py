"""Shared fixtures of these tests."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nearfar import Encoder
from nearfar.encoder import attention, dropout
from nearfar.runtime import machine
from tests.encoder.kernel_helpers import COMPILED, next_process
from tests.tiny import save_tiny


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny BERT and its tokenizer."""
    return save_tiny(tmp_path / "tiny")


@pytest.fixture
def encoder(folder: Path) -> Encoder:
    """An encoder with that tiny BERT."""
    return Encoder.from_pretrained(folder)


@pytest.fixture
def use_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels on any processor; plain torch if the test has the parameter ``implementation`` "plain"."""
    plain = "implementation" in request.fixturenames and request.getfixturevalue("implementation") == "plain"
    for module in (attention, dropout):
        monkeypatch.setattr(module, "kernels", lambda: None if plain else COMPILED)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small compiled library, the output of the fake compilers."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "tiny.cpp").write_text('extern "C" int answer() { return 42; }')
    command = ["c++", "-shared", "-fPIC", "-o", str(folder / "tiny.so"), str(folder / "tiny.cpp")]
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        pytest.skip("no C++ compiler")
    return folder / "tiny.so"


@pytest.fixture
def new_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty cache folder and kernels that are on for any processor, as in a new process on Linux."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("CXX", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NEARFAR_KERNELS", "1")
    monkeypatch.setattr(machine, "SYSTEM", "linux")
    next_process()
    yield
    next_process()


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Callable[[], list[str]]]:
    """Set CXX to a script; returns a function that lists the arguments of its calls."""

    def make(text: str) -> Callable[[], list[str]]:
        file, calls = tmp_path / "compiler", tmp_path / "calls"
        file.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n{text}\n')
        file.chmod(0o755)
        monkeypatch.setenv("CXX", str(file))
        return lambda: calls.read_text().splitlines() if calls.exists() else []

    return make
