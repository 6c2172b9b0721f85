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
batch; here a further set of rows (``--data``) adds any other loss. ``vectors`` is that of Reimers & Gurevych 2020.
See ``docs/methods/distill.md``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from nearfar.config.bounds import BelowOne, File, LearningRate, Model, Temperature, Weight
from nearfar.config.training import TrainConfig
from nearfar.methods import base
from nearfar.methods.settings import TextColumn
from nearfar.types import Loss, Method, MethodEntry, NearfarError

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor, nn

    from nearfar.data.batching import TextBatch
    from nearfar.data.rows import TextData
    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.frozen import TeacherVectors

PAPERS = (base.bibtex("reimers2020making"), base.bibtex("liu2023rankcse"))


@dataclass(frozen=True, kw_only=True)
class DistillConfig(TextColumn, TrainConfig):
    """distill: fit an encoder, mostly a smaller one, to a teacher's vectors or to its similarities in the batch."""

    data: tuple[File, ...] = ()
    """Sentences: text files with one a line, tables, or wiki1m, wiki, sentences, stsb-text, microworld."""
    teacher: Model | None = None
    """The teacher (required): a folder, or owner/name on the hub. Its own pooling and default prompt apply."""
    list_weight: Weight = 0.0
    """Weight of the KL divergence between the teacher's and the student's softmax of the batch's cosines (RankCSE)."""
    vector_weight: Weight = 1.0
    """Weight of the squared distance between the vectors of student and teacher."""
    vector_distance: Literal["cosine", "squared"] = "cosine"
    """Between the vectors scaled to length 1, which is 2 - 2 cosine, or between the vectors as they are."""
    temperature: Temperature = 0.05
    """Divides the student's cosines, with LIST_WEIGHT."""
    teacher_temperature: Temperature | None = None
    """Divides the teacher's cosines, with LIST_WEIGHT; by default TEMPERATURE. RankCSE sharpens them to half of it."""
    vector_projection: Literal["same_width", "kept", "train_only"] = "same_width"
    """Where the widths differ: a linear layer from student to teacher, kept after training, or in training only. By
    default the layer of a narrower student is square and kept; that of a wider one is in training only."""
    learning_rate: LearningRate = 1e-4
    head_learning_rate: LearningRate | None = 1e-3
    dropout: BelowOne | None = 0.0
    """Probability of dropout in training."""

    needs = (
        *(("temperature", "list_weight"), ("teacher_temperature", "list_weight")),
        *(("vector_distance", "vector_weight"), ("vector_projection", "vector_weight")),
    )

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if not (self.list_weight or self.vector_weight):
            yield "--list-weight and --vector-weight are both 0, so there is no loss; raise one."


class Projection(NamedTuple):
    """P, from the student's vectors to the teacher's: a head, or orthonormal columns that are not trained, or both."""

    head: "nn.Module | None" = None
    basis: 'Float[Tensor, "width dim"] | None' = None
    fact: str = ""


def read_rows(config: DistillConfig) -> "TextData":
    """Read single sentences."""
    from nearfar.data.rows import load_sentences

    data = base.require_data(config, "distill")
    if config.teacher is None:
        raise NearfarError(
            "distill needs a teacher: name an encoder with --teacher MODEL, or as teacher in the table of a set."
        )
    return load_sentences(data, column=config.text_column, limit=config.limit)


