"""regression: pairs of texts and their similarity as rated by people, scaled to 0..1.

``objective="mse"``, ``head="cosine"`` is the regression objective of Reimers & Gurevych 2019 (section 3): the mean over
pairs of (cos(u, v) - score)^2, :func:`nearfar.objectives.cosine_regression`. Training and inference use the same
measure.

``head="linear"``: the mean of (w . [|u - v|; u * v] + b - score)^2. The features are those of SentEval's relatedness
tasks (Conneau & Kiela 2018; Tai et al. 2015); the linear layer is dropped after training.

``objective="cosent"`` ranks the cosines of a batch as the scores, :func:`nearfar.objectives.cosent`.

``objective="angle"`` is the objective of Li & Li 2024: the weighted sum of CoSENT on cosines, InfoNCE with in-batch
negatives, and CoSENT on :func:`nearfar.objectives.angle_similarity`. Anchors of InfoNCE are both texts of each pair
with a high score (``in_batch_threshold``), candidates all texts of the batch.

Batch size, learning rate and epochs are those of the SimCSE review, which fine-tunes SimCSE checkpoints on STS-B (16,
2e-5, 10 epochs, 214 steps of warm-up). There the encoder reads both texts together, so it is no longer a sentence
encoder; here texts are encoded independently.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from nearfar.config.bounds import Count, Epochs, File, Fraction, Temperature, Weight
from nearfar.config.training import TrainConfig
from nearfar.methods.base import BuildContext, BuiltMethod, describe_rows, require_different, sentences_of, text_facts
from nearfar.methods.liao import SBERT_PAPER
from nearfar.types import Loss, Method, MethodEntry

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

    from nearfar.data.batching import TextBatch
    from nearfar.data.rows import TextData


@dataclass(frozen=True, kw_only=True)
class RegressionConfig(TrainConfig):
    """regression: squared error between a score and the cosine of two texts, or a ranking of cosines as the scores."""

    # --- Rows ---

    data: tuple[File, ...] = ("stsb:train",)
    """Scored pairs: stsb:train, sickr:train, or files with the columns below."""
    first_column: str = "sentence1"
    """Column of the first texts."""
    second_column: str = "sentence2"
    """Column of the second texts."""
    score_column: str = "score"
    """Column of the scores."""

    # --- Options ---

    objective: Literal["mse", "cosent", "angle"] = "mse"
    """mse: squared error; cosent: rank the cosines of a batch as the scores (CoSENT); angle: the same, in-batch
    negatives, and a ranking of angles in complex space (AnglE, Li & Li 2024)."""
    head: Literal["cosine", "linear"] = "cosine"
    """cosine, or a linear head on (|u - v|, u * v), which is dropped after training; linear with OBJECTIVE mse only."""
    temperature: Temperature = 0.05
    """Divides the cosines in cosent and angle, also those of in-batch negatives."""
    angle_temperature: Temperature = 1.0
    """Divides the angles in angle."""
    cosine_weight: Weight = 1.0
    """Weight of the ranking of cosines in angle."""
    in_batch_weight: Weight = 1.0
    """Weight of the in-batch negatives in angle."""
    angle_weight: Weight = 1.0
    """Weight of the ranking of angles in angle."""
    in_batch_threshold: Fraction = 0.8
    """Pairs with at least this score (of 0 to 1) are positives of the in-batch negatives in angle."""
    batch_size: Count = 16
    """Batch size per process (the STS-B setting of the SimCSE review); at most the number of rows."""
    epochs: Epochs = 10
    warmup: Fraction = 0.06
    """Share of the steps in which the learning rate rises: 214 of 3,590 steps."""

    needs = (("head", "objective mse"),)

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if self.objective == "angle" and not (self.cosine_weight or self.in_batch_weight or self.angle_weight):
            yield (
                "--cosine-weight, --in-batch-weight and --angle-weight are all 0, so there is no loss; make one of "
                "them positive."
            )


def read_rows(config: RegressionConfig) -> "TextData":
    """Read scored pairs."""
    from nearfar.data.rows import load_scored

    columns = (config.first_column, config.second_column, config.score_column)
    return load_scored(config.data, columns=columns, limit=config.limit)


def build(config: RegressionConfig, context: BuildContext, rows: "TextData") -> BuiltMethod:
    """Build the method on its rows.

    Terms: with ``mse`` ``mae``, the mean absolute error of the predicted scores; with ``cosent`` and ``angle``
    ``accuracy``, the share of comparisons of two pairs whose cosines have the order of their scores, and with
    ``angle`` each part before its weight: ``cosine``, ``in_batch``, ``angle``.

    Raises:
        NearfarError: scores that are all the same.
    """
    import torch

    from nearfar import objectives
    from nearfar.encoder.heads import RegressionHead

    batches = context.batches(config, rows, min_batch_size=1)
    require_different(rows.targets or [], "score")
    linear = RegressionHead(context.encoder.encoder.dim) if config.head == "linear" else None

    def loss_fn(batch: "TextBatch", embeddings: "Tensor") -> Loss:
        first, second = (embeddings[column] for column in batch.columns)
        targets = objectives.to_device(torch.tensor(batch.targets, dtype=embeddings.dtype), embeddings.device)
        if config.objective == "mse":
            if linear is None:
                errors = objectives.cosine_regression(first, second, targets)
            else:
                errors = (linear(objectives.regression_features(first, second)) - targets).square()
            return Loss(errors.mean(), {"mae": errors.detach().sqrt().mean()})
        cosines = objectives.row_similarities(first, second, "cosine")
        terms = {"accuracy": _accuracy(cosines.detach(), targets)}
        ranked = objectives.cosent(cosines, targets, temperature=config.temperature)
        if config.objective == "cosent":
            return Loss(ranked, terms)
        angles = objectives.cosent(
            objectives.angle_similarity(first, second), targets, temperature=config.angle_temperature
        )
        parts = {
            "cosine": (config.cosine_weight, ranked),
            "in_batch": (config.in_batch_weight, _in_batch(config, batch, first, second)),
            "angle": (config.angle_weight, angles),
        }
        total = torch.stack([weight * part for weight, part in parts.values()]).sum()
        return Loss(total, {name: part.detach() for name, (_, part) in parts.items()} | terms)

    def describe(batch: "TextBatch") -> list[str]:
        return describe_rows(batch, lambda score: (f"score {score:.2f}", ""))

    method = Method("regression", batches, sentences_of, context.encoder.embed, loss_fn, describe, linear)
    return BuiltMethod(method, text_facts(rows))


def _in_batch(
    config: RegressionConfig,
    batch: "TextBatch",
    first: 'Float[Tensor, "pairs dim"]',
    second: 'Float[Tensor, "pairs dim"]',
) -> 'Float[Tensor, ""]':
    """Mean InfoNCE of both texts of each pair with a high score against all texts of the batch; 0 without such a pair.

    Texts equal to the anchor, or to a text that has a high score with it, are left out; a text that occurs several
    times is one candidate.
    """
    import torch

    from nearfar.objectives import direction_masks, info_nce

    high = torch.tensor([target >= config.in_batch_threshold for target in batch.targets], device=first.device)
    ids = [torch.tensor(column, device=first.device) for column in batch.columns]
    anchors, positives = torch.cat([first[high], second[high]]), torch.cat([second[high], first[high]])
    anchor_ids, positive_ids = (torch.cat([one[high], other[high]]) for one, other in (ids, ids[::-1]))
    others, other_ids = torch.cat([first[~high], second[~high]]), torch.cat([column[~high] for column in ids])
    masks = direction_masks("query_to_doc", anchor_ids, positive_ids, other_ids, distinct=True)
    losses = info_nce(anchors, positives, others, temperature=config.temperature, mask=masks.query_to_doc)
    return losses.sum() / max(len(losses), 1)


def _accuracy(cosines: 'Float[Tensor, " pairs"]', targets: 'Float[Tensor, " pairs"]') -> 'Float[Tensor, ""]':
    """The share of comparisons in the right order; 1 without a comparison."""
    import torch

    from nearfar.objectives import by_rows

    def count(rows: slice) -> 'Int[Tensor, "pairs 2"]':
        compared = targets[rows, None] < targets
        right = compared & (cosines[rows, None] < cosines)
        return torch.stack([compared.sum(dim=1), right.sum(dim=1)], dim=1)

    compared, right = by_rows(count, len(cosines), len(cosines)).sum(dim=0)
    return torch.where(compared > 0, right / compared.clamp(min=1), 1.0)


METHODS = {
    "regression": MethodEntry(
        config=RegressionConfig, read_rows=read_rows, build=build, min_rows=1, papers=(SBERT_PAPER,)
    )
}
