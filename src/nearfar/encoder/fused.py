"""Dropout + residual + LayerNorm in one: what the layers of BERT and its kin end both halves with, on a CPU.

Under bfloat16 autocast the sum and its LayerNorm are computed in float32 and come out in bfloat16; autocast alone would
hand on float32, which each linear layer behind it casts again.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from nearfar.encoder.dropout import Mask, apply_dropout_mask
from nearfar.encoder.kernels import DTYPES

FAMILIES = ("Bert", "Roberta", "XLMRoberta", "Camembert", "Electra")
"""Whose layers end as :class:`Output` does, in modules that are called ...SelfOutput and ...Output."""


def use_fused(module: nn.Module) -> None:
    """Make each end of half a layer inside an :class:`Output`."""
    names = {family + name for family in FAMILIES for name in ("SelfOutput", "Output")}
    for part in module.modules():
        if type(part).__name__ in names and type(part).__module__.startswith("transformers.models."):
            part.__class__ = Output


class Output(nn.Module):
    """LayerNorm(dropout(dense(x)) + residual); takes the place of a module that has these three parts."""

    dense: nn.Linear
    dropout: nn.Dropout
    LayerNorm: nn.LayerNorm

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
        """What half a layer gives: ``hidden_states`` through all three, ``input_tensor`` being the residual."""
        x = self.dense(hidden_states)
        return add_norm(x, input_tensor, self.LayerNorm, p=self.dropout.p if self.dropout.training else 0.0)


def add_norm(
    x: Float[Tensor, "*shape dim"], residual: Float[Tensor, "*shape dim"], norm: nn.LayerNorm, *, p: float = 0.0
) -> Float[Tensor, "*shape dim"]:
    """``norm(dropout(x) + residual)``; in the precision of ``x`` on a CPU."""
    if x.device.type != "cpu" or x.dtype not in DTYPES or norm.weight.dtype != torch.float32:
        return norm(functional.dropout(x, p) + residual)
    mask, residual = Mask.draw(p), residual.to(x.dtype)
    total = apply_dropout_mask(mask, x.float()) + residual.float()
    return functional.layer_norm(total, norm.normalized_shape, norm.weight, norm.bias, norm.eps).to(x.dtype)
