"""Kernels are built once for a machine; where they cannot be, one line says why and training goes on without them."""

import os
import stat
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from nearfar.encoder import kernel_build, kernels
from nearfar.encoder.kernels import KERNEL_NAMES, kernels_status
from nearfar.runtime import machine
from nearfar.types import NearfarError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the compilers are shell scripts")
VERSION = '[ "$1" = --version ] && { echo "fake c++ 1.0"; exit; }\n'
OUT = 'while [ "$1" != -o ]; do shift; done\n'


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that a compiler could have made."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "tiny.cpp").write_text('extern "C" int answer() { return 42; }')
    command = ["c++", "-shared", "-fPIC", "-o", str(folder / "tiny.so"), str(folder / "tiny.cpp")]
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        pytest.skip("no C++ compiler")
    return folder / "tiny.so"


@pytest.fixture(autouse=True)
def _anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    for name in ("NEARFAR_KERNELS", "NEARFAR_KERNELS_MARCH", "CXX", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(machine, "SYSTEM", "linux")
    monkeypatch.setattr(kernels, "_used", set())
    next_process()
    yield
    next_process()


def next_process() -> None:
    """Forget what this process found out."""
    kernels.kernels.cache_clear()
    kernels._built.cache_clear()


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Callable[[], list[str]]]:
    """Make CXX a script; gives what lists the flags of its calls, those for its version left out."""

    def make(text: str) -> Callable[[], list[str]]:
        file, calls = tmp_path / "compiler", tmp_path / "calls"
        file.write_text(f'#!/bin/sh\n{VERSION}echo "$@" >> {calls}\n{text}\n')
        file.chmod(0o755)
        monkeypatch.setenv("CXX", str(file))
        return lambda: calls.read_text().splitlines() if calls.exists() else []

    return make


def fallback_warning() -> str:
    """The kernels are not there: the one line that says so."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert kernels.kernels() is None
        assert kernels.kernels("dropout") is None
    assert len(said) == 1
    line = str(said[0].message)
    assert "\n" not in line
    assert line.startswith("the compiled kernels are not used: ")
    told = kernels_status()
    assert told["used"] == []
    assert told["why_not"] in line
    return line


def built() -> None:
    """The kernels are there, and nothing is said."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kernels.kernels() is not None


def cached(tmp_path: Path, kind: str) -> list[Path]:
    return sorted((tmp_path / "cache").rglob(f"*{kind}"))


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("exit 3", "compiler: ended with 3."),
        ("exit 0", "compiler: gave no library and no message."),
        ('echo "Killed by a monster" >&2; exit 1', "compiler: Killed by a monster."),
        (
            f'echo "In file of\n{kernel_build.SOURCE}:3:1: error: no vectors\nerror: 2" >&2; exit 1',
            "compiler: kernels.cpp:3:1: error: no vectors.",
        ),
        ('echo "cc1plus: unrecognized option" && exit 1', "compiler: cc1plus: unrecognized option."),
        (OUT + 'head -c 1000 /dev/zero > "$2"; echo "error: full" >&2; exit 1', "compiler: error: full."),
        (OUT + 'echo "no library" > "$2"', "cannot be loaded ("),
    ],
)
def test_a_compiler_that_fails_is_told_and_remembered(
    script: str, says: str, compiler: Callable[[str], Callable[[], list[str]]], tmp_path: Path
) -> None:
    calls = compiler(script)
    assert says in fallback_warning()
    assert len(calls()) == 1
    next_process()
    assert says in fallback_warning()
    assert len(calls()) == 1, "the second process compiled again"
    assert not list((tmp_path / "cache").rglob("kernels-build-*"))


