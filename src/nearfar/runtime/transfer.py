"""Copies of tensors from the CPU to a GPU for which Python does not wait."""

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on ``device``. Python does not wait for a copy from the CPU to a GPU.

    A plain copy makes Python wait until the GPU has finished all operations before it.
    """
    device = torch.device(device)
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
