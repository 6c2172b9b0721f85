"""The gradient of one batch, which does not depend on how it is split into micro-batches and processes.

1. Each process encodes its share of the batch's items, one micro-batch at a time.
2. The representations of all items are gathered in every process.
3. Every process computes the loss of the *whole* batch.
4. Each process backpropagates through the representations that it computed itself.

Summed over processes, this is the gradient of a single process with all items, for any loss, including losses with
in-batch negatives. With several micro-batches, representations are first computed without a graph, and computed again
with a graph when their gradient is known (gradient caching; L. Gao et al. 2021, "Scaling Deep Contrastive Learning
Batch Size under Memory Limited Setup"). :func:`seed_rng` makes dropout the same both times.

On GPUs, gradients are summed over the processes while the backward pass still computes others. They are sent in
buckets. A bucket is sent as soon as all its gradients and all earlier buckets are complete, so all processes send the
same buckets in the same order. The order is that in which the first process completed the gradients in an earlier step;
in the first step, all gradients are summed after the backward pass.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, distributed, nn

from nearfar.training.processes import SPARSE_MIN_ROWS, Processes, lost_process_errors
from nearfar.types import NearfarError

BUCKET = 2**22
"""Maximum number of elements of a bucket, unless a single gradient is larger."""


class Loss(Protocol):
    """A batch's loss: the scalar to minimise, and detached scalars to report, by name."""

    @property
    def total(self) -> Tensor: ...  # noqa: D102

    @property
    def terms(self) -> dict[str, Tensor]: ...  # noqa: D102


