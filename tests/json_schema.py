"""A validator for the part of JSON Schema that the schema of result files uses."""

from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
KNOWN = {"$ref", "anyOf", "not", "enum", "type", "properties", "required", "additionalProperties", "items"}
KNOWN |= {"minimum", "maximum", "minItems", "maxItems", "prefixItems"}


def problem(value: Any, schema: dict[str, Any], root: dict[str, Any], path: str = "") -> str | None:
    """The first violation of the schema, or None."""
    unknown = schema.keys() - KNOWN - {"$schema", "$defs", "title", "description", "default"}
    assert not unknown, unknown
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        if found := problem(value, root["$defs"][name], root, path):
            return found
    if "anyOf" in schema and all(problem(value, option, root, path) for option in schema["anyOf"]):
        return f"{path}: matches no option"
    if "not" in schema and problem(value, schema["not"], root, path) is None:
        return f"{path}: matches what it must not"
    if "enum" in schema and not any(type(value) is type(one) and value == one for one in schema["enum"]):
        return f"{path}: not one of {schema['enum']}"
    if "type" in schema:
        wrong_bool = isinstance(value, bool) and schema["type"] != "boolean"
        if wrong_bool or not isinstance(value, TYPES[schema["type"]]):
            return f"{path}: is no {schema['type']}"
    size = len(value) if isinstance(value, list) else 0
    if not schema.get("minItems", 0) <= size <= schema.get("maxItems", size):
        return f"{path}: has {size} items"
    if "minimum" in schema and not schema["minimum"] <= value <= schema.get("maximum", value):
        return f"{path}: is out of bounds"
    if isinstance(value, dict):
        return _object_problem(value, schema, root, path)
    if isinstance(value, list) and "items" in schema:
        items = schema.get("prefixItems") or [schema["items"]] * size
        found_items = (problem(value[n], kind, root, f"{path}[{n}]") for n, kind in enumerate(items))
        return next(filter(None, found_items), None)
    return None


def _object_problem(value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], path: str) -> str | None:
    for key in schema.get("required", []):
        if key not in value:
            return f"{path}: lacks {key}"
    for key, item in value.items():
        inner = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
        if inner is not None and (found := problem(item, inner, root, f"{path}.{key}")):
            return found
    return None
