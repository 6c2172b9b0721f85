"""supcon-text: the loss by a plain formula, repeated texts, no positives, invalid inputs, learning, descriptions."""

from itertools import chain

import pytest
import torch

from nearfar.methods.gunel import SupconTextConfig
from tests import reference_objectives as references
from tests.methods.table_encoder import Table, assert_same_gradients, batch_of, built

DIM = 5
TEXTS = [("goal",), ("tax",), ("match",), ("vote",), ("team",), ("sun",), ("rain",)]
LABELS = [0, 1, 0, 1, 0, 2, 2]
NAMES = ("sports", "politics", "weather")


def build(rows=TEXTS, labels=LABELS, *, batch_size=6, **settings):
    torch.manual_seed(0)
    table = Table(chain.from_iterable(rows), DIM)
    config = SupconTextConfig(output="x", **settings)
    size = min(batch_size, len(rows))
    return table, built(config, table, DIM, rows, batch_size=size, targets=labels, label_names=NAMES)


def of(*rows):
    """A batch of rows (text, label)."""
    return batch_of(*(((text,), label) for text, label in rows))


def by_hand(table, rows, temperature):
    """Gunel et al. 2021, eq. 4, as the mean over the rows that have a positive."""
    labels = torch.tensor([label for _, label in rows])
    return torch.stack(references.supcon(table([text for text, _ in rows]), labels, temperature)).mean()


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_the_loss_by_hand_in_value_and_gradient(temperature):
    table, method = build(temperature=temperature)
    batch = next(method.batches.epoch(0))
    rows = [(batch.sentences[text], label) for text, label in zip(batch.columns[0], batch.targets, strict=True)]
    assert sorted(label for _, label in rows) == [0, 0, 1, 1, 2, 2]  # balanced
    assert_same_gradients(method.loss(batch).total, by_hand(table, rows, temperature), list(table.parameters()))


def test_a_repeated_text_counts_once_and_its_first_row_decides():
    table, method = build()
    repeated = [("goal", 0), ("team", 0), ("tax", 1), ("goal", 0), ("team", 1), ("vote", 1)]
    distinct = [("goal", 0), ("team", 0), ("tax", 1), ("vote", 1)]
    torch.testing.assert_close(method.loss(of(*repeated)).total, by_hand(table, distinct, 0.3))
    assert table.calls[0] == ["goal", "team", "tax", "vote"]


@pytest.mark.parametrize(
    "rows", [[("goal", 0), ("tax", 1), ("sun", 2)], [("goal", 0), ("goal", 0), ("sun", 2)], [("goal", 0), ("goal", 0)]]
)
def test_a_batch_without_a_positive_has_loss_0(rows):
    table, method = build()
    loss = method.loss(of(*rows))
    assert loss.total == 0
    assert loss.terms["accuracy"] == 0
    loss.total.backward()
    assert (table.vectors.weight.grad == 0).all()


def test_accuracy_is_the_share_of_anchors_whose_nearest_text_has_their_label():
    table, method = build()
    with torch.no_grad():
        near = {"goal": [1.0, 0.1], "match": [1.0, 0.2], "tax": [-1.0, 0.5], "vote": [1.0, 0.4], "sun": [-1.0, 0.4]}
        for text, vector in near.items():
            table.vectors.weight[table.numbers[text]] = torch.tensor([*vector, 0, 0, 0], dtype=torch.float64)
    # goal -> match and match -> goal: right; tax -> sun and vote -> match: wrong; sun, alone, does not count.
    loss = method.loss(of(("goal", 0), ("match", 0), ("tax", 1), ("vote", 1), ("sun", 2)))
    assert loss.terms["accuracy"] == 0.5
    assert not loss.terms["accuracy"].requires_grad
