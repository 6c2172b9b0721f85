"""The devices that ``--device`` takes, checked against what this machine has."""

from typing import TYPE_CHECKING

from nearfar.types import NearfarError

if TYPE_CHECKING:
    import torch


def check_device(name: "str | torch.device | None") -> None:
    """Refuse a device that this machine lacks. None and ``cpu`` pass without importing torch.

    Raises:
        NearfarError: there is no such device here; the message lists those that there are.
    """
    if name is not None and str(name) != "cpu":
        choose_device(name)


def choose_device(name: "str | torch.device | None" = None) -> "torch.device":
    """The device of that name: ``cpu``, ``cuda``, ``cuda:1`` ...; for None CUDA where there is one, else the CPU.

    Raises:
        NearfarError: there is no such device here; the message lists those that there are.
    """
    import torch

    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    counts = {
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "xpu": torch.xpu.device_count() if torch.xpu.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
    }
    there = ["cpu", *(f"{kind}:{number}" for kind, count in counts.items() for number in range(count))]
    kinds = [kind for kind, count in counts.items() if count]
    if str(name) not in (*there, *kinds, "cpu:0"):
        raise NearfarError(f"--device {str(name)!r}: this machine has {', '.join(there)}. Choose one of these.")
    return torch.device(str(name))