def test_a_compiler_that_fails_is_tried_again_when_asked_or_changed(
    compiler: Callable[[str], Callable[[], list[str]]], library: Path, monkeypatch: pytest.MonkeyPatch
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


def test_a_compiler_that_is_killed_half_way_is_tried_again(
    compiler: Callable[[str], Callable[[], list[str]]], tmp_path: Path
) -> None:
    calls = compiler(OUT + 'head -c 1000 /dev/zero > "$2"; kill -9 $$')
    for times in (1, 2):
        assert "compiler was killed by signal 9" in fallback_warning()
        assert len(calls()) == times
        next_process()
    assert cached(tmp_path, ".so") == cached(tmp_path, ".json") == []


def test_a_compiler_that_hangs_is_ended_with_all_it_started(
    compiler: Callable[[str], Callable[[], list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    calls = compiler(f"(sleep 100; echo late) > {tmp_path / 'pipe'} & wait")
    monkeypatch.setattr(kernel_build, "COMPILE_TIMEOUT", 0.5)
    assert "compiler did not finish within 0.5 seconds" in fallback_warning()
    os.set_blocking(reader, True)
    assert os.read(reader, 10) == b""  # its last writer has gone
    os.close(reader)
    next_process()
    fallback_warning()
    assert len(calls()) == 1


@pytest.mark.parametrize(
    ("named", "says"),
    [("/nowhere/c++", "CXX is /nowhere/c++, but there is no such program"), ("", "no C++ compiler was found")],
)
def test_without_a_compiler_there_are_none(
    named: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", named)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert says in fallback_warning()
    assert not (tmp_path / "cache").exists()


def test_only_the_first_of_several_processes_says_so(
    compiler: Callable[[str], Callable[[], list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler("exit 1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kernels.kernels() is None


def test_built_once(compiler: Callable[[str], Callable[[], list[str]]], library: Path, tmp_path: Path) -> None:
    calls = compiler(f'{OUT}cp {library} "$2"')
    for _ in range(2):
        built()
        next_process()
    assert len(calls()) == 1
    assert "-march=native" in calls()[0]
    assert "-fopenmp" in calls()[0]
    assert len(list((tmp_path / "cache" / "nearfar").iterdir())) == 2  # the library, and what it is
    kernels.kernels("dropout")
    told = kernels_status()
    assert told["used"] == ["dropout"]
    assert told["compiler"] == "fake c++ 1.0"


def test_the_sources_own_compiler_builds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    if not any(map(kernel_build.shutil.which, kernel_build.COMPILERS)):
        pytest.skip("no C++ compiler")
    monkeypatch.setattr(kernel_build, "FLAGS", ("-O0", *kernel_build.FLAGS[1:]))
    built()
    library = kernels._built()[0].library  # type: ignore[union-attr]
    for part in ("drop", "attend", "attend_backward"):
        for dtype in kernels.DTYPES.values():
            name = f"{part}_{dtype}" + ("_64" if part.startswith("attend") else "")
            assert getattr(library, name)


BUILD = "from nearfar.encoder import kernel_build; kernel_build.load(); print('built')"


def test_two_processes_that_build_at_once(
    compiler: Callable[[str], Callable[[], list[str]]], library: Path, tmp_path: Path
) -> None:
    both = f"touch {tmp_path}/busy-$$; while [ $(ls {tmp_path} | grep -c busy-) -lt 2 ]; do sleep 0.05; done"
    calls = compiler(f'{OUT}head -c 500 {library} > "$2"; {both}; cp {library} "$2"')
    started = [subprocess.Popen([sys.executable, "-c", BUILD], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0] for process in started] == ["built\n", "built\n"]
    assert len(calls()) == 2
    assert len(list((tmp_path / "cache" / "nearfar").iterdir())) == 2
    built()
    assert len(calls()) == 2


def _cut(tmp_path: Path) -> None:
    (file,) = cached(tmp_path, ".so")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _overwrite(tmp_path: Path) -> None:
    (file,) = cached(tmp_path, ".so")
    file.write_bytes(b"\x00" * file.stat().st_size)


def _remove(tmp_path: Path) -> None:
    cached(tmp_path, ".so")[0].unlink()


def _record(text: str) -> Callable[[Path], None]:
    def write(tmp_path: Path) -> None:
        cached(tmp_path, ".json")[0].write_text(text)

    return write


@pytest.mark.parametrize(
    "damage",
    [_cut, _overwrite, _remove, _record(""), _record("[]"), _record('{"library": "x.so"}'), _record('{"err": "?"}')],
)
def test_a_damaged_cache_is_built_anew(
    damage: Callable[[Path], None], compiler: Callable[[str], Callable[[], list[str]]], library: Path, tmp_path: Path
) -> None:
    calls = compiler(f'{OUT}cp {library} "$2"')
    built()
    damage(tmp_path)
    next_process()
    built()
    assert len(calls()) == 2
    next_process()
    built()
    assert len(calls()) == 2


def test_a_cache_from_another_machine_is_not_used(
    compiler: Callable[[str], Callable[[], list[str]]], library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = compiler(f'{OUT}cp {library} "$2"')
    for times, flags in enumerate(("avx2 fma", "avx2 fma avx512f"), start=1):
        (tmp_path / "cpuinfo").write_text(f"model name\t: One\nflags\t\t: {flags}\n")
        monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
        next_process()
        built()
        assert len(calls()) == times
    assert len(cached(tmp_path, ".json")) == 2


def test_another_instruction_set_can_be_compiled_for(
    compiler: Callable[[str], Callable[[], list[str]]], library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = compiler(f'{OUT}cp {library} "$2"')
    built()
    monkeypatch.setenv("NEARFAR_KERNELS_MARCH", "x86-64-v3")
    next_process()
    built()
    assert ["-march=native" in call for call in calls()] == [True, False]
    assert "-march=x86-64-v3" in kernels_status()["flags"]


def _file_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("in the way")


def _no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", home)


@pytest.mark.parametrize(("broken", "told"), [(_file_in_the_way, True), (_no_home, False)])
def test_where_the_cache_is_out_of_reach_a_private_folder_takes_its_place(
    broken: Callable[..., None],
    told: bool,
    compiler: Callable[[str], Callable[[], list[str]]],
    library: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = compiler(f'{OUT}cp {library} "$2"')
    broken(tmp_path, monkeypatch)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert kernels.kernels() is not None
    assert [str(one.message).startswith(f"{tmp_path / 'cache' / 'nearfar'} cannot be written (") for one in said] == [
        True
    ] * told
    (folder,) = (tmp_path / "tmp").iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    next_process()
    built()
    assert len(calls()) == 1


def _open_to_all(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


@pytest.mark.parametrize("planted", [_open_to_all, lambda folder: folder.symlink_to(folder.parent), Path.touch])
def test_a_folder_that_others_can_write_to_is_not_trusted(
    planted: Callable[[Path], None],
    compiler: Callable[[str], Callable[[], list[str]]],
    library: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler(f'{OUT}cp {library} "$2"')
    _file_in_the_way(tmp_path, monkeypatch)
    planted(tmp_path / "tmp" / f"nearfar-{os.getuid()}")
    assert "cannot be written" in fallback_warning()


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        (None, KERNEL_NAMES),
        ("1", KERNEL_NAMES),
        ("rebuild", KERNEL_NAMES),
        ("0", ()),
        ("dropout", ("dropout",)),
        ("dropout, attention", ("attention", "dropout")),
    ],
)
def test_the_variable_chooses(
    asked: str | None,
    chosen: tuple[str, ...],
    compiler: Callable[[str], Callable[[], list[str]]],
    library: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = compiler(f'{OUT}cp {library} "$2"')
    if asked is not None:
        monkeypatch.setenv("NEARFAR_KERNELS", asked)
    assert [part for part in KERNEL_NAMES if kernels.kernels(part) is not None] == list(chosen)
    assert kernels_status()["used"] == sorted(chosen)
    assert bool(calls()) == bool(chosen)


def test_a_kernel_by_another_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARFAR_KERNELS", "attention,drop")
    with pytest.raises(NearfarError, match="NEARFAR_KERNELS: unknown kernel 'drop'"):
        kernels.kernels("attention")


@pytest.mark.parametrize(
    ("system", "asked", "wanted"), [("win32", "", False), ("darwin", "", False), ("darwin", "1", True)]
)
def test_other_systems_have_them_only_when_asked(
    system: str,
    asked: str,
    wanted: bool,
    compiler: Callable[[str], Callable[[], list[str]]],
    library: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "SYSTEM", system)
    monkeypatch.setenv("NEARFAR_KERNELS", asked)
    calls = compiler(f'{OUT}cp {library} "$2"')
    assert (kernels.kernels() is not None) == wanted
    assert len(calls()) == wanted
    if wanted:  # Apple's compiler refuses the flag
        assert " -fopenmp" not in calls()[0].replace("-Xpreprocessor -fopenmp", "")
    else:
        assert system in kernels_status()["why_not"]


def test_openmp_of_macos_is_that_of_torch_or_none(
    compiler: Callable[[str], Callable[[], list[str]]], library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Spec:
        origin = str(tmp_path / "torch" / "__init__.py")

    monkeypatch.setattr(machine, "SYSTEM", "darwin")
    monkeypatch.setenv("NEARFAR_KERNELS", "1")
    monkeypatch.setattr(kernel_build.importlib.util, "find_spec", lambda _: Spec)
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "lib" / "libomp.dylib").touch()
    calls = compiler(f'case "$*" in *omp*) echo "error: no omp" >&2; exit 1;; esac\n{OUT}cp {library} "$2"')
    built()
    assert [f"-L{tmp_path}/torch/lib -lomp" in call for call in calls()] == [True, False]


def test_nothing_is_built_to_tell_what_was_used(compiler: Callable[[str], Callable[[], list[str]]]) -> None:
    calls = compiler("exit 1")
    assert kernels_status() == {"used": [], "why_not": "not needed"}
    assert not calls()


def test_results_tell_of_the_kernels(compiler: Callable[[str], Callable[[], list[str]]], library: Path) -> None:
    from nearfar.evaluation.results import provenance

    compiler(f'{OUT}cp {library} "$2"')
    kernels.kernels("attention")
    assert provenance().kernels["used"] == ["attention"]
