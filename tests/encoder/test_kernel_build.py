"""Kernels are built once per machine; if that fails, one warning gives the reason and training uses plain torch."""

import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nearfar.encoder import kernels
from nearfar.encoder.kernels import build, kernels_status
from nearfar.runtime import machine
from tests.encoder.kernel_helpers import OUT, built, fallback_warning, next_process

Compiler = Callable[[str], Callable[[], list[str]]]
pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the compilers are shell scripts"),
    pytest.mark.usefixtures("new_cache"),
]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 3", "compiler: exit status 3."),
        (
            f'echo "In file of\n{build.SOURCE}:3:1: error: no vectors\nerror: 2" >&2; exit 1',
            "compiler: kernels.cpp:3:1: error: no vectors.",
        ),
        (OUT + 'echo "no library" > "$2"', "no library in the user's cache ("),
        (OUT + 'head -c 1000 /dev/zero > "$2"; kill -9 $$', "compiler: exit status -9."),
    ],
)
def test_a_compiler_error_is_reported_and_the_next_process_tries_again(
    script: str, message: str, compiler: Compiler, library: Path, tmp_path: Path
) -> None:
    calls = compiler(script)
    warning = fallback_warning()
    assert message in warning
    assert "NEARFAR_KERNELS=0 silences this" in warning
    assert len(calls()) == 1
    assert not list((tmp_path / "cache").rglob("kernels-build-*"))
    compiler(f'{OUT}cp {library} "$2"')
    next_process()
    built()


@pytest.mark.parametrize("program", ["/nowhere/c++", ""])
def test_without_a_compiler(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", program)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert f"no C++ compiler was found ({program or 'c++, '}" in fallback_warning()
    assert not (tmp_path / "cache").exists()


def test_built_once_or_on_request(
    compiler: Compiler, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = compiler(f'{OUT}cp {library} "$2"')
    for _ in range(2):
        built()
        next_process()
    assert len(calls()) == len(list((tmp_path / "cache" / "nearfar").iterdir())) == 1
    assert "-march=native" in calls()[0]
    assert kernels_status() == {"used": False, "why_not": "not needed"}  # which builds nothing
    monkeypatch.setenv("NEARFAR_KERNELS", "rebuild")
    built()
    assert len(calls()) == 2
    assert kernels_status() == {"used": True, "compiler": "compiler"}


@pytest.mark.long
@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs a compiler for x86")
def test_the_source_is_valid_for_avx_512() -> None:
    try:
        compiler = build.find_compiler()
    except build.KernelBuildError:
        pytest.skip("no C++ compiler")
    flags = [flag for flag in build.FLAGS if flag != "-march=native"]
    command = [*compiler, *flags, "-march=x86-64-v4", "-Werror", "-fsyntax-only", str(build.SOURCE)]
    subprocess.run(command, check=True)


def test_a_cache_from_another_machine_is_not_used(
    compiler: Compiler, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = compiler(f'{OUT}cp {library} "$2"')
    for times, flags in enumerate(("avx2 fma", "avx2 fma avx512f"), start=1):
        (tmp_path / "cpuinfo").write_text(f"model name\t: One\nflags\t\t: {flags}\n")
        monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
        next_process()
        built()
        assert len(calls()) == times
    assert len(list((tmp_path / "cache" / "nearfar").glob("*.so"))) == 2


def test_a_library_in_a_folder_that_others_can_change_is_not_loaded(
    compiler: Compiler, library: Path, tmp_path: Path
) -> None:
    compiler(f'{OUT}cp {library} "$2"')
    built()
    (tmp_path / "cache" / "nearfar").chmod(0o777)
    next_process()
    assert "is a link, or other users can write to it or replace it; set XDG_CACHE_HOME" in fallback_warning()


# --- where they are on, and what results say of them ---


@pytest.mark.parametrize(
    ("requested", "system", "flags", "why_off"),
    [
        ("", "linux", "avx2 avx512f", None),
        ("", "linux", "avx2", "off without Linux and AVX-512; NEARFAR_KERNELS=1 turns them on"),
        ("", "darwin", "", "off without Linux and AVX-512; NEARFAR_KERNELS=1 turns them on"),
        ("", "win32", "avx2 avx512f", "off without Linux and AVX-512; NEARFAR_KERNELS=1 turns them on"),
        ("1", "linux", "avx2", None),
        ("rebuild", "darwin", "", None),
        ("0", "linux", "avx2 avx512f", "NEARFAR_KERNELS=0"),
    ],
)
def test_they_are_on_with_avx_512_or_on_request(
    requested: str, system: str, flags: str, why_off: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEARFAR_KERNELS", requested)
    monkeypatch.setattr(machine, "SYSTEM", system)
    (tmp_path / "cpuinfo").write_text(f"flags\t\t: {flags}\n")
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    assert kernels_status() == {"used": False, "why_not": why_off or "not needed"}
    if why_off:
        assert kernels.kernels() is None
