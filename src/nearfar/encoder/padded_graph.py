"""Encoders and classifiers as one function of padded token ids and a mask, for export to other runtimes.

:class:`nearfar.Encoder` computes ragged batches by functions of its own, which no other runtime has. These modules
compute the same vectors and logits by transformers' own padded forward pass.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from nearfar.encoder.encoder_folder import EncoderComponents
from nearfar.encoder.module_list import EMBEDDING
from nearfar.encoder.pooling import TokenPooling, parse_pooling
from nearfar.encoder.pretrained import PreTrainedModel


class EncoderGraph(nn.Module):
    """Token ids and mask -> embeddings: backbone, pooling, the modules after it, and Normalize if the model has it.

    Texts are padded on the right. ``attention_mask`` is 1 for tokens and 0 for padding.
    """

    def __init__(self, parts: EncoderComponents) -> None:
        super().__init__()
        self.backbone = parts.backbone
        self.tail = nn.ModuleList(parts.tail)
        self.normalize = parts.normalize
        self.pooling = parse_pooling(parts.pooling, layers=parts.backbone.config.num_hidden_layers)
        use_plain_attention(self.backbone)
        self.eval()

    def forward(
        self, input_ids: Int[Tensor, "batch length"], attention_mask: Int[Tensor, "batch length"]
    ) -> Float[Tensor, "batch dim"]:
        """The embeddings."""
        layers = self.pooling.layers
        output = self.backbone(
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True if layers else None
        )
        states = output.last_hidden_state
        if layers:
            states = torch.stack([output.hidden_states[layer] for layer in layers]).mean(0)
        embedding = pool_masked(states, attention_mask, self.pooling.tokens)
        for module in self.tail:
            embedding = module({EMBEDDING: embedding})[EMBEDDING]
        return functional.normalize(embedding, dim=-1) if self.normalize else embedding


class ClassifierGraph(nn.Module):
    """Token ids, mask and, if the backbone has them, token types -> logits."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        use_plain_attention(model)
        self.eval()

    def forward(
        self,
        input_ids: Int[Tensor, "batch length"],
        attention_mask: Int[Tensor, "batch length"],
        token_type_ids: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch classes"]:
        """The logits."""
        types: dict[str, Any] = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        return self.model(input_ids=input_ids, attention_mask=attention_mask, **types).logits


def use_plain_attention(model: PreTrainedModel) -> None:
    """Compute attention by matrix products and a softmax, which runtimes recognise and fuse."""
    model.set_attn_implementation("eager")


def pool_masked(
    states: Float[Tensor, "batch length dim"], mask: Int[Tensor, "batch length"], tokens: TokenPooling
) -> Float[Tensor, "batch dim"]:
    """Pool the tokens whose mask is 1; the same vectors as :func:`nearfar.encoder.pooling.pool`."""
    if tokens == "cls":
        return states[:, 0]
    if tokens == "mean_without_cls":
        mask = torch.cat([torch.zeros_like(mask[:, :1]), mask[:, 1:]], dim=1)
    kept = mask.unsqueeze(-1).to(states.dtype)
    if tokens == "max":
        return (states + (1 - kept) * torch.finfo(states.dtype).min).amax(1)
    return (states * kept).sum(1) / kept.sum(1).clamp(min=1)
