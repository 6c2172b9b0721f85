"""The record of a study as lines and columns, and its numbers as text."""

from itertools import product
from typing import TYPE_CHECKING, TypeAlias

from nearfar.evaluation.results import GroupScore, StudyComparison, StudyGroup, StudyTable
from nearfar.studies.scores import AVERAGE_UNSEEN, NOT_MEASURED
from nearfar.studies.spec import AVERAGE, Coordinates, read_recorded

if TYPE_CHECKING:
    from pandas import DataFrame

_DIGITS = {"uniformity": 3, "alignment": 3, "isotropy": 3, "mean_cosine": 3, "effective_rank": 1, "parameters": 0}
_TITLES = {
    AVERAGE: "Average",
    AVERAGE_UNSEEN: "Average, unseen pairs",
    "updates_per_second": "updates/s",
    "texts_per_second": "texts/s",
    "mean_cosine": "mean cosine",
    "effective_rank": "effective rank",
    "training_seconds": "training, s",
    "inference_seconds": "inference, s",
    "seconds": "time, s",
}
_SCORES = ("mean", "sd", "low", "high", "interval", "paper", "paper_sd", "difference", "reason")
Line: TypeAlias = tuple[str, ...]
"""A line of the table: a row, and its labels of the axes that are not columns; "" where the row has no such axis."""
Head: TypeAlias = tuple[str, ...]
"""A column of scores: labels of the axes that are columns, and a column of the study."""


class Layout:
    """A table as lines and columns."""

    def __init__(self, table: StudyTable) -> None:
        self.table = table
        self.study = read_recorded(table.study)
        self.axes = [axis.name for axis in self.study.axes if axis.use != "columns"]
        across = [axis for axis in self.study.axes if axis.use == "columns"]
        used = {place for group in table.groups for place in group.coordinates.items()}
        shown = [[label for label in axis.shown_labels if (axis.name, label) in used] for axis in across]
        self.heads: list[Head] = [(*labels, column) for labels in product(*shown) for column in table.columns]
        self.lines: dict[Line, list[StudyGroup]] = {}
        self.cells: dict[tuple[Line, Head], StudyGroup] = {}
        """The group of a line that is shown in a column; one without an axis of columns is shown at its first label."""
        for group in table.groups:
            line = (group.row, *(group.coordinates.get(name, "") for name in self.axes))
            self.lines.setdefault(line, []).append(group)
            labels = [
                group.coordinates.get(axis.name, next(iter(known), ""))
                for axis, known in zip(across, shown, strict=True)
            ]
            self.cells |= {(line, (*labels, column)): group for column in table.columns}

    def frame(self) -> "DataFrame":
        """All numbers: row, name, each axis, column, n, missing, mean, sd, interval, the paper's, difference."""
        from pandas import DataFrame

        axes = [axis.name for axis in self.study.axes]
        rows = [
            [
                *(group.row, self.name(group.row, {}), *(group.coordinates.get(axis, "") for axis in axes), column),
                *(score.n, group.missing, *(getattr(score, name) for name in _SCORES)),
            ]
            for group in self.table.groups
            for column, score in group.scores.items()
        ]
        return DataFrame(rows, columns=["row", "name", *axes, "column", "n", "missing", *_SCORES], dtype=object)

    def heading(self, column: str) -> str:
        """The heading of a column."""
        return str(self.study.titles.get(column, _TITLES.get(column, column.removeprefix("average:"))))

    def name(self, row: str, coordinates: Coordinates) -> str:
        """A group in words: ``SCL (lambda = 0.3)``."""
        places = ", ".join(f"{name} = {label}" for name, label in coordinates.items())
        return self.study.row(row).name + (f" ({places})" if places else "")

    def pair(self, row: StudyComparison) -> str:
        """A comparison in words: ``SCL − CE (task = SST-2)``, or of two labels of a row ``SCL: lambda 0.3 − 0``."""
        a, b = row.first_coordinates, row.second_coordinates
        shared = {name: label for name, label in a.items() if b.get(name) == label}
        own = [{name: label for name, label in one.items() if name not in shared} for one in (a, b)]
        if row.first == row.second and len(own[0]) == 1 and own[0].keys() == own[1].keys():
            ((name, label),) = own[0].items()
            return f"{self.name(row.first, shared)}: {name} {label} − {own[1][name]}"
        names = [self.name(one, places) for one, places in zip((row.first, row.second), own, strict=True)]
        places = ", ".join(f"{name} = {label}" for name, label in shared.items())
        return " − ".join(names) + (f" ({places})" if places else "")

    def best(self) -> set[tuple[Line, Head]]:
        """The best of each column, if all its tests against other lines are significant."""
        best = set()
        for head in self.heads:
            column = head[-1]
            known = {
                line: mean
                for line in self.lines
                if (line, head) in self.cells and (mean := self.cells[line, head].scores[column].mean) is not None
            }
            if column in _DIGITS or len(known) < 2:  # of a measure of geometry, higher is not better
                continue
            line = max(known, key=lambda line: known[line])
            group = self.cells[line, head]
            ours = [
                row
                for row in self.table.comparisons
                if row.column == column
                and (group.row, group.coordinates)
                in ((row.first, row.first_coordinates), (row.second, row.second_coordinates))
            ]
            alone = list(known.values()).count(known[line]) == 1
            if alone and ours and all(significant(row, self.table.level) for row in ours):
                best.add((line, head))
        return best


def significant(row: StudyComparison, level: float) -> bool:
    """Whether a difference is significant after Holm's correction in each of its tests: on test data, and over runs.

    The first is about these trained models and other test data, the second about other trainings. A difference between
    methods needs both. A row without a test is not significant.
    """
    tests = [test for test in (row.pairs, row.seeds) if test is not None]
    return bool(tests) and all(test.p_holm < level for test in tests)


def digits_of(column: str) -> int:
    """Decimals of a column's numbers."""
    return _DIGITS.get(column, 2)


def number(value: float, column: str, *, sign: bool = False) -> str:
    """A number of a column."""
    digits = digits_of(column)
    text = f"{value:+.{digits}f}" if sign else f"{value:,.{digits}f}" if digits == 0 else f"{value:.{digits}f}"
    return text.replace("-", "−") if float(f"{value:.{digits}f}") < 0 else text.lstrip("-")


def paper_number(value: float, column: str) -> str:
    """A number of the paper, without zeros that the study file does not have, but at least one decimal."""
    text = number(value, column)
    if "." not in text:
        return text
    whole, decimals = text.split(".")
    return f"{whole}.{decimals[0]}{decimals[1:].rstrip('0')}"


def our_number(score: GroupScore, column: str) -> str:
    """Mean and standard deviation: ``61.23 (0.40)``."""
    if score.mean is None:
        return "missing" if score.n == 0 else "–" if score.reason == NOT_MEASURED else "undefined"
    return number(score.mean, column) + ("" if score.sd is None else f" ({number(score.sd, column)})")


def their_number(score: GroupScore, column: str) -> str:
    """The paper's number and standard deviation; empty without one."""
    if score.paper is None:
        return ""
    spread = "" if score.paper_sd is None else f" ({paper_number(score.paper_sd, column)})"
    return paper_number(score.paper, column) + spread


def p_value(p: float) -> str:
    """A p value with four decimals; smaller ones as such."""
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"
