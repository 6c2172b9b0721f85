"""Supervised contrastive learning: against reference loops, in closed form, and without positives."""

import inspect
from math import exp, log

import pytest
import torch

from nearfar.objectives import supcon
from nearfar.types import NearfarError
from tests import reference_objectives as references
from tests.objectives.checks import assert_same, vectors


@pytest.mark.parametrize("temperature", [1.0, 0.1])
@pytest.mark.parametrize("labels", [[4, 4], [0, 1, 0, 2, 1, 0, 3], [0] * 7])
def test_matches_the_reference(labels, temperature):
    labels = torch.tensor(labels)
    assert_same(
        lambda z: supcon(z, labels, temperature=temperature),
        lambda z: torch.stack(references.supcon(z, labels, temperature)),
        vectors(len(labels), 5),
        trivial=len(labels) == 2,
    )


@pytest.mark.parametrize("temperature", [1.0, 0.1])
@pytest.mark.parametrize("count", [2, 7])
def test_one_class_gives_log_of_the_others(count, temperature):
    # Whether equal or orthogonal, all others have the same similarity.
    for z in (torch.ones(count, 3, dtype=torch.float64), torch.eye(count, dtype=torch.float64)):
        value = supcon(z, torch.zeros(count, dtype=torch.long), temperature=temperature)
        assert value.tolist() == pytest.approx([log(count - 1)] * count)


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_orthogonal_classes_of_equal_vectors(temperature):
    labels = torch.tensor([0, 1, 0, 1, 0])
    value = supcon(torch.eye(2, dtype=torch.float64)[labels], labels, temperature=temperature)
    # -log( e^(1/t) / (p e^(1/t) + n) ) = log(p + n e^(-1/t)), with p positives and n of the other class
    e = exp(-1 / temperature)
    three, two = log(2 + 2 * e), log(1 + 3 * e)
    assert value.tolist() == pytest.approx([three, two, three, two, three])


def test_a_single_example_of_a_label_is_a_candidate_but_not_an_anchor():
    z = vectors(4, 3).requires_grad_()
    value = supcon(z, torch.tensor([0, 5, 0, 0]), temperature=0.5)
    value.sum().backward()
    assert value.shape == (3,)
    assert z.grad[1].abs().max() > 0


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_batch_without_positives_gives_an_empty_loss_with_a_graph(count):
    z = torch.randn(count, 3, requires_grad=True)
    value = supcon(z, torch.arange(count), temperature=0.1)
    assert value.shape == (0,)
    value.sum().backward()
    assert torch.equal(z.grad, torch.zeros(count, 3))


def test_mismatched_shapes_raise():
    unchecked = inspect.unwrap(supcon)
    with pytest.raises(NearfarError, match=r"embeddings \(4, 3\) .* one label each, but labels are \(3,\)"):
        unchecked(torch.ones(4, 3), torch.zeros(3, dtype=torch.long), temperature=0.1)
    with pytest.raises(NearfarError, match=r"embeddings \(4, 2, 3\) must be \[batch, dim\]"):
        unchecked(torch.ones(4, 2, 3), torch.zeros(4, dtype=torch.long), temperature=0.1)
