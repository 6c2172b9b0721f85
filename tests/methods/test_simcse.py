"""simcse-unsup, simcse-sup and info-nce: losses by plain formulas, false negatives, invalid inputs."""

import math
from functools import cache
from itertools import chain

import pytest
import torch

from nearfar.methods.simcse import InfoNceConfig, SimcseSupConfig, SimcseUnsupConfig
from nearfar.types import NearfarError
from tests import reference_objectives as references
from tests.methods.table_encoder import Table, assert_same_gradients, built, cosine
from tests.objectives.test_directions import expected_masks

DIM = 6
SENTENCES = [("A dog runs.",), ("Two men sing.",), ("A cat waits.",), ("A dog runs.",), ("It rains.",)]
TRIPLETS = [
    ("A dog runs.", "An animal moves.", "A dog sleeps."),
    ("Two men sing.", "People make music.", "Nobody sings."),
    ("A dog runs.", "The dog is fast.", "A dog sleeps."),  # the anchor again: shares positives with row 0
    ("A cat waits.", "A cat is still.", "An animal moves."),  # its negative is a positive of row 0's anchor
    ("An animal moves.", "Something moves.", "A dog runs."),
    ("It rains.", "The weather is wet.", "The weather is wet."),  # its negative is its positive
]
PAIRS = [row[:2] for row in TRIPLETS]


KINDS = {"simcse-unsup": SimcseUnsupConfig, "simcse-sup": SimcseSupConfig, "info-nce": InfoNceConfig}


def build(name, rows, *, batch_size=None, noise=0.0, mlp=None, **settings):
    torch.manual_seed(0)
    table = Table(chain.from_iterable(rows), DIM, noise=noise)
    if mlp is not None:
        settings["mlp"] = "train_only" if mlp else "none"
    method = built(KINDS[name](output="x", **settings), table, DIM, rows, batch_size=batch_size)
    return table, method, next(method.batches.epoch(0))


def rows_of(batch):
    """The rows as texts, in the batch's order."""
    return list(zip(*([batch.sentences[text] for text in column] for column in batch.columns), strict=True))


def masks_by_hand(rows, score, margin):
    """Where a text is a negative, in each direction; ``score`` is the similarity of two texts."""
    anchors, positives, *negatives = zip(*rows, strict=True)
    negatives = tuple(chain(*negatives))
    documents = (*positives, *negatives)
    texts = ((anchors, documents), (positives, anchors), (anchors, anchors), (positives, documents))
    known = expected_masks(anchors, positives, negatives, anchors if negatives else (), (), distinct=False)
    masks = []
    for mask, (ones, candidates) in zip(known, texts, strict=True):
        kept = torch.tensor(mask)
        for i, k in kept.nonzero().tolist() if margin is not None else ():
            own = k == len(rows) + i and ones is anchors  # a row's own negative is never left out by the margin
            kept[i, k] = own or score(ones[i], candidates[k]) <= score(anchors[i], positives[i]) + margin
        masks.append(kept)
    return masks


def contrast_by_hand(vector, rows, *, temperature, direction="query_to_doc", weight=0.0, similarity=None, margin=None):
    """The mean loss of the rows by the reference loops."""
    measure = torch.dot if similarity == "dot" else cosine

    @cache
    def score(one, other):
        return measure(vector(one), vector(other)).item()

    masks = masks_by_hand(rows, score, margin)
    columns = [torch.stack([vector(text) for text in column]) for column in zip(*rows, strict=True)]
    columns += [None] * (3 - len(columns))
    kind = similarity or "cosine"
    return references.info_nce_directions(*columns, temperature, direction, weight, kind, masks).mean()


def compare(loss, expected, modules):
    """Value and gradient."""
    weights = [weight for module in modules if module is not None for weight in module.parameters()]
    assert_same_gradients(loss.total, expected, weights)


# --- the losses ---


