"""Models of result files: damaged content is refused in one sentence that names file, key and problem."""

import copy
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from nearfar.evaluation.results import (
    ComparisonResult,
    EvaluationResult,
    GeometryResult,
    PairwiseResult,
    Provenance,
    TaskTest,
    TrainingRecord,
    TrainingStep,
    load_result,
    parse_result,
)
from nearfar.types import NearfarError
from tests.evaluation.report.cases import comparison, evaluation, geometry, row_of, side, transfer

SIDES = [side(name, evaluation(name, {"one": 1.0})) for name in "ABC"]
ROW = row_of(1.0, 2.0, separable=True)
ROOT = Path(__file__).parents[2]
OTHER_RECORDS = (".mine.json", ".commands.json")  # what studies/mining.py and studies/own_data.py record of commands
COMMITTED = sorted(
    file
    for file in (ROOT / "studies" / "results").rglob("*.json")
    if file.parent.name != "demo" and not file.name.endswith(OTHER_RECORDS)
)


def three_way_comparison() -> dict[str, Any]:
    two = comparison(SIDES[0], SIDES[1], {"one": ROW})
    tests = {key: two[key] for key in ("tasks", "overall", "overall_transfer")}
    pairs = [{"pair": [i, j], **copy.deepcopy(tests)} for i, j in combinations(range(3), 2)]
    described = [comparison(one, one, {})["first"] for one in SIDES]
    rest = {key: two[key] for key in ("schema", "config", "provenance", "not_compared")}
    return {"kind": "comparisons", "sides": described, "comparisons": pairs, **rest}


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


def test_complete_files_survive_a_round_trip() -> None:
    complete = evaluation("A", {"one": 1.0, "two": None}) | {"transfer": transfer({"mr": None, "mrpc": 50.0})}
    for content in (
        complete,
        geometry("A", "B"),
        comparison(SIDES[0], SIDES[1], {"one": ROW}),
        three_way_comparison(),
    ):
        read = parse_result(json.loads(json.dumps(content)), source="f")
        assert type(read).from_dict(read.to_dict()) == read
        assert content.keys() <= read.to_dict().keys()
    TrainingRecord.from_dict({"config": {}, "history": [[1, 0.5]], "commit": None, "best_score": None}, source="f")


@pytest.mark.parametrize("file", COMMITTED, ids=[file.relative_to(ROOT).as_posix() for file in COMMITTED])
def test_every_committed_file_survives_a_round_trip(file: Path) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    if "kind" not in content:
        record = TrainingRecord.from_dict(content, source=file)
        assert record.config == content["config"]
        assert [tuple(point) for point in record.history] == [tuple(point) for point in content["history"]]
        return
    read = load_result(file)
    assert read.to_dict() == content
    if content["kind"] == "evaluation":
        assert read.to_json() == file.read_text(encoding="utf-8")


def test_committed_files_have_several_kinds() -> None:
    kinds = [json.loads(file.read_text(encoding="utf-8")).get("kind") for file in COMMITTED]
    assert len(kinds) > 30
    assert set(kinds) == {"evaluation", "comparison", "study-table", None}


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (2, r"f: was written by a newer version of nearfar \(schema 2; this version reads up to 1\)\. Update nearfar"),
        (0, "f: has schema 0; this version of nearfar reads 1"),
        ("1", "f: has schema '1'; this version of nearfar reads 1"),
        (True, "f: has schema True; this version of nearfar reads 1"),
        (None, "f: has schema None; this version of nearfar reads 1"),
    ],
)
def test_other_versions_are_refused(version: object, message: str) -> None:
    for kind in ("evaluation", "comparison", "comparisons", "geometry"):
        with pytest.raises(NearfarError, match=f"^{message}"):
            parse_result({"schema": version, "kind": kind}, source="f")
    with pytest.raises(NearfarError, match=f"^{message}"):
        EvaluationResult.from_dict({"schema": version, "kind": "evaluation"}, source="f")


def test_another_kind_of_file_is_refused() -> None:
    with pytest.raises(NearfarError, match="f: is not a result file of nearfar evaluate: its kind is 'geometry'"):
        EvaluationResult.from_dict(geometry("A"), source="f")
    with pytest.raises(NearfarError, match="f: is not a result file of nearfar compare: it has no 'kind'"):
        ComparisonResult.from_dict({"schema": 1}, source="f")
    with pytest.raises(NearfarError, match="f: is not a result file of nearfar: it has no 'schema'"):
        ComparisonResult.from_dict({}, source="f")
    with pytest.raises(NearfarError, match=r"f: has no known kind of result \(kind \['x'\]\)"):
        parse_result({"schema": 1, "kind": ["x"]}, source="f")
    with pytest.raises(NearfarError, match="f: is not a result file of nearfar: it is not a JSON object"):
        parse_result([1], source="f")


