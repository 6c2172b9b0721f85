"""SBERT-WK: each token's layers are weighted by their novelty, each token by the variation of its layers.

Wang & Kuo 2020, "SBERT-WK: A Sentence Embedding Method by Dissecting BERT-based Word Models", sections IV-B (one vector
per token) and IV-C (one vector per sentence). Nothing is trained. For a token with hidden states h_0 .. h_{L-1}, the
layers from ``layer_start`` on, J(k) the neighbours of layer k in a window, and P_k the projection onto their span:

- novelty   n_k = ||h_k - P_k h_k|| / ||h_k||
- alignment a_k = 1 / (2 (|J(k)| + 1) * mean over j in J(k) of cos(h_j, P_k h_k))
- layer weight alpha_k = (n_k / sum(n) + a_k / sum(a)) / 2; token vector v = sum_k alpha_k h_k
- token weight w, the variance of cos(h_k, h_{k+1}) over k, divided by its sum over the sentence's tokens
- sentence vector = sum over tokens of w v

The authors compute n and a by a QR decomposition of [dim, window] for each token and layer. Both depend only on the
cosines between the token's layers: h_j . P_k h_k = h_j . h_k, and ||h_k - P_k h_k||^2 is a Schur complement of their
Gram matrix. So one small matrix [layers, layers] per token, in float64, gives all of them at once.

Where the paper and the authors' code differ, this module follows the code, which produced the published scores: the
first ``window`` layers have neighbours on their right only (a Python slice with a negative start is empty), and the
last token of a text, [SEP], is omitted while the first, [CLS], is not.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.encoder.encoder import Encoder
from nearfar.encoder.ragged import RaggedBatch, bf16_runs, hidden_states
from nearfar.encoder.token_batches import Tokenized, compute_distinct
from nearfar.encoder.tokens import LengthGroup
from nearfar.types import NearfarError

WINDOW = 2
"""Number of neighbouring layers on each side, as in the authors' code."""
RANK_TOLERANCE = 1e-13
"""A layer is in the span of others if its relative squared distance from it is below this: the precision of float32
states."""
TOKENS_AT_ONCE = 512  # copied to float64 while their Gram matrices are computed


class SbertWk:
    """The SBERT-WK vectors of an encoder; called like an encode function, returns float32 [texts, dim].

    The encoder's default prompt is put before each text, and its tokens are weighted as all others. It uses the
    backbone's hidden states; the pooling of the model folder, and a Dense or Normalize module after it, are
    ignored. The length of a vector has no meaning; compare by cosine.

    Args:
        encoder: the encoder whose backbone is used.
        layer_start: the first hidden state used, of 0 (embeddings) to N, the number of layers. An integer is this
            state, a float s is the share of the depth before it: state round(s * N). The default, 1/3, gives the
            authors' 4 for BERT base (N = 12), and 2 for six layers; their code's default is 4 for every model.
        bf16: run the backbone in bfloat16.
        progress: show a progress bar.

    Raises:
        NearfarError: fewer than three layers from ``layer_start`` on, which the variance of cosines needs.
    """

    def __init__(
        self, encoder: Encoder, *, layer_start: float = 1 / 3, bf16: bool = False, progress: bool = False
    ) -> None:
        last = encoder.backbone.config.num_hidden_layers
        start = layer_start if isinstance(layer_start, int) else round(layer_start * last)
        if not 0 <= start <= last - 2:
            raise NearfarError(
                f"layer_start {start}: SBERT-WK needs three layers from there on, but the layers of this encoder are 0 "
                f"(embeddings) to {last}."
            )
        self._encoder, self._layer_start = encoder, start
        self._bf16, self._progress = bf16 and bf16_runs(encoder.backbone, encoder.route), progress

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str]) -> Float[np.ndarray, "texts dim"]:
        """Return one vector per text, in order; each distinct text is computed once, truncated as in ``encode``."""
        encoder = self._encoder

        def embed(tokens: Tokenized) -> Float[Tensor, "batch dim"]:
            batch = RaggedBatch.pack(tokens.ids, device=encoder.device)
            with torch.autocast(encoder.device.type, dtype=torch.bfloat16, enabled=self._bf16):
                hidden = hidden_states(encoder.backbone, batch, encoder.route, all_layers=True)
            states = torch.stack([layer.float() for layer in hidden[self._layer_start :]], dim=1)
            return batch.restore_order(sentence_vectors(states, batch.groups))

        shape, progress = (encoder.backbone.config.hidden_size,), self._progress
        return compute_distinct(encoder, texts, encoder.tokenize, embed, shape, progress=progress, check_finite=False)


