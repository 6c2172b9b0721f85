"""sbert, scl and augment: losses by the reference loops, gradients, learning, invalid inputs, a description."""

import pytest
import torch

from nearfar.methods.liao import AugmentConfig, Pairs, SbertConfig, SclConfig, augmented_pairs
from nearfar.types import CONTRADICTION, ENTAILMENT, NEUTRAL, NearfarError, NliRow
from tests import reference_objectives as references
from tests.methods.table_encoder import Table, assert_same_gradients, built

DIM = 6
ROWS = [
    NliRow("A dog runs.", "An animal moves.", ENTAILMENT),
    NliRow("A dog runs.", "The dog is fast.", NEUTRAL),
    NliRow("A dog runs.", "A dog sleeps.", CONTRADICTION),
    NliRow("Two men sing.", "People make music.", ENTAILMENT),
    NliRow("Two men sing.", "Nobody sings.", CONTRADICTION),
    NliRow("Two men sing.", "There are singers.", ENTAILMENT),
    NliRow("A cat waits.", "An animal moves.", NEUTRAL),
    NliRow("A cat waits.", "A cat is hungry.", NEUTRAL),
]


KINDS = {"sbert": SbertConfig, "scl": SclConfig, "augment": AugmentConfig}


def build(name, rows=ROWS, batch_size=None, **settings):
    torch.manual_seed(0)
    table = Table((text for row in rows for text in (row.premise, row.hypothesis)), DIM)
    return table, built(KINDS[name](output="x", **settings), table, DIM, rows, batch_size=batch_size)


def pair_vectors(table, pairs):
    """Vectors of premises and hypotheses, one text at a time."""
    premises = torch.stack([table.vectors.weight[table.numbers[premise]] for premise, _ in pairs])
    hypotheses = torch.stack([table.vectors.weight[table.numbers[hypothesis]] for _, hypothesis in pairs])
    return premises, hypotheses


def cross_entropy(table, head, triples):
    """Mean cross-entropy of (premise, hypothesis, label) by the reference loops."""
    features = references.nli_softmax_features(*pair_vectors(table, [triple[:2] for triple in triples]))
    return references.nli_softmax(head(features), torch.tensor([label for *_, label in triples])).mean()


def contrast(table, rows, temperature=1.0, similarity="dot"):
    """Mean SCL over the anchors by the reference loops."""
    ids = torch.tensor([[table.numbers[row.premise], table.numbers[row.hypothesis]] for row in rows])
    labels = torch.tensor([row.label for row in rows])
    premises, hypotheses = pair_vectors(table, [row[:2] for row in rows])
    values = references.premise_scl(premises, hypotheses, ids[:, 0], labels, temperature, similarity, ids[:, 1])
    return torch.stack(values).mean()


def only_batch(method):
    (batch,) = method.batches.epoch(0)
    return batch


# --- the losses ---


@pytest.mark.parametrize("head_layers", [1, 2])
def test_sbert_equals_the_mean_cross_entropy_in_value_and_gradient(head_layers):
    table, method = build("sbert", head_layers=head_layers)
    loss = method.loss(only_batch(method))
    expected = cross_entropy(table, method.head, ROWS)
    torch.testing.assert_close(loss.terms["ce"], expected)
    assert_same_gradients(loss.total, expected, [*table.parameters(), *method.head.parameters()])


@pytest.mark.parametrize(
    ("weight", "temperature", "similarity"), [(0.3, 1.0, "dot"), (0.0, 1.0, "dot"), (0.9, 0.1, "cosine")]
)
def test_scl_mixes_cross_entropy_and_contrast_in_value_and_gradient(weight, temperature, similarity):
    table, method = build("scl", scl_weight=weight, temperature=temperature, similarity=similarity)
    loss = method.loss(only_batch(method))
    ce, contrasts = cross_entropy(table, method.head, ROWS), contrast(table, ROWS, temperature, similarity)
    torch.testing.assert_close(loss.terms["ce"], ce)
    torch.testing.assert_close(loss.terms["scl"], contrasts)
    assert contrasts > 0.1
    expected = (1 - weight) * ce + weight * contrasts
    assert_same_gradients(loss.total, expected, [*table.parameters(), *method.head.parameters()])