@pytest.mark.parametrize(
    ("location", "to", "message"),
    [
        ("averages", [], r"averages = \[\]: must be an object"),
        ("tasks.one.pearson", ..., "tasks.one lacks 'pearson'"),
        ("tasks.one.spearman.all.low", "5", r"tasks\.one\.spearman\.all\.low = '5': must be a number or null"),
        ("tasks.one.pairs", 1.5, "tasks.one.pairs = 1.5: must be a whole number"),
        ("tasks.one.subsets", {}, "tasks.one.subsets is empty"),
        ("unavailable", {"sts12": 3}, "unavailable.sts12 = 3: must be text"),
        ("provenance", "x" * 90, r"provenance = 'x+ \.\.\.: must be an object"),
        ("transfer.nhid", True, "transfer.nhid = true: must be a whole number"),
        ("transfer.tasks.mr.accuracy.score", ..., "transfer.tasks.mr.accuracy lacks 'score'"),
        ("transfer.tasks.mr.accuracy.score", None, "transfer.tasks.mr.accuracy.score is null without a reason"),
        ("transfer.tasks.mr.predicted", [], "transfer.tasks.mr.predicted has 0 predictions for 10 gold values"),
        ("transfer.tasks.mr.kind", "dog", "transfer.tasks.mr.kind = 'dog': must be 'classification' or 'relatedness'"),
        ("transfer.tasks.mr.kind", ..., "transfer.tasks.mr lacks 'kind'"),
        ("transfer.tasks.mr", 1, "transfer.tasks.mr = 1: must be an object"),
        ("transfer.tasks.learned.gold.0", None, r"transfer.tasks.learned.gold\[0\] = None: must be a number"),
        ("config.training_seed", "x", "config.training_seed = 'x': must be a whole number or null"),
    ],
)
def test_damaged_evaluations(location: str, to: Any, message: str) -> None:
    complete = evaluation("A", {"one": 1.0}) | {"transfer": transfer({"mr": 50.0})}
    with pytest.raises(NearfarError, match=f"^f: is damaged, or was written by another version of nearfar: {message}"):
        EvaluationResult.from_dict(changed(complete, location, to), source="f")


@pytest.mark.parametrize(
    ("location", "to", "message"),
    [
        ("tasks.one.p", None, "tasks.one.p is null, and 'difference' is not"),
        ("tasks.one.separable", 1, "tasks.one.separable = 1: must be true or false or null"),
        (
            "tasks.one.kind",
            "dog",
            "tasks.one.kind = 'dog': must be 'classification', 'relatedness', 'retrieval' or 'similarity'",
        ),
        ("second.name", ..., "second lacks 'name'"),
        ("overall", {}, "overall lacks 'tasks'"),
        ("not_compared", "one", "not_compared = 'one': must be a list"),
        ("first.models", [1], r"first\.models\[0\] = 1: must be text"),
        ("config.resamples", -1, "config.resamples is below 0"),
    ],
)
def test_damaged_comparisons(location: str, to: Any, message: str) -> None:
    with pytest.raises(NearfarError, match=f"^f: is damaged, .*{message}"):
        ComparisonResult.from_dict(changed(comparison(SIDES[0], SIDES[1], {"one": ROW}), location, to), source="f")


def test_comparisons_must_cover_each_pair_of_sides_and_the_same_tasks() -> None:
    complete = three_way_comparison()
    with pytest.raises(NearfarError, match=r"f: .*: comparisons does not hold one comparison for each pair of sides"):
        PairwiseResult.from_dict(changed(complete, "comparisons", complete["comparisons"][:2]), source="f")
    with pytest.raises(NearfarError, match=r"f: .*: comparisons does not hold the same tasks for each pair of sides"):
        PairwiseResult.from_dict(changed(complete, "comparisons.1.tasks", {"two": ROW}), source="f")


def test_damaged_geometries_studies_and_records() -> None:
    with pytest.raises(NearfarError, match=r"f: .*: models\.A\.spectrum\[1\] = None: must be a number"):
        GeometryResult.from_dict(changed(geometry("A"), "models.A.spectrum.1", None), source="f")
    with pytest.raises(NearfarError, match=r"f: .*: models\.A\.layers\.cls\[0\] = 'x': must be a number or null"):
        GeometryResult.from_dict(changed(geometry("A"), "models.A.layers.cls.0", "x"), source="f")
    with pytest.raises(NearfarError, match=r"f: .*: history does not hold pairs of step and score"):
        TrainingRecord.from_dict({"config": {}, "history": [[1, 2, 3]]}, source="f")
    with pytest.raises(NearfarError, match=r"f: .*: it lacks 'config'"):
        TrainingRecord.from_dict({}, source="f")


def test_long_values_are_shortened_and_the_outermost_object_has_no_path() -> None:
    with pytest.raises(NearfarError, match="loss = '" + "x" * 75 + r" \.\.\.: must be a number"):
        TrainingStep.from_dict({"step": 1, "loss": "x" * 99}, source="f")
    with pytest.raises(NearfarError, match=r"f: .*: it must be an object"):
        TrainingStep.from_dict([], source="f")


def test_missing_keys_and_null_keys() -> None:
    assert Provenance().to_dict() == {"commit": None}
    row = TaskTest(first=None, second=1, difference=None, low=None, high=None, p=None, separable=None, seeds=None)
    assert list(row.to_dict()) == [
        *("kind", "first", "second", "difference", "low", "high", "p", "test", "separable", "seeds"),
    ]


def test_unknown_keys_are_ignored() -> None:
    content = evaluation("A", {"one": 1.0})
    assert EvaluationResult.from_dict(content | {"later": 1}) == EvaluationResult.from_dict(content)
