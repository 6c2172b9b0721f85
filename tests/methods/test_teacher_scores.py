"""teacher-scores: the losses of sentence-transformers, lists of any length by plain loops, scales, rows, and errors."""

import json
from itertools import chain

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import DistillKLDivLoss, MarginMSELoss
from sentence_transformers.util import pairwise_cos_sim, pairwise_dot_score

from nearfar.commands.train.inputs import read_rows
from nearfar.methods.teacher_scores import TeacherScoresConfig
from nearfar.types import NearfarError
from tests.methods.table_encoder import Table, assert_same_gradients, built, cosine

DIM = 5
LISTS = {
    "a dog": ("a hound", ("a cat", "rain", "sun"), (4.0, 1.5, -2.0, -3.0)),
    "a cat": ("a kitten", ("a dog", "snow", "a hound"), (2.0, 2.5, 0.0, 1.0)),
    "rain": ("it rains", ("sun", "a kitten", "snow"), (5.0, -1.0, -4.0, 3.0)),
}
"""Query -> its positive, its negatives, and the teacher's scores of all four."""
TRIPLETS = [(query, near, far) for query, (near, fars, _) in LISTS.items() for far in fars]
SCORES = [(scores[0], score) for _, _, scores in LISTS.values() for score in scores[1:]]
SIMILARITIES = {"dot": pairwise_dot_score, "cosine": pairwise_cos_sim}


def build(rows=TRIPLETS, scores=SCORES, **settings):
    torch.manual_seed(0)
    table = Table(chain.from_iterable(rows), DIM)
    config = TeacherScoresConfig(output="x", **settings)
    method = built(config, table, DIM, rows, targets=scores)
    (batch,) = method.batches.epoch(0)
    return table, method, batch


def peer_loss(loss, table, *, teacher_temperature=1.0):
    """A loss of sentence-transformers on the columns query, positive, negative 1 to 3."""
    columns = zip(*((query, near, *fars) for query, (near, fars, _) in LISTS.items()), strict=True)
    labels = torch.tensor([scores for _, _, scores in LISTS.values()], dtype=torch.float64) / teacher_temperature
    return loss.compute_loss_from_embeddings([table(column) for column in columns], labels)


PEERS = {"similarity": "dot", "temperature": 1.0, "teacher_temperature": 1.0}
EXACT = {"rtol": 1e-6, "atol": 1e-6}


def test_the_losses_are_the_defaults_of_sentence_transformers():
    for objective, loss in (("kl", DistillKLDivLoss(None)), ("margin-mse", MarginMSELoss(None))):
        table, method, batch = build(objective=objective, **PEERS)
        assert_same_gradients(method.loss(batch).total, peer_loss(loss, table), list(table.parameters()), **EXACT)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize(("own", "teacher"), [(0.05, 2.0), (1.0, 0.3)])
def test_temperatures_are_those_of_sentence_transformers(similarity, own, teacher):
    """Its KL loss is multiplied by the square of the student's temperature."""
    settings = {"similarity": similarity, "temperature": own, "teacher_temperature": teacher}
    table, method, batch = build(**settings)
    loss = DistillKLDivLoss(None, SIMILARITIES[similarity], student_temperature=own, teacher_temperature=teacher)
    expected = peer_loss(loss, table) / own**2
    assert_same_gradients(method.loss(batch).total, expected, list(table.parameters()), **EXACT)
    table, method, batch = build(objective="margin-mse", **settings)
    loss = MarginMSELoss(None, lambda one, other: SIMILARITIES[similarity](one, other) / own)
    expected = peer_loss(loss, table, teacher_temperature=teacher)
    assert_same_gradients(method.loss(batch).total, expected, list(table.parameters()), **EXACT)


def test_the_result_on_an_encoder_is_that_of_sentence_transformers_in_float32(start):
    from tests.methods.table_encoder import built_on

    for objective, loss in (("kl", DistillKLDivLoss(None)), ("margin-mse", MarginMSELoss(None))):
        config = TeacherScoresConfig(output="x", objective=objective, **PEERS)
        method = built_on(config, start, TRIPLETS, targets=SCORES)
        (batch,) = method.batches.epoch(0)

        def encode(texts):
            return torch.from_numpy(start.encode(list(texts), precision="fp32"))

        expected = peer_loss(loss, encode).float()
        torch.testing.assert_close(method.loss(batch).total, expected, rtol=1e-5, atol=1e-6)


UNEVEN = [
    ("a dog", "a hound", "a cat"),
    ("a dog", "a puppy", "rain"),  # the same query with another positive: a list of its own
    ("a dog", "a hound", "rain"),
    ("a cat", "a kitten", "a dog"),
    ("a dog", "a hound", "snow"),
]
UNEVEN_SCORES = [(0.9, 0.3), (0.8, 0.1), (0.9, 0.1), (0.7, 0.75), (0.9, 0.2)]


