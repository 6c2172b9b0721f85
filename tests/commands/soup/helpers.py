"""Models that differ in their weights only."""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from nearfar import Encoder
from nearfar.data.fingerprints import text_hashes
from nearfar.disk import SeenHashes


def write_noisy(name: str, *, seed: int, scale: float = 0.05) -> None:
    encoder = Encoder.from_pretrained("tiny", pooling="cls")
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=draw))
    encoder.seen = SeenHashes(*(np.unique(text_hashes([f"{name}{part}"])) for part in range(4)))
    encoder.save_pretrained(name)


def weights(folder: str | Path) -> dict[str, Tensor]:
    return load_file(Path(folder) / "model.safetensors")
