"""InfoNCE in other directions: as in sentence-transformers, and the masks of text ids."""

import random

import pytest
import torch

from nearfar.objectives import DirectionMasks, _contrast, direction_masks


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
def test_masks_of_text_ids(distinct, seed, monkeypatch):
    monkeypatch.setattr(_contrast, "BLOCK", 2**22 if seed % 2 else 9)
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
