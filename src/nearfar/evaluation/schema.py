"""JSON Schema of result files, from their models: ``python -m nearfar.evaluation.schema > docs/result-schema.json``."""

import inspect
import json
import sys
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from nearfar.evaluation.results.files import RESULT_TYPES
from nearfar.evaluation.results.record import Record, record_fields
from nearfar.evaluation.results.training import TrainingRecord

_SCALARS: dict[Any, dict[str, Any]] = {
    Any: {},
    NoneType: {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
}


def result_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) that every result file and every run.json satisfies."""
    definitions: dict[str, Any] = {}
    kinds = [*dict.fromkeys(RESULT_TYPES.values()), TrainingRecord]
    options = [_schema(kind, definitions) for kind in kinds]
    options[-1] |= {"not": {"required": ["kind"]}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nearfar result files",
        "anyOf": options,
        "$defs": dict(sorted(definitions.items())),
    }


def _schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Record):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}  # before its fields, which may refer to it
            definitions[hint.__name__] = _object_schema(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if origin in (Union, UnionType):
        return {"anyOf": [_schema(inner, definitions) for inner in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    return dict(_SCALARS[hint])


def _object_schema(kind: type[Record], definitions: dict[str, Any]) -> dict[str, Any]:
    """An object with its required keys; a ``kind`` that tells several objects apart is required too."""
    fields = record_fields(kind)
    tagged = kind in RESULT_TYPES.values() or kind.__name__ in ("ClassificationScores", "RelatednessScores")
    return {
        "type": "object",
        "description": inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].replace("\n", " "),
        "properties": {field.name: _schema(field.type, definitions) for field in fields},
        "required": [field.name for field in fields if field.required or (tagged and field.name == "kind")],
    }


def main() -> None:
    """Print the schema."""
    sys.stdout.write(json.dumps(result_schema(), indent=1) + "\n")


if __name__ == "__main__":
    main()
