"""CUDA graphs of the passes of training: the encoder's forward and backward pass, and the views of a frozen guide.

A small encoder's pass has about a hundred short operations per layer, and Python needs longer to start them than a GPU
to compute them. A CUDA graph records the operations once per :class:`BatchShape` and starts them by one call. Whether a
graph computes a batch depends on the batch alone, so that a resumed run repeats the steps of an uninterrupted one.

``NEARFAR_CUDA_GRAPHS=0`` disables graphs. Results differ by the order of summation, and dropout masks differ.
"""

import os
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.encoder.encoder import Encoder
from nearfar.encoder.static import is_static
from nearfar.encoder.tiles import LENGTHS, BatchShape, TiledBatch
from nearfar.encoder.tokens import TokenRows
from nearfar.types import NearfarError

VARIABLE = "NEARFAR_CUDA_GRAPHS"
MAX_TOKENS = 16_384
"""Largest number of tokens of a batch that a graph computes: a GPU needs longer for more tokens than Python."""
MAX_GRAPHS = 64
"""Number of recordings of an encoder or a guide that are kept; the one that was used least recently is dropped."""


def uses_graphs(encoder: Encoder) -> bool:
    """Whether the encoder's training passes can be recorded: on a GPU, without padding, and not disabled.

    Raises:
        NearfarError: :data:`VARIABLE` is neither 0 nor 1.
    """
    requested = os.environ.get(VARIABLE) or "1"
    if requested not in ("0", "1"):
        raise NearfarError(f"{VARIABLE}={requested[:80]}: must be 0 or 1.")
    possible = encoder.device.type == "cuda" and encoder.route.ragged and not is_static(encoder.backbone)
    return possible and requested == "1"


class Recording(NamedTuple):
    """The graphs of one shape, and the memory that they read and write."""

    inputs: Tensor
    output: Float[Tensor, "texts ..."]
    grad_output: Float[Tensor, "texts ..."]
    forward: torch.cuda.CUDAGraph
    backward: torch.cuda.CUDAGraph
    parameters: Sequence[nn.Parameter]
    """The parameters that get a gradient; if there are none, ``backward`` is empty."""


