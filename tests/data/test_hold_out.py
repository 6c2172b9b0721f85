"""Rows are held out by groups of connected texts, whatever their order, and make the tasks that fit them."""

import random
from collections import Counter

import pytest

from nearfar.data.fingerprints import normalize_for_hash
from nearfar.data.hold_out import DEV, TEST, HeldOut, hold_out, kind_of
from nearfar.data.rows import TextData
from nearfar.runs.fingerprints import seen_hashes
from nearfar.types import CONTRADICTION, ENTAILMENT, NEUTRAL, NearfarError, NliRow


def text_data(rows, targets=None, label_names=()) -> TextData:
    return TextData([tuple(row) for row in rows], targets, (), 0, 0, tuple(label_names))


def pairs(count: int) -> TextData:
    return text_data([(f"question {n}", f"answer {n}") for n in range(count)])


def texts_of(rows, width: int = 2) -> set[str]:
    return {normalize_for_hash(text) for row in rows for text in row[:width]}


@pytest.mark.long
@pytest.mark.parametrize(
    ("anchors", "size", "expected"),
    [
        (50, None, 10),  # a fifth
        (6000, None, 300),  # 5%
        (30_000, None, 1000),
        (100, 0.1, 10),
        (100, 30.0, 30),
    ],
)
def test_how_many_anchors_are_held_out(anchors: int, size: float | None, expected: int) -> None:
    held_out = hold_out(pairs(anchors), size).held_out
    assert held_out.anchors(DEV) + held_out.anchors(TEST) == expected
    assert abs(held_out.anchors(DEV) - held_out.anchors(TEST)) <= 1


@pytest.mark.parametrize(
    ("anchors", "size", "mention"),
    [(49, None, "too few to hold out"), (100, 51.0, "hold out from 2 to 50"), (100, 0.001, "hold out from 2 to 50")],
)
def test_numbers_that_cannot_be_held_out(anchors: int, size: float | None, mention: str) -> None:
    with pytest.raises(NearfarError, match=mention):
        hold_out(pairs(anchors), size, source="mine.tsv")


def test_no_text_is_on_both_sides_and_connected_rows_stay_together() -> None:
    draw = random.Random(0)
    rows = text_data([(f"q{draw.randrange(300)}", f"a{draw.randrange(300)}") for _ in range(200)])
    split = hold_out(rows, 30)
    held = split.held_out
    assert not texts_of(held.rows) & texts_of(split.rows.rows)
    by_part = {
        part: [row for row, own in zip(held.rows, held.parts, strict=True) if own == part] for part in (DEV, TEST)
    }
    assert not texts_of(by_part[DEV]) & texts_of(by_part[TEST])
    assert len(held.rows) + len(split.rows.rows) == 200
    assert split.rows.held_out == len(held.rows)


def test_the_choice_depends_on_the_texts_alone() -> None:
    rows = [(f"question {n}", f"answer {n}") for n in range(200)]
    first = hold_out(text_data(rows)).held_out
    shuffled = random.Random(1).sample(rows, len(rows))
    second = hold_out(text_data(shuffled)).held_out
    assert sorted(first.rows) == sorted(second.rows)
    assert first.digest == second.digest
    triplets = hold_out(text_data([(*row, f"negative {n}") for n, row in enumerate(rows)])).held_out
    assert triplets.digest == first.digest  # hard negatives do not change what is held out
    other = hold_out(text_data(rows), 50).held_out
    assert other.digest != first.digest
    assert set(first.rows) < set(other.rows)


def test_what_the_start_has_seen_does_not_test() -> None:
    """A run on the rows of an earlier one, some of which got hard negatives, that starts from its model."""
    rows = [(f"question {n}", f"answer {n}") for n in range(400)]
    first = hold_out(text_data(rows))
    seen = seen_hashes([first.rows.rows], first.held_out.text_rows(DEV), before=None)
    triplets = text_data([(*row, f"negative {n}") for n, row in enumerate(rows) if n % 10])
    second = hold_out(triplets, seen=seen)
    tested, chosen = (
        [{row[0] for row in split.held_out.text_rows(part)} for split in (first, second)] for part in (TEST, DEV)
    )
    assert tested[1] <= tested[0]
    assert len(tested[1]) >= 30
    assert len(chosen[1] & chosen[0]) >= 30
    assert any("none of them tests" in fact for fact in second.facts)
    others = text_data([(f"other question {n}", f"other answer {n}") for n in range(60)])
    assert hold_out(others, seen=seen) == hold_out(others)


