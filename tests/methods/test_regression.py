"""regression: both heads by a plain formula, in value and gradient, learning, invalid inputs, descriptions."""

from itertools import chain

import pytest
import torch

from nearfar.data.batching import TextBatches
from nearfar.methods.regression import RegressionConfig
from nearfar.types import NearfarError
from tests import reference_objectives as references
from tests.methods.table_encoder import Table, assert_same_gradients, built, cosine

DIM = 5
PAIRS = [("a dog", "a cat"), ("a dog", "a hound"), ("rain", "sun"), ("a cat", "a kitten"), ("sun", "sun")]
SCORES = [0.4, 0.9, 0.0, 0.8, 1.0]


def build(rows=PAIRS, scores=SCORES, **settings):
    torch.manual_seed(0)
    table = Table(chain.from_iterable(rows), DIM)
    method = built(RegressionConfig(output="x", **settings), table, DIM, rows, targets=scores)
    (batch,) = method.batches.epoch(0)
    return table, method, batch


def predicted(table, method, first, second):
    u, v = table([first])[0], table([second])[0]
    if method.head is None:
        return cosine(u, v)
    weight, bias = method.head.linear.weight[0], method.head.linear.bias[0]
    return bias + sum(weight[k] * abs(u[k] - v[k]) + weight[DIM + k] * u[k] * v[k] for k in range(DIM))


@pytest.mark.parametrize("head", ["cosine", "linear"])
def test_the_loss_by_hand_in_value_and_gradient(head):
    table, method, batch = build(head=head)
    scores = [predicted(table, method, *pair) for pair in PAIRS]
    errors = [score - target for score, target in zip(scores, SCORES, strict=True)]
    expected = sum(error * error for error in errors) / len(PAIRS)
    loss = method.loss(batch)
    assert loss.terms["mae"].item() == pytest.approx(sum(abs(error.item()) for error in errors) / len(PAIRS))
    assert not loss.terms["mae"].requires_grad
    weights = [*table.parameters(), *(method.head.parameters() if method.head else ())]
    assert_same_gradients(loss.total, expected, weights)


def in_batch_by_hand(table, threshold, temperature):
    """Both texts of each pair with a high score against all other texts, but those with a high score to the anchor."""
    near = [pair for pair, score in zip(PAIRS, SCORES, strict=True) if score >= threshold]
    near = [*near, *((second, first) for first, second in near)]
    losses = []
    for anchor, positive in near:
        own = torch.exp(cosine(table([anchor])[0], table([positive])[0]) / temperature)
        known = {anchor} | {other for one, other in near if one == anchor}
        far = [text for text in table.numbers if text not in known]
        shares = [torch.exp(cosine(table([anchor])[0], table([text])[0]) / temperature) for text in far]
        losses.append(-torch.log(own / (own + sum(shares))))
    return sum(losses) / len(losses)


def assert_same_loss(loss, expected, table):
    assert_same_gradients(loss.total, expected, list(table.parameters()))
    assert not any(term.requires_grad for term in loss.terms.values())


@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_cosent_by_hand_in_value_and_gradient(temperature):
    table, method, batch = build(objective="cosent", temperature=temperature)
    cosines = [cosine(table([first])[0], table([second])[0]) for first, second in PAIRS]
    loss = method.loss(batch)
    assert_same_loss(loss, references.cosent(torch.stack(cosines), torch.tensor(SCORES), temperature), table)
    right = [a < b for a, x in zip(cosines, SCORES, strict=True) for b, y in zip(cosines, SCORES, strict=True) if x < y]
    assert 0 < sum(right) < len(right) == 10
    assert loss.terms["accuracy"].item() == pytest.approx(sum(right) / len(right))


@pytest.mark.parametrize("threshold", [0.8, 0.95])
@pytest.mark.parametrize("weights", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0.5, 2, 0.3)])
def test_angle_by_hand_in_value_and_gradient(threshold, weights):
    names = dict(zip(("cosine_weight", "in_batch_weight", "angle_weight"), weights, strict=True))
    table, method, batch = build(objective="angle", in_batch_threshold=threshold, angle_temperature=0.5, **names)
    vectors = [(table([first])[0], table([second])[0]) for first, second in PAIRS]
    angles = references.angle_similarity(*(torch.stack(side) for side in zip(*vectors, strict=True)))
    parts = {
        "cosine": references.cosent(torch.stack([cosine(*pair) for pair in vectors]), torch.tensor(SCORES), 0.05),
        "in_batch": in_batch_by_hand(table, threshold, 0.05),
        "angle": references.cosent(angles, torch.tensor(SCORES), 0.5),
    }
    loss = method.loss(batch)
    expected = sum(weight * part for weight, part in zip(weights, parts.values(), strict=True))
    assert_same_loss(loss, expected, table)
    assert loss.terms.keys() == {*parts, "accuracy"}
    for name, part in parts.items():
        torch.testing.assert_close(loss.terms[name], part.detach())


@pytest.mark.parametrize("objective", ["cosent", "angle"])
@pytest.mark.parametrize("rows", [[0], [2, 2], [0, 2], [1, 1, 3]])
def test_batches_without_comparisons_or_positives_have_finite_losses(objective, rows):
    table, method, _ = build(objective=objective)
    pairs, scores = [PAIRS[row] for row in rows], [SCORES[row] for row in rows]
    (batch,) = TextBatches(pairs, len(rows), targets=scores, min_batch_size=1).epoch(0)
    loss = method.loss(batch)
    assert loss.total.isfinite()
    if len(set(rows)) == 1:
        assert loss.terms["accuracy"] == 1
        assert loss.terms.get("cosine", loss.total).item() == 0
    if objective == "angle" and max(SCORES[row] for row in rows) < 0.8:
        assert loss.terms["in_batch"] == 0
    loss.total.backward()
    assert table.vectors.weight.grad.isfinite().all()


def test_equal_scores_are_refused():
    with pytest.raises(NearfarError, match=r"all 5 rows have the same score, 0\.5"):
        build(scores=[0.5] * 5)
