"""Communication between the processes of data-parallel training.

With one process, the usual case, nothing is communicated. With several (torchrun), all processes get the same batches,
each encodes its share of the items, and gradients are summed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch
import torch.distributed.nn.functional  # before a group exists, because its functions keep the group as a default
from torch import Tensor, distributed, nn

from nearfar.types import NearfarError

Value = TypeVar("Value")
BUCKET = 2**24
"""Maximum number of elements of small gradients that are reduced in one call."""
SPARSE_MIN_ROWS = 2**13
"""Number of rows from which a gradient matrix is treated as row-sparse: token embeddings, but not heads."""


class Processes:
    """The rank of this process, the number of processes (``size``), and communication between them."""

    def __init__(self) -> None:
        started = distributed.is_available() and distributed.is_initialized()
        self.rank = distributed.get_rank() if started else 0
        self.size = distributed.get_world_size() if started else 1

    @property
    def is_main(self) -> bool:
        """Whether this is the process that evaluates, writes files and prints."""
        return self.rank == 0

    @property
    def share(self) -> slice:
        """The items that this process encodes: every ``size``-th, so that shares differ by at most one item."""
        return slice(self.rank, None, self.size)

    def gather(self, own: Tensor | None, total: int) -> Tensor:
        """Gather the rows of all ``total`` items from the processes' shares, in the items' order, without gradient.

        ``own`` is None if this process's share is empty.
        """
        if self.size == 1:
            assert own is not None
            return own.detach()
        longest = -(-total // self.size)
        if total < self.size:  # some processes have no row and do not know the shape
            like = self.broadcast_from_first(
                lambda: None if own is None else (own.shape[1:], own.dtype, own.device.type)
            )
            assert like is not None
            if own is None:
                device = torch.device("cuda", torch.cuda.current_device()) if like[2] == "cuda" else like[2]
                own = torch.empty(0, *like[0], dtype=like[1], device=device)
        assert own is not None
        padded = own.new_zeros(longest, *own.shape[1:])
        padded[: len(own)] = own.detach()
        gathered = [torch.empty_like(padded) for _ in range(self.size)]
        distributed.all_gather(gathered, padded)
        return torch.stack(gathered, dim=1).flatten(0, 1)[:total]

    def all_reduce_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace each gradient by the sum over the processes; a gradient that is None in all processes stays None."""
        if self.size == 1:
            return
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        if not trained:
            return
        found = torch.tensor([float(p.grad is not None) for p in trained], device=trained[0].device)
        distributed.all_reduce(found)
        bucket: list[Tensor] = []
        for parameter in [p for p, count in zip(trained, found.tolist(), strict=True) if count]:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if parameter.ndim == 2 and len(parameter) >= SPARSE_MIN_ROWS:
                _all_reduce_rows(parameter.grad)
                continue
            if bucket and sum(gradient.numel() for gradient in bucket) + parameter.numel() > BUCKET:
                _all_reduce_bucket(bucket)
                bucket = []
            bucket.append(parameter.grad)
        if bucket:
            _all_reduce_bucket(bucket)

    def broadcast_from_first(self, compute: Callable[[], Value]) -> Value:
        """Call ``compute`` in the first process and return its result in all; a NearfarError is raised in all."""
        if self.size == 1:
            return compute()
        message: list[tuple[str, object]] = [("", None)]
        if self.is_main:
            try:
                message = [("value", compute())]
            except NearfarError as error:
                message = [("error", str(error))]
        distributed.broadcast_object_list(message)
        kind, value = message[0]
        if kind == "error":
            raise NearfarError(str(value))
        return value  # type: ignore[return-value]

    def any_process(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        if self.size == 1:
            return flag
        device = torch.device("cuda", torch.cuda.current_device()) if distributed.get_backend() == "nccl" else "cpu"
        count = torch.tensor(float(flag), device=device)
        distributed.all_reduce(count)
        return bool(count > 0)


def leave_process_group() -> None:
    """Destroy the process group, if there is one.

    Otherwise the group's threads may free a tensor while the interpreter shuts down, which aborts the process.
    """
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def _all_reduce_rows(gradient: Tensor) -> None:
    """Sum a row-sparse gradient: only rows that are not zero in all processes are communicated."""
    used = gradient.any(dim=1).to(torch.uint8)
    distributed.all_reduce(used, distributed.ReduceOp.MAX)
    rows = used.nonzero().squeeze(1)
    summed = gradient[rows]
    distributed.all_reduce(summed)
    gradient[rows] = summed


def _all_reduce_bucket(gradients: Sequence[Tensor]) -> None:
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    distributed.all_reduce(flat)
    for gradient, summed in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(summed.view_as(gradient))
