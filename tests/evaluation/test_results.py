"""Result files: written atomically, read back equal, refused in one sentence if damaged; their JSON Schema."""

import copy
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearfar.evaluation.results import (
    ComparisonResult,
    Estimate,
    EvaluationResult,
    Provenance,
    Result,
    TrainingRecord,
    check_output,
    digest,
    load_result,
    provenance,
    record,
)
from nearfar.evaluation.schema import result_schema
from nearfar.evaluation.sts import evaluate_sts
from nearfar.evaluation.tables import save_with_tables
from nearfar.types import NearfarError, ScoredPair
from tests.evaluation.pages import pairwise
from tests.evaluation.report.cases import comparison, evaluation, geometry, row_of, side, training_record, transfer
from tests.json_schema import problem

PAIRS = [ScoredPair("ein Hund", "a dog", 4.5), ScoredPair("a cat", "two", 1), ScoredPair("no", "a dog", 0.25)]
SIDES = [side(name, evaluation(name, {"one": 1.0})) for name in "ABC"]
ROW = row_of(1.0, 2.0, separable=True)
WHOLE = evaluation("A", {"one": 1.0, "two": None}) | {"transfer": transfer({"mr": 50.0, "mrpc": None})}
EVALUATION = evaluation("A", {"one": 1.0}) | {"transfer": transfer({"mr": 50.0})}
COMPARISON = comparison(SIDES[0], SIDES[1], {"one": ROW})
THREE = pairwise({"one": (1.0, 2.0, 3.0)})
RUN = {"config": {}, "history": [[1, 0.5]]}
ROOT = Path(__file__).parents[2]
OTHER_RECORDS = (".mine.json", ".commands.json", "choices.json")  # what scripts of studies record of commands and runs
COMMITTED = sorted(
    file
    for file in (ROOT / "studies" / "results").rglob("*.json")
    if file.parent.name not in ("coverage", "demo", "guard", "labelled", "readme", "thresholds")
    and not file.name.endswith(OTHER_RECORDS)
)


@pytest.fixture
def result():
    scored = evaluate_sts(lambda texts: np.array([[len(t), 3.0] for t in texts]), {"mine": {"a": PAIRS}}, resamples=9)
    return EvaluationResult(model="länge", config={"seed": 0}, provenance=provenance(), tasks=scored.tasks)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "docs" / "result-schema.json").read_text(encoding="utf-8"))
    return found


def changed(value: dict[str, Any], location: str, to: Any) -> dict[str, Any]:
    """Return a copy with another value at a path such as ``a.0.b``; ``...`` removes the value."""
    value = copy.deepcopy(value)
    inner: Any = value
    *path, last = [int(part) if part.isdecimal() else part for part in location.split(".")]
    for part in path:
        inner = inner[part]
    if to is ...:
        del inner[last]
    else:
        inner[last] = to
    return value


def test_a_written_result_is_read_back(result, tmp_path):
    file = tmp_path / "r.json"
    save_with_tables(result, file)
    assert EvaluationResult.load(file) == load_result(file) == result
    assert json.loads(file.read_text(encoding="utf-8")) == result.to_dict()
    assert (tmp_path / "r.md").read_text(encoding="utf-8").startswith("# Evaluation of länge\n")


def test_a_result_that_is_not_finite_is_never_written(result, tmp_path):
    task = result.tasks["mine"]
    bad = replace(task.spearman, all=Estimate(float("nan"), None, None))
    with pytest.raises(ValueError, match="JSON compliant"):
        replace(result, tasks={"mine": replace(task, spearman=bad)}).save(tmp_path / "r.json")
    assert not (tmp_path / "r.json").exists()


def test_unwritable_outputs_are_refused_before_any_work(tmp_path, monkeypatch):
    assert check_output(tmp_path / "new" / "r.json") == tmp_path / "new" / "r.json"
    assert (tmp_path / "new").is_dir()
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "file").write_text("")
    for name, message in (
        ("r.txt", r"ends in \.json"),
        ("folder.json", "is a folder"),
        ("file/r.json", "file: cannot be made"),
    ):
        with pytest.raises(NearfarError, match=message):
            check_output(tmp_path / name)
    monkeypatch.setattr(os, "access", lambda folder, mode: False)  # root may write anywhere, so the check is mocked
    with pytest.raises(NearfarError, match="is not writable"):
        check_output(tmp_path / "r.json")


def test_the_digest_depends_on_texts_scores_and_order():
    assert digest(PAIRS) == digest([ScoredPair(first, second, float(score)) for first, second, score in PAIRS])
    others = [
        PAIRS[::-1],
        PAIRS[:2],
        [PAIRS[0]._replace(score=4.0), *PAIRS[1:]],
        [PAIRS[0]._replace(second="a dog."), *PAIRS[1:]],
        [ScoredPair(PAIRS[0].second, PAIRS[0].first, PAIRS[0].score), *PAIRS[1:]],
    ]
    assert len({digest(pairs) for pairs in (PAIRS, *others)}) == 6


def test_provenance_has_date_command_versions_and_hardware():
    found = provenance()
    assert found.versions["numpy"] == np.__version__
    assert found.hardware["cores"] == os.cpu_count()
    assert found.date.endswith("+00:00")


@pytest.mark.long
def test_the_commit_is_of_the_checkout_that_tracks_the_package(tmp_path, monkeypatch):
    def git(*arguments):
        command = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    module = tmp_path / "results.py"

    def change(content):
        for file in ("docs/page.md", "studies/results/fast/scl.json"):
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_text(content)

    module.write_text("1")
    monkeypatch.setattr(record, "__file__", str(module))
    assert provenance().commit is None  # no checkout
    git("init")
    change("before")
    git("add", "docs", "studies")
    git("commit", "-m", "one")
    assert provenance().commit is None  # installed inside the checkout of another project
    git("add", "results.py")
    git("commit", "-m", "two")
    change("made again")
    assert provenance().commit == git("rev-parse", "HEAD")  # results are from the same code
    module.write_text("3")
    assert provenance().commit == git("rev-parse", "HEAD") + "-dirty"


