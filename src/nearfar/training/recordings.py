"""The loss of a batch and the closing of a step as CUDA graphs: Python starts each of them by one call.

The passes of the encoder are recorded by :mod:`nearfar.encoder.cuda_graphs`. Each of these graphs reads what the one
before it has left at a fixed place, so a step needs few calls, with micro-batches and several losses too.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.runtime import gpu
from nearfar.runtime.gpu import GradientBuffers, round_up
from nearfar.training.optimiser import clipped_step, gradient_norm
from nearfar.types import Loss, Method

MAX_TEXTS = 4096
"""Largest number of texts of a batch, repeated ones too, whose loss is recorded. Larger matrices of similarities are
computed in blocks (:data:`nearfar.objectives._contrast.BLOCK`), and a GPU needs longer for them than Python."""


class RecordedLoss(NamedTuple):
    """A loss with its gradient for batches of one shape, and the memory that it reads and writes."""

    inputs: list[Tensor | None]
    rows: Float[Tensor, "rows ..."]
    names: list[str]
    """Of the terms, which follow the loss in ``values``."""
    values: Float[Tensor, " values"]
    row_gradients: Float[Tensor, "rows ..."]
    parameters: list[nn.Parameter]
    """Those that the loss has directly."""
    compute: Callable[[], None]


class RecordedStep(NamedTuple):
    """Clipping and AdamW for some parameters, and the memory that they read and write."""

    rates: Float[Tensor, " groups"]
    loss: Float[Tensor, ""]
    norm: Float[Tensor, ""]
    compute: Callable[[], None]


class Recordings:
    """Losses and optimiser steps of one run as CUDA graphs.

    What is recorded depends on the shapes alone, so that a resumed run repeats the steps of an uninterrupted one. After
    a recording has failed, of which a warning informs, all is computed as without graphs.

    Args:
        gradients: the places of gradients, those that the graphs of the encoder write.
        encoder: the encoder that is trained.
        device: the GPU.
    """

    def __init__(self, gradients: GradientBuffers, encoder: nn.Module, device: torch.device) -> None:
        self._gradients, self._encoder, self._device = gradients, encoder, device
        # Not the recorder of the encoder's graphs: a loss is computed while these keep activations in their memory.
        self._recorder = gpu.Recorder(device)
        self.losses: dict[Any, RecordedLoss] = {}
        self.steps: dict[tuple[int, ...], RecordedStep] = {}
        self._failed = False

    def loss(
        self, method: Method, batch: Any, rows: Float[Tensor, "rows ..."], *, weight: float, bf16: bool
    ) -> tuple[Loss, Float[Tensor, "rows ..."]] | None:
        """The loss of a batch without gradient, and the gradient of ``weight`` times the loss in its rows.

        The gradient of parameters that the loss has directly, those of a head, is added to theirs. None if no graph can
        compute it: the method's loss needs more than tensors, or the batch is large.
        """
        if self._failed or method.tensors is None or not 0 < len(rows) <= MAX_TEXTS:
            return None
        inputs = method.tensors(batch)
        if inputs[0] is None or inputs[0].numel() > MAX_TEXTS:
            return None
        shape = (round_up(len(rows), steps=4, multiple=8), *rows.shape[1:])
        key = (method.name, weight, shape, rows.dtype, *(None if x is None else (x.shape, x.dtype) for x in inputs))
        if key not in self.losses:
            given = [None if x is None else x.to(self._device, copy=True) for x in inputs]
            padded = rows.new_zeros(shape)
            padded[: len(rows)] = rows.detach()
            recorded = self._recorded(lambda: self._record_loss(method, given, padded, weight=weight, bf16=bf16))
            if recorded is None:
                return None
            _keep(self.losses, key, recorded)
        recording = self.losses[key]
        for values, place in zip(inputs, recording.inputs, strict=True):
            if values is not None and place is not None:
                self._upload(values, place)
        with torch.no_grad(), self._gradients.adding(recording.parameters):
            recording.rows[: len(rows)].copy_(rows)
            recording.compute()
        total, *terms = recording.values.clone().unbind()
        return Loss(total, dict(zip(recording.names, terms, strict=True))), recording.row_gradients[: len(rows)].clone()

    def step(
        self,
        optimiser: torch.optim.AdamW,
        parameters: Sequence[nn.Parameter],
        losses: Sequence[Tensor],
        *,
        max_norm: float,
    ) -> Float[Tensor, ""] | None:
        """:func:`nearfar.training.optimiser.clipped_step`; returns the norm of the gradients before.

        None, with nothing done, if no graph can do it: gradients are not at their places, or moments do not exist yet.
        """
        if self._failed or not parameters or not self._gradients.have(parameters):
            return None
        if not all(parameter in optimiser.state for parameter in parameters):
            return None
        key = tuple(map(id, parameters))
        if key not in self.steps:
            recorded = self._recorded(lambda: self._record_step(optimiser, parameters, max_norm))
            if recorded is None:
                return None
            _keep(self.steps, key, recorded)
        recording = self.steps[key]
        self._upload(torch.tensor([group["lr"] for group in optimiser.param_groups]), recording.rates)
        recording.loss.copy_(losses[0] if len(losses) == 1 else torch.stack([*losses]).sum())
        recording.compute()
        return recording.norm.clone()

    def _record_loss(
        self, method: Method, inputs: list[Tensor | None], rows: Tensor, *, weight: float, bf16: bool
    ) -> RecordedLoss:
        assert method.tensors is not None
        modules = [self._encoder, *([] if method.head is None else [method.head])]
        trained = [p for module in modules for p in module.parameters() if p.requires_grad]
        rows.requires_grad_()

        def evaluate() -> Loss:
            with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=bf16, cache_enabled=False):
                return method.loss_fn(tuple(inputs), rows)

        def compute() -> None:
            with torch.enable_grad():
                loss = evaluate()
                gradients = torch.autograd.grad(loss.total * weight, [rows, *parameters])
            with torch.no_grad():
                values.copy_(torch.stack([loss.total.float(), *(term.float() for term in loss.terms.values())]))
                row_gradients.copy_(gradients[0])
                self._gradients.write(parameters, gradients[1:])

        with torch.enable_grad():
            first = evaluate()  # not recorded, because first calls allocate and initialise
            used = torch.autograd.grad(first.total, [rows, *trained], allow_unused=True)[1:]
        parameters = [parameter for parameter, gradient in zip(trained, used, strict=True) if gradient is not None]
        self._gradients.prepare(parameters)
        values = rows.new_zeros(1 + len(first.terms), dtype=torch.float32, requires_grad=False)
        row_gradients = torch.zeros_like(rows, requires_grad=False)
        names = list(first.terms)
        del first, used
        return RecordedLoss(inputs, rows, names, values, row_gradients, parameters, self._recorder.record(compute))

    def _record_step(
        self, optimiser: torch.optim.AdamW, parameters: Sequence[nn.Parameter], max_norm: float
    ) -> RecordedStep:
        groups = optimiser.param_groups
        rates = torch.zeros(len(groups), device=self._device)
        loss, norm = torch.full((), torch.nan, device=self._device), torch.zeros((), device=self._device)

        def compute() -> None:
            before = [(group["lr"], group["capturable"]) for group in groups]
            capturing = self._device.type == "cuda" and torch.cuda.is_current_stream_capturing()
            try:
                for group, rate in zip(groups, rates.unbind(), strict=True):
                    group["lr"], group["capturable"] = rate, capturing
                norm.copy_(gradient_norm(parameters))
                clipped_step(optimiser, norm=norm, also=[loss], max_norm=max_norm)
            finally:
                for group, (rate, capturable) in zip(groups, before, strict=True):
                    group["lr"], group["capturable"] = rate, capturable

        compute()  # not recorded; with a loss that is not finite it changes nothing
        return RecordedStep(rates, loss, norm, self._recorder.record(compute))

    def _recorded(self, record: Callable[[], Any]) -> Any:
        """What is recorded, or None, with a warning, if that fails."""
        try:
            with self._recorder.preparing():
                return record()
        except RuntimeError as error:
            self._failed = True
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            warnings.warn(
                f"the loss or the optimiser cannot be recorded as a CUDA graph ({reason}). Training is correct, "
                f"but may be slower. {gpu.VARIABLE}=0 skips the attempt.",
                stacklevel=4,
            )
            return None

    def _upload(self, values: Tensor, place: Tensor) -> None:
        if values.device.type == "cpu":
            self._recorder.upload(values, into=place)
        else:
            place.copy_(values)


def _keep(recordings: dict[Any, Any], key: object, recording: object) -> None:
    """Add a recording; of too many, the oldest is dropped."""
    recordings[key] = recording
    if len(recordings) > gpu.MAX_GRAPHS:
        del recordings[next(iter(recordings))]
