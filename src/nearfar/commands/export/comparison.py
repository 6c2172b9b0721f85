"""Compares an exported graph with the original: differences of outputs, scores and speed, in one run."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from nearfar.commands.export.rows import Rows
from nearfar.commands.export.source import Outputs
from nearfar.encoder.classifier import Item
from nearfar.evaluation.render import Table
from nearfar.evaluation.results import ExportResult, ExportSide
from nearfar.types import NearfarError

MIN_COSINE = 0.9999
"""Smallest cosine to the original that a graph in fp32 may have."""
MAX_LOGIT_DIFFERENCE = 1e-3
"""Largest difference of a logit in fp32, relative to the original's largest logit."""
MAX_LOSS = 1.0
"""Points of the score that a graph in int8 may lose."""
TIMED_TEXTS = 256
"""Maximum number of texts in a timed round."""
ROUNDS = 3
Compute = Callable[[Sequence[Item]], Outputs]


class Comparison(NamedTuple):
    """The sides of a comparison, the number of distinct texts, and why the graph is refused."""

    sides: list[ExportSide]
    texts: int
    problems: list[str]


def compare_outputs(
    reference: Compute, exported: Compute, others: dict[str, Compute], rows: Rows, *, names: tuple[str, str], kind: str
) -> Comparison:
    """Compare the outputs of all functions on ``rows``.

    Args:
        reference: the original in fp32.
        exported: the graph in its own precision, which is checked.
        others: name -> further functions that are compared, not checked.
        rows: what is scored.
        names: of ``reference`` and ``exported``.
        kind: what the limits depend on: ``embedding fp32``, ``logits fp32`` or ``int8``.
    """
    expected = _Recorded(reference)
    sides = [ExportSide(name=names[0], score=rows.score(expected))]
    items = list(expected.outputs)
    vectors = np.stack([expected.outputs[item] for item in items])
    for name, compute in {names[1]: exported, **others}.items():
        recorded = _Recorded(compute)
        score = rows.score(recorded)
        found = np.stack([recorded.outputs[item] for item in items])
        sides.append(
            ExportSide(
                name=name,
                difference=float(np.abs(found - vectors).max()),
                cosine=float(_cosines(found, vectors).min()) if vectors.shape[1] > 1 else None,
                score=score,
            )
        )
    speeds = _speeds([reference, exported, *others.values()], items)
    timed = [
        ExportSide(**{**side.__dict__, "texts_per_second": speed}) for side, speed in zip(sides, speeds, strict=True)
    ]
    return Comparison(timed, len(items), _problems(timed[0], timed[1], kind, largest=float(np.abs(vectors).max())))


class _Recorded:
    """A function from items to outputs that computes each distinct item once and keeps its outputs."""

    def __init__(self, compute: Compute) -> None:
        self.compute = compute
        self.outputs: dict[Item, Outputs] = {}

    def __call__(self, items: Sequence[Item]) -> Outputs:
        new = [item for item in dict.fromkeys(items) if item not in self.outputs]
        if new:
            self.outputs |= zip(new, self.compute(new), strict=True)
        return np.stack([self.outputs[item] for item in items])


def _cosines(first: Outputs, second: Outputs) -> Outputs:
    """The cosine of each row; 1 for two zero vectors."""
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    both_zero = ~first.any(axis=1) & ~second.any(axis=1)
    cosines = np.divide((first * second).sum(axis=1), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return np.where(both_zero, 1, cosines)


def _speeds(functions: Sequence[Compute], items: Sequence[Item]) -> list[float]:
    """Texts per second of each function, best of some interleaved rounds on texts evenly from all."""
    sample = items[:: -(-len(items) // TIMED_TEXTS)]
    seconds: list[list[float]] = [[] for _ in functions]
    for _ in range(ROUNDS):
        for taken, compute in zip(seconds, functions, strict=True):
            started = time.perf_counter()
            compute(sample)
            taken.append(time.perf_counter() - started)
    return [len(sample) / min(taken) for taken in seconds]


def _problems(original: ExportSide, exported: ExportSide, kind: str, *, largest: float) -> list[str]:
    """Why the outputs of the graph differ too much from the original's."""
    assert exported.difference is not None
    if not np.isfinite(exported.difference):
        return ["some outputs are not finite"]
    if kind == "int8":
        if original.score is None or exported.score is None:
            return [] if original.score == exported.score else ["the score is undefined"]
        loss = original.score - exported.score
        return [f"the score is {loss:.2f} points lower, more than {MAX_LOSS:g}"] if loss > MAX_LOSS else []
    if kind == "logits fp32":
        limit = MAX_LOGIT_DIFFERENCE * max(1.0, largest)
        return (
            [f"a logit differs by {exported.difference:.2g}, more than {limit:.2g}"]
            if exported.difference > limit
            else []
        )
    if exported.cosine is not None and exported.cosine < MIN_COSINE:
        return [f"the smallest cosine is {exported.cosine:.6f}, below {MIN_COSINE}"]
    return []


def comparison_table(sides: Sequence[ExportSide]) -> Table:
    """What differs, the score and the speed of each side."""
    rows = []
    for side in sides:
        cells = (side.difference, ".1e"), (side.cosine, ".6f"), (side.score, ".2f"), (side.texts_per_second, ",.0f")
        rows.append([side.name, *("" if value is None else format(value, style) for value, style in cells)])
    return Table(columns=["", "largest difference", "smallest cosine", "score", "texts/s"], rows=rows)


def refuse(result: ExportResult) -> None:
    """Raise an error with the numbers if the graph differs too much.

    Raises:
        NearfarError: there are problems.
    """
    if not result.problems:
        return
    table = comparison_table(result.sides)
    original, exported = table.rows[:2]
    numbers = ", ".join(f"{name} {cell}" for name, cell in zip(table.columns[1:4], exported[1:4], strict=True) if cell)
    raise NearfarError(
        f"{exported[0]}: {'; '.join(result.problems)} ({numbers}; score of the original {original[3] or 'undefined'}). "
        "Nothing is written; --force keeps the graph."
    )
