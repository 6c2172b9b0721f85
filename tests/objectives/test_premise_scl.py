"""Premise-anchored SCL: closed forms, known false negatives, caps."""

from math import exp, log

import pytest
import torch

from nearfar.objectives import premise_scl, premise_sets
from nearfar.types import CONTRADICTION, ENTAILMENT, NEUTRAL


def batch(count, dim=5, seed=0, scale=1.0):
    """Random pairs in float64, some premises with several entailments, the first pair an entailment."""
    generator = torch.Generator().manual_seed(seed)
    premises, hypotheses = scale * torch.randn(2, count, dim, generator=generator, dtype=torch.float64)
    premise_ids = torch.randint(1 + count // 3, (count,), generator=generator)
    labels = torch.randint(3, (count,), generator=generator)
    labels[0] = ENTAILMENT
    return premises, hypotheses, premise_ids, labels


def tensors(ids, labels):
    return torch.tensor(ids), torch.tensor(labels)


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_equal_positives_with_all_else_orthogonal(temperature):
    # Premise 0 entails two hypotheses equal to itself; the four others are orthogonal to it and to each other.
    ids, labels = tensors([0, 0, 0, 1, 1, 2], [0, 0, 2, 0, 1, 2])
    axes = torch.eye(8, dtype=torch.float64)
    premises, hypotheses = axes[[0, 0, 0, 1, 1, 2]], axes[[0, 0, 3, 1, 4, 5]]
    value = premise_scl(premises, hypotheses, ids, labels, temperature=temperature, similarity="cosine")
    # -log( e^(1/t) / (p e^(1/t) + n) ) = log(p + n e^(-1/t)), with p positives and n negatives
    e = exp(-1 / temperature)
    assert value.tolist() == pytest.approx([log(2 + 4 * e), log(2 + 4 * e), log(1 + 5 * e)])


def test_an_anchor_without_negatives_has_zero_loss():
    premises = torch.randn(1, 3, requires_grad=True)
    value = premise_scl(premises, torch.randn(1, 3), *tensors([0], [ENTAILMENT]))
    value.sum().backward()
    assert value.item() == 0
    assert premises.grad.abs().max() == 0


def test_excluding_by_ids_equals_deleting_the_pairs():
    premises, hypotheses, _, _ = batch(6)
    ids, labels = tensors([0, 0, 1, 1, 2, 2], [ENTAILMENT, NEUTRAL, NEUTRAL, CONTRADICTION, NEUTRAL, NEUTRAL])
    texts = torch.tensor([5, 6, 0, 7, 5, 8])  # pair 2's hypothesis is premise 0; pair 4's is what premise 0 entails
    keep = [0, 1, 3, 5]
    masked = premise_scl(premises, hypotheses, ids, labels, hypothesis_ids=texts)
    deleted = premise_scl(premises[keep], hypotheses[keep], ids[keep], labels[keep])
    torch.testing.assert_close(masked, deleted)
    assert masked.item() < premise_scl(premises, hypotheses, ids, labels).item()


def test_the_same_generator_state_gives_the_same_sample():
    premises, hypotheses, ids, labels = batch(12)

    def value(seed):
        generator = torch.Generator().manual_seed(seed)
        return premise_scl(premises, hypotheses, ids, labels, max_negatives=2, generator=generator)

    assert torch.equal(value(3), value(3))
    assert not torch.equal(value(3), value(4))


def test_the_bound_is_the_most_similar_positive():
    # Cosines to the premise: its positives 0 and 0.6, its negatives 0.8, 0.28 and 1.
    ids, labels = torch.zeros(5, dtype=torch.long), torch.tensor([ENTAILMENT, ENTAILMENT, NEUTRAL, NEUTRAL, NEUTRAL])
    premises = torch.tensor([[1.0, 0.0]]).repeat(5, 1)
    hypotheses = torch.tensor([[0.0, 1.0], [3.0, 4.0], [4.0, 3.0], [7.0, 24.0], [2.0, 0.0]])
    for margin, kept in [(0.5, [0, 1, 2, 3, 4]), (0.3, [0, 1, 2, 3]), (0.1, [0, 1, 3]), (-0.5, [0, 1])]:
        value = premise_scl(premises, hypotheses, ids, labels, similarity="cosine", false_negative_margin=margin)
        deleted = premise_scl(premises[kept], hypotheses[kept], ids[kept], labels[kept], similarity="cosine")
        torch.testing.assert_close(value, deleted)


def test_a_hypothesis_with_both_labels_is_not_a_negative_of_its_premise():
    ids, labels = tensors([0, 0, 1], [ENTAILMENT, CONTRADICTION, NEUTRAL])
    sets = premise_sets(ids, labels, hypothesis_ids=torch.tensor([5, 5, 6]))
    assert sets.negatives[:].tolist() == [[False, False, True]]


def test_known_positives_are_specific_to_the_anchor():
    # Hypothesis 5 is entailed by premise 0 alone, so for premise 1 it stays a negative.
    ids, labels = tensors([0, 1, 2], [ENTAILMENT, ENTAILMENT, NEUTRAL])
    sets = premise_sets(ids, labels, hypothesis_ids=torch.tensor([5, 6, 5]))
    assert sets.anchors.tolist() == [0, 1]
    assert sets.positives[:].int().tolist() == [[1, 0, 0], [0, 1, 0]]
    assert sets.negatives[:].int().tolist() == [[0, 1, 0], [1, 0, 1]]


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
