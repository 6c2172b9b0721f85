"""Checks JSON against a schema."""

from typing import Any

from jsonschema import Draft202012Validator


def problem(value: Any, schema: dict[str, Any]) -> str | None:
    """The first violation of the schema, or None."""
    return next((error.message for error in Draft202012Validator(schema).iter_errors(value)), None)
