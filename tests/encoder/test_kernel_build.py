"""Kernels are built once per machine; if that fails, one warning gives the reason and training uses plain torch."""

import json
import platform
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from nearfar.disk import is_private
from nearfar.encoder import kernels
from nearfar.encoder.kernels import build, kernels_status
from nearfar.runtime import machine
from nearfar.types import NearfarError
from tests.encoder.kernel_helpers import OUT, built, cached, fallback_warning, next_process

Compiler = Callable[[str], Callable[[], list[str]]]
pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the compilers are shell scripts"),
    pytest.mark.usefixtures("new_cache"),
]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 3", "compiler: exit status 3."),
        ("exit 0", "compiler: gave no library and no message."),
        ('echo "Killed by a monster" >&2; exit 1', "compiler: Killed by a monster."),
        (
            f'echo "In file of\n{build.SOURCE}:3:1: error: no vectors\nerror: 2" >&2; exit 1',
            "compiler: kernels.cpp:3:1: error: no vectors.",
        ),
        ('echo "cc1plus: unrecognized option" && exit 1', "compiler: cc1plus: unrecognized option."),
        (OUT + 'head -c 1000 /dev/zero > "$2"; echo "error: full" >&2; exit 1', "compiler: error: full."),
        (OUT + 'echo "no library" > "$2"', "cannot be loaded ("),
    ],
)
def test_a_compiler_error_is_reported_and_cached(script: str, message: str, compiler: Compiler, tmp_path: Path) -> None:
    calls = compiler(script)
    assert message in fallback_warning()
    assert len(calls()) == 1
    next_process()
    assert message in fallback_warning()
    assert len(calls()) == 1, "the second process compiled again"
    assert not list((tmp_path / "cache").rglob("kernels-build-*"))


def test_a_failed_compiler_is_tried_again_on_request_or_after_a_change(
    compiler: Compiler, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler("exit 1")
    assert "NEARFAR_KERNELS=0 silences this" in fallback_warning()
    next_process()
    assert "NEARFAR_KERNELS=rebuild tries again" in fallback_warning()
    calls = compiler(f'{OUT}cp {library} "$2"')  # another file
    next_process()
    built()
    monkeypatch.setenv("NEARFAR_KERNELS", "rebuild")
    before = len(calls())
    next_process()
    built()
    assert len(calls()) == before + 1


def test_a_killed_compiler_is_tried_again(compiler: Compiler, tmp_path: Path) -> None:
    calls = compiler(OUT + 'head -c 1000 /dev/zero > "$2"; kill -9 $$')
    for times in (1, 2):
        assert "compiler was killed by signal 9" in fallback_warning()
        assert len(calls()) == times
        next_process()
    assert cached(tmp_path, ".so") == cached(tmp_path, ".json") == []


@pytest.mark.parametrize(
    ("program", "message"),
    [("/nowhere/c++", "CXX is /nowhere/c++, but there is no such program"), ("", "no C++ compiler was found")],
)
def test_without_a_compiler(program: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", program)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert message in fallback_warning()
    assert not (tmp_path / "cache").exists()


def test_only_the_first_of_several_processes_warns(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler("exit 1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kernels.kernels() is None


def test_built_once(compiler: Compiler, library: Path, tmp_path: Path) -> None:
    calls = compiler(f'{OUT}cp {library} "$2"')
    for _ in range(2):
        built()
        next_process()
    assert len(calls()) == 1
    assert "-march=native" in calls()[0]
    assert "-fopenmp" in calls()[0]
    assert len(list((tmp_path / "cache" / "nearfar").iterdir())) == 2  # the library and its record
    assert kernels_status() == {"used": False, "why_not": "not needed"}  # which builds nothing
    built()
    assert machine.provenance_info()["kernels"] == {"used": True, "compiler": "fake c++ 1.0"}


@pytest.mark.long
def test_the_default_compiler_builds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    if not any(map(build.shutil.which, build.COMPILERS)):
        pytest.skip("no C++ compiler")
    monkeypatch.setattr(build, "FLAGS", ("-O0", *build.FLAGS[1:]))
    built()
    library = kernels._built()[0].library  # type: ignore[union-attr]
    for part in ("drop", "attend", "attend_backward"):
        for dtype in kernels.DTYPES.values():
            name = f"{part}_{dtype}" + ("_64" if part.startswith("attend") else "")
            assert getattr(library, name)


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


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[:1000],
    "zeros": lambda content: b"\x00" * len(content),
    "missing": lambda content: b"",
}
RECORDS = ("", "[]", '{"library": "x.so"}', '{"err": "?"}')
OTHER_FILES = ("../evil.so", "/evil.so", "evil.so")


@pytest.mark.parametrize("damage", [*DAMAGES, *RECORDS, *OTHER_FILES])
def test_a_damaged_cache_is_rebuilt(damage: str, compiler: Compiler, library: Path, tmp_path: Path) -> None:
    calls = compiler(f'{OUT}cp {library} "$2"')
    built()
    (file,), (record,) = cached(tmp_path, ".so"), cached(tmp_path, ".json")
    content = file.read_bytes()
    if damage in DAMAGES:
        file.unlink()  # this process has mapped it: what is written into it would be executed as the process ends
        if damaged := DAMAGES[damage](content):
            file.write_bytes(damaged)
    elif damage in RECORDS:
        record.write_text(damage)
    else:  # a record that names a library of somebody else's
        (file.parent / "evil.so").write_bytes(content)
        (tmp_path / "cache" / "evil.so").write_bytes(content)
        record.write_text(json.dumps(json.loads(record.read_text()) | {"library": damage}))
    next_process()
    built()
    assert len(calls()) == 2
    next_process()
    built()
    assert len(calls()) == 2


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
    assert len(cached(tmp_path, ".json")) == 2


def _link(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))


MAKE_UNTRUSTED: dict[str, Callable[[Path], None]] = {
    "open to all": lambda folder: folder.chmod(0o777),
    "open to the group": lambda folder: folder.chmod(0o770),
    "a link": _link,
    "replaceable": lambda folder: folder.parent.chmod(0o777),
}


@pytest.mark.parametrize("kind", [*MAKE_UNTRUSTED, "of another user"])
def test_a_library_in_a_folder_that_others_can_change_is_not_loaded(
    kind: str, compiler: Compiler, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user could replace library and record together. A private temporary folder is used instead."""
    calls = compiler(f'{OUT}cp {library} "$2"')
    built()
    folder = tmp_path / "cache" / "nearfar"
    if kind == "of another user":
        monkeypatch.setattr(build, "is_private", lambda path: path != folder and is_private(path))
    else:
        MAKE_UNTRUSTED[kind](folder)
    next_process()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert kernels.kernels() is not None
    (message,) = (str(one.message) for one in caught)
    assert message.startswith(f"{folder} is a link, or other users can write to it or replace it: ")
    assert len(calls()) == 2, "the library in the folder was loaded"
    (private,) = (tmp_path / "tmp").iterdir()
    assert is_private(private)
    next_process()
    built()
    assert len(calls()) == 2


# --- where they are on, and what results say of them ---


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


def test_another_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARFAR_KERNELS", "attention")
    with pytest.raises(NearfarError, match="NEARFAR_KERNELS=attention: must be 0"):
        kernels.kernels()
