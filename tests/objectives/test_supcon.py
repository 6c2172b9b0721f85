"""Supervised contrastive learning: against reference loops, and without positives."""

import pytest
import torch

from nearfar.objectives import supcon
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
