"""CUDA graphs of the passes of training: the encoder's forward and backward pass, and the views of a frozen guide.

A small encoder's pass has about a hundred short operations per layer, and Python needs longer to start them than a GPU
to compute them. A CUDA graph records the operations once per :class:`BatchShape` and starts them by one call. Whether a
graph computes a batch depends on the batch alone, so that a resumed run repeats the steps of an uninterrupted one.

In long runs the layers of the transformer are compiled before they are recorded, so that what is computed element by
element between two matrix products is one kernel.

``NEARFAR_CUDA_GRAPHS=0`` disables graphs, ``NEARFAR_COMPILE=0`` the compilation; ``NEARFAR_COMPILE=1`` compiles in
short runs too. Results differ by the order of summation, and dropout masks differ.
"""

import os
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.encoder.encoder import Encoder
from nearfar.encoder.pretrained import reason
from nearfar.encoder.static import is_static
from nearfar.encoder.tiles import LENGTHS, BatchShape, TiledBatch
from nearfar.encoder.tokens import TokenRows
from nearfar.runtime import gpu
from nearfar.runtime.gpu import GradientBuffers
from nearfar.types import NearfarError

COMPILE_VARIABLE = "NEARFAR_COMPILE"
COMPILED_FROM = 3000
"""Number of steps of a run from which compiled layers are expected to pay for the time of compiling."""
MAX_TOKENS = 65_536
"""Largest number of tokens of a batch that a graph computes. A large batch gains by compiled layers alone: a GPU needs
longer for it than Python."""


def uses_graphs(encoder: Encoder) -> bool:
    """Whether the encoder's training passes can be recorded: on a GPU, without padding, and not disabled.

    Raises:
        NearfarError: :data:`nearfar.runtime.gpu.VARIABLE` is neither 0 nor 1.
    """
    possible = encoder.device.type == "cuda" and encoder.route.ragged and not is_static(encoder.backbone)
    return switch(gpu.VARIABLE, default=True) and possible


def switch(variable: str, *, default: bool) -> bool:
    """Whether an environment variable is 1; ``default`` if it is not set.

    Raises:
        NearfarError: it is neither 0 nor 1.
    """
    requested = os.environ.get(variable) or str(int(default))
    if requested not in ("0", "1"):
        raise NearfarError(f"{variable}={requested[:80]}: must be 0 or 1.")
    return requested == "1"


class HalfWeights:
    """Copies in bfloat16 of the weights that autocast would cast in each pass, one by one.

    Those are the weights of linear layers; outputs and gradients have the same bits.

    Args:
        module: what computes; its other weights are used as they are.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.copies: dict[nn.Parameter, nn.Parameter] = {}
        """By the weight that is copied."""

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside the block the module computes with copies of its weights as they are now."""
        owners = [
            (part, name, weight)
            for part in self._module.modules()
            for name, weight in part._parameters.items()
            if weight is not None
        ]
        others = {weight for part, _, weight in owners if not isinstance(part, nn.Linear)}
        copied = [owner for owner in owners if owner[2] not in others and owner[2].dtype == torch.float32]
        for _, _, weight in copied:
            if weight not in self.copies:
                self.copies[weight] = nn.Parameter(torch.empty_like(weight, dtype=torch.bfloat16))
            self.copies[weight].requires_grad_(weight.requires_grad)
        if self.copies:
            with torch.no_grad():
                torch._foreach_copy_(list(self.copies.values()), list(self.copies))
        try:
            for part, name, weight in copied:
                part._parameters[name] = self.copies[weight]
            yield
        finally:
            for part, name, weight in copied:
                part._parameters[name] = weight


class CompiledLayers:
    """The compiled forward passes of layers: each in one piece, for batches of any number of tokens."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        self._forwards = [(layer, torch.compile(layer.forward, fullgraph=True)) for layer in layers]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside the block the layers compute by them, or compile them where they were not called like this before."""
        with torch._dynamo.config.patch(recompile_limit=gpu.MAX_GRAPHS), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the compiler
            try:
                for layer, forward in self._forwards:
                    layer.forward = forward
                yield
            finally:
                for layer, _ in self._forwards:
                    del layer.forward


class Recording(NamedTuple):
    """The graphs of one shape, and the memory that they read and write."""

    inputs: Tensor
    output: Float[Tensor, "texts ..."]
    grad_output: Float[Tensor, "texts ..."]
    forward: Callable[[], None]
    backward: Callable[[], None]
    parameters: Sequence[nn.Parameter]
    """The parameters that get a gradient; if there are none, ``backward`` is not called."""


