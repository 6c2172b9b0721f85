"""Is a file what a report takes it for? Shapes of the parts that are read, and one sentence on the first that is amiss.

A shape is a type or a tuple of types; a dict of keys and their shapes, where a key that begins with ``?`` may be
absent; ``[shape]``, a list of such items; :class:`DictOf`, a dict of such values; or :class:`Nullable`, which may be
null.
"""

from itertools import combinations
from typing import Any, NamedTuple

from nearfar.evaluation.correlation import AGGREGATES
from nearfar.types import NearfarError

NUMBER = (int, float)
NUMBER_OR_NULL = (int, float, type(None))
_TYPE_NAMES = {
    str: "text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


class DictOf(NamedTuple):
    """An object whose values all have the shape."""

    shape: Any


class Nullable(NamedTuple):
    """The shape, or null."""

    shape: Any


ESTIMATE = {"score": NUMBER_OR_NULL, "low": NUMBER_OR_NULL, "high": NUMBER_OR_NULL}
_METRICS = {metric: dict.fromkeys(AGGREGATES, ESTIMATE) for metric in ("spearman", "pearson")}
PROVENANCE = {
    "?date": str,
    "?command": str,
    "?commit": (str, type(None)),
    "?versions": DictOf((str, type(None))),
    "?hardware": dict,
}
EVALUATION = {
    "model": str,
    "config": dict,
    "provenance": PROVENANCE,
    "unavailable": DictOf(str),
    "averages": DictOf({"tasks": [str], **_METRICS}),
    "tasks": DictOf({"pairs": int, "subsets": DictOf({"digest": str}), **_METRICS}),
    "?transfer": {
        "protocol": str,
        "nhid": int,
        "folds": int,
        "averages": DictOf({"tasks": [str], "accuracy": ESTIMATE}),
        "tasks": DictOf(
            {
                "kind": str,
                "digest": str,
                "?accuracy": ESTIMATE,
                "?f1": ESTIMATE,
                "?matthews": ESTIMATE,
                "?pearson": ESTIMATE,
                "?spearman": ESTIMATE,
            }
        ),
    },
}
_TEST = {
    "first": NUMBER_OR_NULL,
    "second": NUMBER_OR_NULL,
    "difference": NUMBER_OR_NULL,
    "low": NUMBER_OR_NULL,
    "high": NUMBER_OR_NULL,
    "p": NUMBER_OR_NULL,
    "?p_holm": NUMBER,
    "separable": (bool, type(None)),
    "seeds": Nullable({"?p": NUMBER_OR_NULL, "?test": (str, type(None))}),
}
_AVERAGE = Nullable({"tasks": [str], **_TEST})
_SIDE = {"name": str, "models": [str], "?sources": [str], "?training_seeds": list}
_TESTS = {"tasks": DictOf(_TEST), "overall": _AVERAGE, "?overall_transfer": _AVERAGE}
_COMPARISON_COMMON = {
    "config": {"aggregate": str, "resamples": int, "level": NUMBER},
    "provenance": PROVENANCE,
    "not_compared": [str],
}
COMPARISON = {"first": _SIDE, "second": _SIDE, **_COMPARISON_COMMON, **_TESTS}
COMPARISONS = {
    "sides": [_SIDE],
    "comparisons": [{"pair": [int], "tasks": DictOf(_TEST), "overall": _AVERAGE, "overall_transfer": _AVERAGE}],
    **_COMPARISON_COMMON,
}
GEOMETRY = {
    "config": {"positive_above": NUMBER},
    "provenance": PROVENANCE,
    "pairs": {"spec": str, "instead_of": (str, type(None)), "positives": int, "texts": int},
    "task": Nullable({"spec": str, "pairs": int}),
    "unavailable": DictOf(str),
    "models": DictOf(
        {
            "pooling": (str, type(None)),
            **dict.fromkeys(("alignment", "uniformity", "isotropy", "mean_cosine", "effective_rank"), NUMBER),
            "warning": (str, type(None)),
            "spectrum": [NUMBER],
            "layers": Nullable(DictOf([NUMBER_OR_NULL])),
        }
    ),
}
RECORD = {
    "config": dict,
    **PROVENANCE,
    "?data": [str],
    "?metric": str,
    **dict.fromkeys(("?start_score", "?best_score", "?best_step", "?step", "?seconds", "?items"), NUMBER_OR_NULL),
    "?history": [[NUMBER]],
}
STEP = {"step": int, "loss": NUMBER}


def check(value: object, shape: Any, *, source: object, path: str = "") -> None:
    """Hold a value that was read from ``source`` against a shape.

    Raises:
        NearfarError: it is damaged, or was written by another version; names source and path.
    """
    match shape:
        case Nullable():
            if value is not None:
                check(value, shape.shape, source=source, path=path)
        case DictOf() | dict():
            _check_object(value, shape, source, path)
        case [inner]:
            if not isinstance(value, list):
                raise _damaged_error(source, path, "is no list")
            for number, item in enumerate(value):
                check(item, inner, source=source, path=f"{path}[{number}]")
        case _:
            kinds = shape if isinstance(shape, tuple) else (shape,)
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                names = dict.fromkeys(_TYPE_NAMES.get(kind, "null") for kind in kinds)
                raise _damaged_error(source, path, f"is {_short_repr(value)}, not {' or '.join(names)}")


def _check_object(value: object, shape: Any, source: object, path: str) -> None:
    if not isinstance(value, dict):
        raise _damaged_error(source, path, "is no object")
    inner = dict.fromkeys(value, shape.shape) if isinstance(shape, DictOf) else shape
    for key, expected in inner.items():
        name = key if isinstance(shape, DictOf) else key.removeprefix("?")
        if name in value:
            check(value[name], expected, source=source, path=f"{path}.{name}" if path else name)
        elif not key.startswith("?"):
            raise _damaged_error(source, path, f"lacks {name!r}")


def check_record(record: dict[str, Any], *, source: object) -> None:
    """Check the content of a run.json.

    Raises:
        NearfarError: it is damaged; names source and path.
    """
    check(record, RECORD, source=source)
    if any(len(point) != 2 for point in record.get("history", [])):
        raise _damaged_error(source, "history", "is not of steps with their scores")


def check_tests(comparison: dict[str, Any], *, source: object) -> None:
    """Check a comparison of either kind: its parts, and that it has one test of each two sides on the same tasks.

    Raises:
        NearfarError: it is damaged; names source and path.
    """
    several = comparison["kind"] == "comparisons"
    check(comparison, COMPARISONS if several else COMPARISON, source=source)
    if comparison["config"]["resamples"] < 0:
        raise _damaged_error(source, "config.resamples", "is below 0")
    parts = comparison["comparisons"] if several else [comparison]
    for part in parts:
        averages = [part[key] for key in ("overall", "overall_transfer") if part.get(key) is not None]
        for row in (*part["tasks"].values(), *averages):
            if row["difference"] is not None:
                check(row, dict.fromkeys(("first", "second", "low", "high", "p"), NUMBER), source=source)
    if several:
        pairs = [tuple(part["pair"]) for part in parts]
        if len(pairs) < 1 or pairs != list(combinations(range(len(comparison["sides"])), 2)):
            raise NearfarError(f"{source}: is damaged: it has not one comparison of each two sides.")
        if any(_compared_on(part) != _compared_on(parts[0]) for part in parts):
            raise NearfarError(f"{source}: is damaged: its sides are not compared on the same tasks.")


def _compared_on(part: dict[str, Any]) -> tuple[set[str], bool, bool]:
    return set(part["tasks"]), part["overall"] is None, part["overall_transfer"] is None


def _damaged_error(source: object, path: str, problem: str) -> NearfarError:
    where = f"{path} " if path else "it "
    return NearfarError(f"{source}: is damaged, or was written by another version of nearfar: {where}{problem}.")


def _short_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
