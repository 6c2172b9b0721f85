"""distill: the student's vectors, or its similarity lists, are fitted to those of a frozen teacher.

Data: raw sentences x_i with the teacher's vectors t_i, which do not change, and the student's embeddings s_i. The loss
is the mean over a batch's sentences of

``lists``    KL(p_i || q_i), p_i = softmax_{j != i}(cos(t_i, t_j) / t_T), q_i = softmax_{j != i}(cos(s_i, s_j) / t_S)
``vectors``  2 - 2 cos(P s_i, t_i), or with --vector-distance squared ||P s_i - t_i||^2 / (d m); P a linear layer where
             the widths differ, else the identity; d the teacher's width; m the mean square of the entries of the
             teacher's vectors

each times its weight. Between vectors of length 1 the two distances are equal. The division by m makes the second one
independent of the scale of the teacher: predicting zeros costs 1.

``lists`` is the ListNet distillation of Liu et al. 2023 (RankCSE), which in the paper is added to InfoNCE on the same
batch; here a second objective (``--second``) adds any other loss. ``vectors`` is that of Reimers & Gurevych 2020.
See ``docs/methods/distill.md``.
"""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.data.batching import TextBatch, TextBatches
from nearfar.encoder.teacher import TeacherVectors
from nearfar.methods.base import EmbedFn, Loss, Method
from nearfar.methods.distill import DistillConfig
from nearfar.objectives import l2_normalize, list_distillation, row_similarities, vector_distillation
from nearfar.runtime.transfer import to_device
from nearfar.types import NearfarError


def distill(
    config: DistillConfig,
    embed: EmbedFn,
    teacher: TeacherVectors,
    batches: TextBatches,
    *,
    normalize: bool,
    head: nn.Module | None = None,
    basis: Float[Tensor, "width dim"] | None = None,
) -> Method:
    """Train on single sentences. ``head`` projects the student's vectors to the teacher's width.

    ``basis`` does so by orthonormal columns that are not trained.

    ``normalize`` says that the student's model ends with Normalize; its vectors are then compared at length 1.

    Terms: ``lists`` and ``vectors`` before their weights, as far as they have one.
    Raises NearfarError for rows of several texts, and lists in batches of two, which are always equal.
    """
    width = len(batches.texts[0])
    if width != 1:
        raise NearfarError(f"distill trains on single sentences, but each row has {width} texts")
    if not config.vector_weight and batches.batch_size < 3:
        raise NearfarError(
            f"--batch-size is {batches.batch_size}: a list has the batch's other texts, and a list of one teaches "
            "nothing; make it 3 or more."
        )

    def loss_fn(batch: TextBatch, representations: Tensor) -> Loss:
        target = teacher(batch.sentences).to(representations.device)
        total = representations.new_zeros(())
        terms: dict[str, Tensor] = {}
        if config.list_weight:
            terms["lists"] = list_distillation(
                representations,
                target,
                temperature=config.temperature,
                teacher_temperature=config.teacher_temperature,
            ).mean()
            total = total + config.list_weight * terms["lists"]
        if config.vector_weight:
            with torch.autocast(representations.device.type, enabled=False):
                own = l2_normalize(representations) if normalize else representations
                own = own if head is None else head(own)
                own = own if basis is None else own.to(basis.dtype) @ to_device(basis, own.device).T
                if config.vector_distance == "cosine":
                    distances = 2 - 2 * row_similarities(own, target, "cosine")
                else:
                    distances = vector_distillation(own, target) / teacher.mean_square
                terms["vectors"] = distances.mean()
            total = total + config.vector_weight * terms["vectors"]
        return Loss(total, {name: term.detach() for name, term in terms.items()})

    return Method("distill", batches, _sentences, embed, loss_fn, partial(_describe, config), head, embeddings=False)


def _sentences(batch: TextBatch) -> list[str]:
    return batch.sentences


def _describe(config: DistillConfig, batch: TextBatch) -> list[str]:
    targets = ["the teacher's vector of it"] if config.vector_weight else []
    targets += [f"its similarities with the {len(batch.sentences) - 1} others"] if config.list_weight else []
    return [
        *(f"{'sentence':<10}  {text}" for text in batch.sentences),
        f"each is fitted to {', and to '.join(targets)}",
    ]
