"""The record of a study as lines and columns, and its numbers as text."""

from collections.abc import Mapping
from dataclasses import dataclass

from nearfar.evaluation.results import GroupScore, StudyComparison, StudyGroup, StudyTable
from nearfar.studies.columns import AVERAGE_UNSEEN, NOT_MEASURED
from nearfar.studies.read import read_recorded
from nearfar.studies.spec import AVERAGE, Study

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


@dataclass(frozen=True)
class Line:
    """A line of the table: a row at one combination of labels of the axes that are not columns."""

    row: str
    labels: Mapping[str, str]
    """Axis -> label, for each axis whose labels are in lines; without those that the row is not crossed with."""
    groups: tuple[StudyGroup, ...]


@dataclass(frozen=True)
class Head:
    """A column of scores: labels of the axes that give columns, and a column of the study."""

    labels: Mapping[str, str]
    column: str
    is_first: bool
    """Whether it has the first labels; a row that is not crossed with these axes is shown there."""

    def group(self, line: Line) -> StudyGroup | None:
        """The group of a line that is shown in this column."""
        for group in line.groups:
            own = {name: label for name, label in group.coordinates.items() if name in self.labels}
            if own == dict(self.labels) or (not own and self.is_first):
                return group
        return None


class Layout:
    """A table as lines and columns."""

    def __init__(self, table: StudyTable) -> None:
        self.table = table
        self.study: Study = read_recorded(table.study)
        across = [axis for axis in self.study.axes if axis.use == "columns"]
        self.axes = tuple(axis.name for axis in self.study.axes if axis.use != "columns")
        combined: list[dict[str, str]] = [{}]
        for axis in across:
            used = {group.coordinates.get(axis.name) for group in table.groups}
            shown = [label for label in axis.shown_labels if label in used]
            combined = [{**one, axis.name: label} for one in combined for label in shown]
        self.heads = [Head(labels, column, labels == combined[0]) for labels in combined for column in table.columns]
        groups: dict[tuple[str, ...], list[StudyGroup]] = {}
        for group in table.groups:
            place = (group.row, *(group.coordinates.get(name, "") for name in self.axes))
            groups.setdefault(place, []).append(group)
        self.lines = [
            Line(row, dict(zip(self.axes, labels, strict=True)), tuple(members))
            for (row, *labels), members in groups.items()
        ]

    def heading(self, column: str) -> str:
        """The heading of a column."""
        return self.study.titles.get(column, _TITLES.get(column, column.removeprefix("average:")))

    def name(self, row: str, coordinates: Mapping[str, str]) -> str:
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

    def best(self) -> set[tuple[int, int]]:
        """Positions (line, head) of the best of each column, if all its tests against other lines are significant."""
        best = set()
        for place, head in enumerate(self.heads):
            tests = [row for row in self.table.comparisons if row.column == head.column]
            groups = [head.group(line) for line in self.lines]
            known = [
                (mean, number)
                for number, group in enumerate(groups)
                if group is not None and (mean := group.scores[head.column].mean) is not None
            ]
            if head.column in _DIGITS or len(known) < 2:  # of a measure of geometry, higher is not better
                continue
            top, line = max(known)
            group = groups[line]
            assert group is not None
            here = (group.row, group.coordinates)
            sides = [((row.first, row.first_coordinates), (row.second, row.second_coordinates)) for row in tests]
            ours = [row for row, both in zip(tests, sides, strict=True) if here in both]
            alone = sum(value == top for value, _ in known) == 1
            if alone and ours and all(significant(row, self.table.level) for row in ours):
                best.add((line, place))
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