class Objective(Protocol):
    """The interface of a training method: the items of a batch, their representations, and the loss."""

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
    """Items per micro-batch; None for all at once."""
    micro_batch_tokens: int | None = None
    """Tokens per micro-batch, instead of a number of items."""
    bf16: bool = False
    """Whether heads run under bfloat16 autocast. Objectives and ``represent`` choose their own precision."""

    def accumulate_mean(
        self, group: Sequence[Sequence[LossPart]], *, step: int, sums: "Sums | None" = None
    ) -> tuple[dict[str, float], int]:
        """Accumulate the gradient of the mean loss of the batches in ``group``; a batch is a weighted sum of parts.

        ``sums`` gets to know the last backward pass. Returns the loss and its terms by name, and the number of encoded
        items. If a batch has several parts, the loss and the terms of each part are prefixed with its name:
        ``mlm.loss``.
        """
        terms: dict[str, float] = {"loss": 0.0}
        items = 0
        for index, parts in enumerate(group):
            names = _distinct([objective.name for objective, _, _ in parts])
            for number, (objective, batch, weight) in enumerate(parts):
                last = index == len(group) - 1 and number == len(parts) - 1
                loss, count = self.accumulate(
                    objective, batch, weight=weight / len(group), key=(step, index, number), sums=sums if last else None
                )
                items += count
                terms["loss"] += weight / len(group) * float(loss.total.detach())
                named = dict(loss.terms)
                if len(parts) > 1:
                    named = {"loss": loss.total.detach()} | named
                    named = {f"{names[number]}.{name}": value for name, value in named.items()}
                for name, value in named.items():
                    terms[name] = terms.get(name, 0.0) + float(value) / len(group)
        return terms, items

    def accumulate(
        self, objective: Objective, batch: Any, *, weight: float, key: tuple[int, ...], sums: "Sums | None" = None
    ) -> tuple[Loss, int]:
        """Accumulate the gradient of ``weight`` times the batch's loss; return the loss and the number of items.

        ``sums`` are given if no other backward pass of the step follows. Random numbers depend only on the seed,
        ``key``, the process and the micro-batch. With several processes, gradients are complete after
        :meth:`Sums.finish` or :meth:`Processes.all_reduce_gradients`.
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
        rows = self.processes.gather(torch.cat(own_rows) if own_rows else None, len(items)).requires_grad_()

        seed_rng(self.seed, *key, "loss")
        with torch.autocast(rows.device.type, dtype=torch.bfloat16, enabled=self.bf16):
            loss = objective.loss_fn(batch, rows)
        # Every process computes the loss, and gradients are summed over processes: divide by their number here, so that
        # direct gradients of weights (heads, a regulariser) are right, and multiply the rows' gradients back below.
        (loss.total * (weight / size)).backward()
        if rows.grad is None:
            return loss, len(items)
        row_grads = rows.grad[self.processes.share] * size
        for index, row_grad in enumerate(row_grads.split([len(p) for p in micro_batches]) if micro_batches else ()):
            row = own_rows[index] if single else represent(index)
            if row.requires_grad:
                last = index == len(micro_batches) - 1
                with sums.last_backward() if last and sums is not None else nullcontext():
                    row.backward(row_grad)
        return loss, len(items)


def split_micro_batches(
    objective: Objective, items: Sequence[Any], micro_batch: int | None, micro_batch_tokens: int | None
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


def _distinct(names: Sequence[str]) -> list[str]:
    """Make the names unique: append 2, 3 and so on to repeated ones."""
    counts = [names[: index + 1].count(name) for index, name in enumerate(names)]
    return [name if count == 1 else f"{name} {count}" for name, count in zip(names, counts, strict=True)]


def seed_rng(*key: object) -> None:
    """Seed torch's generators from ``key`` alone, so that a step can be repeated, resumed and distributed.

    ``torch.manual_seed`` also formats a stack trace for each kind of device that torch knows but has not initialised,
    which takes longer than the rest of the call. Here it is used only until the GPU is initialised.
    """
    seed = random.Random(" ".join(map(str, key))).getrandbits(63)
    if torch.cuda.is_initialized():
        torch.default_generator.manual_seed(seed)
        torch.cuda.manual_seed_all(seed)
    elif has_accelerator():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


@cache
def has_accelerator() -> bool:
    """Whether there is a device besides the CPU."""
    return torch.accelerator.is_available()


@contextmanager
def gradient_sums(processes: Processes, parameters: Sequence[nn.Parameter]) -> "Iterator[Sums]":
    """Sums the gradients of ``parameters``: during the last backward pass if ``processes.overlaps``, else after it."""
    if not processes.overlaps:
        yield Sums(processes, parameters)
        return
    sums = OverlappedSums(processes, parameters)
    try:
        yield sums
    finally:
        sums.close()


class Sums:
    """Sums gradients after the backward pass.

    Args:
        processes: the processes; with one, nothing is done.
        parameters: all parameters, in the same order in all processes.
    """

    def __init__(self, processes: Processes, parameters: Sequence[nn.Parameter]) -> None:
        self._processes, self._parameters = processes, parameters

    @contextmanager
    def last_backward(self) -> Iterator[None]:
        """Around the last backward pass of a step, after which no gradient changes."""
        yield

    def finish(self) -> None:
        """Wait until all gradients are summed; a gradient that is None in all processes stays None."""
        self._processes.all_reduce_gradients(self._parameters)


class OverlappedSums(Sums):
    """Sums most gradients during the last backward pass of a step.

    Row-sparse gradients, on whose rows the processes have to agree first, and those that are complete before that
    backward pass are summed afterwards.

    Args:
        processes: the processes, more than one.
        parameters: all parameters, in the same order in all processes.
    """

    def __init__(self, processes: Processes, parameters: Sequence[nn.Parameter], *, bucket: int = BUCKET) -> None:
        super().__init__(processes, [p for p in dict.fromkeys(parameters) if p.requires_grad])
        dense = [p for p in self._parameters if p.ndim != 2 or len(p) < SPARSE_MIN_ROWS]
        self._bucket_size = bucket
        self._completed: list[nn.Parameter] = []
        """The parameters whose gradients were completed in the last backward pass, in order."""
        self._buckets: list[list[nn.Parameter]] = []
        self._place: dict[nn.Parameter, int] = {}
        """The bucket of each parameter."""
        self._missing: list[int] = []
        """How many gradients each bucket still waits for."""
        self._sent: list[tuple[Tensor, distributed.Work]] = []
        self._watching = False
        self.sent_early = 0
        """Number of buckets that were sent during backward passes."""
        self._hooks = [parameter.register_post_accumulate_grad_hook(self._complete) for parameter in dense]

    @contextmanager
    def last_backward(self) -> Iterator[None]:
        """Around the last backward pass of a step, after which no gradient changes."""
        self._watching = True
        try:
            yield
        finally:
            self._watching = False

    def finish(self) -> None:
        """Wait until all gradients are summed; a gradient that is None in all processes stays None."""
        if not self._buckets:
            number = {parameter: number for number, parameter in enumerate(self._parameters)}
            order = self._processes.broadcast_from_first(lambda: [number[parameter] for parameter in self._completed])
            super().finish()
            self._completed.clear()
            self._make_buckets([self._parameters[number] for number in order])
            return
        with lost_process_errors():
            while len(self._sent) < len(self._buckets):
                self._send()
            found = torch.tensor([float(p.grad is not None) for p in self._place], device=self._sent[0][0].device)
            distributed.all_reduce(found)
            counts = dict(zip(self._place, found.tolist(), strict=True))
            for parameters, (flat, work) in zip(self._buckets, self._sent, strict=True):
                work.wait()
                for parameter, summed in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
                    if parameter.grad is not None:
                        parameter.grad.copy_(summed.view_as(parameter))
                    elif counts[parameter]:
                        parameter.grad = summed.view_as(parameter).clone()
        self._processes.all_reduce_gradients([p for p in self._parameters if p not in self._place])
        self._begin()

    def close(self) -> None:
        """Remove the hooks from the parameters."""
        for hook in self._hooks:
            hook.remove()

    def _make_buckets(self, order: Sequence[nn.Parameter]) -> None:
        size = 0
        for parameter in order:
            size += parameter.numel()
            if not self._buckets or size > self._bucket_size:
                self._buckets.append([])
                size = parameter.numel()
            self._buckets[-1].append(parameter)
            self._place[parameter] = len(self._buckets) - 1
        self._begin()

    def _begin(self) -> None:
        self._sent.clear()
        self._missing = [len(bucket) for bucket in self._buckets]

    def _complete(self, parameter: nn.Parameter) -> None:
        """Called by autograd when a gradient has been accumulated."""
        if not self._watching:
            return
        if not self._buckets:
            self._completed.append(parameter)
        elif parameter in self._place:
            self._missing[self._place[parameter]] -= 1
        with lost_process_errors():
            while len(self._sent) < len(self._buckets) and not self._missing[len(self._sent)]:
                self._send()
                self.sent_early += 1

    def _send(self) -> None:
        parameters = self._buckets[len(self._sent)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters])
        work = distributed.all_reduce(flat, async_op=True)
        assert work is not None
        self._sent.append((flat, work))
