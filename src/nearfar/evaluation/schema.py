"""JSON Schema of result files, from their models: ``python -m nearfar.evaluation.schema > docs/result-schema.json``."""

import json
import sys
from inspect import cleandoc
from typing import Any

import msgspec

from nearfar.evaluation.results import Result, TrainingRecord
from nearfar.evaluation.results.evaluation import TransferScores
from nearfar.validation import Tagged


def result_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) that every result file and every run.json satisfies."""
    results = list(dict.fromkeys(Result.TYPES.values()))
    tagged = [*results, *TransferScores.kinds.values()]  # type: ignore[attr-defined]  # a union for type checkers

    def union(kind: type[Tagged]) -> dict[str, Any]:
        return {"anyOf": [{"$ref": f"#/$defs/{option.__name__}"} for option in kind.kinds.values()]}

    references, definitions = msgspec.json.schema_components([*tagged, TrainingRecord], schema_hook=union)
    for kind in tagged:
        definitions[kind.__name__]["required"].insert(0, "kind")
    for part in definitions.values():  # as all versions of msgspec write them
        part["description"] = cleandoc(part["description"])
        for shape in part["properties"].values():
            if shape.get("default") in ([], {}):
                del shape["default"]
    *options, record = (*references[: len(results)], references[-1])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nearfar result files",
        "anyOf": [*options, {**record, "not": {"required": ["kind"]}}],
        "$defs": dict(sorted(definitions.items())),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(result_schema(), indent=1) + "\n")
