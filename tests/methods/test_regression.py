"""regression: both heads by a plain formula, in value and gradient, learning, invalid inputs, descriptions."""

import math
from itertools import chain

import pytest
import torch

from nearfar.data.batching import TextBatches
from nearfar.methods.regression import RegressionConfig
from nearfar.methods.regression.method import regression
from nearfar.types import NearfarError
from tests.methods.table_encoder import Table, descend

DIM = 5
PAIRS = [("a dog", "a cat"), ("a dog", "a hound"), ("rain", "sun"), ("a cat", "a kitten"), ("sun", "sun")]
SCORES = [0.4, 0.9, 0.0, 0.8, 1.0]


def build(rows=PAIRS, scores=SCORES, **settings):
    torch.manual_seed(0)
    table = Table(chain.from_iterable(rows), DIM)
    batches = TextBatches(rows, len(rows), targets=scores, min_batch_size=1)
    method = regression(RegressionConfig(output="x", **settings), table, DIM, batches)
    if method.head is not None:
        method.head.double()
    (batch,) = method.batches.epoch(0)
    return table, method, batch


def predicted(table, method, first, second):
    u, v = table([first])[0], table([second])[0]
    if method.head is None:
        return (u * v).sum() / ((u * u).sum().sqrt() * (v * v).sum().sqrt())
    weight, bias = method.head.linear.weight[0], method.head.linear.bias[0]
    return bias + sum(weight[k] * abs(u[k] - v[k]) + weight[DIM + k] * u[k] * v[k] for k in range(DIM))


@pytest.mark.parametrize("head", ["cosine", "linear"])
def test_the_loss_by_hand_in_value_and_gradient(head):
    table, method, batch = build(head=head)
    scores = [predicted(table, method, *pair) for pair in PAIRS]
    errors = [score - target for score, target in zip(scores, SCORES, strict=True)]
    expected = sum(error * error for error in errors) / len(PAIRS)
    loss = method.loss(batch)
    torch.testing.assert_close(loss.total, expected)
    assert loss.terms["mae"].item() == pytest.approx(sum(abs(error.item()) for error in errors) / len(PAIRS))
    assert not loss.terms["mae"].requires_grad
    weights = [*table.parameters(), *(method.head.parameters() if method.head else ())]
    ours, theirs = (torch.autograd.grad(total, weights) for total in (loss.total, expected))
    assert all(gradient.norm() > 1e-3 for gradient in theirs)
    torch.testing.assert_close(ours, theirs)


def test_each_distinct_text_is_encoded_once():
    table, method, batch = build()
    method.loss(batch)
    assert [sorted(texts) for texts in table.calls] == [sorted(table.numbers)]
    assert method.name == "regression"


@pytest.mark.parametrize("head", ["cosine", "linear"])
def test_sixty_steps_decrease_the_loss_of_the_scores(head):
    table, method, batch = build(head=head)
    optimiser = torch.optim.Adam([*table.parameters(), *(method.head.parameters() if method.head else ())], lr=0.03)
    before = method.loss(batch)
    descend(lambda: method.loss(batch).total, optimiser, steps=60)
    after = method.loss(batch)
    assert after.total < 0.2 * before.total
    assert after.terms["mae"] < before.terms["mae"]


@pytest.mark.parametrize("score", [-0.1, 4.2, math.nan])
def test_a_score_outside_0_to_1_is_refused(score):
    with pytest.raises(NearfarError, match=r"row 2: 'rain / sun' has the score .* must be in 0\.\.1"):
        build(scores=[0.4, 0.9, score, 0.8, 1.0])


def test_other_invalid_inputs_are_refused():
    with pytest.raises(NearfarError, match="--head 'mlp': must be cosine or linear"):
        build(head="mlp")
    with pytest.raises(NearfarError, match=r"all 5 pairs have the score 0\.5"):
        build(scores=[0.5] * 5)
    with pytest.raises(NearfarError, match="needs a score for each pair"):
        build(scores=None)
    with pytest.raises(NearfarError, match=r"each row has 1 text$"):
        build([(text,) for text, _ in PAIRS])


def test_describe_shows_scores_and_texts():
    table, method, batch = build(PAIRS[1:3], SCORES[1:3])
    blocks = {1: ["score 0.90  a dog", "            a hound"], 2: ["score 0.00  rain", "            sun"]}
    assert method.describe(batch) == [line for row in batch.rows for line in blocks[row + 1]]
    assert table.calls == []
