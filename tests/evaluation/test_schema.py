"""The JSON Schema of result files: up to date in docs/, and satisfied by every committed result."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nearfar.evaluation.results import parse_result
from nearfar.evaluation.schema import result_schema
from nearfar.types import NearfarError
from tests.evaluation.report.cases import evaluation, geometry, training_record, transfer
from tests.json_schema import problem

ROOT = Path(__file__).parents[2]
OTHER_RECORDS = (".mine.json", ".commands.json")  # what studies/mining.py and studies/own_data.py record of commands
COMMITTED = sorted(
    file
    for file in (ROOT / "studies" / "results").rglob("*.json")
    if file.parent.name != "demo" and not file.name.endswith(OTHER_RECORDS)
)
WHOLE = evaluation("A", {"one": 1.0}) | {"transfer": transfer({"mr": 50.0, "mrpc": None})}


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "docs" / "result-schema.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.long
def test_the_committed_schema_equals_the_printed_one() -> None:
    command = [sys.executable, "-m", "nearfar.evaluation.schema"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == (ROOT / "docs" / "result-schema.json").read_text(encoding="utf-8"), (
        "run: python -m nearfar.evaluation.schema > docs/result-schema.json"
    )
    assert json.loads(printed) == result_schema()


@pytest.mark.parametrize("file", COMMITTED, ids=["/".join(file.parts[-2:]) for file in COMMITTED])
def test_every_committed_result_satisfies_the_schema(file: Path, schema: dict[str, Any]) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    assert problem(content, schema, schema) is None
    if "kind" in content:  # the option of its kind, for a precise message
        (option,) = (
            one
            for one in schema["anyOf"]
            if content["kind"]
            in schema["$defs"][one["$ref"].removeprefix("#/$defs/")]["properties"].get("kind", {"enum": []})["enum"]
        )
        assert problem(content, option, schema) is None


@pytest.mark.parametrize("content", [WHOLE, geometry("A"), training_record(1)])
def test_other_kinds_satisfy_the_schema(content: dict[str, Any], schema: dict[str, Any]) -> None:
    assert problem(content, schema, schema) is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("tasks", "one", "pairs"), "x"),
        (("tasks", "one", "pairs"), True),
        (("tasks", "one", "spearman", "all", "score"), []),
        (("tasks", "one", "subsets", "only", "gold"), [None]),
        (("transfer", "tasks", "mr", "kind"), "dog"),
        (("transfer", "tasks", "mr", "protocol"), None),
        (("kind",), "other"),
        (("schema",), 2),
        (("unavailable",), {"a": 1}),
    ],
)
def test_the_schema_refuses_what_the_models_refuse(
    path: tuple[str, ...], value: object, schema: dict[str, Any]
) -> None:
    content = copy.deepcopy(WHOLE)
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    assert problem(content, schema, schema) is not None
    with pytest.raises(NearfarError):
        parse_result(content, source="f")


def test_a_missing_key_is_refused(schema: dict[str, Any]) -> None:
    assert problem({key: value for key, value in WHOLE.items() if key != "tasks"}, schema, schema) is not None
    assert problem({"kind": "dog", "config": {}}, schema, schema) is not None
    assert problem({"config": {}}, schema, schema) is None  # a run.json
