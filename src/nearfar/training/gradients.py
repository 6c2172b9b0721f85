"""The gradient of one batch, which does not depend on how it is split into micro-batches and processes.

1. Each process encodes its share of the batch's items, one micro-batch at a time.
2. The representations of all items are gathered in every process.
3. Every process computes the loss of the *whole* batch.
4. Each process backpropagates through the representations that it computed itself.

Summed over processes, this is the gradient of a single process with all items, for any loss, including losses with
in-batch negatives. With several micro-batches, representations are first computed without a graph, and computed again
with a graph when their gradient is known (gradient caching; L. Gao et al. 2021, "Scaling Deep Contrastive Learning
Batch Size under Memory Limited Setup"). :func:`seed_rng` makes dropout the same both times.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor

from nearfar.runtime.gpu import start_copy
from nearfar.training.processes import Processes
from nearfar.training.recordings import Recordings
from nearfar.types import Loss, Method, NearfarError

LossPart: TypeAlias = tuple[Method, Any, float]
"""A method, the batch that it gets in this step, and its weight."""
Term: TypeAlias = tuple[str, float, Tensor]
"""A scalar on its device: the name of the sum that it is part of, its weight in the sum, and its value."""


@dataclass(frozen=True)
class Gradients:
    """How gradients are computed in this run."""

    seed: int
    processes: Processes
    micro_batch: int | None = None
    """Items per micro-batch; None for all at once."""
    micro_batch_tokens: int | None = None
    """Tokens per micro-batch, instead of a number of items."""
    bf16: bool = False
    """Whether heads run under bfloat16 autocast. Objectives and ``represent`` choose their own precision."""
    name_terms: bool = False
    """Whether terms are named by their part, as batches have several or differ in them."""
    recordings: Recordings | None = None
    """Computes losses by CUDA graphs where it can; only with one process."""

    def accumulate_mean(self, group: Sequence[Sequence[LossPart]], *, step: int) -> tuple[list[Term], int]:
        """Accumulate the gradient of the mean loss of the batches in ``group``; a batch is a weighted sum of parts.

        Returns what the loss, under this name, and its terms are sums of, and the number of encoded items. With
        ``name_terms`` the loss and the terms of each part are prefixed with its name: ``mlm.loss``; of batches without
        this part they say nothing.
        """
        losses: list[Term] = []
        values: list[tuple[str, Tensor]] = []
        items = 0
        for index, parts in enumerate(group):
            for number, (objective, batch, weight) in enumerate(parts):
                key, share = (step, index, number), weight / len(group)
                loss, count = self.accumulate(objective, batch, weight=share, key=key)
                items += count
                losses.append(("loss", share, loss.total.detach()))
                named = {"loss": loss.total} | loss.terms if self.name_terms else loss.terms
                prefix = f"{objective.name}." if self.name_terms else ""
                values += [(prefix + name, value.detach()) for name, value in named.items()]
        counts = Counter(name for name, _ in values)
        return [*losses, *((name, 1 / counts[name], value) for name, value in values)], items

    def accumulate(self, objective: Method, batch: Any, *, weight: float, key: tuple[int, ...]) -> tuple[Loss, int]:
        """Accumulate the gradient of ``weight`` times the batch's loss; return the loss and the number of items.

        Random numbers depend only on the seed, ``key``, the process and the micro-batch. With several processes,
        gradients are complete after :meth:`Processes.all_reduce_gradients`.
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

        single = len(micro_batches) == 1
        with torch.set_grad_enabled(single):
            own_rows = [represent(index) for index in range(len(micro_batches))]
        rows = self.processes.gather(torch.cat(own_rows) if own_rows else None, len(items))

        seed_rng(self.seed, *key, "loss")
        # Every process computes the loss, and gradients are summed over processes: divide by their number here, so that
        # direct gradients of weights (heads, a regulariser) are right, and multiply the rows' gradients back below.
        loss, gradient = self._loss(objective, batch, rows, weight / size)
        if gradient is None:
            return loss, len(items)
        row_grads = gradient[self.processes.share] * size
        for index, row_grad in enumerate(row_grads.split([len(p) for p in micro_batches]) if micro_batches else ()):
            row = own_rows[index] if single else represent(index)
            if row.requires_grad:
                row.backward(row_grad)
        return loss, len(items)

    def _loss(self, objective: Method, batch: Any, rows: Tensor, weight: float) -> tuple[Loss, Tensor | None]:
        """The loss of a batch, and the gradient of ``weight`` times the loss in its rows; heads get theirs."""
        if self.recordings is not None:
            recorded = self.recordings.loss(objective, batch, rows, weight=weight, bf16=self.bf16)
            if recorded is not None:
                return recorded
        rows.requires_grad_()
        with torch.autocast(rows.device.type, dtype=torch.bfloat16, enabled=self.bf16):
            loss = objective.loss_fn(batch, rows)
        (loss.total * weight).backward()
        return loss, rows.grad


def read_later(terms: Sequence[Term]) -> Callable[[], dict[str, float]]:
    """Start to copy the values to the host; the returned function waits until they are there, and adds them by name.

    It waits for nothing that is started on a GPU after this call.
    """
    device = terms[0][2].device
    copied = start_copy(torch.stack([value.to(device, non_blocking=True) for *_, value in terms]))

    def read() -> dict[str, float]:
        sums: dict[str, float] = {}
        for (name, weight, _), value in zip(terms, copied().tolist(), strict=True):
            sums[name] = sums.get(name, 0.0) + weight * value
        return sums

    return read


def split_micro_batches(
    objective: Method, items: Sequence[Any], micro_batch: int | None, micro_batch_tokens: int | None
) -> list[Sequence[Any]]:
    """Split items into micro-batches of at most ``micro_batch`` items, or of at most ``micro_batch_tokens`` tokens.

    The order is kept. An item with more tokens than the limit is a micro-batch of its own. Without limits, all items
    are one micro-batch. No items give no micro-batches.

    Raises:
        NearfarError: ``micro_batch_tokens`` is set, but the objective does not count tokens.
    """
    if micro_batch_tokens is None:
        size = micro_batch or max(len(items), 1)
        return [items[start : start + size] for start in range(0, len(items), size)]
    if objective.count_tokens is None:
        raise NearfarError(f"{objective.name} does not count the tokens of its items; use --micro-batch instead.")
    starts: list[int] = []
    total = 0
    for index, tokens in enumerate(objective.count_tokens(items)):
        if not starts or total + tokens > micro_batch_tokens:
            starts.append(index)
            total = 0
        total += tokens
    return [items[start:end] for start, end in pairwise([*starts, len(items)])]


def seed_rng(*key: object) -> None:
    """Seed torch's generators from ``key`` alone, so that a step can be repeated, resumed and distributed.

    ``torch.manual_seed`` does the same, but formats a stack trace for each kind of device that torch knows but has not
    initialised, which takes longer than the rest of the call.
    """
    seed = random.Random(" ".join(map(str, key))).getrandbits(63)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
