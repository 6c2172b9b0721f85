"""Dropout + residual + LayerNorm in one function: the end of both sublayers of BERT-like transformer layers, on a CPU.

Under bfloat16 autocast, the sum and the LayerNorm are computed in float32 and returned in bfloat16. Autocast alone
would return float32, which each following linear layer would cast again.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from nearfar.encoder.dropout import apply_dropout_mask
from nearfar.encoder.dropout_mask import DropoutMask
from nearfar.encoder.kernels import DTYPES

FAMILIES = ("Bert", "Roberta", "XLMRoberta", "Camembert", "Electra")
"""Prefixes of transformers' classes ...SelfOutput and ...Output that compute what :class:`Output` computes."""


def use_fused(module: nn.Module) -> None:
    """Turn each sublayer's output module inside ``module`` into an :class:`Output`, in place."""
    names = {family + name for family in FAMILIES for name in ("SelfOutput", "Output")}
    for part in module.modules():
        if type(part).__name__ in names and type(part).__module__.startswith("transformers.models."):
            part.__class__ = Output


class Output(nn.Module):
    """LayerNorm(dropout(dense(x)) + residual); replaces a module that has these three submodules."""

    dense: nn.Linear
    dropout: nn.Dropout
    LayerNorm: nn.LayerNorm

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
        """The sublayer's output; ``hidden_states`` is x and ``input_tensor`` the residual (transformers' names)."""
        x = self.dense(hidden_states)
        return add_norm(x, input_tensor, self.LayerNorm, p=self.dropout.p if self.dropout.training else 0.0)


def add_norm(
    x: Float[Tensor, "*shape dim"], residual: Float[Tensor, "*shape dim"], norm: nn.LayerNorm, *, p: float = 0.0
) -> Float[Tensor, "*shape dim"]:
    """``norm(dropout(x) + residual)``; on a CPU in the dtype of ``x``."""
    if x.device.type != "cpu" or x.dtype not in DTYPES or norm.weight.dtype != torch.float32:
        return norm(functional.dropout(x, p) + residual)
    mask, residual = DropoutMask.draw(p), residual.to(x.dtype)
    total = apply_dropout_mask(mask, x.float()) + residual.float()
    return functional.layer_norm(total, norm.normalized_shape, norm.weight, norm.bias, norm.eps).to(x.dtype)
