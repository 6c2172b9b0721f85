"""Mocks of an encoder and of the training loop for the tests of methods."""

import torch
from torch import nn


class Table(nn.Module):
    """A vector for each distinct item. Records its calls; adds different ``noise`` to each element of the output."""

    def __init__(self, items, dim, *, noise=0.0):
        super().__init__()
        self.numbers = {item: number for number, item in enumerate(dict.fromkeys(items))}
        self.vectors = nn.Embedding(len(self.numbers), dim, dtype=torch.float64)
        self.noise, self.calls = noise, []

    def forward(self, items):
        self.calls.append(list(items))
        vectors = self.vectors(torch.tensor([self.numbers[item] for item in items]))
        positions = torch.arange(vectors.numel(), dtype=vectors.dtype).view_as(vectors)
        return vectors + self.noise * torch.sin(7 * positions)


def descend(loss, optimiser, *, steps):
    """Minimise ``loss()`` for a number of steps."""
    for _ in range(steps):
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()
