"""Masks made some rows at a time: against loops and against the whole, and their mistakes."""

import inspect

import pytest
import torch

from nearfar.objectives import (
    all_row_masks,
    below_positive,
    below_positive_row_mask,
    distinct_row_mask,
    distinct_rows,
    masked_fraction,
    not_known_positive_row_mask,
)
from nearfar.types import NearfarError
from tests import references
from tests.objectives.checks import some_mask, vectors

SOME = torch.tensor([5, 0, 5, 3])


def ids(count, texts, seed=0):
    return torch.randint(texts, (count,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_below_positive_has_the_rows_of_the_whole(similarity):
    anchors, positives = vectors(2, 7, 5)
    candidates = vectors(9, 5, seed=1)
    whole = below_positive(anchors, positives, candidates, margin=0.1, similarity=similarity)
    mask = below_positive_row_mask(anchors, positives, candidates, margin=0.1, similarity=similarity)
    assert whole.any() != whole.all()
    assert torch.equal(mask(SOME), whole[SOME])


def test_distinct_has_the_rows_of_the_whole():
    columns = [ids(9, 12, seed) for seed in range(3)]
    whole = distinct_rows(*columns)
    assert whole.any() != whole.all()
    assert torch.equal(distinct_row_mask(*columns)(SOME), whole[SOME])


def not_known_positive_by_loops(anchors, positives, candidates):
    """Whether a candidate is a text that no row names near to the anchor."""
    rows = list(zip(anchors.tolist(), positives.tolist(), strict=True))
    near = [{anchor} | {positive for other, positive in rows if other == anchor} for anchor, _ in rows]
    return [[text not in texts for text in candidates.tolist()] for texts in near]


@pytest.mark.parametrize(("count", "texts"), [(1, 1), (1, 3), (7, 2), (9, 9), (13, 30)])
def test_unnamed_equals_the_loops(count, texts):
    for seed in range(5):
        anchors, positives, candidates = (ids(n, texts, 3 * seed + i) for i, n in enumerate((count, count, 8)))
        mask = not_known_positive_row_mask(anchors, positives, candidates)
        expected = not_known_positive_by_loops(anchors, positives, candidates)
        assert mask(torch.arange(count)).tolist() == expected
        rows = torch.tensor([count - 1, 0, count // 2, 0])
        assert mask(rows).tolist() == [expected[row] for row in rows]


def test_unnamed_of_nothing():
    none = torch.zeros(0, dtype=torch.long)
    assert not_known_positive_row_mask(none, none, none)(none).shape == (0, 0)
    assert not_known_positive_row_mask(torch.tensor([3]), torch.tensor([0]), none)(torch.tensor([0])).shape == (1, 0)
    assert not_known_positive_row_mask(torch.tensor([3]), torch.tensor([0]), torch.tensor([2]))(
        torch.tensor([0])
    ).tolist() == [[True]]


def test_every_is_where_all_are():
    one, other = some_mask(7, 9), some_mask(7, 9, seed=1)
    mask = all_row_masks(lambda rows: one[rows], lambda rows: other[rows])
    expected = [[bool(one[i, k] and other[i, k]) for k in range(9)] for i in SOME]
    assert mask(SOME).tolist() == expected


def test_left_out_counts_the_known_alone():
    known, mask = some_mask(7, 9), some_mask(7, 9, seed=1)
    pairs = [(i, k) for i in range(7) for k in range(9) if known[i, k]]
    expected = sum(not mask[i, k] for i, k in pairs) / len(pairs)
    cpu = torch.device("cpu")
    found = masked_fraction(lambda rows: mask[rows], lambda rows: known[rows], 7, 9, device=cpu)
    assert 0 < found < 1
    assert found.item() == pytest.approx(expected)
    nothing = torch.zeros(7, 9, dtype=torch.bool)
    assert masked_fraction(lambda rows: mask[rows], lambda rows: nothing[rows], 7, 9, device=cpu).item() == 0


def test_loops_of_the_references_agree():
    columns = [ids(6, 8, seed) for seed in range(2)]
    assert distinct_row_mask(*columns)(torch.arange(6)).tolist() == references.distinct_rows(*columns)


def test_mistakes_are_refused():
    texts = torch.tensor([0, 1])
    with pytest.raises(NearfarError, match="numbered from 0 up, but there is a number -1"):
        not_known_positive_row_mask(texts, texts, torch.tensor([-1]))
    with pytest.raises(NearfarError, match=r"anchors \(2,\) and positives \(1,\) must be as many"):
        inspect.unwrap(not_known_positive_row_mask)(texts, texts[:1], texts)
