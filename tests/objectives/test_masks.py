"""Candidate masks: row blocks against full masks and reference loops, use in an objective."""

import pytest
import torch

from nearfar.objectives import _contrast, below_positive, distinct_rows
from tests import reference_objectives as references
from tests.objectives.checks import by_rows, some_mask, vectors


@pytest.mark.parametrize("block", [2**22, 20])
@pytest.mark.parametrize("rows", [slice(2, 5), slice(0, 1), slice(6, 9), slice(None)])
def test_rows_of_a_mask_are_those_of_the_matrix(rows, block, monkeypatch):
    monkeypatch.setattr(_contrast, "BLOCK", block)
    matrix, other = some_mask(7, 9), some_mask(7, 9, seed=1)
    mask = by_rows(matrix)
    for combined, expected in [
        (mask, matrix),
        (~mask, ~matrix),
        (mask & by_rows(other), matrix & other),
        (mask | by_rows(other), matrix | other),
        (mask.to(torch.device("cpu")), matrix),
    ]:
        assert torch.equal(combined[rows], expected[rows])
        assert combined.sum() == expected.sum()
        assert torch.equal(combined.all_candidates(), expected.all(dim=1))


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("margin", [-0.2, 0.0, 0.3])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_below_positive_matches_the_reference(count, margin, similarity):
    anchors, positives = vectors(2, count, 5)
    candidates = vectors(9, 5, seed=1)
    mask = below_positive(anchors, positives, candidates, margin=margin, similarity=similarity)[:]
    assert mask.tolist() == references.below_positive(anchors, positives, candidates, margin, similarity)
    assert count == 1 or mask.any() != mask.all()  # some of each


@pytest.mark.parametrize("scale", [1e-2, 1.0, 30.0])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_rounding_does_not_mask_the_positive_itself(similarity, scale):
    anchors, positives = (scale * vectors(2, 64, 384)).float()
    candidates = torch.cat([positives, vectors(9, 384, seed=1).float(), positives])
    kept = below_positive(anchors, positives, candidates, margin=0.0, similarity=similarity)[:]
    assert kept[:, :64].diagonal().all()
    assert kept[:, 73:].diagonal().all()
    # A thousandth of the way to the anchor is more than rounding.
    nearer = below_positive(anchors, positives, 0.999 * positives + 0.001 * anchors, margin=0.0, similarity=similarity)
    assert not nearer[:].diagonal().any()


def test_distinct_rows_matches_the_reference():
    generator = torch.Generator().manual_seed(0)
    for columns, count in [(1, 1), (1, 7), (2, 7), (3, 9)]:
        ids = torch.randint(12, (columns, count), generator=generator).unbind()
        mask = distinct_rows(*ids)[:]
        assert mask.tolist() == references.distinct_rows(*ids)
        assert torch.equal(mask, mask.T)
        assert not mask.diagonal().any()
