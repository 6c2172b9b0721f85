"""nli-order: both losses by plain loops, what is encoded, learning, directions, invalid rows."""

import itertools
import math

import pytest
import torch

from nearfar.methods.nli_order import NliOrderConfig
from nearfar.types import CONTRADICTION, ENTAILMENT, NEUTRAL, NliRow
from tests.methods.table_encoder import Table, assert_same_gradients, batch_of, built, cosine

DIM = 6
ROWS = [
    NliRow("A dog runs.", "An animal moves.", ENTAILMENT),
    NliRow("A dog runs.", "The dog is fast.", NEUTRAL),
    NliRow("A dog runs.", "A dog sleeps.", CONTRADICTION),
    NliRow("A dog runs.", "A dog is awake.", ENTAILMENT),  # two positives
    NliRow("Two men sing.", "People make music.", ENTAILMENT),
    NliRow("Two men sing.", "Nobody sings.", CONTRADICTION),
    NliRow("Two men sing.", "An animal moves.", CONTRADICTION),  # a positive of another premise
    NliRow("A cat waits.", "A cat is hungry.", NEUTRAL),  # no entailment: no anchor
    NliRow("A cat waits.", "A dog runs.", CONTRADICTION),  # a premise
    NliRow("It rains.", "The weather is wet.", ENTAILMENT),
    NliRow("It rains.", "Nobody sings.", NEUTRAL),  # a contradiction of another premise
    NliRow("It rains.", "The weather is wet.", CONTRADICTION),  # two labels: entailed wins
    NliRow("It rains.", "The sun shines.", CONTRADICTION),
    NliRow("It rains.", "A dog sleeps.", CONTRADICTION),  # again
]


def build(rows=ROWS, batch_size=None, **settings):
    torch.manual_seed(0)
    table = Table((text for row in rows for text in row[:2]), DIM)
    config = NliOrderConfig(output="x", distinct_texts=False, **settings)
    method = built(config, table, DIM, rows, batch_size=batch_size)
    (batch, *_) = method.batches.epoch(0)
    return table, method, batch


def vectors_of(table):
    return lambda text: table([text])[0]


def known(rows, premise):
    """Texts that are no negatives of a premise."""
    return {premise} | {row.hypothesis for row in rows if row.premise == premise and row.label != CONTRADICTION}


def contrast_by_hand(vector, rows, *, temperature=0.05, similarity=cosine, margin=None, direction="query_to_doc"):
    """Mean over premises of the mean over their positives; negatives by the texts of the pairs, each text once."""

    def score(one, other):
        return similarity(vector(one), vector(other))

    def total(one, others):
        return sum((score(one, other) / temperature).exp() for other in others)

    premises = list(dict.fromkeys(row.premise for row in rows if row.label == ENTAILMENT))
    candidates = list(dict.fromkeys(row.hypothesis for row in rows if row.label != NEUTRAL))
    losses = []
    for premise in premises:
        own = {row.hypothesis for row in rows if row.premise == premise and row.label == CONTRADICTION}
        near, logs = known(rows, premise), []
        for text in [row.hypothesis for row in rows if (row.premise, row.label) == (premise, ENTAILMENT)]:
            partners = {text} | {row.premise for row in rows if row.hypothesis == text and row.label != CONTRADICTION}
            bound = math.inf if margin is None else score(premise, text) + margin
            kept = [other for other in candidates if other in own or score(premise, other) <= bound]
            positive = total(premise, [text])
            forward = positive + total(premise, [other for other in kept if other not in near])
            backward = positive + total(text, [other for other in premises if other not in partners])
            queries = total(premise, [other for other in premises if other not in near])
            documents = total(text, [other for other in candidates if other not in near | partners | own])
            directions = {
                "query_to_doc": torch.log(forward),
                "doc_to_query": torch.log(backward),
                "both": (torch.log(forward) + torch.log(backward)) / 2,
                "all": torch.log(forward + backward + queries + documents),
            }
            logs.append(directions[direction] - torch.log(positive))
        losses.append(sum(logs) / len(logs))
    return sum(losses) / len(losses)


def with_unrelated(rows):
    """The rows, and each premise with each hypothesis that it has no row with."""
    paired = {row[:2] for row in rows}
    texts = [list(dict.fromkeys(column)) for column in list(zip(*rows, strict=True))[:2]]
    others = [NliRow(*pair, 3) for pair in itertools.product(*texts) if pair not in paired and pair[0] != pair[1]]
    return [*rows, *others]


def order_by_hand(vector, rows, *, temperature=0.05, margin=0.0, similarity=cosine, batch=False):
    """RankNet within each premise, or CoSENT over the batch."""
    terms = []
    for low in rows:
        for high in rows:
            if high.label < low.label and (batch or low.premise == high.premise):
                lower, higher = (similarity(vector(row.premise), vector(row.hypothesis)) for row in (low, high))
                terms.append((lower - higher + margin) / temperature)
    terms = torch.stack(terms)
    return torch.log(1 + terms.exp().sum()) if batch else torch.log(1 + terms.exp()).mean()


def compare(loss, expected, table):
    assert_same_gradients(loss.total, expected, list(table.parameters()))


# --- the losses ---


