"""What is damaged is refused in one sentence that names file and place."""

import copy
from itertools import combinations
from typing import Any

import pytest
from nearfar.evaluation.report.checks import EVALUATION, GEOMETRY, DictOf, Nullable, check, check_record, check_tests

from nearfar.types import NearfarError
from tests.evaluation.report.cases import comparison, evaluation, geometry, row_of, side, transfer

SIDES = [side(name, evaluation(name, {"one": 1.0})) for name in "ABC"]
ROW = row_of(1.0, 2.0, separable=True)


def three_way_comparison() -> dict[str, Any]:
    two = comparison(SIDES[0], SIDES[1], {"one": ROW})
    tests = {key: two[key] for key in ("tasks", "overall", "overall_transfer")}
    pairs = [{"pair": [i, j], **copy.deepcopy(tests)} for i, j in combinations(range(3), 2)]
    described = [comparison(one, one, {})["first"] for one in SIDES]
    rest = {key: two[key] for key in ("schema", "config", "provenance", "not_compared")}
    return {"kind": "comparisons", "sides": described, "comparisons": pairs, **rest}


def changed(value: dict[str, Any], place: str, to: Any) -> dict[str, Any]:
    """A copy with another value at a place such as ``a.0.b``; no value where it is ``...``."""
    value = copy.deepcopy(value)
    inner: Any = value
    *path, last = [int(part) if part.isdecimal() else part for part in place.split(".")]
    for part in path:
        inner = inner[part]
    if to is ...:
        del inner[last]
    else:
        inner[last] = to
    return value


def test_whole_files_pass() -> None:
    whole = evaluation("A", {"one": 1.0, "two": None}) | {"transfer": transfer({"mr": None, "mrpc": 50.0})}
    check(whole, EVALUATION, source="f")
    check(geometry("A", "B"), GEOMETRY, source="f")
    check_tests(comparison(SIDES[0], SIDES[1], {"one": ROW}), source="f")
    check_tests(three_way_comparison(), source="f")
    check_record({"config": {}, "history": [[1, 0.5]], "commit": None, "best_score": None}, source="f")


@pytest.mark.parametrize(
    ("place", "to", "message"),
    [
        ("averages", [], "averages is no object"),
        ("tasks.one.pearson", ..., "tasks.one lacks 'pearson'"),
        ("tasks.one.spearman.all.low", "5", r"tasks\.one\.spearman\.all\.low is '5', not a number or null"),
        ("tasks.one.pairs", 1.5, "tasks.one.pairs is 1.5, not a number"),
        ("unavailable", {"sts12": 3}, "unavailable.sts12 is 3, not text"),
        ("provenance", "x" * 90, "provenance is no object"),
        ("transfer.nhid", True, "transfer.nhid is True, not a number"),
        ("transfer.tasks.mr.accuracy.score", ..., "transfer.tasks.mr.accuracy lacks 'score'"),
    ],
)
def test_damaged_evaluations(place: str, to: Any, message: str) -> None:
    whole = evaluation("A", {"one": 1.0}) | {"transfer": transfer({"mr": 50.0})}
    with pytest.raises(NearfarError, match=f"^f: is damaged, or was written by another version of nearfar: {message}"):
        check(changed(whole, place, to), EVALUATION, source="f")


@pytest.mark.parametrize(
    ("place", "to", "message"),
    [
        ("tasks.one.p", None, "p is None, not a number"),
        ("tasks.one.separable", 1, "tasks.one.separable is 1, not true or false or null"),
        ("second.name", ..., "second lacks 'name'"),
        ("overall", {}, "overall lacks 'tasks'"),
        ("not_compared", "one", "not_compared is no list"),
        ("first.models", [1], r"first\.models\[0\] is 1, not text"),
    ],
)
def test_damaged_comparisons(place: str, to: Any, message: str) -> None:
    with pytest.raises(NearfarError, match=f"^f: is damaged, .*{message}"):
        check_tests(changed(comparison(SIDES[0], SIDES[1], {"one": ROW}), place, to), source="f")


def test_comparisons_must_be_of_each_two_sides_and_the_same_tasks() -> None:
    whole = three_way_comparison()
    with pytest.raises(NearfarError, match="f: is damaged: it has not one comparison of each two sides"):
        check_tests(changed(whole, "comparisons", whole["comparisons"][:2]), source="f")
    with pytest.raises(NearfarError, match="f: is damaged: its sides are not compared on the same tasks"):
        check_tests(changed(whole, "comparisons.1.tasks", {"two": ROW}), source="f")


def test_damaged_geometries_and_records() -> None:
    with pytest.raises(NearfarError, match=r"f: .*: models\.A\.spectrum\[1\] is None, not a number"):
        check(changed(geometry("A"), "models.A.spectrum.1", None), GEOMETRY, source="f")
    with pytest.raises(NearfarError, match=r"f: .*: models\.A\.layers\.cls\[0\] is 'x'"):
        check(changed(geometry("A"), "models.A.layers.cls.0", "x"), GEOMETRY, source="f")
    with pytest.raises(NearfarError, match=r"f: .*: history is not of steps with their scores"):
        check_record({"config": {}, "history": [[1, 2, 3]]}, source="f")
    with pytest.raises(NearfarError, match=r"f: .*: it lacks 'config'"):
        check_record({}, source="f")


def test_shapes() -> None:
    check(None, Nullable({"a": int}), source="f")
    check({"x": [1]}, DictOf([int]), source="f")
    with pytest.raises(NearfarError, match=r"f: .*: it is no object"):
        check([], DictOf(int), source="f")
    with pytest.raises(NearfarError, match="is '" + "x" * 38 + "…, not a number"):
        check("x" * 99, int, source="f")
