"""Embeddings of every layer with every pooling, from one pass over the texts."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from nearfar.encoder.encoder import Encoder
from nearfar.encoder.pooling import TOKEN_POOLINGS, parse_pooling
from nearfar.encoder.ragged import RaggedBatch, hidden_states
from nearfar.encoder.token_batches import check_texts, compute_batches, warn_truncated
from nearfar.runtime.progress import progress_bar
from nearfar.types import NearfarError


@torch.inference_mode()
def layer_embeddings(
    encoder: Encoder, texts: Sequence[str], *, poolings: Sequence[str] = ("cls", "mean", "max"), progress: bool = False
) -> dict[tuple[int, str], NDArray[np.float32]]:
    """Embeddings of ``texts`` for each layer and pooling; layer 0 is the embedding layer (Kim et al. 2021, Figure 1).

    Entry (K, p), float32 [texts, dim], equals the result of :meth:`~nearfar.encoder.encoder.Encoder.encode` of the same
    encoder with the pooling ``layer:K:p``; modules after the pooling (Dense, Normalize) are applied too. The encoder's
    own pooling is not used. Its default prompt is put before each text.

    Each distinct text is computed once. A batch's hidden states are pooled and freed before those of the next batch are
    computed. The result takes 4 * (layers + 1) * len(poolings) * dim bytes per text. Texts over the maximum length are
    truncated, with one warning that counts them.

    Args:
        encoder: the encoder.
        texts: any number of strings.
        poolings: some of ``cls``, ``mean``, ``mean_without_cls`` and ``max``, without repetition.
        progress: show a progress bar.

    Raises:
        NearfarError: ``texts`` is a single string or contains something else than strings; a pooling is unknown or
            given twice; or a vector is not finite (the message names the text).
    """
    check_texts(texts)
    for name in poolings:
        if name not in TOKEN_POOLINGS:
            raise NearfarError(f"pooling {name!r} of a layer: must be one of {', '.join(TOKEN_POOLINGS)}.")
    if len(set(poolings)) < len(poolings):
        raise NearfarError(f"poolings {', '.join(poolings)}: each may be given only once.")
    layers = encoder.backbone.config.num_hidden_layers
    parsed = [parse_pooling(name, layers=layers) for name in poolings]
    distinct = {text: index for index, text in enumerate(dict.fromkeys(texts))}
    tokenized = encoder.tokenize(list(distinct))
    warn_truncated(tokenized.truncated, len(distinct), encoder.max_length)

    def embed(numbers: list[int]) -> Float[Tensor, "texts layers poolings dim"]:
        ids = [tokenized.ids[number] for number in numbers]
        batch = RaggedBatch.pack(ids, prompt_length=tokenized.prompt_length, device=encoder.device)
        hidden = hidden_states(encoder.backbone, batch, encoder.route, all_layers=True)
        by_pooling = [
            torch.stack([encoder.embed_states([states], batch, pooling) for pooling in parsed], dim=1)
            for states in hidden
        ]
        embeddings = torch.stack(by_pooling, dim=1).float()
        return functional.normalize(embeddings, dim=-1) if encoder.normalizes else embeddings

    def describe(number: int) -> tuple[int, str]:
        text = list(distinct)[number]
        return texts.index(text), text

    with progress_bar("encoding", len(distinct), shown=progress) as advance:
        vectors = compute_batches(
            encoder,
            tokenized.ids,
            embed,
            (layers + 1, len(poolings), encoder.dim),
            device=encoder.device,
            describe=describe,
            on_batch=advance,
        )
    if len(distinct) < len(texts):
        vectors = vectors[[distinct[text] for text in texts]]
    return {
        (layer, name): vectors[:, layer, number] for layer in range(layers + 1) for number, name in enumerate(poolings)
    }
