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
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.encoder import cuda_attention
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.frozen import Guide
from nearfar.encoder.padded_attention import BatchShape, FixedShapeBatch
from nearfar.encoder.static import is_static
from nearfar.encoder.tokens import TokenRows
from nearfar.types import NearfarError

VARIABLE = "NEARFAR_CUDA_GRAPHS"
MAX_TOKENS = 16_384
"""Largest number of tokens of a batch that a graph computes: a GPU needs longer for more tokens than Python."""
MAX_GRAPHS = 64
"""Number of recordings of an encoder or a guide that are kept; the one that was used least recently is dropped."""
Recording = TypeVar("Recording")


def uses_graphs(encoder: Encoder) -> bool:
    """Whether the encoder's training passes can be recorded: on a GPU, without padding, and not disabled.

    Graphs attend on padded blocks, so they are not used if another attention backend is selected.

    Raises:
        NearfarError: :data:`VARIABLE` is neither 0 nor 1.
    """
    requested = os.environ.get(VARIABLE) or "1"
    if requested not in ("0", "1"):
        raise NearfarError(f"{VARIABLE}={requested[:80]}: must be 0 or 1.")
    possible = encoder.device.type == "cuda" and encoder.route.ragged and not is_static(encoder.backbone)
    return possible and requested == "1" and os.environ.get(cuda_attention.VARIABLE) != "groups"


class Inputs(NamedTuple):
    """A batch as a graph reads it: its shape, and all else in one tensor on the CPU."""

    shape: BatchShape
    values: Tensor

    @classmethod
    def of(cls, rows: TokenRows, *, padding: int) -> "Inputs | None":
        """The inputs, or None if no graph can compute the batch.

        That is the case for texts with a prompt that pooling leaves out, and for batches of no text or of over
        :data:`MAX_TOKENS` tokens.
        """
        if not len(rows) or rows.prompt_lengths is not None:
            return None
        shape = BatchShape.of(rows.lengths)
        if shape.tokens > MAX_TOKENS:
            return None
        return cls(shape, torch.from_numpy(FixedShapeBatch.layout(rows, shape, padding=padding)).pin_memory())


class Recordings(Generic[Recording]):
    """The recordings of one computation by shape and mode; those used least recently are dropped.

    Args:
        record: records the computation for a shape, with an example of the inputs.
        device: the GPU, whose random numbers a recording does not change.
    """

    def __init__(self, record: Callable[[Inputs], Recording], device: torch.device) -> None:
        self._record, self._device = record, device
        self._by_key: OrderedDict[tuple[BatchShape, bool], Recording] = OrderedDict()
        self.failed = False
        """Whether a recording failed, after which there are no further ones."""

    @property
    def shapes(self) -> list[BatchShape]:
        """The recorded shapes, the one used last at the end."""
        return [shape for shape, _ in self._by_key]

    def find(self, inputs: Inputs, *, training: bool) -> Recording | None:
        """The recording for these inputs, made now if there is none; None, with a warning, if that fails."""
        key = (inputs.shape, training)
        if key not in self._by_key:
            state = torch.cuda.get_rng_state(self._device)
            try:
                self._by_key[key] = self._record(inputs)
            except RuntimeError as error:
                self.failed = True
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
            if len(self._by_key) > MAX_GRAPHS:
                self._by_key.popitem(last=False)
        self._by_key.move_to_end(key)
        return self._by_key[key]


class RecordedPasses(NamedTuple):
    """The graphs of one shape, and the memory that they read and write."""

    inputs: Tensor
    output: Float[Tensor, "texts dim"]
    grad_output: Float[Tensor, "texts dim"]
    forward: torch.cuda.CUDAGraph
    backward: torch.cuda.CUDAGraph
    parameters: Sequence[nn.Parameter]
    """The parameters that get a gradient."""


