"""Premise-anchored SCL with a false-negative margin: the excluded hypotheses and their gradients."""

import inspect

import pytest
import torch

from nearfar.objectives import premise_scl
from nearfar.types import CONTRADICTION, ENTAILMENT, NEUTRAL, NearfarError
from tests import reference_objectives as references
from tests.objectives.checks import assert_same, vectors

IDS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 3])
LABELS = torch.tensor([ENTAILMENT, ENTAILMENT, NEUTRAL, ENTAILMENT, CONTRADICTION, NEUTRAL, ENTAILMENT, NEUTRAL])


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("margin", [-0.1, 0.0, 0.2])
def test_matches_the_reference(margin, temperature, similarity):
    premises, hypotheses = vectors(2, 8, 5)
    settings = {"temperature": temperature, "similarity": similarity}
    assert_same(
        lambda *x: premise_scl(*x, IDS, LABELS, **settings, false_negative_margin=margin),
        lambda *x: torch.stack(references.premise_scl(*x, IDS, LABELS, **settings, margin=margin)),
        premises,
        hypotheses,
    )
    value = premise_scl(premises, hypotheses, IDS, LABELS, **settings, false_negative_margin=margin)
    without_margin = premise_scl(premises, hypotheses, IDS, LABELS, **settings)
    assert (value <= without_margin).all()
    assert (value < without_margin).any()


def test_a_wide_margin_excludes_nothing():
    premises, hypotheses = vectors(2, 8, 5)
    value = premise_scl(premises, hypotheses, IDS, LABELS, similarity="cosine", false_negative_margin=2.0)
    assert torch.equal(value, premise_scl(premises, hypotheses, IDS, LABELS, similarity="cosine"))


def test_the_bound_is_the_most_similar_positive():
    # Cosines to the premise: its positives 0 and 0.6, its negatives 0.8, 0.28 and 1.
    ids, labels = torch.zeros(5, dtype=torch.long), torch.tensor([ENTAILMENT, ENTAILMENT, NEUTRAL, NEUTRAL, NEUTRAL])
    premises = torch.tensor([[1.0, 0.0]]).repeat(5, 1)
    hypotheses = torch.tensor([[0.0, 1.0], [3.0, 4.0], [4.0, 3.0], [7.0, 24.0], [2.0, 0.0]])
    for margin, kept in [(0.5, [0, 1, 2, 3, 4]), (0.3, [0, 1, 2, 3]), (0.1, [0, 1, 3]), (-0.5, [0, 1])]:
        value = premise_scl(premises, hypotheses, ids, labels, similarity="cosine", false_negative_margin=margin)
        deleted = premise_scl(premises[kept], hypotheses[kept], ids[kept], labels[kept], similarity="cosine")
        torch.testing.assert_close(value, deleted)


def test_masked_candidates_have_no_gradient():
    ids, labels = torch.tensor([0, 1, 1]), torch.tensor([ENTAILMENT, NEUTRAL, CONTRADICTION])
    premises = torch.tensor([[1.0, 0.0]]).repeat(3, 1)
    hypotheses = torch.tensor([[1.0, 1.0], [1.0, 0.1], [0.0, 1.0]], requires_grad=True)
    value = premise_scl(premises, hypotheses, ids, labels, similarity="cosine", false_negative_margin=0.0)
    value.sum().backward()
    assert hypotheses.grad[1].abs().max() == 0
    assert hypotheses.grad[[0, 2]].abs().amax(dim=1).min() > 0


@pytest.mark.parametrize("count", [0, 3])
def test_a_batch_without_anchors_gives_an_empty_loss_with_a_graph(count):
    premises = torch.randn(count, 3, requires_grad=True)
    ids, labels = torch.arange(count), torch.full((count,), NEUTRAL)
    value = premise_scl(premises, torch.randn(count, 3), ids, labels, false_negative_margin=0.1)
    value.sum().backward()
    assert value.shape == (0,)
    assert torch.equal(premises.grad, torch.zeros(count, 3))


@pytest.mark.parametrize("margin", [float("nan"), float("inf")])
def test_a_margin_must_be_finite(margin):
    with pytest.raises(NearfarError, match=f"false_negative_margin must be a finite number or None, not {margin}"):
        inspect.unwrap(premise_scl)(*vectors(2, 8, 5), IDS, LABELS, false_negative_margin=margin)