class Graphs:
    """What a module computes for texts, by CUDA graphs: one of the forward pass for each shape of batches and mode.

    If parameters of the module are trained, there is a second one of the backward pass. All graphs use the same memory,
    so only one batch can be between its forward and its backward pass. Gradients are written into ``gradients``;
    ``parameter.grad`` is there after a backward pass.

    Args:
        module: what computes, on a GPU, with a backbone that attends without padding.
        compute: a batch -> one output for each text that it has room for.
        padding: the id of padding tokens.
        bf16: whether it runs under bfloat16 autocast.
        layers: gives the layers of the module to compile, when the first batch is recorded.
    """

    def __init__(
        self,
        module: nn.Module,
        compute: Callable[[TiledBatch], Tensor],
        *,
        padding: int | None,
        bf16: bool,
        layers: Callable[[], Sequence[nn.Module]] = tuple,
    ) -> None:
        self._module, self._compute, self._padding, self._bf16 = module, compute, padding or 0, bf16
        self._device = next(module.parameters()).device
        self._half = HalfWeights(module) if bf16 else None
        self._layers = layers
        self._compiled: CompiledLayers | None = None
        self.recordings: OrderedDict[tuple[BatchShape, bool], Recording] = OrderedDict()
        """By shape and mode, the one used last at the end."""
        self._failed = False
        self.gradients = GradientBuffers()
        """Also for what else is recorded of the steps of a run."""
        self._recorder = gpu.Recorder(self._device)
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
        inputs = torch.from_numpy(layout)
        recording = self._find(shape, inputs)
        if recording is None:
            return None
        self._recorder.upload(inputs, into=recording.inputs)
        recording.forward()
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
        with self.gradients.adding(recording.parameters):
            recording.backward()

    def _find(self, shape: BatchShape, example: Tensor) -> Recording | None:
        """The recording for a shape, made now if there is none; None, with a warning, if that fails."""
        key = (shape, self._module.training)
        if key not in self.recordings:
            try:
                self.recordings[key] = self._record(shape, example.to(self._device, copy=True))
            except RuntimeError as error:
                self._failed = True
                warnings.warn(
                    f"this encoder cannot be recorded as a CUDA graph ({reason(error)}). Training is correct, but may "
                    f"be slower. {gpu.VARIABLE}=0 skips the attempt.",
                    stacklevel=4,
                )
                return None
            if len(self.recordings) > gpu.MAX_GRAPHS:
                self.recordings.popitem(last=False)
        self.recordings.move_to_end(key)
        return self.recordings[key]

    @torch.enable_grad()
    def _record(self, shape: BatchShape, inputs: Tensor) -> Recording:
        trained = [parameter for parameter in self._module.parameters() if parameter.requires_grad]
        copies = self._half.copies if self._half else {}
        computed: list[Tensor] = []  # the output, from its forward to its backward pass

        def used(weights: Sequence[nn.Parameter]) -> list[nn.Parameter]:
            return [copies.get(weight, weight) for weight in weights]

        def forward() -> None:
            computed[:] = [self._forward(inputs, shape)]
            output.copy_(computed[0].detach())

        def backward() -> None:
            gradients = torch.autograd.grad(computed.pop(), used(parameters), grad_output)
            self.gradients.write(parameters, gradients)

        with self._recorder.preparing():
            first = self._try_compiled(inputs, shape)  # not recorded, because first calls allocate and initialise
            output, grad_output = torch.zeros_like(first), torch.zeros_like(first)
            gradients = torch.autograd.grad(first, used(trained), grad_output, allow_unused=True) if trained else ()
            parameters = [p for p, gradient in zip(trained, gradients, strict=True) if gradient is not None]
            self.gradients.prepare(parameters)
            del first, gradients
            replay = self._recorder.record(forward)
            replay_backward = self._recorder.record(backward) if parameters else replay
        return Recording(inputs, output, grad_output, replay, replay_backward, parameters)

    def _try_compiled(self, inputs: Tensor, shape: BatchShape) -> Float[Tensor, "texts ..."]:
        """:meth:`_forward`, without compiled layers from now on if they cannot be compiled; a warning says so."""
        if not self.recordings and (layers := self._layers()):
            self._compiled = CompiledLayers(layers)
        if self._compiled is not None:
            try:
                return self._forward(inputs, shape)
            except Exception as error:  # of the compiler, or of what it calls
                self._compiled = None
                why = f"the layers of this encoder cannot be compiled ({type(error).__name__}: {reason(error)})"
                warnings.warn(f"{why}. Training is correct, but may be slower.", stacklevel=6)
        return self._forward(inputs, shape)

    def _forward(self, inputs: Tensor, shape: BatchShape) -> Float[Tensor, "texts ..."]:
        # The cache of autocast, of other casts, may hold values of an earlier step.
        half = nullcontext() if self._half is None else self._half.in_place()
        compiled = nullcontext() if self._compiled is None else self._compiled.in_place()
        autocast = torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._bf16, cache_enabled=False)
        with half, compiled, autocast:
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
