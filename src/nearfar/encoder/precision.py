"""The device, and the precision of computation: how ``auto`` is resolved on it, and which one a resumed run keeps.

``auto`` is bfloat16 on devices that compute it natively and float32 elsewhere, unless the environment variable
:data:`VARIABLE` sets one of the two.
"""

import os
import warnings
from functools import cache
from typing import TYPE_CHECKING, cast, get_args

from nearfar.runtime import machine, memory
from nearfar.runtime.threads import WORKER
from nearfar.types import NearfarError, Precision, Resolved

if TYPE_CHECKING:
    import torch


def check_device(name: "str | torch.device | None") -> None:
    """Check that this machine has the device. None and ``cpu`` pass without importing torch.

    Raises:
        NearfarError: the machine has no such device; the message lists its devices.
    """
    if name is not None and str(name) != "cpu":
        choose_device(name)


def choose_device(name: "str | torch.device | None" = None) -> "torch.device":
    """The device called ``cpu``, ``cuda``, ``cuda:1`` and so on; None for CUDA if available, else the CPU.

    Where no GPU is named, workers (:data:`nearfar.runtime.threads.WORKER`) take them in turn.

    Raises:
        NearfarError: the machine has no such device; the message lists its devices.
    """
    import torch

    worker, gpus = os.environ.get(WORKER), torch.cuda.device_count()
    if worker and gpus and (name is None or str(name) == "cuda"):
        return torch.device("cuda", int(worker) % gpus)
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    accelerator, count = torch.accelerator.current_accelerator(), torch.accelerator.device_count()
    kind = accelerator.type if accelerator and count else "cpu"
    available = ["cpu", *(f"{kind}:{number}" for number in range(count))]
    if str(name) not in (*available, kind, "cpu:0"):
        raise NearfarError(f"--device {str(name)[:80]!r}: this machine has {', '.join(available)}.")
    return torch.device(str(name))


BF16_SETS = ("avx512_bf16", "amx_bf16", "bf16")
"""Instruction sets (:data:`nearfar.runtime.machine.INSTRUCTION_SETS`) with native bfloat16 matrix products; ``bf16`` is
ARM's."""
SHAPES, SHAPES_WITHOUT_KERNELS = 32, 256
"""Shapes of matrix products whose code is kept; without the kernels, attention has products for each length."""
AMPERE = (8, 0)
"""The lowest CUDA compute capability with native bfloat16."""


@cache
def is_native(device: "str | torch.device | None" = None) -> bool:
    """Whether the device computes matrix products in bfloat16 natively; the default device is CUDA if available.

    On a CPU, instruction sets disabled by ATEN_CPU_CAPABILITY or ONEDNN_MAX_CPU_ISA do not count.
    """
    import torch

    place = choose_device() if device is None else torch.device(device)
    if place.type == "cuda":
        return torch.cuda.is_available() and torch.cuda.get_device_capability(place) >= AMPERE
    return place.type == "cpu" and cpu_has_bf16()


def cpu_has_bf16() -> bool:
    """:func:`is_native` of the CPU; on Linux, which lists the instruction sets, without importing torch."""
    if machine.cpu_fields():
        return any(name in BF16_SETS for name in machine.instruction_sets())
    if machine.SYSTEM == "darwin" or machine.disabled_by_environment("avx512_bf16"):
        return False  # torch for macOS has no matrix products that use its bfloat16 instructions
    import torch

    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()  # older releases do not have it
    return any(capabilities.get(name) for name in BF16_SETS)


VARIABLE = "NEARFAR_PRECISION"
"""The environment variable that overrides ``auto``."""
CHOICES: tuple[Precision, ...] = get_args(Precision)
EMULATED = "bf16 emulated"
"""Recorded by a run that was started with an explicit bf16 on a device without native bfloat16."""
RECORDED_PRECISIONS = ("fp32", "bf16", EMULATED)


def check_precision(requested: str) -> Precision:
    """The requested precision, or for ``auto`` that of the environment variable, without importing torch.

    Raises:
        NearfarError: one of them is not in :data:`CHOICES`.
    """
    given = os.environ.get(VARIABLE) or "auto"
    for name, value in (("--precision ", requested), (f"{VARIABLE}=", given)):
        if value not in CHOICES:
            raise NearfarError(f"{name}{value[:80]!r}: must be auto, fp32 or bf16.")
    return cast(Precision, given if requested == "auto" else requested)


def check_computing(device: str | None, precision: str) -> None:
    """Check that this machine has the device, and that the precision is one, before anything slow is done.

    Raises:
        NearfarError: as :func:`nearfar.encoder.precision.check_device` and :func:`check_precision`.
    """
    check_device(device)
    check_precision(precision)


def resolve(requested: Precision, device: "str | torch.device | None" = None) -> Resolved:
    """The precision to compute in on ``device`` (None for the default device).

    Warns, once per process, if bf16 is requested on a device that does not compute it natively.

    Raises:
        NearfarError: as :func:`check_precision`.
    """
    precision = check_precision(requested)
    if precision == "auto":
        precision = "bf16" if is_native(device) else "fp32"
    if precision == "bf16" and not is_native(device):
        _warn_not_native()
    if precision == "bf16":
        from nearfar.encoder.kernels import why_off

        memory.limit_compiled_shapes(SHAPES if why_off() is None else SHAPES_WITHOUT_KERNELS)
    return precision


def precision_record(precision: Resolved, device: "str | torch.device | None" = None) -> str:
    """What a new run records, one of :data:`RECORDED_PRECISIONS`."""
    return EMULATED if precision == "bf16" and not is_native(device) else precision


def resumed_precision(recorded: str, device: "str | torch.device | None" = None, *, what: str) -> Resolved:
    """The precision in which ``what`` resumes, given the :func:`precision_record` of its start.

    Raises:
        NearfarError: it was started in native bfloat16, which the device does not have.
    """
    if recorded == "bf16" and not is_native(device):
        raise NearfarError(
            f"{what} was started in bf16, which this machine does not compute natively. Resume it on a machine with "
            "native bfloat16, or start again with --precision fp32 and another --output."
        )
    return resolve("fp32" if recorded == "fp32" else "bf16", device)


@cache
def _warn_not_native() -> None:
    slow = "bfloat16 is emulated here, which may be many times slower than fp32"
    warnings.warn(f"{slow}. Use --precision fp32.", stacklevel=3)
