"""Sums gradients over the processes while the backward pass still computes others, for GPUs.

Gradients are sent in buckets. A bucket is sent as soon as all its gradients and all earlier buckets are complete, so
all processes send the same buckets in the same order. The order is that in which the first process completed the
gradients in an earlier step; in the first step, all gradients are summed after the backward pass.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, distributed, nn

from nearfar.training.processes import SPARSE_MIN_ROWS, Processes, lost_process_errors

BUCKET = 2**22
"""Maximum number of elements of a bucket, unless a single gradient is larger."""


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


class _Sent(NamedTuple):
    parameters: Sequence[nn.Parameter]
    flat: Tensor
    work: distributed.Work


class OverlappedSums(Sums):
    """Sums most gradients during the last backward pass of a step.

    Row-sparse gradients are summed afterwards, because the rows have to be agreed on first.

    Args:
        processes: the processes, more than one.
        parameters: all parameters, in the same order in all processes.
    """

    def __init__(self, processes: Processes, parameters: Sequence[nn.Parameter], *, bucket: int = BUCKET) -> None:
        super().__init__(processes, parameters)
        trained = [parameter for parameter in dict.fromkeys(parameters) if parameter.requires_grad]
        self._sparse = [p for p in trained if p.ndim == 2 and len(p) >= SPARSE_MIN_ROWS]
        sparse = set(self._sparse)
        self._dense = [p for p in trained if p not in sparse]
        self._bucket_size = bucket
        self._number = {parameter: number for number, parameter in enumerate(self._dense)}
        self._completed: list[int] = []
        """The numbers of the parameters whose gradients were completed in the last backward pass, in order."""
        self._buckets: list[list[nn.Parameter]] = []
        self._place: dict[nn.Parameter, int] = {}
        """The bucket of each parameter."""
        self._missing: list[int] = []
        """How many gradients each bucket still waits for."""
        self._sent: list[_Sent] = []
        self._watching = False
        self.sent_early = 0
        """Number of buckets that were sent during backward passes."""
        self._hooks = [parameter.register_post_accumulate_grad_hook(self._complete) for parameter in self._dense]

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
            order = self._processes.broadcast_from_first(lambda: list(self._completed))
            self._processes.all_reduce_gradients([*self._dense, *self._sparse])
            self._completed.clear()
            if order:
                self._make_buckets(order)
            return
        with lost_process_errors():
            while len(self._sent) < len(self._buckets):
                self._send()
            has_gradient = [float(p.grad is not None) for p in self._dense]
            found = torch.tensor(has_gradient, device=self._dense[0].device)
            distributed.all_reduce(found)
            counts = found.tolist()
            for parameters, flat, work in self._sent:
                work.wait()
                for parameter, summed in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
                    if parameter.grad is not None:
                        parameter.grad.copy_(summed.view_as(parameter))
                    elif counts[self._number[parameter]]:
                        parameter.grad = summed.view_as(parameter).clone()
        self._processes.all_reduce_gradients(self._sparse)
        self._begin()

    def close(self) -> None:
        """Remove the hooks from the parameters."""
        for hook in self._hooks:
            hook.remove()

    def _make_buckets(self, order: Sequence[int]) -> None:
        """Fill buckets in this order; parameters that got no gradient in the backward pass come last."""
        rest = sorted(set(range(len(self._dense))) - set(order))
        size = 0
        for number in (*order, *rest):
            parameter = self._dense[number]
            if not self._buckets or size + parameter.numel() > self._bucket_size or number in rest[:1]:
                self._buckets.append([])
                size = 0
            self._buckets[-1].append(parameter)
            self._place[parameter] = len(self._buckets) - 1
            size += parameter.numel()
        self._begin()

    def _begin(self) -> None:
        self._sent.clear()
        self._missing = [len(bucket) for bucket in self._buckets]

    def _complete(self, parameter: nn.Parameter) -> None:
        """Called by autograd when a gradient has been accumulated."""
        if not self._watching:
            return
        if not self._buckets:
            self._completed.append(self._number[parameter])
            return
        self._missing[self._place[parameter]] -= 1
        with lost_process_errors():
            while len(self._sent) < len(self._buckets) and not self._missing[len(self._sent)]:
                self._send()
                self.sent_early += 1

    def _send(self) -> None:
        parameters = self._buckets[len(self._sent)]
        parts = [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in parameters]
        flat = torch.cat(parts)
        work = distributed.all_reduce(flat, async_op=True)
        assert work is not None
        self._sent.append(_Sent(parameters, flat, work))
