"""Kernels are built once for a machine, and training goes on without them where they can't be."""

import subprocess
import sys
from pathlib import Path

import pytest

from nearfar.encoder import kernels as module
from nearfar.encoder.kernels import kernels


@pytest.fixture(autouse=True)
def anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("NEARFAR_KERNELS", raising=False)
    monkeypatch.setattr(module, "kernels", kernels.__wrapped__)


def fake_compiler(folder: Path, text: str) -> str:
    file = folder / "compiler"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


@pytest.mark.skipif(sys.platform != "linux", reason="kernels are for Linux")
def test_without_a_compiler_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    assert module.kernels() is None
    assert not (tmp_path / "nearfar").exists()


@pytest.mark.parametrize("does", ["exit 1", "[ $1 = --version ] || exit 1", "exit 0"])
def test_a_compiler_that_fails_is_no_error(does: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", fake_compiler(tmp_path, does))
    assert module.kernels() is None
    assert not list(tmp_path.rglob("*.so"))


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARFAR_KERNELS", "0")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("built"))
    assert module.kernels() is None


@pytest.mark.skipif(kernels() is None, reason="no compiler to build the kernels with")
def test_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = tmp_path / "said"
    monkeypatch.setenv("CXX", fake_compiler(tmp_path, f'echo "$@" >> {said}; exec c++ "$@" -O0'))
    for _ in range(2):
        assert module.kernels() is not None
    calls = said.read_text().splitlines()
    assert sum("kernels.cpp" in call for call in calls) == 1
    assert len(list((tmp_path / "nearfar").iterdir())) == 1
