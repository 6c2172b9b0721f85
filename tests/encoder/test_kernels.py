"""The selection of kernels by environment variable and system, and their status in results."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nearfar.encoder import kernel_build, kernels
from nearfar.encoder.kernels import KERNEL_NAMES, kernels_status
from nearfar.runtime import machine
from nearfar.types import NearfarError
from tests.encoder.kernel_helpers import OUT, built

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the compilers are shell scripts"),
    pytest.mark.usefixtures("new_cache"),
]


@pytest.mark.parametrize(
    ("requested", "chosen"),
    [
        (None, KERNEL_NAMES),
        ("1", KERNEL_NAMES),
        ("rebuild", KERNEL_NAMES),
        ("0", ()),
        ("dropout", ("dropout",)),
        ("dropout, attention", ("attention", "dropout")),
    ],
)
def test_the_environment_variable_selects_kernels(
    requested: str | None,
    chosen: tuple[str, ...],
    compiler: Callable[[str], Callable[[], list[str]]],
    library: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = compiler(f'{OUT}cp {library} "$2"')
    if requested is not None:
        monkeypatch.setenv("NEARFAR_KERNELS", requested)
    assert [part for part in KERNEL_NAMES if kernels.kernels(part) is not None] == list(chosen)
    assert kernels_status()["used"] == sorted(chosen)
    assert bool(calls()) == bool(chosen)


def test_an_unknown_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARFAR_KERNELS", "attention,drop")
    with pytest.raises(NearfarError, match="NEARFAR_KERNELS: unknown kernel 'drop'"):
        kernels.kernels("attention")


@pytest.mark.parametrize(
    ("system", "requested", "used"), [("win32", "", False), ("darwin", "", False), ("darwin", "1", True)]
)
def test_other_systems_use_them_only_on_request(
    system: str,
    requested: str,
    used: bool,
    compiler: Callable[[str], Callable[[], list[str]]],
    library: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "SYSTEM", system)
    monkeypatch.setenv("NEARFAR_KERNELS", requested)
    calls = compiler(f'{OUT}cp {library} "$2"')
    assert (kernels.kernels() is not None) == used
    assert len(calls()) == used
    if used:  # Apple's compiler does not support the flag
        assert " -fopenmp" not in calls()[0].replace("-Xpreprocessor -fopenmp", "")
    else:
        assert system in kernels_status()["why_not"]


def test_macos_uses_openmp_of_torch_or_none(
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


def test_the_status_builds_nothing(compiler: Callable[[str], Callable[[], list[str]]]) -> None:
    calls = compiler("exit 1")
    assert kernels_status() == {"used": [], "why_not": "not needed"}
    assert not calls()


def test_results_record_the_kernels(compiler: Callable[[str], Callable[[], list[str]]], library: Path) -> None:
    from nearfar.evaluation.results import provenance

    compiler(f'{OUT}cp {library} "$2"')
    kernels.kernels("attention")
    assert provenance().kernels["used"] == ["attention"]
