"""scl-finetune: the loss by loops, in blocks too, exact cross-entropy, no positive, one row, scores, descriptions."""

import pytest
import torch
from torch import nn

from nearfar import FinetuneConfig
from nearfar.data.batching import TextBatches
from nearfar.methods.gunel import scl_finetune
from nearfar.objectives import _contrast
from tests import reference_objectives as references
from tests.methods.table_encoder import Table, assert_same_gradients, batch_of

DIM = 5
NAMES = ("no", "maybe", "yes")
TEXTS = [("goal",), ("tax",), ("match",), ("vote",), ("team",), ("sun",), ("rain",)]
LABELS = [0, 1, 0, 1, 0, 2, 1]


def build(rows=TEXTS, labels=LABELS, *, outputs=3, **settings):
    torch.manual_seed(0)
    table, head = Table(rows, DIM), nn.Linear(DIM, outputs, dtype=torch.float64)
    batches = TextBatches(rows, len(rows), targets=labels, min_batch_size=1)
    names = settings.pop("label_names", NAMES)
    config = FinetuneConfig(output="x", **settings)
    return table, head, scl_finetune(config, table, head, batches, label_names=names)


def by_hand(table, head, rows, weight, temperature, reduction="sum"):
    """Gunel et al. 2021, eq. 1, as plain loops; SCL is the sum over the anchors, as in eq. 3, or their mean."""
    states = table([item for item, _ in rows])
    labels = torch.tensor([label for _, label in rows])
    ce = references.nli_softmax(head(states), labels).mean()
    scl = references.supcon(states, labels, temperature)
    return (1 - weight) * ce + weight * sum(scl) / (len(scl) if reduction == "mean" else 1)


@pytest.mark.long
@pytest.mark.parametrize("block", [_contrast.BLOCK, 20], ids=["whole", "in blocks"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("temperature", [0.3, 1.0])
@pytest.mark.parametrize("weight", [0.0, 0.1, 0.9, 1.0])
def test_the_loss_by_hand_in_value_and_gradient(weight, temperature, reduction, block, monkeypatch):
    monkeypatch.setattr(_contrast, "BLOCK", block)
    table, head, method = build(scl_weight=weight, temperature=temperature, scl_reduction=reduction)
    rows = [*zip(TEXTS, LABELS, strict=True), (TEXTS[0], 0), (TEXTS[2], 1)]  # a repeated text counts as two examples
    assert len(_contrast.row_blocks(8, len(rows))) == (1 if block > 20 else 4)
    loss, expected = method.loss(batch_of(*rows)).total, by_hand(table, head, rows, weight, temperature, reduction)
    torch.testing.assert_close(loss.double(), expected, atol=1e-6, rtol=0)
    weights = [table.vectors.weight, head.weight, head.bias]
    ours, theirs = (torch.autograd.grad(total, weights) for total in (loss, expected))
    assert theirs[0].norm() > 1e-2
    assert (theirs[1].norm() > 1e-2) == (weight < 1)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


def test_the_terms_of_the_loss_by_hand():
    table, head, method = build()
    (batch,) = method.batches.epoch(0)
    terms = method.loss(batch).terms
    rows = [((batch.sentences[text],), label) for text, label in zip(batch.columns[0], batch.targets, strict=True)]
    right = sum(int(head(table([item]))[0].argmax()) == label for item, label in rows)
    assert 0 < right < len(rows)
    expected = {"ce": by_hand(table, head, rows, 0.0, 0.3).item(), "scl": by_hand(table, head, rows, 1.0, 0.3).item()}
    assert {name: term.item() for name, term in terms.items()} == pytest.approx(
        {**expected, "accuracy": right / len(rows)}, abs=1e-6
    )
    assert not any(value.requires_grad for value in terms.values())
    assert build(scl_weight=0.0)[2].loss(batch).terms.keys() == {"ce", "accuracy"}


# --- without a positive, and a single row ---


def test_scores_are_learned_by_squared_error():
    table, head, method = build(labels=[0.5, 1.0, 2.25, 3.0, 0.0, 5.0, 4.0], outputs=1, label_names=())
    (batch,) = method.batches.epoch(0)
    loss = method.loss(batch)
    outputs = [head(table([(batch.sentences[text],)]))[0, 0] for text in batch.columns[0]]
    expected = sum((output - score) ** 2 for output, score in zip(outputs, batch.targets, strict=True)) / 7
    assert_same_gradients(loss.total.double(), expected, [table.vectors.weight, head.weight], atol=1e-5, rtol=0)
    assert loss.terms == {"mse": loss.total}
    one = method.loss(batch_of((TEXTS[0], 2.0))).total
    assert one.item() == pytest.approx((head(table([TEXTS[0]])).item() - 2) ** 2, abs=1e-5)
