"""Token embeddings whose backward pass accumulates the gradient in place, for training on a CPU."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional


def add_gradients_in_place(module: nn.Module) -> None:
    """Turn each plain ``nn.Embedding`` inside ``module`` that is on a CPU into an :class:`Embedding`."""
    for part in module.modules():
        if type(part) is nn.Embedding and _plain(part):
            part.__class__ = Embedding


def _plain(embedding: nn.Embedding) -> bool:
    special = embedding.sparse or embedding.scale_grad_by_freq or embedding.max_norm is not None
    return embedding.weight.device.type == "cpu" and not special


class Embedding(nn.Embedding):
    """``nn.Embedding`` whose backward pass adds to ``weight.grad`` in place.

    A batch contains few tokens of the vocabulary, but autograd allocates a dense gradient of zeros, as large as the
    weights, in each backward pass. This class keeps one buffer, sets it to zero in the first backward pass of a step
    (when ``weight.grad`` is None), and adds to it afterwards. Therefore a reference to ``weight.grad`` of an earlier
    step is overwritten, and ``torch.autograd.grad`` finds no gradient.
    """

    _gradient: Tensor | None = None

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (torch's name)
        """Look up the embeddings."""
        if not (torch.is_grad_enabled() and self.weight.requires_grad):
            return super().forward(input)
        embeddings: Tensor = _LookUp.apply(self.weight, input, self)  # type: ignore[no-untyped-call]
        return embeddings

    def add_gradient(self, ids: Int[Tensor, "*shape"], grad_output: Float[Tensor, "*shape dim"]) -> None:
        """Add each row of ``grad_output`` to the row of ``weight.grad`` with its id, except for padding tokens."""
        if self.weight.grad is None:
            self._gradient = torch.zeros_like(self.weight) if self._gradient is None else self._gradient.zero_()
            self.weight.grad = self._gradient
        if self.padding_idx is not None:
            grad_output = grad_output.masked_fill((ids == self.padding_idx).unsqueeze(-1), 0)
        self.weight.grad.index_add_(0, ids.flatten(), grad_output.flatten(0, -2).to(self.weight.dtype))


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor, module: Embedding) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.module = module
        return functional.embedding(ids, weight)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[None, None, None]:
        (ids,) = ctx.saved_tensors
        ctx.module.add_gradient(ids, grad_output)
        return None, None, None
