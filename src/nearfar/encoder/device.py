"""The device and the data type of weights by their names; a ``--device`` is checked against those of this machine."""

from typing import TYPE_CHECKING

from nearfar.types import NearfarError

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

    Raises:
        NearfarError: the machine has no such device; the message lists its devices.
    """
    import torch

    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    counts = {
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "xpu": torch.xpu.device_count() if torch.xpu.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
    }
    available = ["cpu", *(f"{kind}:{number}" for kind, count in counts.items() for number in range(count))]
    kinds = [kind for kind, count in counts.items() if count]
    if str(name) not in (*available, *kinds, "cpu:0"):
        raise NearfarError(
            f"--device {str(name)[:80]!r}: this machine has {', '.join(available)}. Choose one of these."
        )
    return torch.device(str(name))


def choose_dtype(name: "str | torch.dtype | None" = None) -> "torch.dtype":
    """The data type called ``float32`` (the default), ``bfloat16`` or ``float16``.

    Raises:
        NearfarError: it is none of these.
    """
    import torch

    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    found = dtypes.get(str(name or "float32").removeprefix("torch."))
    if found is None:
        raise NearfarError(f"dtype {name!r}: must be one of {', '.join(dtypes)}.")
    return found
