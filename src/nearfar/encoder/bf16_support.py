"""Whether a device computes bfloat16 by instructions of its own, and what it costs where it does not."""

import time
from typing import TYPE_CHECKING

from nearfar.runtime import machine

if TYPE_CHECKING:
    import torch

BF16_SETS = ("avx512_bf16", "amx_bf16", "bf16")
"""Of :data:`nearfar.runtime.machine.INSTRUCTION_SETS`: with any, matrix products in bfloat16 are native (the last is
ARM's)."""
AMPERE = (8, 0)
"""The first compute capability of CUDA with bfloat16."""
SIZE = 256
"""Rows of the matrices that are measured: small enough that even an emulated product takes some hundredths of a
second."""
TIME_BUDGET = 0.02
"""Seconds for which products of one precision are repeated."""


def native_bf16(device: "str | torch.device | None" = None) -> bool:
    """Whether matrix products in bfloat16 are native there; by default where nearfar computes by default.

    On a CPU, ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA count: instructions that they take away are not there.
    """
    import torch

    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    place = torch.device(device)
    if place.type == "cuda":
        return torch.cuda.is_available() and torch.cuda.get_device_capability(place) >= AMPERE
    return place.type == "cpu" and cpu_has_bf16()


def cpu_has_bf16() -> bool:
    """The same of the CPU, without torch where the system tells the instruction sets (Linux)."""
    if machine.cpu_fields():
        return any(name in BF16_SETS for name in machine.instruction_sets())
    if machine.SYSTEM == "darwin" or machine.disabled_by_environment("avx512_bf16"):
        return False  # torch for macOS has no matrix products that use its bfloat16 instructions
    import torch

    if not hasattr(torch.cpu, "get_capabilities"):  # an older release
        return False
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name) for name in BF16_SETS)


def bf16_slowdown() -> float:
    """How many times as long a matrix product in bfloat16 takes on the CPU as one in float32, measured now.

    Takes about a tenth of a second. Below 1, bfloat16 is faster; noise of other processes is in it.
    """
    import torch

    left, right = torch.rand(2, SIZE, SIZE)
    return _fastest(left.bfloat16(), right.bfloat16()) / _fastest(left, right)


def _fastest(left: "torch.Tensor", right: "torch.Tensor") -> float:
    """Seconds of the fastest of several products, after one to warm up."""
    import torch

    torch.mm(left, right)
    fastest, end = float("inf"), time.perf_counter() + TIME_BUDGET
    while fastest == float("inf") or time.perf_counter() < end:
        started = time.perf_counter()
        torch.mm(left, right)
        fastest = min(fastest, time.perf_counter() - started)
    return fastest
