"""Mixtures of methods: which batches are combined, in which epoch, from any step."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from nearfar.methods import Loss, Method
from nearfar.methods.mixture import Mixture


class Numbered:
    """Batches (name, epoch, step) that identify themselves; epochs may have different lengths."""

    def __init__(self, name: str, *lengths: int) -> None:
        self.who, self.lengths = name, lengths

    def steps(self, epoch: int) -> int:
        return self.lengths[epoch % len(self.lengths)]

    def total_steps(self, epochs: int) -> int:
        return sum(self.steps(epoch) for epoch in range(epochs))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[str, int, int]]:
        for step in range(start, self.steps(epoch)):
            yield self.who, epoch, step


def method(name: str, *lengths: int, head: nn.Module | None = None) -> Method:
    def loss_fn(batch: Any, rows: torch.Tensor) -> Loss:
        return Loss(rows.sum(), {})

    def describe(batch: Any) -> list[str]:
        return [f"{name} says {batch}", "and more"]

    return Method(name, Numbered(name, *lengths), lambda batch: [batch], torch.zeros, loss_fn, describe, head)


def collect_batches(mixture: Mixture, epoch: int, start: int = 0) -> list[list[tuple[str, int, int]]]:
    return [[batch for _, batch, _ in parts] for parts in mixture.epoch(epoch, start)]


def test_steps_are_counted_only_as_far_as_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    lead = method("a", 3, 2)
    mixture = Mixture(((lead, 1.0),))
    assert [mixture.total_steps(4, at_most=limit) for limit in (1, 3, 4, 10, 99)] == [1, 3, 4, 10, 10]
    epochs: list[int] = []
    monkeypatch.setattr(lead.batches, "steps", lambda epoch: epochs.append(epoch) or 3)
    assert mixture.total_steps(10**12, at_most=5) == 5
    assert epochs == [0, 1]


@pytest.mark.parametrize("second", [(2,), (3,), (7,), (1, 4)])
def test_the_first_method_determines_the_epoch_and_the_others_cycle(second: tuple[int, ...]) -> None:
    mixture = Mixture(((method("a", 3, 2), 1.0), (method("b", *second), 0.5), (method("c", 5), 0.1)))
    assert mixture.total_steps(4) == 3 + 2 + 3 + 2
    found = [parts for epoch in range(4) for parts in collect_batches(mixture, epoch)]
    assert [a for a, _, _ in found] == [("a", e, p) for e, n in enumerate((3, 2, 3, 2)) for p in range(n)]
    rounds = [("b", e, p) for e in range(20) for p in range(second[e % len(second)])]
    # none is repeated or omitted, regardless of the epochs of the first method
    assert [b for _, b, _ in found] == rounds[:10]
    assert [c for _, _, c in found] == [("c", e, p) for e in range(2) for p in range(5)]
