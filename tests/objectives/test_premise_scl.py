"""Premise-anchored SCL: closed forms, known false negatives, caps."""

import pytest
import torch

from nearfar.objectives import premise_sets
from nearfar.types import CONTRADICTION, ENTAILMENT, NEUTRAL


def tensors(ids, labels):
    return torch.tensor(ids), torch.tensor(labels)


@pytest.mark.parametrize(("hard_negatives", "own"), [("all", [1, 1]), ("contradiction", [0, 1]), ("none", [0, 0])])
@pytest.mark.parametrize("cap", [None, 9])
def test_hard_negatives_restricts_only_the_own_premise(hard_negatives, own, cap):
    ids, labels = tensors([0, 0, 0, 1, 1], [ENTAILMENT, NEUTRAL, CONTRADICTION, NEUTRAL, CONTRADICTION])
    sets = premise_sets(ids, labels, hard_negatives=hard_negatives, max_negatives=cap)
    assert sets.positives[:].int().tolist() == [[1, 0, 0, 0, 0]]
    assert sets.negatives[:].int().tolist() == [[0, *own, 1, 1]]


def test_negatives_are_sampled_uniformly_without_replacement():
    negatives, kept, trials = 10, 3, 400
    # 400 anchors of one premise that share their ten negatives are 400 independent draws.
    ids, labels = tensors([0] * trials + [1] * negatives, [ENTAILMENT] * trials + [NEUTRAL] * negatives)
    sets = premise_sets(ids, labels, max_negatives=kept, generator=torch.Generator().manual_seed(0))
    drawn = sets.negatives[:][:, trials:]
    assert not sets.negatives[:][:, :trials].any()
    assert (drawn.sum(dim=1) == kept).all()
    share = kept / negatives
    spread = (trials * share * (1 - share)) ** 0.5
    assert ((drawn.sum(dim=0) - trials * share).abs() < 4 * spread).all()
    assert len(drawn.unique(dim=0)) > 60  # of 120 possible sets


def test_the_own_hypothesis_is_kept_and_other_positives_are_sampled_uniformly():
    count, kept = 200, 51
    ids, labels = tensors([0] * count, [ENTAILMENT] * count)
    sets = premise_sets(ids, labels, max_positives=kept, generator=torch.Generator().manual_seed(0))
    assert sets.positives[:].diagonal().all()
    assert (sets.positives[:].sum(dim=1) == kept).all()
    share = (kept - 1) / (count - 1)
    spread = ((count - 1) * share * (1 - share)) ** 0.5
    assert ((sets.positives[:].sum(dim=0) - 1 - (count - 1) * share).abs() < 5 * spread).all()


def test_positives_that_were_not_sampled_are_not_negatives():
    ids, labels = tensors([0, 0, 0, 1], [ENTAILMENT, ENTAILMENT, ENTAILMENT, NEUTRAL])
    sets = premise_sets(ids, labels, max_positives=1)
    assert sets.positives[:].int().tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    assert sets.negatives[:].int().tolist() == [[0, 0, 0, 1]] * 3


@pytest.mark.long
def test_known_false_negatives_are_never_sampled():
    ids, labels = tensors([0, 1, 1, 1], [ENTAILMENT, NEUTRAL, NEUTRAL, NEUTRAL])
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        sets = premise_sets(
            ids, labels, max_negatives=2, generator=generator, hypothesis_ids=torch.tensor([5, 0, 6, 7])
        )
        assert sets.negatives[:].int().tolist() == [[0, 0, 1, 1]]
