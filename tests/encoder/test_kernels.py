"""Where the kernels are on, and their status in results."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nearfar.encoder import kernels
from nearfar.encoder.kernels import kernels_status
from nearfar.runtime import machine
from nearfar.types import NearfarError
from tests.encoder.kernel_helpers import OUT

Compiler = Callable[[str], Callable[[], list[str]]]
pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the compilers are shell scripts"),
    pytest.mark.usefixtures("new_cache"),
]


@pytest.mark.parametrize(
    ("requested", "system", "flags", "used"),
    [
        ("", "linux", "avx2 avx512f", True),
        ("", "linux", "avx2", False),
        ("", "win32", "avx2 avx512f", False),
        ("", "darwin", "", False),
        ("1", "linux", "avx2", True),
        ("1", "darwin", "", True),
        ("1", "win32", "avx2 avx512f", False),
        ("rebuild", "linux", "avx2", True),
        ("0", "linux", "avx2 avx512f", False),
    ],
)
def test_they_are_on_with_avx_512_or_on_request(
    requested: str,
    system: str,
    flags: str,
    used: bool,
    compiler: Compiler,
    library: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = compiler(f'{OUT}cp {library} "$2"')
    monkeypatch.setenv("NEARFAR_KERNELS", requested)
    monkeypatch.setattr(machine, "SYSTEM", system)
    (tmp_path / "cpuinfo").write_text(f"flags\t\t: {flags}\n")
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    assert (kernels.kernels() is not None) == used
    assert len(calls()) == used
    status = kernels_status()
    assert status["used"] == used
    assert used or status["why_not"] in (
        "NEARFAR_KERNELS=0",
        "off on Windows",
        "off without Linux and AVX-512; NEARFAR_KERNELS=1 turns them on",
    )


def test_they_are_off_where_torch_is_limited_to_avx2(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NEARFAR_KERNELS")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    (tmp_path / "cpuinfo").write_text("flags\t\t: avx2 avx512f\n")
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    assert kernels.kernels() is None


def test_another_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARFAR_KERNELS", "attention")
    with pytest.raises(NearfarError, match="NEARFAR_KERNELS=attention: must be 0"):
        kernels.kernels()


def test_the_status_builds_nothing(compiler: Compiler) -> None:
    calls = compiler("exit 1")
    assert kernels_status() == {"used": False, "why_not": "not needed"}
    assert not calls()


def test_results_record_the_kernels(compiler: Compiler, library: Path) -> None:
    from nearfar.evaluation.results import provenance

    compiler(f'{OUT}cp {library} "$2"')
    kernels.kernels()
    assert provenance().kernels == {"used": True, "compiler": "fake c++ 1.0"}