@pytest.mark.long
@pytest.mark.parametrize(("temperature", "similarity"), [(0.05, "cosine"), (2.0, "dot")])
@pytest.mark.parametrize("settings", [{}, {"order_margin": 0.3, "order_temperature": 0.5, "order_weight": 0.7}])
@pytest.mark.parametrize("pairs", ["within-premise", "batch"])
def test_the_sum_of_both_losses_by_hand(temperature, similarity, settings, pairs):
    table, method, batch = build(temperature=temperature, similarity=similarity, order_pairs=pairs, **settings)
    measure = torch.dot if similarity == "dot" else cosine
    vector = vectors_of(table)
    contrast = contrast_by_hand(vector, ROWS, temperature=temperature, similarity=measure)
    order = order_by_hand(
        vector,
        ROWS,
        temperature=settings.get("order_temperature", 0.05),
        margin=settings.get("order_margin", 0.0),
        similarity=measure,
        batch=pairs == "batch",
    )
    loss = method.loss(batch)
    torch.testing.assert_close(loss.terms["info_nce"], contrast)
    torch.testing.assert_close(loss.terms["order"], order)
    compare(loss, contrast + settings.get("order_weight", 1.0) * order, table)
    assert not any(term.requires_grad for term in loss.terms.values())


@pytest.mark.long
@pytest.mark.parametrize(("temperature", "similarity", "neutral"), [(0.5, "cosine", True), (2.0, "dot", False)])
def test_unrelated_hypotheses_rank_lowest(temperature, similarity, neutral):
    """A premise with a hypothesis of another premise is a fourth label, below contradiction."""
    settings = {"order_temperature": temperature, "similarity": similarity, "order_margin": 0.1, "neutral": neutral}
    table, method, batch = build(order_pairs="batch", order_unrelated=True, **settings)
    rows = with_unrelated(ROWS if neutral else [row for row in ROWS if row.label != NEUTRAL])
    assert sum(row.label == 3 for row in rows) > 20
    assert ("A dog runs.", "A dog runs.", 3) not in rows
    vector = vectors_of(table)
    measure = torch.dot if similarity == "dot" else cosine
    order = order_by_hand(vector, rows, temperature=temperature, margin=0.1, similarity=measure, batch=True)
    loss = method.loss(batch)
    torch.testing.assert_close(loss.terms["order"], order)
    compare(loss, contrast_by_hand(vector, ROWS, similarity=measure) + order, table)


@pytest.mark.parametrize("margin", [0.0, 0.2])
def test_the_margin_leaves_out_candidates_but_no_own_contradiction(margin):
    table, method, batch = build(order_weight=0.0, false_negative_margin=margin, temperature=0.5)
    with torch.no_grad():  # an own contradiction, listed first for another premise, and far above the positive
        table.vectors.weight[table.numbers["A dog sleeps."]] = table.vectors.weight[table.numbers["It rains."]]
    vector = vectors_of(table)
    expected = contrast_by_hand(vector, ROWS, temperature=0.5, margin=margin)
    assert contrast_by_hand(vector, ROWS, temperature=0.5) - expected > 1e-3
    loss = method.loss(batch)
    assert 0 < loss.terms["left_out"] < 1
    compare(loss, expected, table)


@pytest.mark.parametrize("direction", ["doc_to_query", "both", "all"])
def test_directions_by_hand(direction):
    table, method, batch = build(order_weight=0.0, directions=direction, temperature=0.3)
    expected = contrast_by_hand(vectors_of(table), ROWS, temperature=0.3, direction=direction)
    compare(method.loss(batch), expected, table)


# --- closed forms and extreme batches ---


BATCHES = {
    "entailments alone": [0, 3, 4],
    "neutral alone": [1, 7],
    "contradictions alone": [2, 5, 8],
    "no contradiction": [0, 1, 9],
    "no entailment": [1, 2, 7, 8],
    "one premise": [0, 1, 2],
    "one pair": [0],
    "one neutral pair": [1],
}


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize(
    ("settings", "direction"),
    [({}, "query_to_doc"), ({"order_pairs": "batch"}, "all"), ({"neutral": False}, "all")],
)
def test_batches_that_lack_labels_have_finite_losses(name, settings, direction):
    table, method, _ = build(directions=direction, false_negative_margin=0.1, **settings)
    batch = batch_of(*((ROWS[row][:2], ROWS[row].label) for row in BATCHES[name]))
    loss = method.loss(batch)
    assert loss.total.isfinite()
    assert all(term.isfinite() for term in loss.terms.values())
    if "entailment" not in name and name not in ("no contradiction", "one premise", "one pair"):
        assert loss.terms["info_nce"] == 0
    if len(set(batch.targets) - ({NEUTRAL} if settings == {"neutral": False} else set())) == 1:
        assert loss.terms["order"] == 0
    if name == "one premise" and direction == "query_to_doc":  # its own contradiction is a negative
        anchor, near, far = (table([text])[0] for text in ("A dog runs.", "An animal moves.", "A dog sleeps."))
        expected = torch.log(1 + ((cosine(anchor, far) - cosine(anchor, near)) / 0.05).exp())
        torch.testing.assert_close(loss.terms["info_nce"], expected.detach())
    loss.total.backward()
    assert table.vectors.weight.grad is None or table.vectors.weight.grad.isfinite().all()
