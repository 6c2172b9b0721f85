"""Scores and labels: invalid values, the same rules in every format, and labels that look like errors."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearfar.commands.train.prepare import prepare
from nearfar.config import SupconTextConfig
from nearfar.data.classification import load_classification
from nearfar.data.labelled import infer_reader, label_summary
from nearfar.data.nli import load_nli
from nearfar.data.rows import load_labelled, load_scored
from nearfar.data.sources import MISSING_VALUES
from nearfar.data.sts import load_pairs
from nearfar.data.transfer import load_labelled_task
from nearfar.types import NearfarError
from tests.invalid_input.cli_runner import assert_refused, run_cli
from tests.invalid_input.tables import FORMATS, argv_of, link_workspace, paired, row_location, rows_of, write_rows


@pytest.fixture
def workspace(valid_workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return link_workspace(valid_workspace, tmp_path, monkeypatch)


NO_SCORES = ("", "much", "nan", "NaN", "inf", "-inf", "infinity", "1,5", "1_000", "0x10", "1e999", "True", "3 4", "٣")
SCORE_READERS = ("regression", "evaluate-on", "tasks", "geometry")


@pytest.mark.parametrize(("score", "extension"), paired(NO_SCORES, FORMATS))
def test_no_score(extension: str, score: str, workspace: Path) -> None:
    rows = rows_of("scored")
    rows[7]["score"] = score
    write_rows(Path(f"bad.{extension}"), rows)
    location = f"bad.{extension}, {row_location(7, extension)}: column 'score' holds"
    reader = SCORE_READERS[NO_SCORES.index(score) % len(SCORE_READERS)]
    assert_refused(argv_of(reader, f"bad.{extension}"), location, "not a number")


NO_SCORES_IN_JSON = (
    *("null", "true", "false", "NaN", "Infinity", "-Infinity"),
    *("[3]", '{"a": 3}', "1" * 400, "1e999", '"3 4"'),
)


@pytest.mark.parametrize("score", NO_SCORES_IN_JSON)
def test_no_score_in_json(score: str, workspace: Path) -> None:
    lines = [json.dumps(row) for row in rows_of("scored")]
    lines[3] = '{"sentence1": "a", "sentence2": "b", "score": ' + score + "}"
    Path("bad.jsonl").write_text("\n".join(lines))
    output = assert_refused(
        argv_of("regression", "bad.jsonl"), "bad.jsonl, line 4: column 'score' holds", "not a number"
    )
    assert len(output) < 600


@pytest.mark.parametrize(("value", "extension"), paired([3, 3.0, "3", " 3.0 ", "30e-1", "+3", "3."], FORMATS))
def test_a_score_is_read_equally_from_every_format(extension: str, value: Any, workspace: Path) -> None:
    rows = rows_of("scored")
    for row in rows:
        row["score"] = value if row is rows[0] else float(row["score"]) if isinstance(value, float) else row["score"]
        row["score"] = int(row["score"]) if isinstance(value, int) else row["score"]
    write_rows(Path(f"good.{extension}"), rows)
    assert [pair.score for pair in load_pairs(f"good.{extension}")] == [3.0, *(n % 6 for n in range(1, 12))]
    assert load_scored(f"good.{extension}").targets == [0.6, *(n % 6 / 5 for n in range(1, 12))]


def test_numbers_of_parquet_are_scores(workspace: Path) -> None:
    from decimal import Decimal

    for number, column in enumerate(
        (
            pa.array([1, 2, 3], pa.int8()),
            pa.array([1, 2, 3], pa.float16()),
            pa.array([Decimal("1.0"), Decimal("2.0"), Decimal("3.0")]),
            pa.array(["1", "2.0", " 3"]),
            pa.array(["1.0", "2", "3"]).dictionary_encode(),
        )
    ):
        texts = pa.array(["a", "b", "c"])
        pq.write_table(pa.table({"sentence1": texts, "sentence2": texts, "score": column}), f"{number}.parquet")
        assert [pair.score for pair in load_pairs(f"{number}.parquet")] == [1.0, 2.0, 3.0]


LABEL_READERS = ("supcon-text", "finetune", "evaluate", "validation", "test")


@pytest.mark.parametrize(("label", "reader"), paired(MISSING_VALUES, LABEL_READERS))
def test_labels_that_stand_for_missing_values(reader: str, label: str, workspace: Path) -> None:
    extension = FORMATS[MISSING_VALUES.index(label) % len(FORMATS)]
    rows = rows_of("labelled")
    rows[5]["label"] = label
    write_rows(Path(f"bad.{extension}"), rows)
    words = "which marks a missing value" if label else "column 'label' is empty"
    assert_refused(argv_of(reader, f"bad.{extension}"), f"bad.{extension}, {row_location(5, extension)}: ", words)


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("null", "is empty"),
        ("NaN", "is empty"),
        ("0.5", "numbers with fractions are scores"),
        ('"0.5"', "numbers with fractions are scores"),
        ("Infinity", "A label is a string or an integer"),
        ('["warm"]', "A label is a string or an integer"),
        ('{"a": "warm"}', "A label is a string or an integer"),
        ('"\\ud800"', "half a surrogate pair"),
        ('" "', "is empty"),
        ('"\\u0000"', "is empty"),
    ],
)
def test_no_label_in_json(label: str, words: str, workspace: Path) -> None:
    lines = [json.dumps(row) for row in rows_of("labelled")]
    lines[3] = '{"text": "a", "label": ' + label + "}"
    Path("bad.jsonl").write_text("\n".join(lines))
    assert_refused(argv_of("supcon-text", "bad.jsonl"), "bad.jsonl, line 4: column 'label'", words)


SAME = {
    "1": [1, 1.0, "1", "1.0", " 1 ", "1.", "1.000"],
    "-1": [-1, -1.0, "-1", "-1.0"],
    "0": [0, 0.0, -0.0, "0", "-0.0"],
    "true": [True, "true", "True", "TRUE"],
    "false": [False, "false", "False"],
    "very warm": ["very warm", " very  warm", "very\u00a0warm", "very\nwarm"],
    "007": ["007"],
    "none": ["none"],
    "NONE": ["NONE"],
    "1e3": ["1e3"],
    "v2.1": ["v2.1"],
    str(2**62 + 1): [2**62 + 1, str(2**62 + 1)],
}


@pytest.mark.parametrize(("name", "written"), [(name, value) for name, values in SAME.items() for value in values])
def test_a_label_is_equal_in_every_spelling(name: str, written: Any, workspace: Path) -> None:
    rows = [{"text": f"a dog {n}", "label": "other" if n % 2 else written} for n in range(12)]
    files = []
    for extension in FORMATS:
        if extension == "parquet":
            texts, labels = [row["text"] for row in rows[::2]], [row["label"] for row in rows[::2]]
            pq.write_table(pa.table({"text": texts, "label": labels}), "written.parquet")
            write_rows(Path("other.parquet"), rows[1::2])
            files.append(["written.parquet", "other.parquet"])
        elif not (isinstance(written, str) and "\n" in written and extension.startswith("tsv")):
            write_rows(Path(f"written.{extension}"), rows)
            files.append([f"written.{extension}"])
    for specs in files:
        assert set(load_labelled(specs).label_names) == {name, "other"}
        if len(specs) == 1:
            assert set(infer_reader(specs[0], None, "label").label_names) == {name, "other"}
            assert set(load_labelled_task(specs[0]).label_names) == {name, "other"}


def test_training_and_test_rows_of_other_formats_have_the_same_labels(workspace: Path) -> None:
    rows = [{"text": f"a dog {n}", "label": n % 2 == 0} for n in range(12)]
    write_rows(Path("train.parquet"), rows)
    write_rows(Path("test.csv"), rows)
    task = load_classification("train.parquet", test="test.csv")
    assert task.label_names == ("false", "true")
    assert task.test.targets == [1, 0] * 6


@pytest.mark.parametrize(("label", "extension"), paired([0, 0.0, "0", "0.0", "Entailment", " ENTAILMENT "], FORMATS))
def test_a_label_of_nli_is_equal_in_every_spelling(extension: str, label: Any, workspace: Path) -> None:
    rows = rows_of("nli")[:2]
    write_rows(Path(f"a.{extension}"), [{**row, "label": label} for row in rows])
    assert [row.label for row in load_nli(f"a.{extension}").rows] == [0, 0]


@pytest.mark.parametrize(("label", "extension"), paired([-1, -1.0, "-1", "-1.0", "-", ""], FORMATS))
def test_a_row_of_nli_without_label(extension: str, label: Any, workspace: Path) -> None:
    rows = rows_of("nli")
    write_rows(Path(f"a.{extension}"), [{**row, "label": label} for row in rows])
    with pytest.raises(NearfarError, match=r"no labelled rows \(12 without a label were dropped\)"):
        load_nli(f"a.{extension}")


@pytest.mark.long
def test_labels_are_listed_and_rare_ones_reported_before_training(workspace: Path) -> None:
    lines = Path("labelled.tsv").read_text().splitlines()
    Path("mine.tsv").write_text("\n".join([*lines, "red dog\twram"]) + "\n")
    result = run_cli("finetune mine.tsv --model tiny --batch-size 8 --max-steps 1 --output new".split())
    assert result.status == 0
    listed, reported = (
        "labels: cold (30), warm (30), wram (1)\n",
        "label 'wram' has 1 row of 61: a misspelling of 'warm'?\n",
    )
    assert listed in result.out
    assert reported in result.out
    assert result.out.index(listed) < result.out.index(reported) < result.out.index("step 0")
    assert listed.strip() in json.loads(Path("new/run.json").read_text())["data"]


def test_labels_of_contrastive_training_are_listed_too(workspace: Path) -> None:
    facts = prepare(SupconTextConfig(model="tiny", data=("labelled.tsv",), output="new", batch_size=8)).facts
    assert "labels: cold (30), warm (30)" in facts


@pytest.mark.parametrize(
    ("counts", "facts"),
    [
        ({"a": 5, "b": 5}, []),
        ({"warm": 30, "Warm": 20}, ["labels 'warm' and 'Warm' differ in capitals only"]),
        (
            {"positive": 900, "negative": 99, "postive": 1},
            ["label 'postive' has 1 row of 1,000: a misspelling of 'positive'?"],
        ),
        ({"cat": 500, "dog": 495, "unicorn": 5}, ["label 'unicorn' has 5 rows of 1,000"]),
        ({"level 1": 500, "level 2": 3}, ["label 'level 2' has 3 rows of 503"]),
        ({"1": 500, "2": 3}, ["label '2' has 3 rows of 503"]),
        ({"a": 100, "b": 9}, []),
        ({"a": 100, "b": 5}, ["label 'b' has 5 rows of 105"]),
    ],
)
def test_which_labels_are_reported(counts: dict[str, int], facts: list[str]) -> None:
    assert label_summary(counts)[1:] == facts


def test_many_labels_take_few_lines() -> None:
    facts = label_summary({f"l{n}": 1000 if n < 10 else 1 for n in range(1000)})
    assert facts[0].endswith("and 980 more labels")
    assert facts[-1] == "985 more labels are as rare"
    assert len(facts) == 7


def test_a_label_that_training_lacks_names_the_nearest(workspace: Path) -> None:
    Path("bad.tsv").write_text("text\tlabel\na dog\twarm\na cat\tclod\n")
    assert_refused(
        argv_of("test", "bad.tsv"), "bad.tsv, line 3: the label 'clod' is not one of", "Did you mean 'cold'?"
    )
