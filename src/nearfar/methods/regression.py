"""regression: pairs of texts and how similar people say they are, scaled to 0..1.

``head="cosine"`` is the regression objective of Reimers & Gurevych 2019 (section 3): the mean over pairs of
(cos(u, v) - score)^2, :func:`nearfar.objectives.cosine_regression`. What is trained is what is used: a cosine.

``head="linear"``: the mean of (w . [|u - v|; u * v] + b - score)^2. The features are those of SentEval's relatedness
tasks (Conneau & Kiela 2018; Tai et al. 2015); the linear layer is dropped after training.

Batch, learning rate and epochs are those with which the review of SimCSE fine-tunes its checkpoints on STS-B (16, 2e-5,
10 epochs, 214 steps of warm-up). There both texts go through the encoder together, so that it is no longer one of
sentences; here each is encoded by itself.
"""

from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from nearfar.data.batching import TextBatch, TextBatches
from nearfar.encoder.heads import RegressionHead
from nearfar.methods import EmbedFn, Loss, Method
from nearfar.objectives import cosine_regression, regression_features
from nearfar.types import NearfarError

Head: TypeAlias = Literal["cosine", "linear"]


def regression(
    embed: EmbedFn,
    dim: int,
    batches: TextBatches,
    *,
    head: Head = "cosine",  # Reimers & Gurevych 2019, section 3
) -> Method:
    """Train on scored pairs. ``dim`` is the width of the embeddings.

    Terms: ``mae``, the mean absolute error of the predicted scores.
    Raises NearfarError for an unknown head, rows that are not pairs or have no scores, a score outside 0..1, and
    scores that are all the same.
    """
    if head not in get_args(Head):
        raise NearfarError(f"--head must be one of {', '.join(get_args(Head))}, not {head!r}")
    _require_scores(batches)
    linear = RegressionHead(dim) if head == "linear" else None

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
                f"row {row}: {' / '.join(pair)!r} has the score {score}, but scores must lie in 0..1; scale them"
            )
    if len(set(batches.targets)) == 1:
        raise NearfarError(
            f"all {len(batches.texts)} pairs have the score {batches.targets[0]}, which tells no pair from another; "
            "bring pairs of other scores too"
        )