@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_the_contrastive_loss_of_a_batch_without_an_anchor_is_0(weight):
    # In file order the first two rows have no entailment.
    rows = [ROWS[1], ROWS[2], *ROWS[3:5]]
    table, method = build("scl", rows, batch_size=2, order="file", scl_weight=weight)
    first = next(method.batches.epoch(0))
    loss = method.loss(first)
    assert loss.terms["scl"] == 0
    expected = 0.0 if weight == 1 else (1 - weight) * cross_entropy(table, method.head, rows[:2]).item()
    assert loss.total.item() == pytest.approx(expected)
    loss.total.backward()
    assert table.vectors.weight.grad.isfinite().all()


@pytest.mark.parametrize("caps", [("all", "all"), (1, "all"), (3, 3)])
def test_augment_equals_the_cross_entropy_over_rows_and_added_pairs(caps):
    table, method = build("augment", max_positives=caps[0], max_negatives=caps[1])
    batch = only_batch(method)
    rows = Pairs(*map(torch.tensor, (*batch.columns, batch.targets)))
    torch.manual_seed(5)
    positives, negatives = (None if cap == "all" else cap for cap in caps)
    added = augmented_pairs(rows, max_positives=positives, max_negatives=negatives)
    triples = [
        (batch.sentences[premise], batch.sentences[hypothesis], label)
        for premise, hypothesis, label in zip(*(column.tolist() for column in added), strict=True)
    ]
    assert triples
    torch.manual_seed(5)
    loss = method.loss(batch)
    torch.testing.assert_close(loss.total, cross_entropy(table, method.head, [*ROWS, *triples]))


# --- added pairs ---


def test_augmented_pairs_of_a_batch_by_hand():
    #         pair 0 .. 2: premise 0 with 10 (entailed), 11 (entailed), 12 (contradicted);
    #         pair 3, 4: premise 1 with 13 (entailed), 10 (neutral)
    pairs = Pairs(*map(torch.tensor, ([0, 0, 0, 1, 1], [10, 11, 12, 13, 10], [0, 0, 2, 0, 1])))
    added = augmented_pairs(pairs, max_positives=None, max_negatives=None)
    assert list(zip(*(column.tolist() for column in added), strict=True)) == [
        (0, 11, ENTAILMENT),  # anchor 0: its other positive; 12 is already a row; 10, of premise 1, is its own positive
        (0, 13, CONTRADICTION),
        (0, 10, ENTAILMENT),  # anchor 1
        (0, 13, CONTRADICTION),
        (1, 10, CONTRADICTION),  # anchor 3: 10 as a hypothesis of premise 0; as one of premise 1 it is already a row
        (1, 11, CONTRADICTION),
        (1, 12, CONTRADICTION),
    ]


# --- invalid settings and inputs ---


@pytest.mark.parametrize("name", ["scl", "augment"])
def test_rows_without_an_entailment_or_a_second_premise_are_refused(name):
    with pytest.raises(NearfarError, match="none of the 2 rows is an entailment"):
        build(name, ROWS[1:3])
    with pytest.raises(NearfarError, match=r"all 3 rows have the same premise, 'A dog runs\.'"):
        build(name, ROWS[:3])
    build("sbert", ROWS[1:3])
    build("sbert", ROWS[:3])


def test_a_single_label_is_refused_for_classification():
    entailments = [ROWS[0], ROWS[3], ROWS[5]]
    for name in ("sbert", "scl"):
        with pytest.raises(NearfarError, match="all 3 rows have the same label, 'entailment'"):
            build(name, entailments)
    build("scl", entailments, scl_weight=1.0)
    build("augment", entailments)  # adds contradictions
