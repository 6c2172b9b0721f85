"""Result files damaged at each position: one sentence that names the file and the position."""

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nearfar.evaluation.results.files import load_result
from nearfar.types import NearfarError
from tests.evaluation.report.cases import geometry
from tests.invalid_input.cli_runner import assert_refused, run_cli

FILES = ("scores", "tuned", "two", "three", "space")
TASK, TUNED = "tasks/pairs.tsv", "transfer/tasks/labelled.tsv"
FREE = ("provenance", "config", "inputs")
"""Objects that hold what a version of nearfar recorded: only some of their values are checked."""


@pytest.fixture(scope="module")
def results(valid_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files of every kind: an evaluation, a fine-tuning, comparisons of two and three, a geometry."""
    folder = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shutil.copy(valid_workspace / "result.json", "scores.json")
        shutil.copy(valid_workspace / "classifier/result.json", "tuned.json")
        Path("space.json").write_text(json.dumps(geometry("base")), encoding="utf-8")
        for sides, output in ((2, "two.json"), (3, "three.json")):
            result = run_cli(["compare", *["scores.json"] * sides, "--resamples", "9", "--output", output])
            assert result.status == 0, result.err
        result = run_cli(["report", *(f"{name}.json" for name in FILES), "--output", "all.html"])
        assert result.status == 0, result.err
    return folder


def locations(value: Any, outer: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value; of a list, of its first two."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*outer, key)
        yield from locations(inner, (*outer, key))


def changed(value: Any, location: tuple[Any, ...], new: object) -> Any:
    """A copy of a JSON value with another value at a location."""
    value = copy.deepcopy(value)
    inside = value
    for key in location[:-1]:
        inside = inside[key]
    inside[location[-1]] = new
    return value


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_a_value_of_another_type_is_named(name: str, results: Path, tmp_path: Path) -> None:
    content = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
    file = tmp_path / "damaged.json"
    for location in locations(content):
        new = [{"a": [None]}] if not isinstance(location[-1], int) else {"a": [None]}
        file.write_text(json.dumps(changed(content, location, new)), encoding="utf-8")
        if location[0] in FREE:
            continue
        with pytest.raises(NearfarError) as caught:
            load_result(file)
        assert str(caught.value).startswith(f"{file}: "), location
        assert any(str(part) in str(caught.value).removeprefix(str(file)) for part in location), location


ROWS = [  # of the right type: verb, file, path of a value, its new value, words in the message besides the file
    ("compare", "scores", "schema", 2, "schema 2"),
    ("compare", "scores", f"{TASK}/subsets/pairs/gold/0", 1e200, "is not finite, or too large"),
    ("compare", "tuned", f"{TUNED}/predicted", [], "predictions"),
    ("report", "three", "sides", [], "does not hold one comparison for each pair of sides"),
    ("report", "three", "comparisons/1/overall", None, "does not hold the same tasks for each pair of sides"),
    ("report", "space", "models/base/projection", {"similar": [[1, 2]]}, "must be a list of 4"),
]


@pytest.mark.parametrize(("verb", "name", "path", "new", "mention"), ROWS)
def test_a_damaged_result_is_named(
    verb: str, name: str, path: str, new: object, mention: str, results: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    content = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
    location = tuple(int(key) if key.isdecimal() else key for key in path.split("/"))
    Path("whole.json").write_text(json.dumps(content), encoding="utf-8")
    Path("damaged.json").write_text(json.dumps(changed(content, location, new)), encoding="utf-8")
    words = {"compare": "whole.json --resamples 9", "report": "--output r.html"}[verb]
    assert_refused([verb, "damaged.json", *words.split()], "damaged.json", mention)
    assert not Path("r.html").exists()