@pytest.mark.parametrize("mlp", [True, False])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_unsupervised_by_hand(mlp, temperature):
    table, method, batch = build("simcse-unsup", SENTENCES, noise=0.5, mlp=mlp, temperature=temperature)
    loss = method.loss(batch)
    texts = [text for (text,) in rows_of(batch)]
    assert table.calls == [texts + texts]
    vectors = table(texts + texts)
    assert (method.head is not None) is mlp
    if mlp:
        vectors = torch.tanh(vectors @ method.head.linear.weight.T + method.head.linear.bias)
    first, second = vectors[: len(texts)], vectors[len(texts) :]
    mask = torch.tensor([[text != other for other in texts] for text in texts])
    compare(loss, references.info_nce(first, second, None, temperature, mask=mask).mean(), [table, method.head])


@pytest.mark.parametrize(
    ("rows", "temperature", "settings"),
    [
        (PAIRS, 0.05, {}),
        (PAIRS, 0.5, {"direction": "all", "margin": 0.1}),
        (TRIPLETS, 2.0, {"similarity": "dot"}),
        (TRIPLETS, 0.5, {"margin": 0.0}),
        (TRIPLETS, 0.5, {"margin": 0.2}),
        (TRIPLETS, 0.5, {"direction": "doc_to_query", "margin": 0.1}),
        (TRIPLETS, 0.5, {"direction": "both"}),
        (TRIPLETS, 0.5, {"direction": "all", "margin": 0.1}),
    ],
)
def test_info_nce_by_hand(rows, temperature, settings):
    names = {"margin": "false_negative_margin", "direction": "directions"}
    given = {names.get(name, name): value for name, value in settings.items()}
    table, method, batch = build("info-nce", rows, temperature=temperature, **given)
    rows = rows_of(batch)

    def expected(**changed):
        return contrast_by_hand(lambda text: table([text])[0], rows, temperature=temperature, **settings | changed)

    loss = method.loss(batch)
    if settings.keys() == {"margin"}:
        assert expected(margin=None) - expected() > 0.01  # something is left out
        assert 0 < loss.terms["left_out"] < 1
    compare(loss, expected(), [table])


@pytest.mark.parametrize("weight", [-1.5, math.log(2)])
def test_supervised_with_mlp_and_weighted_hard_negatives_by_hand(weight):
    table, method, batch = build("simcse-sup", TRIPLETS, mlp=True, hard_negative_weight=weight, temperature=0.3)

    def vector(text):
        return torch.tanh(method.head.linear.weight @ table([text])[0] + method.head.linear.bias)

    expected = contrast_by_hand(vector, rows_of(batch), temperature=0.3, weight=weight)
    assert abs(expected - contrast_by_hand(vector, rows_of(batch), temperature=0.3)) > 0.01
    compare(method.loss(batch), expected, [table, method.head])


@pytest.mark.parametrize("margin", [None, 0.0])
def test_accuracy_is_the_share_of_anchors_whose_positive_is_most_similar(margin):
    """Candidates excluded by a margin still count."""
    table, method, batch = build("info-nce", TRIPLETS, false_negative_margin=margin)
    with torch.no_grad():
        for anchor, positive in (("Two men sing.", "People make music."), ("It rains.", "The weather is wet.")):
            table.vectors.weight[table.numbers[positive]] = table.vectors.weight[table.numbers[anchor]]
    rows, right = rows_of(batch), 0
    for anchor, positive, _ in rows:
        near = {anchor} | {row[1] for row in rows if row[0] == anchor}
        others = {text for row in rows for text in row[1:]} - near
        own = cosine(table([anchor])[0], table([positive])[0])
        right += all(cosine(table([anchor])[0], table([other])[0]) <= own for other in others)
    assert 1 < right < len(rows)
    assert method.loss(batch).terms["accuracy"].item() == pytest.approx(right / len(rows))


# --- invalid inputs ---


def test_rows_without_negatives_are_refused():
    with pytest.raises(NearfarError, match="all 2 rows have the same sentence, 'a'"):
        build("simcse-unsup", [("a",), ("a",)])
    with pytest.raises(NearfarError, match="all 2 rows have the same anchor, 'a'"):
        build("info-nce", [("a", "b"), ("a", "c")])
    build("info-nce", [("a", "b"), ("b", "c")])
