"""Whether a device has native bfloat16 instructions, and how slow emulated bfloat16 is."""

import time
from typing import TYPE_CHECKING

from nearfar.runtime import machine

if TYPE_CHECKING:
    import torch

BF16_SETS = ("avx512_bf16", "amx_bf16", "bf16")
"""Instruction sets (:data:`nearfar.runtime.machine.INSTRUCTION_SETS`) with native bfloat16 matrix products; ``bf16`` is
ARM's."""
AMPERE = (8, 0)
"""The lowest CUDA compute capability with native bfloat16."""
SIZE = 256
"""Rows and columns of the measured matrices: small enough that an emulated product takes only some hundredths of a
second."""
TIME_BUDGET = 0.02
"""Seconds of measurement per precision."""


def native_bf16(device: "str | torch.device | None" = None) -> bool:
    """Whether the device computes matrix products in bfloat16 natively; the default device is CUDA if available.

    On a CPU, instruction sets disabled by ATEN_CPU_CAPABILITY or ONEDNN_MAX_CPU_ISA do not count.
    """
    import torch

    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    place = torch.device(device)
    if place.type == "cuda":
        return torch.cuda.is_available() and torch.cuda.get_device_capability(place) >= AMPERE
    return place.type == "cpu" and cpu_has_bf16()


def cpu_has_bf16() -> bool:
    """:func:`native_bf16` of the CPU; on Linux, which lists the instruction sets, without importing torch."""
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
    """Measure the time of a bfloat16 matrix product on the CPU, divided by that of a float32 product.

    Takes about a tenth of a second. Below 1, bfloat16 is faster. Other running processes add noise.
    """
    import torch

    left, right = torch.rand(2, SIZE, SIZE)
    return _fastest(left.bfloat16(), right.bfloat16()) / _fastest(left, right)


def _fastest(left: "torch.Tensor", right: "torch.Tensor") -> float:
    """Seconds of the fastest of several products, after one warm-up."""
    import torch

    torch.mm(left, right)
    fastest, end = float("inf"), time.perf_counter() + TIME_BUDGET
    while fastest == float("inf") or time.perf_counter() < end:
        started = time.perf_counter()
        torch.mm(left, right)
        fastest = min(fastest, time.perf_counter() - started)
    return fastest