def test_rows_that_the_start_has_all_seen_are_held_out_with_a_warning() -> None:
    rows = text_data([(f"question {n}", f"answer {n}") for n in range(100)])
    seen = seen_hashes([rows.rows], (), before=None)
    split = hold_out(rows, seen=seen)
    assert split.held_out == hold_out(rows).held_out
    assert split.facts[-1].startswith("warning: the model to start from has seen 100% of the test rows")


def test_training_rows_whose_negative_is_held_out_are_left_out() -> None:
    rows = [(f"q{n}", f"a{n}", f"a{(n + 1) % 100}") for n in range(100)]
    split = hold_out(text_data(rows))
    held = texts_of(split.held_out.rows)
    assert not held & {normalize_for_hash(text) for row in split.rows.rows for text in row}
    assert split.held_out.left_out == 100 - len(split.held_out.rows) - len(split.rows.rows) > 0
    assert any("left out" in fact for fact in split.facts)


def test_a_tested_text_is_no_hard_negative_of_the_dev_part() -> None:
    rows = [(f"q{n}", f"a{n}", f"a{(n + 1) % 100}") for n in range(100)]
    held_out = hold_out(text_data(rows), 50).held_out
    tested = texts_of(held_out.text_rows(TEST))
    dev = held_out.text_rows(DEV)
    assert {len(row) for row in dev} == {2, 3}
    assert not tested & texts_of(dev, 3)
    assert not tested & {normalize_for_hash(text) for text in held_out.retrieval(DEV, documents=1).documents}
    assert len(held_out.rows) == 50


def test_one_group_that_is_too_large_is_named() -> None:
    rows = [(f"q{n}", "the same answer") for n in range(200)] + [(f"p{n}", f"b{n}") for n in range(5)]
    with pytest.raises(NearfarError, match="the largest group of connected rows has 200 of 205 anchors"):
        hold_out(text_data(rows))
    held_out = hold_out(text_data(rows), 4).held_out
    assert len(held_out.rows) == 4
    assert all(row[0].startswith("p") for row in held_out.rows)


def test_the_documents_of_pairs() -> None:
    rows = [("q", "a", "n"), ("q", "b", "n"), ("r", "c", "m")]
    parts = [DEV, DEV, TEST]
    held_out = HeldOut(kind="pairs", rows=rows, parts=parts, training=[("x",), ("y",)], source="", training_rows=2)
    dev, test = held_out.retrieval(DEV, documents=4), held_out.retrieval(TEST)
    assert (dev.queries, dev.documents, dev.relevant) == (["q"], ["a", "n", "b", "x"], [{0: 1, 2: 1}])
    assert (test.queries, test.documents) == (["r"], ["c", "m", "a", "n", "b", "x", "y"])
    assert test.main == "mrr@10"
    assert dict(test.counts) == {"documents of training rows": 2}


def test_nli_rows_search_entailments_among_contradictions() -> None:
    rows = []
    for n in range(60):
        rows += [NliRow(f"p{n}", f"{label} {n}", label) for label in (ENTAILMENT, NEUTRAL, CONTRADICTION)]
    rows.append(NliRow("alone", "no anchor", NEUTRAL))
    data = TextData(rows, None, (), 0, 0)
    split = hold_out(data)
    assert kind_of(data) == split.held_out.kind == "nli"
    task = split.held_out.retrieval(TEST)
    held = {row[0] for row in split.held_out.rows}
    assert len(held) == 12
    assert len(task.queries) == 6
    assert all(task.documents[next(iter(found))].startswith("0 ") for found in task.relevant)
    own = [text for text in task.documents if text.startswith("2 ")]
    assert len(own) == 12  # the contradictions of held-out premises, of no others
    assert not any(text.startswith("1 ") for text in task.documents)
    labels = Counter(row.label for row in split.rows.rows)
    assert labels == {ENTAILMENT: 48, NEUTRAL: 49, CONTRADICTION: 48}
    assert sum(len(part.rows) for part in (split.rows, split.held_out)) == len(rows)


def test_two_texts_of_each_label_remain() -> None:
    labels = [0, 1] * 100 + [2, 2, 2]
    rows = text_data([(f"text {n}",) for n in range(len(labels))], labels, ("x", "y", "rare"))
    split = hold_out(rows, 90)
    left = [split.rows.targets.count(label) for label in range(3)]
    assert left[2] >= 2
    task = split.held_out.vote(TEST, training=7)
    assert len(task.training_texts) == 7
    assert {*task.labels} <= {"x", "y", "rare"}
    assert split.held_out.anchors(TEST) == len(task.texts)
