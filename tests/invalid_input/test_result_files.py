"""Result files damaged at each position: compare and report refuse in one sentence that names the file."""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.report.cases import geometry
from tests.invalid_input.cli_runner import assert_refused, run_cli

HUGE, REMOVED = 10**400, object()
NAN, INFINITY = float("nan"), float("inf")


@pytest.fixture(scope="module")
def valid_results(valid_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files of every kind: an evaluation, a fine-tuning, comparisons of two and three, a geometry, a run."""
    folder = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shutil.copy(valid_workspace / "result.json", "scores.json")
        shutil.copy(valid_workspace / "classifier/result.json", "tuned.json")
        shutil.copy(valid_workspace / "run/run.json", "record.json")
        Path("space.json").write_text(json.dumps(geometry("base")), encoding="utf-8")
        for sides, output in ((2, "two.json"), (3, "three.json")):
            result = run_cli(["compare", *["scores.json"] * sides, "--resamples", "9", "--output", output])
            assert result.status == 0, result.err
    return folder


def changed(value: Any, location: str, new: object) -> Any:
    """Return a copy of a JSON value with another value at a path such as ``a/b/0``."""
    value = copy.deepcopy(value)
    *outer, last = [int(key) if key.isdecimal() else key for key in location.split("/")]
    inside = value
    for key in outer:
        inside = inside[key]
    if new is REMOVED:
        del inside[last]
    else:
        inside[last] = new
    return value


TASK = "tasks/pairs.tsv"
TUNED = "transfer/tasks/labelled.tsv"
BOTH = [  # file, path of a value, its new value, words in the message besides the file
    ("scores.json", "schema", True, "schema True"),
    ("scores.json", "schema", 2, "schema 2"),
    ("scores.json", "schema", [], "schema []"),
    ("scores.json", "kind", "geometry", "geometry"),
    ("scores.json", "kind", REMOVED, "kind"),
    ("scores.json", "kind", {}, "kind"),
    ("scores.json", "model", None, "model"),
    ("scores.json", "model", 7, "model"),
    ("scores.json", "config", [], "config"),
    ("scores.json", "config/training_seed", [], "training_seed"),
    ("scores.json", "config/training_seed", {"a": 1}, "training_seed"),
    ("scores.json", "config/training_seed", "x", "training_seed"),
    ("scores.json", "tasks", [], "tasks"),
    ("scores.json", "tasks", REMOVED, "tasks"),
    ("scores.json", TASK, [], "tasks.pairs.tsv = []: must be an object"),
    ("scores.json", f"{TASK}/pairs", REMOVED, "tasks.pairs.tsv lacks 'pairs'"),
    ("scores.json", f"{TASK}/pairs", "x", "tasks.pairs.tsv.pairs"),
    ("scores.json", f"{TASK}/pairs", [], "tasks.pairs.tsv.pairs"),
    ("scores.json", f"{TASK}/pairs", NAN, "NaN"),
    ("scores.json", f"{TASK}/pairs", HUGE, "not a complete JSON file"),
    ("scores.json", f"{TASK}/spearman", [], "tasks.pairs.tsv.spearman"),
    ("scores.json", f"{TASK}/spearman", "x", "tasks.pairs.tsv.spearman"),
    ("scores.json", f"{TASK}/spearman", 1.5, "tasks.pairs.tsv.spearman"),
    ("scores.json", f"{TASK}/spearman/all", REMOVED, "tasks.pairs.tsv.spearman"),
    ("scores.json", f"{TASK}/spearman/all", None, "tasks.pairs.tsv.spearman"),
    (
        "scores.json",
        f"{TASK}/spearman/mean",
        {"score": None, "low": None, "high": None, "reason": [1]},
        "spearman.mean.reason",
    ),
    ("scores.json", f"{TASK}/spearman/all/score", NAN, "NaN"),
    ("scores.json", f"{TASK}/spearman/all/low", HUGE, "is not finite, or too large"),
    ("scores.json", f"{TASK}/pearson/wmean/high", -INFINITY, "Infinity"),
    ("scores.json", f"{TASK}/subsets", {}, "subsets"),
    ("scores.json", f"{TASK}/subsets", 3, "subsets"),
    ("scores.json", f"{TASK}/subsets/pairs", [], "subsets.pairs = []: must be an object"),
    ("scores.json", f"{TASK}/subsets/pairs/digest", 5, "digest"),
    ("scores.json", f"{TASK}/subsets/pairs/gold", {}, "gold"),
    ("scores.json", f"{TASK}/subsets/pairs/gold", [1], "gold"),
    ("scores.json", f"{TASK}/subsets/pairs/gold/0", "x", "gold"),
    ("scores.json", f"{TASK}/subsets/pairs/gold/0", True, "gold"),
    ("scores.json", f"{TASK}/subsets/pairs/gold/0", None, "gold"),
    ("scores.json", f"{TASK}/subsets/pairs/gold/0", NAN, "NaN"),
    ("scores.json", f"{TASK}/subsets/pairs/gold/0", 1e200, "is not finite, or too large"),
    ("scores.json", f"{TASK}/subsets/pairs/cosines_e6/1", [], "cosines_e6"),
    ("scores.json", f"{TASK}/subsets/pairs/cosines_e6/1", HUGE, "is not finite, or too large"),
    ("tuned.json", "transfer", [], "transfer"),
    ("tuned.json", "transfer", "x", "transfer"),
    ("tuned.json", "transfer/tasks", REMOVED, "transfer"),
    ("tuned.json", TUNED, 1, "tasks.labelled.tsv = 1: must be an object"),
    ("tuned.json", f"{TUNED}/kind", [], "kind"),
    ("tuned.json", f"{TUNED}/kind", {}, "kind"),
    ("tuned.json", f"{TUNED}/kind", "dog", "dog"),
    ("tuned.json", f"{TUNED}/protocol", REMOVED, "protocol"),
    ("tuned.json", f"{TUNED}/protocol", 4, "protocol"),
    ("tuned.json", f"{TUNED}/digest", None, "digest"),
    ("tuned.json", f"{TUNED}/rows", REMOVED, "rows"),
    ("tuned.json", f"{TUNED}/rows", "x", "rows"),
    ("tuned.json", f"{TUNED}/rows", INFINITY, "Infinity"),
    ("tuned.json", f"{TUNED}/accuracy", {}, "accuracy"),
    ("tuned.json", f"{TUNED}/accuracy", None, "accuracy"),
    ("tuned.json", f"{TUNED}/accuracy/score", REMOVED, "accuracy"),
    ("tuned.json", f"{TUNED}/accuracy/score", None, "accuracy"),
    ("tuned.json", f"{TUNED}/accuracy/score", [], "accuracy"),
    ("tuned.json", f"{TUNED}/accuracy/score", HUGE, "is not finite, or too large"),
    ("tuned.json", f"{TUNED}/gold", "x", "gold"),
    ("tuned.json", f"{TUNED}/gold/0", "x", "gold"),
    ("tuned.json", f"{TUNED}/predicted", [], "predictions"),
    ("tuned.json", f"{TUNED}/predicted/0", {}, "predicted"),
]
REPORT_CASES = [
    ("scores.json", "provenance", [], "provenance"),
    ("scores.json", "provenance/versions", "x", "versions"),
    ("scores.json", "unavailable", {"sts12": 1}, "unavailable.sts12"),
    ("scores.json", "averages", [], "averages"),
    ("scores.json", f"{TASK}/pearson", REMOVED, "pearson"),
    ("scores.json", f"{TASK}/pearson/all/score", "x", "pearson.all.score"),
    ("scores.json", f"{TASK}/spearman/all/low", [], "spearman.all.low"),
    ("tuned.json", "transfer/nhid", "x", "nhid"),
    ("tuned.json", "transfer/folds", None, "folds"),
    ("tuned.json", "transfer/averages", [], "averages"),
    ("two.json", "first", "x", "first"),
    ("two.json", "first/name", 1, "first.name"),
    ("two.json", "config/resamples", -1, "resamples"),
    ("two.json", "config/level", "x", "config.level"),
    ("two.json", "tasks", [], "tasks"),
    ("two.json", f"{TASK}/difference", HUGE, "is not finite, or too large"),
    ("two.json", f"{TASK}/p", "x", "pairs.tsv.p"),
    ("two.json", f"{TASK}/low", None, "low"),
    ("two.json", f"{TASK}/separable", 1, "separable"),
    ("two.json", "overall", [], "overall"),
    ("two.json", "overall/p", NAN, "NaN"),
    ("two.json", "not_compared", None, "not_compared"),
    ("three.json", "sides", [], "does not hold one comparison for each pair of sides"),
    ("three.json", "sides/0/name", None, "name"),
    ("three.json", "comparisons", [], "does not hold one comparison for each pair of sides"),
    ("three.json", "comparisons/0", 1, "comparisons[0]"),
    ("three.json", "comparisons/0/pair", [0], "does not hold one comparison for each pair of sides"),
    ("three.json", "comparisons/0/overall_transfer", [], "overall_transfer"),
    ("three.json", "comparisons/1/overall", None, "does not hold the same tasks for each pair of sides"),
    ("three.json", "comparisons/2/tasks", {}, "does not hold the same tasks for each pair of sides"),
    ("space.json", "config/positive_above", "x", "positive_above"),
    ("space.json", "pairs", None, "pairs"),
    ("space.json", "pairs/texts", "x", "pairs.texts"),
    ("space.json", "models", [], "models"),
    ("space.json", "models/base/uniformity", None, "uniformity"),
    ("space.json", "models/base/alignment", HUGE, "is not finite, or too large"),
    ("space.json", "models/base/spectrum", "x", "spectrum"),
    ("space.json", "models/base/spectrum/0", INFINITY, "Infinity"),
    ("space.json", "models/base/layers", [], "layers"),
    ("space.json", "models/base/projection", {"similar": [[1, 2]]}, "does not hold four numbers for each pair"),
    ("space.json", "models/base/projection", {"labelled": {"x": [[1]]}}, "does not hold two numbers for each text"),
    ("record.json", "config", [], "config"),
    ("record.json", "history", "x", "history"),
    ("record.json", "history/0", [1], "history"),
    ("record.json", "history/0/1", "x", "history[0][1]"),
    ("record.json", "best_score", [], "best_score"),
    ("record.json", "seconds", HUGE, "is not finite, or too large"),
    ("record.json", "start_score", NAN, "NaN"),
    ("record.json", "data", [1], "data[0]"),
]
ROWS = [
    *((f"compare {{}} {file} --resamples 9", file, location, new, mention) for file, location, new, mention in BOTH),
    *(("report {} --output r.html", *row) for row in (*BOTH, *REPORT_CASES)),
]


@pytest.mark.parametrize(
    ("command", "file", "location", "new", "mention"), ROWS, ids=[f"{row[0][:7]} {row[1]} {row[2]}" for row in ROWS]
)
def test_a_damaged_result_is_named(
    valid_results: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    file: str,
    location: str,
    new: object,
    mention: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    content = json.loads((valid_results / file).read_text(encoding="utf-8"))
    Path(file).write_text(json.dumps(content), encoding="utf-8")
    Path("damaged.json").write_text(json.dumps(changed(content, location, new)), encoding="utf-8")
    if command.startswith("report") and (location, new) == ("kind", "geometry"):
        mention = "config lacks 'positive_above'"
    assert_refused(command.format("damaged.json").split(), "damaged.json", mention)
    assert not Path("r.html").exists()


@pytest.mark.long
def test_the_unchanged_files_are_valid(valid_results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(valid_results)
    names = ["scores.json", "tuned.json", "two.json", "three.json", "space.json", "record.json"]
    result = run_cli(["report", *names, "--output", "all.html"])
    assert result.status == 0, result.err