class GraphedEncoder:
    """Embeddings with gradient by CUDA graphs, one pair of graphs for each shape of batches.

    All graphs use the same memory, so only one batch can be between its forward and its backward pass. Gradients are
    added to buffers that all graphs share; ``parameter.grad`` is such a buffer after a backward pass.

    Args:
        encoder: the encoder, on a GPU; see :func:`uses_graphs`.
        bf16: whether it runs under bfloat16 autocast.
    """

    def __init__(self, encoder: Encoder, *, bf16: bool) -> None:
        self._encoder, self._bf16, self._device = encoder, bf16, encoder.device
        self._padding: int = encoder.backbone.config.pad_token_id or 0
        self._recordings = Recordings(self._record, encoder.device)
        self._buffers: dict[nn.Parameter, Tensor] = {}
        self._stream = torch.cuda.Stream(self._device)
        self._pool = torch.cuda.graph_pool_handle()
        self._anchor = torch.zeros((), device=self._device, requires_grad=True)  # so that autograd calls the backward
        self._open_pass: weakref.ref[_Pass] | None = None

    @property
    def shapes(self) -> list[BatchShape]:
        """Shapes for which there are graphs, the one used last at the end."""
        return self._recordings.shapes

    def embed(self, rows: TokenRows) -> Float[Tensor, "batch dim"] | None:
        """Float32 embeddings of texts in the caller's order, or None if no graph can compute them.

        That is the case where :meth:`Inputs.of` is None, while another batch waits for its backward pass, and after a
        recording has failed, of which a warning informs.
        """
        waiting = self._open_pass is not None and self._open_pass() is not None
        if self._recordings.failed or waiting:
            return None
        inputs = Inputs.of(rows, padding=self._padding)
        passes = None if inputs is None else self._recordings.find(inputs, training=self._encoder.training)
        if inputs is None or passes is None:
            return None
        passes.inputs.copy_(inputs.values, non_blocking=True)
        passes.forward.replay()
        if not torch.is_grad_enabled():
            return passes.output[: len(rows)].clone()
        one = _Pass(self, passes)
        self._open_pass = weakref.ref(one)
        embedding: Tensor = _Embed.apply(self._anchor, one, len(rows))  # type: ignore[no-untyped-call]
        return embedding

    def run_backward(self, one: "_Pass", grad_output: Float[Tensor, "batch dim"]) -> None:
        """Add the gradient of a pass to that of the parameters.

        Raises:
            RuntimeError: the pass was run backward before.
        """
        if self._open_pass is None or self._open_pass() is not one:
            raise RuntimeError("a CUDA graph keeps activations for one backward pass only.")
        self._open_pass = None
        passes = one.passes
        passes.grad_output.zero_()
        passes.grad_output[: len(grad_output)].copy_(grad_output)
        fresh: list[Tensor] = []
        replaced: list[Tensor] = []
        previous: list[Tensor] = []
        for parameter in passes.parameters:
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
        passes.backward.replay()

    @torch.enable_grad()
    def _record(self, example: Inputs) -> RecordedPasses:
        shape, inputs = example.shape, example.values.to(self._device)
        trained = [parameter for parameter in self._encoder.parameters() if parameter.requires_grad]
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            output = self._forward(inputs, shape)  # once without recording, because first calls allocate and initialise
            grad_output = torch.zeros_like(output)
            gradients = torch.autograd.grad(output, trained, grad_output, allow_unused=True)
            parameters = [p for p, gradient in zip(trained, gradients, strict=True) if gradient is not None]
            for parameter in parameters:
                self._buffers.setdefault(parameter, torch.zeros_like(parameter))
            buffers = [self._buffers[parameter] for parameter in parameters]
            del output, gradients
            torch.cuda.synchronize(self._device)
            forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            with _recording(forward, self._pool):
                output = self._forward(inputs, shape)
            with _recording(backward, self._pool):
                torch._foreach_add_(buffers, torch.autograd.grad(output, parameters, grad_output))
        current.wait_stream(self._stream)
        return RecordedPasses(inputs, output.detach(), grad_output, forward, backward, parameters)

    def _forward(self, inputs: Tensor, shape: BatchShape) -> Float[Tensor, "texts dim"]:
        # Without its cache, autocast casts each weight within the graph; the cache may hold weights of an earlier step.
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._bf16, cache_enabled=False):
            return self._encoder.embed_batch(FixedShapeBatch(inputs, shape)).float()


class _Pass:
    """One forward pass, which waits for its backward pass while autograd refers to it."""

    def __init__(self, owner: GraphedEncoder, passes: RecordedPasses) -> None:
        self.owner, self.passes = owner, passes


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, one: _Pass, texts: int) -> Tensor:  # noqa: ARG004
        ctx.one = one
        return one.passes.output[:texts].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[None, None, None]:
        ctx.one.owner.run_backward(ctx.one, grad_output)
        return None, None, None


class RecordedViews(NamedTuple):
    """The graph of one shape, and the memory that it reads and writes."""

    inputs: Tensor
    views: Float[Tensor, "texts layers dim"]
    forward: torch.cuda.CUDAGraph


class GraphedGuide:
    """The views of a guide by CUDA graphs, one for each shape of batches, without gradient.

    Args:
        guide: the guide, on a GPU, without dropout, whose backbone attends without padding.
        bf16: whether it runs under bfloat16 autocast.
    """

    def __init__(self, guide: Guide, *, bf16: bool) -> None:
        self._guide, self._bf16, self._device = guide, bf16, guide.backbone.device
        self._padding: int = guide.backbone.config.pad_token_id or 0
        self._recordings = Recordings(self._record, self._device)
        self._stream = torch.cuda.Stream(self._device)
        self._pool = torch.cuda.graph_pool_handle()

    @property
    def shapes(self) -> list[BatchShape]:
        """Shapes for which there are graphs, the one used last at the end."""
        return self._recordings.shapes

    def views(self, rows: TokenRows) -> Float[Tensor, "batch layers dim"] | None:
        """The views of texts in the caller's order, in float32; None where :meth:`GraphedEncoder.embed` is None."""
        inputs = None if self._recordings.failed else Inputs.of(rows, padding=self._padding)
        recorded = None if inputs is None else self._recordings.find(inputs, training=False)
        if inputs is None or recorded is None:
            return None
        recorded.inputs.copy_(inputs.values, non_blocking=True)
        recorded.forward.replay()
        return recorded.views[: len(rows)].clone()

    def _record(self, example: Inputs) -> RecordedViews:
        shape, inputs = example.shape, example.values.to(self._device)
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            self._compute(inputs, shape)  # once without recording, because first calls allocate and initialise
            torch.cuda.synchronize(self._device)
            forward = torch.cuda.CUDAGraph()
            with _recording(forward, self._pool):
                views = self._compute(inputs, shape)
        current.wait_stream(self._stream)
        return RecordedViews(inputs, views, forward)

    def _compute(self, inputs: Tensor, shape: BatchShape) -> Float[Tensor, "texts layers dim"]:
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._bf16, cache_enabled=False):
            return self._guide.batch_views(FixedShapeBatch(inputs, shape))


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
