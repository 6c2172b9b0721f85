"""regression: pairs of texts and their similarity as rated by people, scaled to 0..1.

``head="cosine"`` is the regression objective of Reimers & Gurevych 2019 (section 3): the mean over pairs of
(cos(u, v) - score)^2, :func:`nearfar.objectives.cosine_regression`. Training and inference use the same measure.

``head="linear"``: the mean of (w . [|u - v|; u * v] + b - score)^2. The features are those of SentEval's relatedness
tasks (Conneau & Kiela 2018; Tai et al. 2015); the linear layer is dropped after training.

Batch size, learning rate and epochs are those of the SimCSE review, which fine-tunes SimCSE checkpoints on STS-B (16,
2e-5, 10 epochs, 214 steps of warm-up). There the encoder reads both texts together, so it is no longer a sentence
encoder; here texts are encoded independently.
"""

import torch
from torch import Tensor

from nearfar.data.batching import TextBatch, TextBatches
from nearfar.encoder.heads import RegressionHead
from nearfar.methods.base import EmbedFn, Loss, Method
from nearfar.methods.regression import RegressionConfig
from nearfar.objectives import cosine_regression, regression_features
from nearfar.types import NearfarError


def regression(config: RegressionConfig, embed: EmbedFn, dim: int, batches: TextBatches) -> Method:
    """Train on scored pairs. ``dim`` is the width of the embeddings.

    Terms: ``mae``, the mean absolute error of the predicted scores.
    Raises NearfarError for rows that are not pairs or have no scores, a score outside 0..1, and scores that are all the
    same.
    """
    _require_scores(batches)
    linear = RegressionHead(dim) if config.head == "linear" else None

    def loss_fn(batch: TextBatch, embeddings: Tensor) -> Loss:
        first, second = (embeddings[column] for column in batch.columns)
        targets = torch.tensor(batch.targets, dtype=embeddings.dtype, device=embeddings.device)
        if linear is None:
            errors = cosine_regression(first, second, targets)
        else:
            errors = (linear(regression_features(first, second)) - targets).square()
        return Loss(errors.mean(), {"mae": errors.detach().sqrt().mean()})

    return Method("regression", batches, _sentences, embed, loss_fn, _describe, linear)


def _sentences(batch: TextBatch) -> list[str]:
    return batch.sentences


def _describe(batch: TextBatch) -> list[str]:
    lines: list[str] = []
    for first, second, score in zip(*batch.columns, batch.targets, strict=True):
        lines += [f"score {score:.2f}  {batch.sentences[first]}", f"{'':<10}  {batch.sentences[second]}"]
    return lines


def _require_scores(batches: TextBatches) -> None:
    width = len(batches.texts[0])
    if width != 2:
        raise NearfarError(f"regression trains on scored pairs, but each row has {width} text{'s' * (width > 1)}")
    if batches.targets is None:
        raise NearfarError("regression needs a score for each pair; name its column")
    for row, (pair, score) in enumerate(zip(batches.texts, batches.targets, strict=True)):
        if not 0 <= score <= 1:  # so written, NaN is refused as well
            raise NearfarError(
                f"row {row}: {' / '.join(pair)!r} has the score {score}, but scores must be in 0..1; scale them"
            )
    if len(set(batches.targets)) == 1:
        raise NearfarError(
            f"all {len(batches.texts)} pairs have the score {batches.targets[0]}, so no pair differs from another; "
            "add pairs of other scores"
        )
