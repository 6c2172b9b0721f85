"""Instruction sets from a mocked /proc/cpuinfo, without those that the environment disables."""

from pathlib import Path

import pytest
import torch

from nearfar.encoder import precision
from nearfar.evaluation.results import provenance
from nearfar.runtime import machine

GENOA = (
    "model name\t: AMD EPYC\nflags\t\t: fpu avx2 avx512f avx512_vnni avx512_bf16\n\nmodel name\t: Other\nflags\t: x\n"
)
SAPPHIRE = "model name\t: Xeon\nflags\t\t: avx2 avx512f avx512_vnni avx512_bf16 avx512_fp16 amx_bf16 amx_tile\n"
GRAVITON = "processor\t: 0\nFeatures\t: fp asimd sve bf16 i8mm\nCPU part\t: 0xd40\n"


@pytest.fixture(autouse=True)
def _clear_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)


def write_cpuinfo(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")


@pytest.mark.parametrize(
    ("text", "variables", "sets", "bf16"),
    [
        (GENOA, {}, "avx2 avx512f avx512_vnni avx512_bf16", True),
        (SAPPHIRE, {}, "avx2 avx512f avx512_vnni avx512_bf16 avx512_fp16 amx_bf16", True),
        (GRAVITON, {}, "neon sve bf16 i8mm", True),
        ("", {}, "", False),
        (GENOA, {"ATEN_CPU_CAPABILITY": "avx2"}, "avx2", False),
        (GENOA, {"ONEDNN_MAX_CPU_ISA": "AVX2"}, "avx2", False),
        (GENOA, {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "avx512_core_vnni"}, "avx2", False),
        (GENOA, {"ONEDNN_MAX_CPU_ISA": "ALL"}, "avx2 avx512f avx512_vnni avx512_bf16", True),
    ],
)
def test_instruction_sets(
    text: str, variables: dict[str, str], sets: str, bf16: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cpuinfo(text or "\n", tmp_path, monkeypatch)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert " ".join(machine.instruction_sets()) == sets
    assert precision.is_native.__wrapped__("cpu") is bf16
    assert provenance().hardware["instruction_sets"] == sets


@pytest.mark.parametrize(("capability", "bf16"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_cuda_is_native_by_compute_capability(
    capability: tuple[int, int], bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    native = precision.is_native.__wrapped__
    assert native() is native("cuda:0") is native(torch.device("cuda")) is bf16
