"""InfoNCE in other directions: against loops and sentence-transformers, and the masks of text ids."""

import random
from math import log

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from nearfar.objectives import DirectionMasks, direction_masks, info_nce_directions
from tests import reference_objectives as references
from tests.objectives.checks import assert_same, by_rows, some_mask, vectors

DIRECTIONS = ("query_to_doc", "doc_to_query", "both", "all")
directions = pytest.mark.parametrize("direction", DIRECTIONS)
counts = pytest.mark.parametrize("count", [1, 5])
THEIRS = {
    "query_to_doc": {},
    "both": {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"},
    "all": {"directions": ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")},
}
"""Direction -> the arguments of MultipleNegativesRankingLoss."""


# --- values and gradients against references ---


@pytest.mark.long
@directions
@counts
@pytest.mark.parametrize(
    ("temperature", "masked", "similarity"), [(1.0, False, "dot"), (0.1, True, "cosine"), (0.1, False, "cosine")]
)
def test_pairs_match_the_reference(direction, count, temperature, masked, similarity):
    masks = [some_mask(count, count, seed=seed) if masked else None for seed in range(4)]
    negatives_left = not masked or any((mask & ~torch.eye(count, dtype=torch.bool)).any() for mask in masks[:2])
    anchors, positives = 0.5 * vectors(2, count, 5)
    assert_same(
        lambda a, p: info_nce_directions(
            a,
            p,
            directions=direction,
            temperature=temperature,
            similarity=similarity,
            masks=DirectionMasks(*map(by_rows, masks)),
        ),
        lambda a, p: references.info_nce_directions(
            a, p, None, temperature, direction, similarity=similarity, masks=masks
        ),
        anchors,
        positives,
        trivial=count == 1 or not negatives_left,
    )


@pytest.mark.long
@directions
@counts
@pytest.mark.parametrize(("masked", "weight"), [(False, 1.5), (True, 1.5), (True, 0.0)])
def test_triplets_match_the_reference(direction, count, masked, weight):
    if direction == "doc_to_query":
        weight = 0.0
    shapes = ((count, 2 * count), (count, count), (count, count), (count, 2 * count))
    masks = [some_mask(*shape, seed=seed) if masked else None for seed, shape in enumerate(shapes)]

    def ours(a, p, n):
        return (
            info_nce_directions(
                a,
                p,
                n,
                directions=direction,
                temperature=0.3,
                hard_negative_weight=weight,
                masks=DirectionMasks(*map(by_rows, masks)),
            )
            + 0 * n.sum()
        )

    def loops(a, p, n):
        return references.info_nce_directions(a, p, n, 0.3, direction, weight, masks=masks) + 0 * n.sum()

    found = vectors(3, count, 5)
    if direction == "doc_to_query":  # which has no negatives
        assert_same(
            lambda a, p: ours(a, p, found[2]), lambda a, p: loops(a, p, found[2]), *found[:2], trivial=count == 1
        )
    elif count > 1 or not masked:
        assert_same(ours, loops, *found)


# --- sentence-transformers on the same vectors ---


@pytest.mark.parametrize("direction", THEIRS)
@pytest.mark.parametrize("columns", [2, 3])
def test_directions_equal_those_of_sentence_transformers(direction, columns):
    count = 7
    theirs = MultipleNegativesRankingLoss(None, scale=20.0, **THEIRS[direction])
    texts = torch.arange(columns * count).view(columns, count)  # all different
    masks = direction_masks(direction, *texts)
    assert_same(
        lambda *x: info_nce_directions(*x, directions=direction, temperature=0.05, masks=masks).mean(),
        lambda *x: theirs.compute_loss_from_embeddings(list(x), torch.zeros(count)),
        *vectors(columns, count, 5),
    )


def test_a_row_without_other_candidates_has_no_gradient():
    none = by_rows(torch.zeros(3, 3, dtype=torch.bool))
    for direction, expected in {"doc_to_query": 0.0, "both": 0.0, "all": log(2)}.items():  # the own pair occurs twice
        x = [matrix.float().requires_grad_() for matrix in vectors(2, 3, 4).unbind()]
        value = info_nce_directions(*x, directions=direction, masks=DirectionMasks(none, none, none, none))
        assert value.tolist() == pytest.approx([expected] * 3, abs=1e-6)
        value.sum().backward()
        assert all(matrix.grad.abs().max() < 1e-6 for matrix in x)


@directions
def test_an_empty_batch_gives_an_empty_loss(direction):
    empty = torch.zeros(0, 4, requires_grad=True)
    for negatives in (None, torch.zeros(0, 4), torch.ones(3, 4)):
        value = info_nce_directions(empty, empty, negatives, directions=direction)
        assert value.shape == (0,)
        assert value.requires_grad


# --- masks ---


def expected_masks(anchors, positives, negatives, owners, near, *, distinct):
    """The masks by plain loops over texts."""
    pairs = {*zip(anchors, positives, strict=True), *near}
    documents = [*positives, *negatives]

    def rows(candidates, allowed):
        kept = [[allowed(i, k) for k in range(len(candidates))] for i in range(len(anchors))]
        if distinct:
            kept = [[at and candidates.index(candidates[k]) == k for k, at in enumerate(row)] for row in kept]
        return kept

    def of_anchor(i, text):
        return text != anchors[i] and (anchors[i], text) not in pairs

    def of_positive(i, text):
        return text != positives[i] and (text, positives[i]) not in pairs

    def of_other_anchor(i, text):
        return (anchors[i], text) not in zip(owners, negatives, strict=True)

    return DirectionMasks(
        rows(documents, lambda i, k: of_anchor(i, documents[k])),
        rows(anchors, lambda i, k: of_positive(i, anchors[k])),
        rows(anchors, lambda i, k: of_anchor(i, anchors[k])),
        rows(
            documents,
            lambda i, k: (
                of_anchor(i, documents[k]) and of_positive(i, documents[k]) and of_other_anchor(i, documents[k])
            ),
        ),
    )


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_masks_of_text_ids(distinct, seed):
    draw = random.Random(seed)
    rows, number, pairs = draw.randrange(7), draw.randrange(7), draw.randrange(4)
    anchors, positives = ([draw.randrange(8) for _ in range(rows)] for _ in range(2))
    negatives, owners = ([draw.randrange(8) for _ in range(number)] for _ in range(2))
    near = [(draw.randrange(8), draw.randrange(8)) for _ in range(pairs)]
    expected = expected_masks(anchors, positives, negatives, owners, near, distinct=distinct)
    masks = direction_masks(
        "all",
        *(torch.tensor(ids, dtype=torch.long) for ids in (anchors, positives, negatives)),
        owners=torch.tensor(owners, dtype=torch.long),
        near=tuple(torch.tensor(near, dtype=torch.long).reshape(-1, 2).T),
        distinct=distinct,
    )
    for mask, lists in zip(masks, expected, strict=True):
        assert mask[:].tolist() == lists


def test_only_the_masks_of_the_direction_are_made():
    ids = torch.arange(6).view(2, 3)
    for direction, number in zip(DIRECTIONS, (1, 2, 2, 4), strict=True):
        assert sum(mask is not None for mask in direction_masks(direction, *ids)) == number
