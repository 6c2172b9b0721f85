"""Embeddings as ``nearfar encode --quantize`` stores them, for an evaluation: quantized, and decoded again."""

from collections.abc import Sequence, Set

import numpy as np
from numpy.typing import NDArray

from nearfar.commands.evaluate.model import OpenedModel
from nearfar.quantization import Quantization, dequantize, int8_ranges, quantize
from nearfar.types import Encode

CALIBRATION_TEXTS = 10_000
"""Maximum number of texts whose embeddings give the ranges of int8."""


def with_stored_vectors(opened: OpenedModel, kind: Quantization, texts: Set[str]) -> OpenedModel:
    """The model with embeddings as they are after storing; queries of retrieval keep theirs.

    Args:
        opened: the model.
        kind: how the embeddings are stored.
        texts: those of all tasks. A fixed random sample of them, encoded as documents, gives the ranges of int8.

    Raises:
        NearfarError: the embeddings of the sample are not finite.
    """
    ranges = None
    if kind == "int8":
        chosen = sorted(texts)
        if len(chosen) > CALIBRATION_TEXTS:
            places = np.random.default_rng(0).choice(len(chosen), CALIBRATION_TEXTS, replace=False)
            chosen = [chosen[place] for place in np.sort(places)]
        ranges = int8_ranges([np.asarray(opened.encode_document(chosen))])

    def stored(encode: Encode) -> Encode:
        def encode_and_store(some: Sequence[str]) -> NDArray[np.float32]:
            vectors = np.asarray(encode(some))
            return dequantize(quantize(vectors, kind, ranges), kind, ranges, dim=vectors.shape[1])

        return encode_and_store

    encode = stored(opened.encode)
    same = opened.encode_document == opened.encode
    return opened._replace(encode=encode, encode_document=encode if same else stored(opened.encode_document))