@pytest.mark.parametrize("objective", ["kl", "margin-mse"])
def test_lists_of_any_length_by_hand(objective):
    settings = {"objective": objective, "temperature": 0.1, "teacher_temperature": 0.5}
    table, method, batch = build(UNEVEN, UNEVEN_SCORES, **settings)

    def own(query, text):
        return cosine(table([query])[0], table([text])[0]) / 0.1

    lists = {}
    for (query, near, far), (high, low) in zip(UNEVEN, UNEVEN_SCORES, strict=True):
        lists.setdefault((query, near), [(own(query, near), high / 0.5)]).append((own(query, far), low / 0.5))
    losses = []
    for documents in lists.values():
        if objective == "margin-mse":
            (near, high), *others = documents
            losses += [((near - far) - (high - low)) ** 2 for far, low in others]
            continue
        students, teachers = (torch.stack([torch.as_tensor(x) for x in side]) for side in zip(*documents, strict=True))
        p, q = torch.softmax(teachers, 0), torch.softmax(students, 0)
        losses.append(sum(a * torch.log(a / b) for a, b in zip(p, q, strict=True)))
    assert len(losses) == (3 if objective == "kl" else 5)
    loss = method.loss(batch)
    assert_same_gradients(loss.total, sum(losses) / len(losses), list(table.parameters()))
    right = [
        (own(query, near) > own(query, far)) == (high > low)
        for (query, near, far), (high, low) in zip(UNEVEN, UNEVEN_SCORES, strict=True)
    ]
    assert loss.terms["accuracy"].item() == pytest.approx(sum(right) / len(right))
    assert not loss.terms["accuracy"].requires_grad


@pytest.mark.parametrize("margin", [None, 0.0])
def test_in_batch_negatives_are_the_positives_of_other_queries(margin):
    settings = {"objective": "margin-mse", "temperature": 0.3}
    table, method, batch = build(UNEVEN, UNEVEN_SCORES, in_batch_weight=0.7, false_negative_margin=margin, **settings)
    _, alone, _ = build(UNEVEN, UNEVEN_SCORES, **settings)
    pairs = [("a dog", "a hound"), ("a dog", "a puppy"), ("a cat", "a kitten")]
    losses = []
    for query, near in pairs:
        own = cosine(table([query])[0], table([near])[0])
        far = [cosine(table([query])[0], table([text])[0]) for other, text in pairs if other != query]
        kept = [score for score in far if margin is None or score <= own + margin]
        losses.append(-torch.log_softmax(torch.stack([own, *kept]) / 0.3, dim=0)[0])
    in_batch = sum(losses) / 3
    loss = method.loss(batch)
    assert loss.terms["in_batch"].item() == pytest.approx(in_batch.item())
    expected = alone.loss_fn(batch, table(alone.extract_items(batch))).total + 0.7 * in_batch
    assert_same_gradients(loss.total, expected, list(table.parameters()))


@pytest.mark.parametrize("objective", ["kl", "margin-mse"])
def test_the_scale_and_the_origin_of_the_scores_do_not_count_by_default(objective):
    """A typical margin asks for 0.15 of cosine, whether scores are probabilities or logits."""
    found = []
    for scale, origin in ((1.0, 0.0), (100.0, 7.0)):
        scores = [tuple(scale * score + origin for score in both) for both in UNEVEN_SCORES]
        table, method, batch = build(UNEVEN, scores, objective=objective)
        loss = method.loss(batch).total
        found.append((loss.detach(), *torch.autograd.grad(loss, table.parameters())))
    torch.testing.assert_close(found[0], found[1])
    table, method, batch = build([("a", "b", "c")] * 2, [(3.0, 1.0)] * 2, objective="margin-mse")
    with torch.no_grad():  # cosines of 0.6 and 0.45
        table.vectors.weight.zero_()
        table.vectors.weight[:, :2] = torch.tensor([[1, 0], [0.6, 0.8], [0.45, (1 - 0.45**2) ** 0.5]])
    assert method.loss(batch).total.item() == pytest.approx(0, abs=1e-9)


def test_a_batch_in_words_has_the_scores():
    _, method, batch = build()
    lines = method.describe(batch)
    assert "anchor      a dog" in lines
    assert "  positive 4  a hound" in lines
    assert "  negative -2  rain" in lines


FILE = [
    {"query": "q", "pos": ["p", "p2"], "neg": ["n", "m"], "pos_scores": [0.9, 0.8], "neg_scores": [0.1, 0.2]},
    {"query": "r", "pos": ["s"], "neg": ["n"], "pos_scores": [0.7], "neg_scores": [0.3]},
]


def test_rows_are_read_with_their_scores(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in FILE))
    config = TeacherScoresConfig(output="x", data=(str(file),), anchor_column="query", positive_column="pos")
    read = read_rows(config)
    expected = {("q", "p", "n"): (0.9, 0.1), ("q", "p", "m"): (0.9, 0.2), ("q", "p2", "n"): (0.8, 0.1)}
    expected |= {("q", "p2", "m"): (0.8, 0.2), ("r", "s", "n"): (0.7, 0.3)}
    assert dict(zip(read.rows, read.targets, strict=True)) == expected


def test_rows_without_scores_or_negatives_are_refused(tmp_path):
    for name, columns, problem in (
        (
            "no scores",
            "anchor positive negative",
            r"has no scores. Name their columns as those of the texts: positive_score",
        ),
        (
            "no negatives",
            "anchor positive score",
            "has no negatives to compare with; name their column by --negative-c",
        ),
        ("one missing", "anchor positive negative score", "has no scores"),
        (
            "another missing",
            "anchor positive negative_1 negative_2 score negative_score_1",
            "no column has the scores of 'negative_2', beside score, negative_score_1",
        ),
    ):
        file = tmp_path / f"{name}.tsv"
        names = columns.split()
        cells = [["1" if "score" in column else f"{column} {row}" for column in names] for row in range(3)]
        file.write_text("".join("\t".join(line) + "\n" for line in [names, *cells]))
        with pytest.raises(NearfarError, match=problem):
            read_rows(TeacherScoresConfig(output="x", data=(str(file),)))
    with pytest.raises(NearfarError, match="each negative has the score of its positive"):
        build(scores=[(1.0, 1.0)] * len(TRIPLETS))
