"""Sets of rows in one run: which batches make a step, in which epoch, from any step."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from nearfar.methods import Loss, Method
from nearfar.methods.mixture import Mixture, with_distinct_names
from nearfar.types import Mix


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
    mixture = Mixture((((lead, 1.0),),))
    assert [mixture.total_steps(4, at_most=limit) for limit in (1, 3, 4, 10, 99)] == [1, 3, 4, 10, 10]
    epochs: list[int] = []
    monkeypatch.setattr(lead.batches, "steps", lambda epoch: epochs.append(epoch) or 3)
    assert mixture.total_steps(10**12, at_most=5) == 5
    assert epochs == [0, 1]


@pytest.mark.parametrize("second", [(2,), (3,), (7,), (1, 4)])
def test_the_first_method_determines_the_epoch_and_the_others_cycle(second: tuple[int, ...]) -> None:
    mixture = Mixture((((method("a", 3, 2), 1.0),), ((method("b", *second), 0.5),), ((method("c", 5), 0.1),)))
    assert mixture.total_steps(4) == 3 + 2 + 3 + 2
    found = [parts for epoch in range(4) for parts in collect_batches(mixture, epoch)]
    assert [a for a, _, _ in found] == [("a", e, p) for e, n in enumerate((3, 2, 3, 2)) for p in range(n)]
    rounds = [("b", e, p) for e in range(20) for p in range(second[e % len(second)])]
    # none is repeated or omitted, regardless of the epochs of the first method
    assert [b for _, b, _ in found] == rounds[:10]
    assert [c for _, _, c in found] == [("c", e, p) for e in range(2) for p in range(5)]


def mixed(mix: Mix, **settings: Any) -> Mixture:
    """Sets of 4, 8 and 2 batches an epoch; the second one has two losses."""
    sets = (((method("a", 4), 1.0),), ((method("b", 8), 0.5), (method("mlm", 8), 0.1)), ((method("c", 2), 1.0),))
    return Mixture(sets, mix, (1.0, 0.5, 3.0), seed=7, **settings)


@pytest.mark.parametrize(
    ("mix", "settings", "counts"),
    [
        ("proportional", {}, [4, 8, 2]),
        ("proportional", {"temperature": 2.0}, [4, 6, 3]),  # 4 * sqrt(8 / 4) and 4 * sqrt(2 / 4), rounded
        ("proportional", {"temperature": 1e6}, [4, 4, 4]),
        ("weighted", {}, [4, 2, 12]),
        ("round-robin", {}, [4, 4, 4]),
    ],
)
def test_each_batch_comes_from_one_set(mix: Mix, settings: dict[str, Any], counts: list[int]) -> None:
    mixture = mixed(mix, **settings)
    assert mixture.batches_of_epoch(0) == counts
    assert mixture.total_steps(3) == 3 * sum(counts)
    epochs = [[[batch for _, batch, _ in parts] for parts in mixture.epoch(epoch)] for epoch in range(3)]
    for steps in epochs:
        assert [sum(batches[0][0] == name for batches in steps) for name in "abc"] == counts
        assert all([who for who, *_ in batches] in (["a"], ["b", "mlm"], ["c"]) for batches in steps)
    flat = [batches for steps in epochs for batches in steps]
    for name, length in {"a": 4, "b": 8, "c": 2}.items():  # none is repeated or omitted
        own = [batches[0] for batches in flat if batches[0][0] == name]
        assert own == [(name, number // length, number % length) for number in range(len(own))]
    orders = [[batches[0][0] for batches in steps] for steps in epochs]
    assert (orders[0] != orders[1]) == (mix != "round-robin")
    if mix == "round-robin":
        assert orders[0] == ["a", "b", "c"] * 4
    for epoch, steps in enumerate(epochs):  # from any step
        for start in range(len(steps)):
            assert collect_batches(mixture, epoch, start) == steps[start:]


def test_losses_of_several_sets_have_names_that_differ() -> None:
    sets = [((method("a", 1), 1.0), (method("mlm", 1), 0.1)), ((method("a", 1), 1.0), (method("mlm", 1), 0.1))]
    assert [one.name for one in Mixture(with_distinct_names(sets)).losses] == ["a", "mlm", "a 2", "mlm 2"]
