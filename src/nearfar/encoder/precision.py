"""The precision of computation: how ``auto`` is resolved on a device, and which precision a resumed run keeps.

``auto`` is bfloat16 on devices that compute it natively and float32 elsewhere, unless the environment variable
:data:`VARIABLE` sets one of the two.
"""

import os
import warnings
from functools import cache
from typing import TYPE_CHECKING

from nearfar.encoder.bf16_support import bf16_slowdown, native_bf16
from nearfar.encoder.device import check_device
from nearfar.types import NearfarError, Precision, Resolved

if TYPE_CHECKING:
    import torch

VARIABLE = "NEARFAR_PRECISION"
"""The environment variable that overrides ``auto``."""
CHOICES = ("auto", "fp32", "bf16")
EMULATED = "bf16 emulated"
"""Recorded by a run that was started with an explicit bf16 on a device without native bfloat16."""
RECORDED_PRECISIONS = ("fp32", "bf16", EMULATED)


def check_precision(requested: str) -> None:
    """Check the requested precision and the environment variable, without importing torch.

    Raises:
        NearfarError: one of them is not in :data:`CHOICES`.
    """
    if requested not in CHOICES:
        raise NearfarError(f"--precision {requested!r}: must be auto, fp32 or bf16.")
    _from_environment()


def check_computing(device: str | None, precision: str) -> None:
    """Check that this machine has the device, and that the precision is one, before anything slow is done.

    Raises:
        NearfarError: as :func:`nearfar.encoder.device.check_device` and :func:`check_precision`.
    """
    check_device(device)
    check_precision(precision)


def resolve(requested: Precision, device: "str | torch.device | None" = None) -> Resolved:
    """The precision to compute in on ``device`` (None for the default device).

    Warns, once per process, if bf16 is requested on a device that does not compute it natively.

    Raises:
        NearfarError: as :func:`check_precision`.
    """
    check_precision(requested)
    if requested == "auto":
        requested = _from_environment()
    if requested == "auto":
        return "bf16" if is_native(device) else "fp32"
    if requested == "bf16" and not is_native(device):
        _warn_not_native(_device_type(device))
    return requested


def is_native(device: "str | torch.device | None" = None) -> bool:
    """Whether the device computes bfloat16 natively."""
    return _is_native(None if device is None else str(device))


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
def _is_native(device: str | None) -> bool:
    return native_bf16(device)


def _from_environment() -> Precision:
    """The value of the environment variable, ``auto`` if it is not set."""
    given = os.environ.get(VARIABLE) or "auto"
    for choice in ("auto", "fp32", "bf16"):
        if given == choice:
            return choice
    raise NearfarError(f"{VARIABLE}={given[:80]!r}: must be auto, fp32 or bf16. Correct it, or unset it.")


def _device_type(device: "str | torch.device | None") -> str:
    import torch

    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device).type


@cache
def _warn_not_native(device_type: str) -> None:
    if device_type != "cpu":
        message = "bfloat16 is not native on this GPU. Use --precision fp32."
    else:
        factor = bf16_slowdown()
        cost = f"{factor:.{1 if factor < 10 else 0}f} times slower than" if factor > 1 else "not faster than"
        message = f"bfloat16 is emulated on this processor: {cost} fp32 here. Use --precision fp32."
    warnings.warn(message, stacklevel=3)