class Graphs:
    """What a module computes for texts, by CUDA graphs: one of the forward pass for each shape of batches and mode.

    If parameters of the module are trained, there is a second one of the backward pass. All graphs use the same memory,
    so only one batch can be between its forward and its backward pass. Gradients are added to buffers that all graphs
    share; ``parameter.grad`` is such a buffer after a backward pass.

    Args:
        module: what computes, on a GPU, with a backbone that attends without padding.
        compute: a batch -> one output for each text that it has room for.
        padding: the id of padding tokens.
        bf16: whether it runs under bfloat16 autocast.
    """

    def __init__(
        self, module: nn.Module, compute: Callable[[TiledBatch], Tensor], *, padding: int | None, bf16: bool
    ) -> None:
        self._module, self._compute, self._padding, self._bf16 = module, compute, padding or 0, bf16
        self._device = next(module.parameters()).device
        self.recordings: OrderedDict[tuple[BatchShape, bool], Recording] = OrderedDict()
        """By shape and mode, the one used last at the end."""
        self._failed = False
        self._buffers: dict[nn.Parameter, Tensor] = {}
        self._stream = torch.cuda.Stream(self._device)
        self._pool = torch.cuda.graph_pool_handle()
        self._anchor = torch.zeros((), device=self._device, requires_grad=True)  # so that autograd calls the backward
        self._open_pass: weakref.ref[_Pass] | None = None

    def run(self, rows: TokenRows) -> Float[Tensor, "batch ..."] | None:
        """Float32 outputs of texts in the caller's order, with gradient, or None if no graph can compute them.

        That is the case for texts with a prompt that pooling leaves out, for no text, a text that no tile holds or over
        :data:`MAX_TOKENS` tokens, while another batch waits for its backward pass, and after a recording has failed, of
        which a warning informs.
        """
        waiting = self._open_pass is not None and self._open_pass() is not None
        if self._failed or waiting or not len(rows) or rows.prompt_lengths is not None:
            return None
        if rows.lengths.max() > LENGTHS[-1] or rows.lengths.sum() > MAX_TOKENS:
            return None
        layout, shape = TiledBatch.layout(rows, padding=self._padding)
        inputs = torch.from_numpy(layout).pin_memory()
        recording = self._find(shape, inputs)
        if recording is None:
            return None
        recording.inputs.copy_(inputs, non_blocking=True)
        recording.forward.replay()
        if not torch.is_grad_enabled() or not recording.parameters:
            return recording.output[: len(rows)].clone()
        current = _Pass(self, recording)
        self._open_pass = weakref.ref(current)
        output: Tensor = _Run.apply(self._anchor, current, len(rows))  # type: ignore[no-untyped-call]
        return output

    def run_backward(self, current: "_Pass", grad_output: Float[Tensor, "batch ..."]) -> None:
        """Add the gradient of a pass to that of the parameters.

        Raises:
            RuntimeError: the pass was run backward before.
        """
        if self._open_pass is None or self._open_pass() is not current:
            raise RuntimeError("a CUDA graph keeps activations for one backward pass only.")
        self._open_pass = None
        recording = current.recording
        recording.grad_output.zero_()
        recording.grad_output[: len(grad_output)].copy_(grad_output)
        fresh: list[Tensor] = []
        replaced: list[Tensor] = []
        previous: list[Tensor] = []
        for parameter in recording.parameters:
            buffer = self._buffers[parameter]
            if parameter.grad is None:
                fresh.append(buffer)
            elif parameter.grad is not buffer:
                replaced.append(buffer)
                previous.append(parameter.grad)
            parameter.grad = buffer
        if fresh:
            torch._foreach_zero_(fresh)
        if replaced:
            torch._foreach_copy_(replaced, previous)
        recording.backward.replay()

    def _find(self, shape: BatchShape, example: Tensor) -> Recording | None:
        """The recording for a shape, made now if there is none; None, with a warning, if that fails."""
        key = (shape, self._module.training)
        if key not in self.recordings:
            state = torch.cuda.get_rng_state(self._device)  # a recording changes no random numbers
            try:
                self.recordings[key] = self._record(shape, example.to(self._device))
            except RuntimeError as error:
                self._failed = True
                _leave_recording(self._device)
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                warnings.warn(
                    f"this encoder cannot be recorded as a CUDA graph ({reason}). Training is correct, but may be "
                    f"slower. {VARIABLE}=0 skips the attempt.",
                    stacklevel=4,
                )
                return None
            finally:
                torch.cuda.set_rng_state(state, self._device)
            if len(self.recordings) > MAX_GRAPHS:
                self.recordings.popitem(last=False)
        self.recordings.move_to_end(key)
        return self.recordings[key]

    @torch.enable_grad()
    def _record(self, shape: BatchShape, inputs: Tensor) -> Recording:
        trained = [parameter for parameter in self._module.parameters() if parameter.requires_grad]
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            output = self._forward(inputs, shape)  # once without recording, because first calls allocate and initialise
            grad_output = torch.zeros_like(output)
            gradients = torch.autograd.grad(output, trained, grad_output, allow_unused=True) if trained else ()
            parameters = [p for p, gradient in zip(trained, gradients, strict=True) if gradient is not None]
            for parameter in parameters:
                self._buffers.setdefault(parameter, torch.zeros_like(parameter))
            buffers = [self._buffers[parameter] for parameter in parameters]
            del output, gradients
            torch.cuda.synchronize(self._device)
            forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            with _recording(forward, self._pool):
                output = self._forward(inputs, shape)
            if parameters:
                with _recording(backward, self._pool):
                    torch._foreach_add_(buffers, torch.autograd.grad(output, parameters, grad_output))
        current.wait_stream(self._stream)
        return Recording(inputs, output.detach(), grad_output, forward, backward, parameters)

    def _forward(self, inputs: Tensor, shape: BatchShape) -> Float[Tensor, "texts ..."]:
        # Without its cache, autocast casts each weight within the graph; the cache may hold weights of an earlier step.
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._bf16, cache_enabled=False):
            return self._compute(TiledBatch(inputs, shape)).float()


class _Pass:
    """One forward pass, which waits for its backward pass while autograd refers to it."""

    def __init__(self, owner: Graphs, recording: Recording) -> None:
        self.owner, self.recording = owner, recording


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, current: _Pass, texts: int) -> Tensor:  # noqa: ARG004
        ctx.current = current
        return current.recording.output[:texts].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[None, None, None]:
        ctx.current.owner.run_backward(ctx.current, grad_output)
        return None, None, None


@contextmanager
def _recording(graph: torch.cuda.CUDAGraph, pool: Any) -> Iterator[None]:
    """Record the operations inside the block, in memory of the pool; other threads may use the GPU meanwhile."""
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")
    try:
        yield
    finally:
        graph.capture_end()


def _leave_recording(device: torch.device) -> None:
    """Make random numbers usable after a failed recording, as only a complete one ends that state of the generator."""
    with torch.cuda.device(device):
        number = torch.zeros((), device=device)
        with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
            number.add_(1)
