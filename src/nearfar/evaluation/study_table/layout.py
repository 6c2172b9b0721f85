"""A table as lines and columns, and its numbers as text; Markdown and LaTeX are two renderings of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nearfar.evaluation.results import GroupScore, StudyComparison, StudyGroup, StudyTable
from nearfar.evaluation.study_table.plan import AVERAGE, NOT_MEASURED, Plan, read_plan
from nearfar.evaluation.study_table.unseen import AVERAGE_UNSEEN

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
class Head:
    """A column of scores: labels of the axes that give columns, and a column of the study."""

    labels: Mapping[str, str]
    column: str
    heading: str


@dataclass(frozen=True)
class Line:
    """A line of the table."""

    row: str
    name: str
    labels: tuple[str, ...]
    """One for each axis of :attr:`Layout.axes`; empty where the row is not crossed with it."""
    groups: tuple[StudyGroup, ...]
    scores: tuple[GroupScore | None, ...]
    """One for each of :attr:`Layout.heads`."""
    note: str


@dataclass(frozen=True)
class Layout:
    """A table as lines and columns."""

    plan: Plan
    axes: tuple[str, ...]
    """The axes whose labels are in lines."""
    heads: tuple[Head, ...]
    lines: tuple[Line, ...]


def lay_out(table: StudyTable) -> Layout:
    """The lines and columns of a table."""
    plan = read_plan(table.study, table.groups)
    across = [axis.name for axis in plan.axes.values() if axis.display == "columns"]
    down = [name for name in plan.axes if name not in across]
    combinations: list[dict[str, str]] = [{}]
    for name in across:
        shown = [
            label for label in plan.axes[name].labels if any(g.coordinates.get(name) == label for g in table.groups)
        ]
        combinations = [{**one, name: label} for one in combinations for label in shown]
    columns = list(table.columns)
    heads = tuple(
        Head(labels, column, _heading(plan, labels, column, only=len(columns) == 1))
        for labels in combinations
        for column in columns
    )
    groups: dict[tuple[str, ...], list[StudyGroup]] = {}
    for group in table.groups:
        place = (group.row, *(group.coordinates.get(name, "") for name in down))
        groups.setdefault(place, []).append(group)
    lines = []
    for (row, *labels), members in groups.items():
        scores = [_score(members, head, first=head.labels == combinations[0]) for head in heads]
        line = Line(row, plan.rows[row].name, tuple(labels), tuple(members), tuple(scores), plan.rows[row].note)
        lines.append(line)
    return Layout(plan, tuple(down), heads, tuple(lines))


def _heading(plan: Plan, labels: Mapping[str, str], column: str, *, only: bool) -> str:
    named = [AVERAGE.capitalize() if label == AVERAGE else label for label in labels.values()]
    title = heading(plan, column)
    return ", ".join(named) if named and only else ", ".join([*named, title])


def heading(plan: Plan, column: str) -> str:
    """The heading of a column."""
    return plan.headings.get(column, _TITLES.get(column, column.removeprefix("average:")))


def _score(groups: Sequence[StudyGroup], head: Head, *, first: bool) -> GroupScore | None:
    """The score of a head; a row that is not crossed with the axes that give columns is shown in their first label."""
    for group in groups:
        own = {name: label for name, label in group.coordinates.items() if name in head.labels}
        if own == dict(head.labels) or (not own and first):
            return group.scores.get(head.column)
    return None


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
    return paper_number(score.paper, column) + (
        "" if score.paper_sd is None else f" ({paper_number(score.paper_sd, column)})"
    )


def runs_text(groups: Sequence[StudyGroup]) -> str:
    """The number of runs of a line: one number, or the smallest and largest."""
    runs = sorted({group.runs for group in groups})
    return f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"


def significant(row: StudyComparison, level: float) -> bool:
    """Whether a difference is significant after Holm's correction in each of its tests: on test data, and over runs.

    The first is about these trained models and other test data, the second about other trainings. A difference between
    methods needs both. A row without a test is not significant.
    """
    tests = [test for test in (row.pairs, row.seeds) if test is not None]
    return bool(tests) and all(test.p_holm < level for test in tests)


def bold_scores(table: StudyTable, layout: Layout) -> set[tuple[int, int]]:
    """Positions (line, head) of the best score of each column, if all its tests against other lines are significant."""
    found = set()
    for place, head in enumerate(layout.heads):
        if not _is_score(table, head.column):
            continue
        known = [
            (score.mean, number)
            for number, line in enumerate(layout.lines)
            if (score := line.scores[place]) is not None and score.mean is not None
        ]
        if len(known) < 2:
            continue
        best, line = max(known)
        if sum(value == best for value, _ in known) > 1:
            continue
        group = _group_of(layout.lines[line], head)
        tests = [row for row in table.comparisons if row.column == head.column and group is not None]
        ours = [row for row in tests if group is not None and _side(row, group)]
        if ours and all(significant(row, table.level) for row in ours):
            found.add((line, place))
    return found


def _group_of(line: Line, head: Head) -> StudyGroup | None:
    for group in line.groups:
        own = {name: label for name, label in group.coordinates.items() if name in head.labels}
        if own in (dict(head.labels), {}):
            return group
    return None


def _side(row: StudyComparison, group: StudyGroup) -> bool:
    return (row.first, row.first_coordinates) == (group.row, group.coordinates) or (
        (row.second, row.second_coordinates) == (group.row, group.coordinates)
    )


def _is_score(table: StudyTable, column: str) -> bool:
    """Whether higher values of a column are better: it is tested, and no measure of geometry."""
    return column not in _DIGITS and any(row.column == column for row in table.comparisons)


def pair_name(layout: Layout, row: StudyComparison) -> str:
    """A comparison in words: ``SCL − CE (task = SST-2)``, or of two labels of one row ``SCL: lambda 0.3 − 0``."""
    a, b = row.first_coordinates, row.second_coordinates
    shared = {name: label for name, label in a.items() if b.get(name) == label}
    own = [{name: label for name, label in one.items() if name not in shared} for one in (a, b)]
    if row.first == row.second and len(own[0]) == 1 and own[0].keys() == own[1].keys():
        ((name, label),) = own[0].items()
        return f"{group_name(layout, row.first, shared)}: {name} {label} − {own[1][name]}"
    names = [group_name(layout, one, places) for one, places in zip((row.first, row.second), own, strict=True)]
    places = ", ".join(f"{name} = {label}" for name, label in shared.items())
    return " − ".join(names) + (f" ({places})" if places else "")


def group_name(layout: Layout, row: str, coordinates: Mapping[str, str]) -> str:
    """A group in words: ``SCL (lambda = 0.3)``."""
    places = ", ".join(f"{name} = {label}" for name, label in coordinates.items())
    return layout.plan.rows[row].name + (f" ({places})" if places else "")