def test_complete_files_survive_a_round_trip() -> None:
    for content in (WHOLE, geometry("A", "B"), COMPARISON, THREE):
        read = Result.from_dict(json.loads(json.dumps(content)), source="f")
        assert type(read).from_dict(read.to_dict()) == read
        assert content.keys() <= read.to_dict().keys()
    TrainingRecord.from_dict({"config": {}, "history": [[1, 0.5]], "commit": None, "best_score": None}, source="f")


@pytest.mark.parametrize("file", COMMITTED, ids=[file.relative_to(ROOT).as_posix() for file in COMMITTED])
def test_every_committed_file_survives_a_round_trip_and_satisfies_the_schema(
    file: Path, schema: dict[str, Any]
) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    assert problem(content, schema) is None
    if "kind" not in content:
        record = TrainingRecord.from_dict(content, source=file)
        assert record.config == content["config"]
        assert [tuple(point) for point in record.history] == [tuple(point) for point in content["history"]]
        return
    read = load_result(file)
    assert read.to_dict() == content
    if content["kind"] == "evaluation":
        assert read.to_json() == file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        (EvaluationResult, {"schema": 2}, "nearfar: it has schema 2, .* version reads 1. Update nearfar to read"),
        (EvaluationResult, {"schema": True}, r"nearfar: it has schema true, and this version reads 1\.$"),
        (ComparisonResult, [1], "nearfar: it has schema None"),
        (EvaluationResult, geometry("A"), "nearfar evaluate: its kind is 'geometry'; expected evaluation"),
        (ComparisonResult, {"schema": 1}, "nearfar compare: its kind is None; expected comparison"),
        (Result, {"schema": 1, "kind": ["x"]}, r"nearfar: its kind is \['x'\]; expected evaluation"),
    ],
)
def test_other_versions_and_kinds_are_refused(kind: type[Result], content: Any, message: str) -> None:
    with pytest.raises(NearfarError, match=f"^f: is not a result file of {message}"):
        kind.from_dict(content, source="f")


DAMAGES = [  # of the right type; values of other types are in tests/invalid_input
    (EVALUATION, "tasks.one.subsets", {}, "tasks.one.subsets is empty"),
    (EVALUATION, "tasks.one.subsets.only.gold", [1], "tasks.one.subsets.only.gold has 1 numbers, and 'pairs' is 10"),
    (EVALUATION, "tasks.one.units", [0, 1], "tasks.one.units has 2 numbers, and 'pairs' is 10"),
    (EVALUATION, "transfer.tasks.mr.accuracy.score", None, "transfer.tasks.mr.accuracy.score is null without a reason"),
    (EVALUATION, "transfer.tasks.mr.predicted", [], "transfer.*.predicted has 0 predictions for 10 gold values"),
    (EVALUATION, "transfer.tasks.mr.kind", "dog", ".* = 'dog': must be 'classification' or 'relatedness'"),
    (EVALUATION, "transfer.tasks.mr.kind", ..., "transfer.tasks.mr lacks 'kind'"),
    (EVALUATION, "config.training_seed", "x", "config.training_seed = 'x': must be a whole number or null"),
    (COMPARISON, "tasks.one.p", None, "tasks.one.p is null, and 'difference' is not"),
    (COMPARISON, "tasks.one.second", None, "tasks.one.second is null, and 'difference' is not"),
    (THREE, "comparisons", THREE["comparisons"][:2], "comparisons does not hold one comparison for each pair of sides"),
    (RUN, "config", ..., "it lacks 'config'"),
]


@pytest.mark.parametrize(("content", "location", "to", "message"), DAMAGES, ids=[damage[1] for damage in DAMAGES])
def test_damaged_files(content: dict[str, Any], location: str, to: Any, message: str) -> None:
    read = Result.from_dict if "kind" in content else TrainingRecord.from_dict
    with pytest.raises(NearfarError, match=f"^f: is damaged, or was written by another version of nearfar: {message}"):
        read(changed(content, location, to), source="f")


def test_missing_keys_and_null_keys() -> None:
    assert Provenance().to_dict() == {"commit": None}
    content = evaluation("A", {"one": 1.0})
    assert EvaluationResult.from_dict(content | {"later": 1}) == EvaluationResult.from_dict(content)


@pytest.mark.long
def test_the_committed_schema_equals_the_printed_one() -> None:
    command = [sys.executable, "-m", "nearfar.evaluation.schema"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == (ROOT / "docs" / "result-schema.json").read_text(encoding="utf-8"), (
        "run: python -m nearfar.evaluation.schema > docs/result-schema.json"
    )
    assert json.loads(printed) == result_schema()


@pytest.mark.parametrize("content", [WHOLE, geometry("A"), training_record(1)])
def test_other_kinds_satisfy_the_schema(content: dict[str, Any], schema: dict[str, Any]) -> None:
    assert problem(content, schema) is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("tasks.one.pairs", True),
        ("tasks.one.subsets.only.gold", [None]),
        ("transfer.tasks.mr.kind", "dog"),
        ("kind", "other"),
        ("schema", 2),
        ("tasks", ...),
    ],
)
def test_the_schema_refuses_what_the_models_refuse(path: str, value: object, schema: dict[str, Any]) -> None:
    content = changed(WHOLE, path, value)
    assert problem(content, schema) is not None
    with pytest.raises(NearfarError):
        Result.from_dict(content, source="f")
