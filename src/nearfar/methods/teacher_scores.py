"""teacher-scores: the scores of a teacher, such as a reranker or an LLM, for the positive and negatives of each query.

The scores stand in the rows; no teacher runs here. With the student's similarities s and the teacher's scores t, each
divided by its temperature, the loss of a batch is

``kl``          the mean over lists of KL(softmax_j t_j || softmax_j s_j),
                :func:`nearfar.objectives.score_distillation`; a list is a positive and the negatives of its rows (Lin
                et al. 2020)
``margin-mse``  the mean over triplets of ((s+ - s-) - (t+ - t-))^2, :func:`nearfar.objectives.margin_mse` (Hofstätter
                et al. 2020)

With similarity dot and both temperatures 1, their defaults there, these are sentence-transformers' ``DistillKLDivLoss``
and ``MarginMSELoss``. Scores of a teacher have any scale and cosines end at 1, so a typical margin of the teacher, the
root mean square of t+ - t- over the rows, is by default worth :data:`TYPICAL_MARGIN` of similarity. Texts of other rows
are not compared, unless InfoNCE between the queries and positives of the batch is added with ``in_batch_weight``.
"""

from dataclasses import dataclass
from functools import partial
from math import sqrt
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from nearfar.config.bounds import File, Temperature, Weight
from nearfar.methods import base
from nearfar.methods.settings import InfoNceSettings, PairColumns
from nearfar.methods.simcse import contrastive_loss
from nearfar.types import Loss, Method, MethodEntry, NearfarError

if TYPE_CHECKING:
    from torch import Tensor

    from nearfar.data.batching import TextBatch
    from nearfar.data.rows import TextData

PAPERS = (base.bibtex("hofstaetter2020improving"), base.bibtex("lin2020distilling"))
TYPICAL_MARGIN = 0.15
"""The difference of similarities that a typical margin of the teacher asks for, by default."""


@dataclass(frozen=True, kw_only=True)
class TeacherScoresConfig(PairColumns, InfoNceSettings):
    """teacher-scores: fit the similarities of queries and documents to scores of a teacher that stand in the rows."""

    # --- Rows ---

    data: tuple[File, ...] = ()
    """Files with the columns below and the scores of their texts: positive_score (or score), negative_score or
    negative_score_1, ...; or lists, such as pos_scores and neg_scores."""

    # --- Options ---

    objective: Literal["kl", "margin-mse"] = "kl"
    """kl: the teacher's and the student's softmax over a positive and its negatives; margin-mse: squared error of the
    difference between the scores of positive and negative."""
    similarity: Literal["cosine", "dot"] = "cosine"
    """cosine, or dot."""
    teacher_temperature: Temperature | None = None
    """Divides the teacher's scores, as TEMPERATURE the similarities. By default a typical difference between the scores
    of positive and negative asks for 0.15 of similarity."""
    in_batch_weight: Weight = 0.0
    """Weight of InfoNCE with the positives of other queries of the batch as negatives, which FALSE_NEGATIVE_MARGIN is
    for."""


def read_rows(config: TeacherScoresConfig) -> "TextData":
    """Read triplets with their scores."""
    from nearfar.data.triplets import load_tuples

    data, auto = base.require_data(config, "teacher-scores"), config.negative_column == "auto"
    rows = load_tuples(data, columns=config.columns, find_negatives=auto, scores=True, limit=config.limit)
    if len(rows.rows[0]) == 2:
        raise NearfarError(
            f"{' '.join(data)}: has no negatives to compare with; name their column by --negative-column."
        )
    return rows


def build(config: TeacherScoresConfig, context: base.BuildContext, rows: "TextData") -> base.BuiltMethod:
    """Build the method on triplets, whose targets are the teacher's scores of positive and negative.

    All rows of an anchor are in one batch. Anchors are encoded as queries, the others as documents; each distinct text
    is encoded once.

    Terms: ``accuracy``, the share of triplets whose similarities have the order of their scores; with a weight
    ``in_batch``, InfoNCE before it, and with a margin ``left_out``.

    Raises:
        NearfarError: every negative has the score of its positive.
    """
    import torch

    from nearfar.objectives import direction_masks, margin_mse, row_similarities, score_distillation, to_device

    batches, roles = context.batches(config, rows, by_role=True, order="premise", min_batch_size=1), context.roles
    typical = sqrt(fmean((positive - negative) ** 2 for positive, negative in rows.targets or ()))
    if not typical:
        raise NearfarError("teacher-scores: each negative has the score of its positive, so there is nothing to learn.")
    teacher_temperature = config.teacher_temperature or config.temperature * typical / TYPICAL_MARGIN

    def loss_fn(batch: "TextBatch", embeddings: "Tensor") -> Loss:
        queries, documents = roles.split(embeddings, batch)
        ids = to_device(torch.tensor(batch.columns), queries.device)
        scores = [row_similarities(queries[ids[0]], documents[texts], config.similarity) for texts in ids[1:]]
        positives, negatives = (one / config.temperature for one in scores)
        targets = to_device(torch.tensor(batch.targets, dtype=positives.dtype), positives.device) / teacher_temperature
        margins, wanted = positives - negatives, targets[:, 0] - targets[:, 1]
        terms = {"accuracy": (margins.detach() * wanted > 0).float().mean()}
        same = (ids[:2, :, None] == ids[:2, None]).all(dim=0)  # rows of one list, of which each has the whole list
        if config.objective == "margin-mse":
            value = margin_mse(margins, wanted).mean()
        else:
            own, teachers = (
                torch.cat([first[:, None], others.expand(len(others), -1)], dim=1)
                for first, others in ((positives, negatives), targets.unbind(1))
            )
            losses = score_distillation(own, teachers, torch.nn.functional.pad(same, (1, 0), value=True))
            value = (losses / same.sum(dim=1)).sum() / (1 / same.sum(dim=1)).sum()
        if config.in_batch_weight:
            pairs = ids[:2, ~same.tril(-1).any(dim=1)]  # of each list its first row
            vectors, masks = (queries[pairs[0]], documents[pairs[1]], None), direction_masks("query_to_doc", *pairs)
            losses, others = contrastive_loss(config, *vectors, masks=masks)
            terms = {**others, **terms, "in_batch": losses.detach().mean()}
            value = value + config.in_batch_weight * losses.mean()
        return Loss(value, terms)

    names = ("anchor", "positive {0:.3g}", "negative {1:.3g}")
    describe = partial(base.describe_rows, names=lambda scores: [one.format(*scores) for one in names])
    method = Method("teacher-scores", batches, roles.items, context.encoder.embed, loss_fn, describe)
    fact = (
        f"scores are divided by {teacher_temperature:.3g}, {config.similarity} similarity by {config.temperature:.3g}"
    )
    return base.BuiltMethod(method, [*base.text_facts(rows), fact])


METHODS = {
    "teacher-scores": MethodEntry(
        config=TeacherScoresConfig, read_rows=read_rows, build=build, papers=PAPERS, by_role=True
    )
}