def sentence_vectors(
    states: Float[Tensor, "tokens layers dim"], groups: Sequence[LengthGroup], *, window: int = WINDOW
) -> Float[Tensor, "batch dim"]:
    """Return one vector per text of a ragged batch, in packed order, from the selected layers.

    The only token of a text is kept. If no token's layers vary, for which the formula is undefined, all tokens have
    equal weights.
    """
    cosines = layer_cosines(states)
    layer_weights = unify_layers(cosines, window=window)
    token_weights = cosines.diagonal(offset=1, dim1=1, dim2=2).var(dim=1, correction=0)
    rows = []
    for group in groups:
        kept = max(group.length - 1, 1)
        tokens = token_weights[group.span].view(group.num_texts, group.length)[:, :kept]
        total = tokens.sum(1, keepdim=True)
        tokens = torch.where(total > 0, tokens / total, 1 / kept)
        layers = layer_weights[group.span].view(group.num_texts, group.length, -1)[:, :kept]
        weights = (tokens[:, :, None] * layers).flatten(1).to(states.dtype)
        stack = states[group.span].view(group.num_texts, group.length, *states.shape[1:])[:, :kept].flatten(1, 2)
        rows.append((weights[:, None] @ stack)[:, 0])
    return torch.cat(rows)


def layer_cosines(states: Float[Tensor, "tokens layers dim"]) -> Float[Tensor, "tokens layers layers"]:
    """Return the cosines between the layers of each token, in float64; a zero layer has cosine 0 with all others."""
    parts = (part.double() for part in states.split(TOKENS_AT_ONCE))
    gram = torch.cat([part @ part.mT for part in parts])
    lengths = gram.diagonal(dim1=1, dim2=2).sqrt()
    lengths = torch.where(lengths > 0, lengths, 1)
    return gram / (lengths[:, :, None] * lengths[:, None, :])


def unify_layers(cosines: Float[Tensor, "tokens layers layers"], *, window: int) -> Float[Tensor, "tokens layers"]:
    """Return the weights alpha of each token's layers, which sum to 1 (see the module docstring)."""
    layers = range(cosines.shape[1])
    novelties, inverses = [], []
    for layer in layers:
        first = layer - window if layer >= window else layer  # the authors' slice: see the module docstring
        near = [other for other in layers[first : layer + window + 1] if other != layer]
        windows = cosines[:, [*near, layer]][:, :, [*near, layer]]
        novelty = distance_of_last(windows)
        projected = (1 - novelty.square()).clamp(min=0).sqrt()  # ||P_k h_k|| / ||h_k||
        alignment = windows[:, :-1, -1].mean(dim=1) / projected
        novelties.append(novelty)
        inverses.append(1 / (2 * (len(near) + 1) * alignment))
    novelty, inverse = torch.stack(novelties, dim=1), torch.stack(inverses, dim=1)
    total = novelty.sum(1, keepdim=True)
    shares = torch.where(total > 0, novelty / total, 1 / len(layers))  # equal weights if no layer has novelty
    return (shares + inverse / inverse.sum(1, keepdim=True)) / 2


def distance_of_last(gram: Float[Tensor, "*batch vectors vectors"]) -> Float[Tensor, "*batch"]:
    """Return the distance of the last vector from the span of the others, from the Gram matrix of unit vectors.

    Gaussian elimination of all but the last, for the full batch at once; a vector in the span of the previous ones is
    skipped. Equals the last diagonal entry of R in a QR decomposition, up to its sign.
    """
    for _ in range(gram.shape[-1] - 1):
        pivot, row = gram[..., 0, 0], gram[..., 0, 1:]
        factor = torch.where(pivot > RANK_TOLERANCE, 1 / pivot, 0)
        gram = gram[..., 1:, 1:] - factor[..., None, None] * row[..., :, None] * row[..., None, :]
    left = gram[..., 0, 0]
    return torch.where(left > RANK_TOLERANCE, left, 0).sqrt()
