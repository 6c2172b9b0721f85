"""The gradient of one batch, the same however it is split into micro-batches and over processes.

In the order of the data: the items of the batch are represented, each process its share, micro-batch by micro-batch;
the rows of all are gathered; every process computes the loss of the *whole* batch from them; and each sends the
gradient back through the rows that it made itself. Summed over the processes this is the gradient of one process with
all items, for any loss whatever, negatives included. In several micro-batches, rows are first made without a graph, and
made again, micro-batch by micro-batch, when their gradient is known (L. Gao et al. 2021, "Scaling Deep Contrastive
Learning Batch Size under Memory Limited Setup"); as all random numbers start from :func:`seed_rng`, dropout is the same
both times.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from nearfar.training.processes import Processes
from nearfar.types import NearfarError


class Loss(Protocol):
    """A batch's loss: the scalar to minimise, and detached scalars to show, by name."""

    @property
    def total(self) -> Tensor: ...  # noqa: D102

    @property
    def terms(self) -> dict[str, Tensor]: ...  # noqa: D102


class Objective(Protocol):
    """What is known of a method here: items of a batch, their rows, and the loss of all rows."""

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def extract_items(self) -> Callable[[Any], Sequence[Any]]: ...  # noqa: D102

    @property
    def represent(self) -> Callable[[Sequence[Any]], Tensor]: ...  # noqa: D102

    @property
    def loss_fn(self) -> Callable[[Any, Tensor], Loss]: ...  # noqa: D102

    @property
    def count_tokens(self) -> Callable[[Sequence[Any]], Sequence[int]] | None: ...  # noqa: D102


LossPart: TypeAlias = tuple[Objective, Any, float]
"""An objective, the batch that it gets in this step, and its weight."""


@dataclass(frozen=True)
class Gradients:
    """How gradients are computed in this run."""

    seed: int
    processes: Processes
    micro_batch: int | None = None
    """Items represented at a time; None for all at once."""
    micro_batch_tokens: int | None = None
    """Tokens represented at a time, in place of a number of items."""
    bf16: bool = False
    """Whether heads compute in bfloat16. Objectives see to their own precision, and ``represent`` to the encoder's."""

    def accumulate_mean(self, group: Sequence[Sequence[LossPart]], *, step: int) -> tuple[dict[str, float], int]:
        """Add the gradient of the mean loss of some batches, each the weighted sum of its parts.

        Returns the loss and its terms by name, and how many items were represented. Where there are several parts, the
        terms of each, its loss among them, have its name in front: ``mlm.loss``.
        """
        terms: dict[str, float] = {"loss": 0.0}
        items = 0
        for place, parts in enumerate(group):
            names = _distinct([objective.name for objective, _, _ in parts])
            for number, (objective, batch, weight) in enumerate(parts):
                loss, count = self.accumulate(objective, batch, weight=weight / len(group), key=(step, place, number))
                items += count
                terms["loss"] += weight / len(group) * float(loss.total.detach())
                named = dict(loss.terms)
                if len(parts) > 1:
                    named = {"loss": loss.total.detach()} | named
                    named = {f"{names[number]}.{name}": value for name, value in named.items()}
                for name, value in named.items():
                    terms[name] = terms.get(name, 0.0) + float(value) / len(group)
        return terms, items

    def accumulate(self, objective: Objective, batch: Any, *, weight: float, key: tuple[int, ...]) -> tuple[Loss, int]:
        """Add the gradient of ``weight`` times the batch's loss to the parameters; the loss, and how many items it had.

        What is drawn at random depends on the seed and ``key`` alone. Over several processes, gradients are complete
        once :meth:`Processes.all_reduce_gradients` has been called.
        """
        rank, size = self.processes.rank, self.processes.size
        seed_rng(self.seed, *key, "items")
        items = objective.extract_items(batch)
        micro_batches = split_micro_batches(
            objective, items[self.processes.share], self.micro_batch, self.micro_batch_tokens
        )

        def represent(index: int) -> Tensor:
            seed_rng(self.seed, *key, "rows", rank, index)
            return objective.represent(micro_batches[index])

        in_one = len(micro_batches) == 1
        with torch.set_grad_enabled(in_one):
            made = [represent(index) for index in range(len(micro_batches))]
        rows = self.processes.gather(torch.cat(made) if made else None, len(items)).requires_grad_()

        seed_rng(self.seed, *key, "loss")
        with torch.autocast(rows.device.type, dtype=torch.bfloat16, enabled=self.bf16):
            loss = objective.loss_fn(batch, rows)
        # What the loss owes directly to weights (heads, a regulariser) comes out in every process, and is summed later.
        (loss.total * (weight / size)).backward()
        if rows.grad is None:
            return loss, len(items)
        row_grads = rows.grad[self.processes.share] * size
        for index, row_grad in enumerate(row_grads.split([len(p) for p in micro_batches]) if micro_batches else ()):
            row = made[index] if in_one else represent(index)
            if row.requires_grad:
                row.backward(row_grad)
        return loss, len(items)


def split_micro_batches(
    objective: Objective, items: Sequence[Any], micro_batch: int | None, micro_batch_tokens: int | None
) -> list[Sequence[Any]]:
    """Neighbouring items that are represented together: so many, or as many as have so many tokens between them.

    An item of more tokens than that is by itself. Without either, all are one micro-batch; no items are none. Raises
    NearfarError if tokens are asked for and the objective does not count them.
    """
    if micro_batch_tokens is None:
        size = micro_batch or max(len(items), 1)
        return [items[start : start + size] for start in range(0, len(items), size)]
    if objective.count_tokens is None:
        raise NearfarError(f"{objective.name} does not say how many tokens its items have; give a number of items.")
    starts: list[int] = []
    held = 0
    for place, tokens in enumerate(objective.count_tokens(items)):
        if not starts or held + tokens > micro_batch_tokens:
            starts.append(place)
            held = 0
        held += tokens
    return [items[start:end] for start, end in pairwise([*starts, len(items)])]


def _distinct(names: Sequence[str]) -> list[str]:
    """The names, with a number behind one that came before."""
    counts = [names[: place + 1].count(name) for place, name in enumerate(names)]
    return [name if count == 1 else f"{name} {count}" for name, count in zip(names, counts, strict=True)]


def seed_rng(*key: object) -> None:
    """Start torch's generators from ``key`` alone, so that a step can be repeated, resumed and shared."""
    torch.manual_seed(random.Random(" ".join(map(str, key))).getrandbits(63))
