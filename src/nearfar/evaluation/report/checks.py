"""Is a file what a report takes it for? Shapes of the parts that are read, and one sentence on the first that is amiss.

A shape is a type or a tuple of types; a dict of keys and their shapes, where a key that begins with ``?`` may be
absent; ``[shape]``, a list of such items; :class:`Each`, a dict of such values; or :class:`Maybe`, which may be null.
"""

from itertools import combinations
from typing import Any, NamedTuple

from nearfar.evaluation.correlation import AGGREGATES
from nearfar.types import NearfarError

NUMBER = (int, float)
UNKNOWN = (int, float, type(None))
_WORDS = {str: "text", int: "a number", float: "a number", bool: "true or false", dict: "an object", list: "a list"}


class Each(NamedTuple):
    """An object whose values all have the shape."""

    shape: Any


class Maybe(NamedTuple):
    """The shape, or null."""

    shape: Any


ESTIMATE = {"score": UNKNOWN, "low": UNKNOWN, "high": UNKNOWN}
_METRICS = {metric: dict.fromkeys(AGGREGATES, ESTIMATE) for metric in ("spearman", "pearson")}
PROVENANCE = {
    "?date": str,
    "?command": str,
    "?commit": (str, type(None)),
    "?versions": Each((str, type(None))),
    "?hardware": dict,
}
EVALUATION = {
    "model": str,
    "config": dict,
    "provenance": PROVENANCE,
    "unavailable": Each(str),
    "averages": Each({"tasks": [str], **_METRICS}),
    "tasks": Each({"pairs": int, "subsets": Each({"digest": str}), **_METRICS}),
    "?transfer": {
        "protocol": str,
        "nhid": int,
        "folds": int,
        "averages": Each({"tasks": [str], "accuracy": ESTIMATE}),
        "tasks": Each(
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
    "first": UNKNOWN,
    "second": UNKNOWN,
    "difference": UNKNOWN,
    "low": UNKNOWN,
    "high": UNKNOWN,
    "p": UNKNOWN,
    "?p_holm": NUMBER,
    "separable": (bool, type(None)),
    "seeds": Maybe({"?p": UNKNOWN, "?test": (str, type(None))}),
}
_AVERAGE = Maybe({"tasks": [str], **_TEST})
_SIDE = {"name": str, "models": [str], "?sources": [str], "?training_seeds": list}
_TESTS = {"tasks": Each(_TEST), "overall": _AVERAGE, "?overall_transfer": _AVERAGE}
_COMPARED = {
    "config": {"aggregate": str, "resamples": int, "level": NUMBER},
    "provenance": PROVENANCE,
    "not_compared": [str],
}
COMPARISON = {"first": _SIDE, "second": _SIDE, **_COMPARED, **_TESTS}
COMPARISONS = {
    "sides": [_SIDE],
    "comparisons": [{"pair": [int], "tasks": Each(_TEST), "overall": _AVERAGE, "overall_transfer": _AVERAGE}],
    **_COMPARED,
}
GEOMETRY = {
    "config": {"positive_above": NUMBER},
    "provenance": PROVENANCE,
    "pairs": {"spec": str, "instead_of": (str, type(None)), "positives": int, "texts": int},
    "task": Maybe({"spec": str, "pairs": int}),
    "unavailable": Each(str),
    "models": Each(
        {
            "pooling": (str, type(None)),
            **dict.fromkeys(("alignment", "uniformity", "isotropy", "mean_cosine", "effective_rank"), NUMBER),
            "warning": (str, type(None)),
            "spectrum": [NUMBER],
            "layers": Maybe(Each([UNKNOWN])),
        }
    ),
}
RECORD = {
    "config": dict,
    **PROVENANCE,
    "?data": [str],
    "?metric": str,
    **dict.fromkeys(("?start_score", "?best_score", "?best_step", "?step", "?seconds", "?items"), UNKNOWN),
    "?history": [[NUMBER]],
}
STEP = {"step": int, "loss": NUMBER}


def check(value: object, shape: Any, *, source: object, place: str = "") -> None:
    """Hold a value that was read from ``source`` against a shape.

    Raises:
        NearfarError: it is damaged, or was written by another version; names source and place.
    """
    match shape:
        case Maybe():
            if value is not None:
                check(value, shape.shape, source=source, place=place)
        case Each() | dict():
            _check_object(value, shape, source, place)
        case [inner]:
            if not isinstance(value, list):
                raise _amiss(source, place, "is no list")
            for number, item in enumerate(value):
                check(item, inner, source=source, place=f"{place}[{number}]")
        case _:
            kinds = shape if isinstance(shape, tuple) else (shape,)
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                names = dict.fromkeys(_WORDS.get(kind, "null") for kind in kinds)
                raise _amiss(source, place, f"is {_shown(value)}, not {' or '.join(names)}")


def _check_object(value: object, shape: Any, source: object, place: str) -> None:
    if not isinstance(value, dict):
        raise _amiss(source, place, "is no object")
    inner = dict.fromkeys(value, shape.shape) if isinstance(shape, Each) else shape
    for key, expected in inner.items():
        name = key if isinstance(shape, Each) else key.removeprefix("?")
        if name in value:
            check(value[name], expected, source=source, place=f"{place}.{name}" if place else name)
        elif not key.startswith("?"):
            raise _amiss(source, place, f"lacks {name!r}")


def check_record(record: dict[str, Any], *, source: object) -> None:
    """Check the content of a run.json.

    Raises:
        NearfarError: it is damaged; names source and place.
    """
    check(record, RECORD, source=source)
    if any(len(point) != 2 for point in record.get("history", [])):
        raise _amiss(source, "history", "is not of steps with their scores")


def check_tests(comparison: dict[str, Any], *, source: object) -> None:
    """Check a comparison of either kind: its parts, and that it has one test of each two sides on the same tasks.

    Raises:
        NearfarError: it is damaged; names source and place.
    """
    several = comparison["kind"] == "comparisons"
    check(comparison, COMPARISONS if several else COMPARISON, source=source)
    if comparison["config"]["resamples"] < 0:
        raise _amiss(source, "config.resamples", "is below 0")
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


def _amiss(source: object, place: str, problem: str) -> NearfarError:
    where = f"{place} " if place else "it "
    return NearfarError(f"{source}: is damaged, or was written by another version of nearfar: {where}{problem}.")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
