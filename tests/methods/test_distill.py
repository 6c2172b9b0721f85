"""distill: the loss by plain formulas in value and gradient, each term alone, learning, invalid inputs."""

import pytest
import torch

from nearfar.data.batching import TextBatches
from nearfar.encoder.heads import LinearHead, main_directions
from nearfar.methods import Method
from nearfar.methods.base import sentences_of
from nearfar.methods.distill import DistillConfig, Projection, distillation
from nearfar.types import NearfarError
from tests import reference_objectives as references
from tests.methods.table_encoder import Table, assert_same_gradients, cosine
from tests.objectives.checks import vectors

DIM, TEACHER_DIM = 5, 3
TEXTS = ["a dog", "a cat", "a hound", "rain", "sun", "a kitten"]


class FixedVectors:
    """A teacher with a random vector for each text; its mean square is known."""

    def __init__(self, dim, scale=1.0):
        self.table = dict(zip(TEXTS, scale * vectors(len(TEXTS), dim, seed=5), strict=True))
        self.mean_square = float(torch.stack(list(self.table.values())).square().mean())

    def __call__(self, texts):
        return torch.stack([self.table[text] for text in texts])


def build(*, dim=TEACHER_DIM, normalize=False, scale=1.0, list_weight=1.0, basis=None, **settings):
    settings["list_weight"] = list_weight
    if settings.get("vector_weight") != 0:
        settings.setdefault("vector_distance", "squared")
    torch.manual_seed(0)
    table, teacher = Table(TEXTS, DIM), FixedVectors(dim, scale)
    head = LinearHead(DIM, dim).double() if dim != DIM and basis is None else None
    projection = Projection(head, None if basis is None else basis(teacher(TEXTS)))
    loss_fn = distillation(DistillConfig(output="x", **settings), teacher, projection, normalize=normalize)
    batches = TextBatches([(text,) for text in TEXTS], len(TEXTS))
    (batch,) = batches.epoch(0)
    return table, teacher, Method("distill", batches, sentences_of, table, loss_fn, list, head), batch


def vector_errors(students, targets, distance, mean_square):
    """Of projected students and the teacher's vectors, one pair at a time."""
    if distance == "squared":
        return references.vector_distillation(students, targets) / mean_square
    return torch.stack([2 - 2 * cosine(*pair) for pair in zip(students, targets, strict=True)])


@pytest.mark.parametrize("dim", [TEACHER_DIM, DIM])
@pytest.mark.parametrize("normalize", [False, True])
def test_the_loss_by_hand_in_value_and_gradient(dim, normalize):
    settings = {"list_weight": 0.7, "vector_weight": 0.2, "temperature": 0.3, "teacher_temperature": 0.1}
    table, teacher, method, batch = build(dim=dim, normalize=normalize, **settings)
    students, targets = table(batch.sentences), teacher(batch.sentences)
    reference = 0.7 * references.list_distillation(students, targets, 0.3, 0.1).mean()
    if normalize:
        students = torch.stack([row / row.square().sum().sqrt() for row in students])
    if method.head is not None:
        students = students @ method.head.linear.weight.T + method.head.linear.bias
    reference = reference + 0.2 * vector_errors(students, targets, "squared", teacher.mean_square).mean()
    loss = method.loss(batch)
    assert loss.terms.keys() == {"lists", "vectors"}
    assert 0.7 * loss.terms["lists"] + 0.2 * loss.terms["vectors"] == pytest.approx(loss.total.item())
    assert not any(term.requires_grad for term in loss.terms.values())
    weights = [*table.parameters(), *(method.head.parameters() if method.head else ())]
    assert_same_gradients(loss.total, reference, weights)


@pytest.mark.parametrize("dim", [TEACHER_DIM, DIM])
@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_the_cosine_distance_by_hand_in_value_and_gradient(dim, scale):
    """Mean of 2 - 2 cos(P s, t): the length of the teacher's vectors and of the student's does not count."""
    table, teacher, method, batch = build(dim=dim, scale=scale, list_weight=0.0, vector_distance="cosine")
    students = table(batch.sentences)
    if method.head is not None:
        students = students @ method.head.linear.weight.T + method.head.linear.bias
    reference = vector_errors(students, teacher(batch.sentences), "cosine", None).mean()
    assert_same_gradients(method.loss(batch).total, reference, [table.vectors.weight])


@pytest.mark.parametrize("distance", ["cosine", "squared"])
def test_directions_that_are_not_trained_by_hand_in_value_and_gradient(distance):
    """A student of 5 dimensions, and a teacher of 7: P s is V s, with the main directions V of the teacher."""
    settings = {"dim": 7, "list_weight": 0.0, "vector_distance": distance}
    table, teacher, method, batch = build(basis=lambda targets: main_directions(targets, DIM), **settings)
    basis = main_directions(teacher(TEXTS), DIM)
    torch.testing.assert_close(basis.T @ basis, torch.eye(DIM, dtype=torch.float64))
    students = torch.stack([sum(basis[:, j] * one[j] for j in range(DIM)) for one in table(batch.sentences)])
    reference = vector_errors(students, teacher(batch.sentences), distance, teacher.mean_square).mean()
    assert_same_gradients(method.loss(batch).total, reference, [table.vectors.weight])


def test_invalid_settings_are_refused():
    with pytest.raises(NearfarError, match="--list-weight and --vector-weight are both 0"):
        DistillConfig(output="x", list_weight=0.0, vector_weight=0.0)
    with pytest.raises(NearfarError, match="--vector-projection kept: needs --vector-weight"):
        DistillConfig(output="x", list_weight=1.0, vector_weight=0.0, vector_projection="kept")
    with pytest.raises(NearfarError, match=r"--teacher-temperature 0\.05: needs --list-weight"):
        DistillConfig(output="x", teacher_temperature=0.05)
