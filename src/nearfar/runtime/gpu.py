"""What keeps a GPU at work: copies for which Python does not wait, and recorded computations (CUDA graphs)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

VARIABLE = "NEARFAR_CUDA_GRAPHS"
"""The environment variable that disables recordings by the value 0."""
MAX_GRAPHS = 64
"""Number of recordings of one kind that are kept."""


def to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on ``device``. Python does not wait for a copy from the CPU to a GPU.

    A plain copy makes Python wait until the GPU has finished all operations before it.
    """
    device = torch.device(device)
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def start_copy(tensor: Tensor) -> Callable[[], Tensor]:
    """Start to copy a tensor to the CPU; the returned function waits until it is there, and gives it.

    It waits for nothing that is started on a GPU after this call.
    """
    copy = tensor.to("cpu", non_blocking=True)
    copied = torch.cuda.current_stream(tensor.device).record_event() if tensor.device.type == "cuda" else None

    def wait() -> Tensor:
        if copied is not None:
            copied.synchronize()
        return copy

    return wait


def round_up(number: int, *, steps: int, multiple: int) -> int:
    """The next multiple of ``multiple`` and of 1 / ``steps`` of the largest power of two that is at most ``number``."""
    step = max(multiple, 2 ** (number.bit_length() - 1) // steps)
    return -(-number // step) * step


class Recorder:
    """Records computations on a GPU as CUDA graphs, which all use the same memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream, self._pool = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Inside the block, computations are recorded, or made first. That changes no random numbers after it."""
        state = torch.cuda.get_rng_state(self._device)
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        try:
            with torch.cuda.stream(self._stream):
                yield
        except BaseException:
            self._leave()
            raise
        finally:
            torch.cuda.set_rng_state(state, self._device)
        current.wait_stream(self._stream)

    def record(self, compute: Callable[[], None]) -> Callable[[], None]:
        """Record what the function computes, while other threads may use the GPU; the result repeats it."""
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()  # graphs cannot use the memory that what was computed before has left
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            compute()
        finally:
            graph.capture_end()
        return graph.replay

    def upload(self, values: Tensor, into: Tensor) -> None:
        """Copy to the GPU without waiting for it."""
        into.copy_(values.pin_memory(), non_blocking=True)

    def _leave(self) -> None:
        """Make random numbers usable after a failure, as only a complete recording ends that state of the generator."""
        with torch.cuda.device(self._device):
            number = torch.zeros((), device=self._device)
            with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
                number.add_(1)


class GradientBuffers:
    """Gradients at fixed places, which CUDA graphs write, and others read."""

    def __init__(self) -> None:
        self._buffers: dict[nn.Parameter, Tensor] = {}

    def prepare(self, parameters: Iterable[nn.Parameter]) -> None:
        """Make places for the gradients of these parameters."""
        for parameter in parameters:
            self._buffers.setdefault(parameter, torch.zeros_like(parameter))

    def write(self, parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor]) -> None:
        """Copy gradients to their places; graphs record this."""
        if parameters:
            torch._foreach_copy_([self._buffers[parameter] for parameter in parameters], [*gradients])

    @contextmanager
    def adding(self, parameters: Sequence[nn.Parameter]) -> Iterator[None]:
        """Around what writes these gradients: they are added to those of the parameters, whose ``grad`` is the sum."""
        earlier = [(p, p.grad) for p in parameters if p.grad is not None]  # of other passes of this step
        kept = [grad.clone() if grad is self._buffers[p] else grad for p, grad in earlier]
        yield
        if kept:
            torch._foreach_add_([self._buffers[p] for p, _ in earlier], kept)
        for parameter in parameters:
            parameter.grad = self._buffers[parameter]

    def have(self, parameters: Iterable[nn.Parameter]) -> bool:
        """Whether the ``grad`` of each parameter is its place here."""
        return all(parameter.grad is self._buffers.get(parameter) for parameter in parameters)
