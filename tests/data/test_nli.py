"""NLI rows: spellings of labels, counts of unlabelled rows, errors with file and line."""

import json
from collections import defaultdict
from functools import partial

import datasets
import pytest

from nearfar.data.nli import load_nli
from nearfar.types import CONTRADICTION, ENTAILMENT, NEUTRAL, NliRow
from tests.data.files import error_of

HEADER = "premise\thypothesis\tlabel\n"


def write(path, *labels, header=HEADER):
    path.write_text(header + "".join(f"p{n}\th{n}\t{label}\n" for n, label in enumerate(labels)))
    return str(path)


def labels(*args, **kwargs):
    return [row.label for row in load_nli(*args, **kwargs).rows]


error = partial(error_of, load_nli)


def test_rows_of_several_sources_in_order(tmp_path):
    first = write(tmp_path / "first.tsv", "entailment", "Contradiction", "-")
    (tmp_path / "second.jsonl").write_text('{"premise": "p", "hypothesis": "h", "label": 1}\n')
    data = load_nli([first, str(tmp_path / "second.jsonl")])
    assert data.rows == [NliRow("p0", "h0", ENTAILMENT), NliRow("p1", "h1", CONTRADICTION), NliRow("p", "h", NEUTRAL)]
    assert data.counts == {"entailment": 1, "neutral": 1, "contradiction": 1}
    assert data.dropped == 1
    assert data.repaired == 0
    assert data.sources == (
        f"{first}: 2 rows, 1 more without a label dropped",
        f"{tmp_path / 'second.jsonl'}: 1 rows, 0 more without a label dropped",
    )
    assert load_nli(first).rows == data.rows[:2]


def test_labels_as_text_in_any_case_or_integers(tmp_path):
    path = write(tmp_path / "a.tsv", "ENTAILMENT", " neutral ", "Contradiction", "0", "1", "2")
    assert labels(path) == [0, 1, 2, 0, 1, 2]


def test_label_order_applies_to_integers(tmp_path):
    path = write(tmp_path / "a.tsv", "entailment", "0", "1", "2")
    order = ("contradiction", "entailment", "neutral")
    assert labels(path, label_order=order) == [ENTAILMENT, CONTRADICTION, ENTAILMENT, NEUTRAL]
    assert "each once" in error(path, label_order=("entailment", "neutral"))
    assert "0 as contradiction, 1 as entailment, 2 as neutral" in error(
        write(tmp_path / "b.tsv", "3"), label_order=order
    )


def test_unlabelled_rows_are_counted_for_any_texts(tmp_path):
    path = tmp_path / "a.jsonl"
    unlabelled = [{"premise": "", "hypothesis": None, "label": label} for label in ("-", "", "-1", -1, None, -1.0)]
    rows = [*unlabelled, {"premise": "p", "hypothesis": "h", "label": 2.0}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = load_nli(str(path))
    assert (data.dropped, data.rows) == (len(unlabelled), [NliRow("p", "h", CONTRADICTION)])


def test_classes_are_read_by_their_declared_names(tmp_path):
    classes = datasets.ClassLabel(names=["contradiction", "neutral", "entailment"])
    features = datasets.Features({"premise": datasets.Value("string"), "hypothesis": datasets.Value("string")})
    features["label"] = classes
    rows = {"premise": ["p"] * 4, "hypothesis": ["h"] * 4, "label": [2, 1, 0, -1]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "saved"))
    data = load_nli(str(tmp_path / "saved"))
    assert [row.label for row in data.rows] == [ENTAILMENT, NEUTRAL, CONTRADICTION]
    assert data.dropped == 1


def test_column_names(tmp_path):
    path = write(tmp_path / "a.tsv", "neutral", header="sentence1\tsentence2\tgold_label\n")
    names = {"premise_column": "sentence1", "hypothesis_column": "sentence2", "label_column": "gold_label"}
    assert load_nli(path, **names).rows == [NliRow("p0", "h0", NEUTRAL)]
    assert "sentence1, sentence2, gold_label" in error(path)


def test_normalized_fields_are_counted(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text(HEADER + "a\x07b\tc\tneutral\n" + "d  e \tf\x00\tneutral\n" + "👩‍👧\tg\tneutral\n" + "\x01\t\t-\n")
    data = load_nli(str(path))
    assert [row[:2] for row in data.rows] == [("a b", "c"), ("d e", "f"), ("👩‍👧", "g")]
    assert data.repaired == 3


@pytest.mark.nightly
@pytest.mark.realdata
@pytest.mark.parametrize(
    ("spec", "rows", "premises", "complete"),
    [
        ("snli:dev", 9842, 3319, 2617),
        ("snli:test", 9824, 3323, 2561),
        ("snli:dev+test", 9842 + 9824, 3319 + 3323 - 1, 2617 + 2561 - 1),  # they share one premise
        ("snli:train_partial", 35938, 30912, 154),
        ("mnli:dev_matched", 9815, 3334, 2488),
        ("mnli:train_20k_nyu", 20000, None, None),
    ],
)
def test_real_sets_have_their_published_counts(spec, rows, premises, complete, nearfar_data):
    data = load_nli(spec)
    by_premise = defaultdict(set)
    for row in data.rows:
        by_premise[row.premise].add(row.label)
    assert len(data.rows) == sum(data.counts.values()) == rows
    assert premises in (None, len(by_premise))
    assert complete in (None, sum(len(found) == 3 for found in by_premise.values()))
    assert (data.dropped, data.repaired) == (0, 0)
