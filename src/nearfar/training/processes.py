"""Communication between the processes of data-parallel training.

With one process, the usual case, nothing is communicated. With several (torchrun), all processes get the same batches,
each encodes its share of the items, and gradients are summed. The processes may be on several machines (nodes) that
share no files: only the first process reads and writes the run folder.

torchrun starts them, and :func:`join_process_group` joins them. On CPUs they meet on the network interface of the
machine's own name, unless :data:`INTERFACE` names another.

torchrun may restart the processes (``--max-restarts``). By default, they find each other through a store of torchrun
that still has the addresses of the processes before, and may wait for these until the timeout. So a store that does not
survive a restart is required.
"""

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed.nn.functional  # before a group exists, because its functions keep the group as a default
from torch import Tensor, distributed, nn

from nearfar.types import NearfarError

Value = TypeVar("Value")
BUCKET = 2**24
"""Maximum number of elements of small gradients that are reduced in one call."""
SPARSE_MIN_ROWS = 2**13
"""Number of rows from which a gradient matrix is treated as row-sparse: token embeddings, but not heads."""

INTERFACE = "GLOO_SOCKET_IFNAME"
FRESH_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""The environment variable of torchrun by which processes that it restarts get a new store."""


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
        if total < self.size:  # some processes have no row and do not know the shape
            parts: list[Any] = [None] * self.size
            distributed.all_gather_object(parts, None if own is None else (own.detach().cpu(), own.device.type))
            return torch.cat([rows for rows, _ in parts[:total]]).to(parts[0][1])
        assert own is not None
        padded = own.new_zeros(-(-total // self.size), *own.shape[1:])
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
        counts = torch.tensor([float(p.grad is not None) for p in trained], device=trained[0].device)
        distributed.all_reduce(counts)
        bucket: list[Tensor] = []
        for parameter in [p for p, count in zip(trained, counts.tolist(), strict=True) if count]:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if parameter.ndim == 2 and len(parameter) >= SPARSE_MIN_ROWS:
                _all_reduce_rows(parameter.grad)
                continue
            if sum(gradient.numel() for gradient in bucket) + parameter.numel() > BUCKET:
                _all_reduce_bucket(bucket)
                bucket = []
            bucket.append(parameter.grad)
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
            raise _SharedError(str(value))
        return value  # type: ignore[return-value]

    def agree(self, what: str, value: str) -> None:
        """Check that all processes have the same value.

        Raises:
            NearfarError: the value of a process differs from that of the first, or a process left a block of
                :meth:`joint_errors` with an error. Raised in all processes; the message names ``what`` and the nodes.
        """
        if self.size == 1:
            return
        (first, expected), *others = self._exchange("value", value)
        for rank, (node, other) in enumerate(others, start=1):
            if other != expected:
                raise _SharedError(
                    f"{what} differs between {first} (process 0) and {node} (process {rank}). All processes must have "
                    "the same settings, versions, data and models; copy them to every node, or share a folder."
                )

    @contextmanager
    def joint_errors(self) -> Iterator[None]:
        """Raise a NearfarError of one process in all processes, so that none waits for the one that failed.

        Inside the block, processes may communicate by :meth:`agree`, and directly after it by
        :meth:`broadcast_from_first`.
        """
        if self.size == 1:
            yield
            return
        try:
            yield
        except _SharedError:
            raise
        except NearfarError as error:
            self._exchange("error", str(error))
            raise
        self._exchange("value", "")

    def _exchange(self, kind: str, text: str) -> list[tuple[str, str]]:
        """The node and value of each process; the first error is raised, naming its node unless all have the same."""
        gathered = [(platform.node(), kind, text)] * self.size
        distributed.all_gather_object(gathered, gathered[0])
        for rank, (node, sent, message) in enumerate(gathered):
            if sent == "error":
                same = {other[1:] for other in gathered} == {("error", message)}
                raise _SharedError(message if same else f"on {node} (process {rank}): {message}")
        return [(node, value) for node, _, value in gathered]

    def any_process(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        if self.size == 1:
            return flag
        device = torch.device("cuda", torch.cuda.current_device()) if distributed.get_backend() == "nccl" else "cpu"
        count = torch.tensor(float(flag), device=device)
        distributed.all_reduce(count)
        return bool(count > 0)


class _SharedError(NearfarError):
    """An error that is raised in all processes."""


_GO_ON = (
    "Look for the first error of the other processes; then start all of them again with --resume: the run continues "
    "from its latest checkpoint."
)


@contextmanager
def lost_process_errors(
    what: str = "the connection to another process ended", *, advice: str = _GO_ON
) -> Iterator[None]:
    """Turn an error of gloo or NCCL, the connection to another process, into one that says how to go on."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, distributed.DistError) and "gloo" not in str(error):  # of a computation
            raise
        raise NearfarError(f"{what} ({' '.join(str(error).split())[-160:]}). {advice}") from error


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
    if gradients:
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(flat)
        for gradient, summed in zip(gradients, flat.split([part.numel() for part in gradients]), strict=True):
            gradient.copy_(summed.view_as(gradient))


def join_process_group(*, cpu: bool, timeout: timedelta) -> torch.device:
    """Join the process group if torchrun started several processes; the device of this process.

    Args:
        cpu: compute on the CPU, even if there is a GPU.
        timeout: how long a process waits for the others.

    Raises:
        NearfarError: the other processes cannot be reached, or could not be reached after a restart.
    """
    from accelerate import PartialState

    require_fresh_store()
    advice = (
        f"Check that all nodes have started, and that no firewall is between them; {INTERFACE} (CPU) or "
        "NCCL_SOCKET_IFNAME (GPUs) names the network interface to use, as in eth0."
    )
    with lost_process_errors("the processes of torchrun cannot connect to each other", advice=advice):
        device: torch.device = PartialState(cpu=cpu, timeout=timeout).device
    return device


def require_fresh_store() -> None:
    """Check that processes that torchrun restarts do not find the addresses of the processes before.

    Raises:
        NearfarError: torchrun may restart several processes, and they would share a store with those before.
    """
    several = os.environ.get("WORLD_SIZE", "1") != "1"
    restarts = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"
    if several and restarts and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        raise NearfarError(
            f"torchrun --max-restarts: start torchrun with the environment variable {FRESH_STORE}=1 and with "
            "--rdzv-backend c10d. Otherwise processes that it restarts may look for those that have ended, and wait "
            "until the timeout."
        )
