"""InfoNCE and NT-Xent: against reference loops, with masks and hard negatives."""

from math import log

import pytest
import torch

from nearfar.objectives import info_nce, nt_xent
from tests import reference_objectives as references
from tests.objectives.checks import assert_same, some_mask, vectors

counts = pytest.mark.parametrize("count", [1, 7])
temperatures = pytest.mark.parametrize("temperature", [1.0, 0.1])
masked = pytest.mark.parametrize("masked", [False, True])


# --- values and gradients against references ---


@counts
@temperatures
@masked
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_without_negatives_it_matches_the_reference(count, temperature, similarity, masked):
    mask = some_mask(count, count) if masked else None
    anchors, positives = 0.5 * vectors(2, count, 5)
    assert_same(
        lambda a, p: info_nce(a, p, temperature=temperature, similarity=similarity, mask=mask),
        lambda a, p: references.info_nce(a, p, None, temperature, similarity=similarity, mask=mask),
        anchors,
        positives,
        trivial=count == 1 or (masked and not (mask & ~torch.eye(count, dtype=torch.bool)).any()),
    )


@counts
@temperatures
@masked
@pytest.mark.parametrize("weight", [0.0, 1.5, -0.7])
def test_with_a_hard_negative_each_it_matches_the_reference(count, temperature, weight, masked):
    mask = some_mask(count, 2 * count, seed=3) if masked else None
    assert_same(
        lambda *x: info_nce(*x, temperature=temperature, hard_negative_weight=weight, mask=mask),
        lambda *x: references.info_nce(*x, temperature, weight, mask=mask),
        *vectors(3, count, 5),
    )


@pytest.mark.parametrize("negatives", [1, 9])
def test_any_number_of_negatives_matches_the_reference(negatives):
    anchors, positives = vectors(2, 4, 5)
    mask = some_mask(4, 4 + negatives)
    assert_same(
        lambda *x: info_nce(*x, temperature=0.3, mask=mask),
        lambda *x: references.info_nce(*x, 0.3, mask=mask),
        anchors,
        positives,
        vectors(negatives, 5, seed=1),
    )


@counts
@temperatures
@masked
def test_nt_xent_matches_the_reference(count, temperature, masked):
    mask = some_mask(count, count) if masked else None
    assert_same(
        lambda *x: nt_xent(*x, temperature=temperature, mask=mask),
        lambda *x: references.nt_xent(*x, temperature, mask),
        *vectors(2, count, 5),
        trivial=count == 1 or (masked and not (mask & ~torch.eye(count, dtype=torch.bool)).any()),
    )


def test_the_weight_applies_only_to_the_own_hard_negative():
    same = torch.ones(4, 3, dtype=torch.float64)
    value = info_nce(same, same, same, hard_negative_weight=log(5))
    assert value.tolist() == pytest.approx([log(4 + 3 + 5)] * 4)


# --- masks ---


def test_an_anchor_with_all_negatives_masked_has_zero_loss():
    anchors, positives, negatives = (x.requires_grad_() for x in vectors(3, 4, 3).unbind())
    kept = torch.zeros(4, 8, dtype=torch.bool)
    kept[1, 6] = True
    value = info_nce(anchors, positives, negatives, hard_negative_weight=1.0, mask=kept)
    assert value[[0, 2, 3]].tolist() == [0, 0, 0]
    assert value[1] > 0
    value.sum().backward()
    for x in (anchors, positives, negatives):
        assert x.grad.isfinite().all()
    assert anchors.grad[[0, 2, 3]].abs().max() == 0
    assert anchors.grad[1].abs().max() > 0


def test_an_empty_batch_gives_an_empty_loss_with_a_graph():
    empty = torch.zeros(0, 3, requires_grad=True)
    value = torch.cat([info_nce(empty, empty), nt_xent(empty, empty, temperature=0.1)])
    value.sum().backward()
    assert value.shape == (0,)
    assert empty.grad.shape == (0, 3)
