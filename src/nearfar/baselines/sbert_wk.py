"""SBERT-WK: each token's layers weighed by how new they are, each token by how much its layers change.

Wang & Kuo 2020, "SBERT-WK: A Sentence Embedding Method by Dissecting BERT-based Word Models", sections IV-B (one vector
a token) and IV-C (one vector a sentence). Nothing is trained. For a token with hidden states h_0 .. h_{L-1}, the layers
from ``layer_start`` on, J(k) the layers next to layer k in a window, and P_k the projection onto the span of theirs:

- novelty   n_k = ||h_k - P_k h_k|| / ||h_k||
- alignment a_k = 1 / (2 (|J(k)| + 1) * mean over j in J(k) of cos(h_j, P_k h_k))
- layer weight alpha_k, half of it n_k / sum(n), half a_k / sum(a); token vector v = sum_k alpha_k h_k
- token weight w, the variance of cos(h_k, h_{k+1}) over k, divided by its sum over the sentence's tokens
- sentence vector = sum over tokens of w v

The authors find n and a by a QR decomposition of [dim, window] for each token and layer. Both depend on the cosines
between the token's layers alone: h_j . P_k h_k = h_j . h_k, and ||h_k - P_k h_k||^2 is a Schur complement of their Gram
matrix, so one small matrix [layers, layers] a token, in float64, gives all of them at once.

Where paper and authors' code differ, this is the code, which made the published numbers: the first ``window`` layers
have neighbours on their right only (a Python slice with a negative start is empty), and of a text's tokens the last
one, [SEP], is left out while the first, [CLS], is not.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.encoder.encoder import Encoder, token_budget_batches, warn_truncated
from nearfar.encoder.length_groups import LengthGroup
from nearfar.encoder.ragged import RaggedBatch, hidden_states
from nearfar.types import NearfarError

RANK_TOLERANCE = 1e-13
"""A layer whose squared distance from the span of others is below this share of its square lies in the span: float32
states are no more exact than that."""
TOKENS_AT_ONCE = 512  # copied to float64 while their Gram matrices are computed


class SbertWk:
    """The SBERT-WK vectors of an encoder; called like an encode function, gives float32 [texts, dim].

    It reads the backbone's hidden states: the pooling of the model's folder, and a Dense or Normalize behind it, have
    no part in it. A vector's length means nothing; compare by cosine.

    Args:
        encoder: whose backbone to read.
        layer_start: the first hidden state used, 0 being the embedding layer (4 of 0..12 in the authors' code, for BERT
            base).
        window: neighbouring layers looked at on each side (2 in the authors' code).
        bf16: run the backbone in bfloat16.
        progress: show a progress bar.

    Raises:
        NearfarError: too few layers from ``layer_start`` on: with fewer than ``window + 1`` one would have no
            neighbour, and with fewer than three no cosines could vary.
    """

    def __init__(
        self, encoder: Encoder, *, layer_start: int = 4, window: int = 2, bf16: bool = False, progress: bool = False
    ) -> None:
        if window < 1:
            raise NearfarError(f"window {window}: must be 1 or more.")
        last, needed = encoder.backbone.config.num_hidden_layers, max(window + 1, 3)
        if not 0 <= layer_start <= last + 1 - needed:
            advice = f"Take 0 to {last + 1 - needed}." if last + 1 >= needed else "It has too few for any layer_start."
            raise NearfarError(
                f"layer_start {layer_start}: SBERT-WK with window {window} needs {needed} layers from there on, and "
                f"this encoder has 0 (embeddings) to {last}. {advice}"
            )
        self._encoder, self._layer_start, self._window = encoder, layer_start, window
        self._bf16, self._progress = bf16, progress

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str]) -> Float[np.ndarray, "texts dim"]:
        """One vector a text, in the order of ``texts``; each distinct text is computed once, cut as ``encode`` does."""
        encoder = self._encoder
        distinct = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        tokenized = encoder.tokenize(list(distinct))
        warn_truncated(tokenized, encoder.max_length)
        token_ids = tokenized.ids
        vectors = np.empty((len(distinct), encoder.backbone.config.hidden_size), dtype=np.float32)
        was_training = encoder.training
        encoder.eval()
        for places in token_budget_batches(token_ids, progress=self._progress):
            batch = RaggedBatch.pack([token_ids[place] for place in places], device=encoder.device)
            with torch.autocast(encoder.device.type, dtype=torch.bfloat16, enabled=self._bf16):
                hidden = hidden_states(encoder.backbone, batch, encoder.route, all_layers=True)
            states = torch.stack([layer.float() for layer in hidden[self._layer_start :]], dim=1)
            vectors[places] = (
                batch.restore_order(sentence_vectors(states, batch.groups, window=self._window)).cpu().numpy()
            )
        encoder.train(was_training)
        return vectors[[distinct[text] for text in texts]]


def sentence_vectors(
    states: Float[Tensor, "tokens layers dim"], groups: Sequence[LengthGroup], *, window: int
) -> Float[Tensor, "batch dim"]:
    """One vector a text of a ragged batch, in packed order, from the layers that are used.

    A text of one token keeps it. Where no token's layers change, which the formula leaves undefined, all weigh alike.
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
    """Cosine of each two layers of a token, in float64; a layer that is all zero has cosine 0 with every other."""
    parts = (part.double() for part in states.split(TOKENS_AT_ONCE))
    gram = torch.cat([part @ part.mT for part in parts])
    lengths = gram.diagonal(dim1=1, dim2=2).sqrt()
    lengths = torch.where(lengths > 0, lengths, 1)
    return gram / (lengths[:, :, None] * lengths[:, None, :])


def unify_layers(cosines: Float[Tensor, "tokens layers layers"], *, window: int) -> Float[Tensor, "tokens layers"]:
    """The weights alpha of a token's layers, which sum to 1 (see the module)."""
    layers = cosines.shape[1]
    neighbours, real = _neighbours(layers, window)
    neighbours, real = neighbours.to(cosines.device), real.to(cosines.device)
    counts = real.sum(1)
    ordered = torch.cat([neighbours, torch.arange(layers, device=cosines.device)[:, None]], dim=1)
    windows = cosines[:, ordered[:, :, None], ordered[:, None, :]]  # [tokens, layers, places, places]
    # A place that no layer fills gets a vector of its own, at a right angle to all others: it changes nothing.
    real = torch.cat([real, real.new_ones(layers, 1)], dim=1)
    both = real[:, :, None] & real[:, None, :]
    windows = torch.where(both, windows, torch.eye(ordered.shape[1], dtype=cosines.dtype, device=cosines.device))
    novelty = distance_of_last(windows)
    projected = (1 - novelty.square()).clamp(min=0).sqrt()  # ||P_k h_k|| / ||h_k||
    alignment = windows[..., :-1, -1].sum(-1) / counts / projected
    inverse = 1 / (2 * (counts + 1) * alignment)
    total = novelty.sum(1, keepdim=True)
    shares = torch.where(total > 0, novelty / total, 1 / layers)  # no layer is new: none is newer than another
    return (shares + inverse / inverse.sum(1, keepdim=True)) / 2


def distance_of_last(gram: Float[Tensor, "*batch vectors vectors"]) -> Float[Tensor, "*batch"]:
    """How far the last vector is from the span of the others, from the Gram matrix of vectors of length 1.

    Gaussian elimination of all but the last, for the whole batch at once; a vector in the span of those before it is
    passed over, as it adds nothing. Equals the last diagonal entry of R in a QR decomposition, up to its sign.
    """
    for _ in range(gram.shape[-1] - 1):
        pivot, row = gram[..., 0, 0], gram[..., 0, 1:]
        factor = torch.where(pivot > RANK_TOLERANCE, 1 / pivot, 0)
        gram = gram[..., 1:, 1:] - factor[..., None, None] * row[..., :, None] * row[..., None, :]
    left = gram[..., 0, 0]
    return torch.where(left > RANK_TOLERANCE, left, 0).sqrt()


def _neighbours(layers: int, window: int) -> tuple[Tensor, Tensor]:
    """Neighbouring layers of each layer, [layers, 2 * window], and which of them there are (elsewhere 0 stands)."""
    offsets = torch.tensor([*range(-window, 0), *range(1, window + 1)])
    layer = torch.arange(layers)[:, None]
    places = layer + offsets
    real = (places < layers) & ((offsets > 0) | (layer >= window))  # the authors' slice: see the module
    return torch.where(real, places, 0), real
