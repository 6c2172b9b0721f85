"""The precision that is computed in: what ``auto`` means on a device, and what a run that goes on keeps.

``auto`` is bfloat16 where the device computes it natively, float32 elsewhere, unless :data:`VARIABLE` names one of the
two.
"""

import os
import warnings
from functools import cache
from typing import TYPE_CHECKING

from nearfar.encoder.bf16_support import bf16_slowdown, native_bf16
from nearfar.types import NearfarError, Precision, Resolved

if TYPE_CHECKING:
    import torch

VARIABLE = "NEARFAR_PRECISION"
"""The environment variable that says what ``auto`` means."""
CHOICES = ("auto", "fp32", "bf16")
EMULATED = "bf16 emulated"
"""The note of what was begun in bf16 on a device without native bfloat16, because it was asked for."""
RECORDED_PRECISIONS = ("fp32", "bf16", EMULATED)


def check_precision(requested: str) -> None:
    """Refuse what is no precision, also in the environment, without importing torch.

    Raises:
        NearfarError: ``requested`` or the environment variable is none of :data:`CHOICES`.
    """
    if requested not in CHOICES:
        raise NearfarError(f"--precision {requested!r}: must be auto, fp32 or bf16.")
    _from_environment()


def resolve(requested: Precision, device: "str | torch.device | None" = None) -> Resolved:
    """The precision to compute in on ``device``, by default where nearfar computes by default.

    Warns, once a process, of bf16 that is asked for where the device does not compute it natively.

    Raises:
        NearfarError: as :func:`check_precision`.
    """
    check_precision(requested)
    if requested == "auto":
        requested = _from_environment()
    if requested == "auto":
        return "bf16" if is_native(device) else "fp32"
    if requested == "bf16" and not is_native(device):
        _warn(_kind(device))
    return requested


def is_native(device: "str | torch.device | None" = None) -> bool:
    """Whether the device computes bfloat16 natively."""
    return _is_native(None if device is None else str(device))


def precision_record(precision: Resolved, device: "str | torch.device | None" = None) -> str:
    """What a run that begins writes down, one of :data:`RECORDED_PRECISIONS`."""
    return EMULATED if precision == "bf16" and not is_native(device) else precision


def resumed_precision(begun: str, device: "str | torch.device | None" = None, *, what: str) -> Resolved:
    """The precision in which ``what``, begun with that :func:`precision_record`, goes on.

    Raises:
        NearfarError: it began in native bfloat16, which the device does not have.
    """
    if begun == "bf16" and not is_native(device):
        raise NearfarError(
            f"{what} began in bf16, which this machine does not compute natively. Resume it on a machine with native "
            "bfloat16, or start again with --precision fp32 and another --output."
        )
    return resolve("fp32" if begun == "fp32" else "bf16", device)


@cache
def _is_native(device: str | None) -> bool:
    return native_bf16(device)


def _from_environment() -> Precision:
    """What the environment says that ``auto`` means."""
    given = os.environ.get(VARIABLE) or "auto"
    for choice in ("auto", "fp32", "bf16"):
        if given == choice:
            return choice
    raise NearfarError(f"{VARIABLE}={given[:80]!r}: must be auto, fp32 or bf16. Correct it, or unset it.")


def _kind(device: "str | torch.device | None") -> str:
    import torch

    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device).type


@cache
def _warn(kind: str) -> None:
    if kind != "cpu":
        told = "bfloat16 is not native on this GPU. Use --precision fp32."
    else:
        factor = bf16_slowdown()
        cost = f"{factor:.{1 if factor < 10 else 0}f} times slower than" if factor > 1 else "not faster than"
        told = f"bfloat16 is emulated on this processor: {cost} fp32 here. Use --precision fp32."
    warnings.warn(told, stacklevel=3)