def build(config: DistillConfig, context: base.BuildContext, rows: "TextData") -> base.BuiltMethod:
    """Open the teacher, check it against the student, and build the method.

    Raises:
        NearfarError: a teacher that cannot be opened, that is the student or gives vectors that are not finite, and
            lists in batches of two, which are always equal.
    """
    from nearfar.encoder.frozen import TeacherVectors

    assert config.teacher is not None
    student = context.encoder.encoder
    teacher = _open_teacher(config.teacher, context)
    if teacher.seen is not None:  # what the teacher has seen, the student learns from it
        student.seen = teacher.seen if student.seen is None else student.seen.union(teacher.seen)
    texts = (text for row in rows.rows[: config.limit] for text in row)
    vectors = TeacherVectors(teacher, texts, name=config.teacher, bf16=context.encoder.bf16)
    projection = _project(config, context, teacher, vectors)
    batches = context.batches(config, rows)
    if not config.vector_weight and batches.batch_size < 3:
        raise NearfarError(
            f"--batch-size is {batches.batch_size}: a list has the batch's other texts, and a list of one teaches "
            "nothing; make it 3 or more."
        )

    loss_fn = distillation(config, vectors, projection, normalize=student.normalizes)
    describe = partial(base.describe_rows, names=("sentence",))
    embed, head = context.encoder.embed, projection.head
    method = Method("distill", batches, base.sentences_of, embed, loss_fn, describe, head, embeddings=False)
    prompt = f", prompt {teacher.resolve_prompt()!r}" if teacher.resolve_prompt() else ""
    facts = [f"teacher {config.teacher}: {teacher.dim} dimensions, pooling {teacher.pooling}{prompt}{projection.fact}"]
    return base.BuiltMethod(method, [*base.text_facts(rows), *facts], teachers=(vectors,))


def distillation(
    config: DistillConfig, teacher: "TeacherVectors", projection: Projection, *, normalize: bool
) -> "Callable[[TextBatch, Tensor], Loss]":
    """The loss of a batch of sentences and the student's embeddings of them.

    ``normalize`` says that the student's model ends with Normalize; its vectors are then compared at length 1.

    Terms: ``lists`` and ``vectors`` before their weights, as far as they have one.
    """
    import torch

    from nearfar.objectives import l2_normalize, list_distillation, row_similarities, to_device, vector_distillation

    head, basis = projection.head, projection.basis

    def loss_fn(batch: "TextBatch", representations: "Tensor") -> Loss:
        target = teacher(batch.sentences).to(representations.device)
        total = representations.new_zeros(())
        terms: dict[str, Tensor] = {}
        if config.list_weight:
            terms["lists"] = list_distillation(
                representations, target, temperature=config.temperature, teacher_temperature=config.teacher_temperature
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

    return loss_fn


def _project(
    config: DistillConfig, context: base.BuildContext, teacher: "Encoder", vectors: "TeacherVectors"
) -> Projection:
    """The projection where the widths differ; a layer that is kept is added to the student."""
    import torch

    from nearfar.encoder.heads import LinearHead, add_projection, main_directions, start_at_rotation
    from nearfar.encoder.token_batches import NotFiniteError

    student = context.encoder.encoder
    if not config.vector_weight or teacher.dim == student.dim:
        return Projection()
    own = torch.from_numpy(student.encode(vectors.sample, precision="bf16" if context.encoder.bf16 else "fp32"))
    try:
        targets = vectors(vectors.sample).cpu()
    except NotFiniteError as error:
        raise NearfarError(f"--teacher {config.teacher}: {error}") from None
    head = basis = None
    if config.vector_projection == "kept":
        layer = add_projection(student, teacher.dim)
    elif config.vector_projection == "same_width" and student.dim < teacher.dim:
        layer, basis = add_projection(student, student.dim), main_directions(targets, student.dim)
    else:
        head = LinearHead(student.dim, teacher.dim)
        layer = head.linear
    start_at_rotation(layer, own, targets if basis is None else targets @ basis)
    where = "for the vectors" if head is not None else "by a layer that is kept"
    return Projection(head, basis, f", the student {own.shape[1]}, projected {where}")


def _open_teacher(name: str, context: base.BuildContext) -> "Encoder":
    from nearfar.encoder.weights import locate

    student, teacher = context.encoder.encoder, base.open_frozen(name, context, flag="--teacher")
    same = student.source is not None and Path(locate(name)).resolve() == student.source.resolve()
    layers = (one.backbone.config.num_hidden_layers for one in (teacher, student))
    if same and len(set(layers)) == 1 and teacher.pooling == student.pooling and teacher.dim == student.dim:
        raise NearfarError(
            f"--teacher {name}: is the start model itself, so there is nothing to learn. Choose another --model, or "
            "fewer of its layers with --keep-layers."
        )
    return teacher


METHODS = {"distill": MethodEntry(config=DistillConfig, read_rows=read_rows, build=build, papers=PAPERS)}
