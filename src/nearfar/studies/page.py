"""The page of a study, from its record alone: the table beside the paper's numbers, intervals, claims and orderings."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from nearfar.evaluation import render
from nearfar.evaluation.comparison import SIGNIFICANCE_LEVEL
from nearfar.evaluation.results import StudyComparison, StudyTable
from nearfar.studies.groups import scores_of
from nearfar.studies.scores import AVERAGE_UNSEEN, NOT_MEASURED
from nearfar.studies.spec import AVERAGE, NO_SCORES, Coordinates, words_of

if TYPE_CHECKING:
    from pandas import DataFrame

_DIGITS = {"uniformity": 3, "alignment": 3, "isotropy": 3, "mean_cosine": 3, "effective_rank": 1, "parameters": 0}
_TITLES = {AVERAGE: "Average", AVERAGE_UNSEEN: "Average, unseen pairs", "seconds": "time, s"}
NO_RUN = "no run of nearfar"
Order: TypeAlias = Literal["same sign, significant", "same sign, not significant", "opposite sign", "no difference"]
_MAX_INTERVALS = 60
"""Lines of the table of intervals on a page; a longer one is only in table.csv."""
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Score(NamedTuple):
    """A column of a group, in its runs here and in the paper."""

    group: int
    column: str
    n: int
    """Number of different runs."""
    missing: int
    mean: float | None
    """None without a run, or where the value of one is undefined."""
    sd: float | None
    """Of a sample; None for one run."""
    low: float | None
    """The 95% interval of the mean begins here."""
    high: float | None
    paper: float | None
    paper_sd: float | None
    difference: float | None
    """To the paper's number."""
    reason: str | None
    """Why the mean is undefined."""


class Layout:
    """A table as lines and columns.

    Attributes:
        groups: the row and the coordinates of each group.
        scores: number of a group, column -> its numbers.
        lines: a row, and its labels of the axes that are not columns ("" where it has no such axis) -> labels of the
            axes that are columns -> number of the group; one without such an axis is shown at its first label.
        across: the labels of the axes that are columns.
    """

    def __init__(self, table: StudyTable) -> None:
        scores = scores_of(table)
        self.table, self.study, self.groups = table, scores.study, scores.groups
        ends = {scores.number(one.row, one.coordinates): one.intervals for one in table.groups}
        self.scores: dict[tuple[int, str], Score] = {}
        for group, column in product(range(len(self.groups)), self.study.columns):
            values = scores.values(group, column)
            numbers = [one.value for one in values if one.value is not None]
            is_known = len(numbers) == len(values) > 0
            mean = float(np.mean(numbers)) if is_known else None
            printed = self.study.paper_number(*self.groups[group], column)
            missing = scores.missing.get(group, [])
            why = [one.reason for one in values if one.reason] if values else [*missing, NO_RUN]
            low, high = ends.get(group, {}).get(column, (None, None))
            self.scores[group, column] = Score(
                group,
                column,
                n=len(values),
                missing=len(missing),
                mean=mean,
                sd=float(np.std(numbers, ddof=1)) if is_known and len(numbers) > 1 else None,
                low=low,
                high=high,
                paper=printed and printed.value,
                paper_sd=printed and printed.sd,
                difference=mean - printed.value if printed and mean is not None else None,
                reason=next(iter(why), None),
            )
        self.axes = [axis.name for axis in self.study.axes if axis.use != "columns"]
        columns = [axis for axis in self.study.axes if axis.use == "columns"]
        used = {place for _, coordinates in self.groups for place in coordinates.items()}
        labels = [[label for label in axis.shown_labels if (axis.name, label) in used] for axis in columns]
        self.across = list(product(*labels))
        self.lines: dict[tuple[str, ...], dict[tuple[str, ...], int]] = {}
        for group, (row, at) in enumerate(self.groups):
            line = self.lines.setdefault((row, *(at.get(name, "") for name in self.axes)), {})
            shown = zip(columns, labels, strict=True)
            line[tuple(at.get(axis.name, next(iter(known), "")) for axis, known in shown)] = group

    def frame(self) -> "DataFrame":
        """All numbers: row, name, each axis, column, n, missing, mean, sd, low, high, the paper's, difference."""
        from pandas import DataFrame  # imported here: the import is slow

        axes = [axis.name for axis in self.study.axes]
        rows = []
        for score in self.scores.values():
            row, at = self.groups[score.group]
            numbers = [round(one, 4) if isinstance(one, float) else one for one in score[2:]]
            rows.append([row, self.name(row, {}), *(at.get(axis, "") for axis in axes), score.column, *numbers])
        return DataFrame(rows, columns=["row", "name", *axes, *Score._fields[1:]], dtype=object)

    def runs(self, group: int) -> int:
        """The number of different runs of a group."""
        return self.scores[group, self.table.columns[0]].n

    def paper_difference(self, row: StudyComparison) -> float | None:
        """The difference of two groups in the paper."""
        sides = ((row.first, row.first_coordinates), (row.second, row.second_coordinates))
        printed = [self.study.paper_number(*side, row.column) for side in sides]
        return None if printed[0] is None or printed[1] is None else round(printed[0].value - printed[1].value, 4)

    def claims(self, row: StudyComparison) -> bool:
        """Whether a comparison is of a column that the study claims."""
        return self.study.claims is None or row.column in self.study.claims

    def heading(self, column: str) -> str:
        """The heading of a column."""
        title = column.removeprefix("average:")
        if column in NO_SCORES:
            title = title.replace("_per_second", "/s").replace("_seconds", ", s").replace("_", " ")
        return str(self.study.titles.get(column, _TITLES.get(column, title)))

    def name(self, row: str, coordinates: Coordinates) -> str:
        """A group in words: ``SCL (lambda = 0.3)``."""
        return self.study.row(row).name + (f" ({words_of(coordinates, ' = ')})" if coordinates else "")

    def pair(self, row: StudyComparison) -> str:
        """A comparison in words: ``SCL − CE (task = SST-2)``, or of two labels of a row ``SCL: lambda 0.3 − 0``."""
        a, b = row.first_coordinates, row.second_coordinates
        shared = {name: label for name, label in a.items() if b.get(name) == label}
        own = [{name: label for name, label in one.items() if name not in shared} for one in (a, b)]
        if row.first == row.second and len(own[0]) == 1 and own[0].keys() == own[1].keys():
            ((name, label),) = own[0].items()
            return f"{self.name(row.first, shared)}: {name} {label} − {own[1][name]}"
        names = f"{self.name(row.first, own[0])} − {self.name(row.second, own[1])}"
        return names + (f" ({words_of(shared, ' = ')})" if shared else "")

    def best(self) -> set[tuple[int, str]]:
        """Group and column of the best of each column, if all its tests against other lines are significant."""
        best = set()
        for labels, column in product(self.across, self.table.columns):
            shown = [line[labels] for line in self.lines.values() if labels in line]
            known = {group: mean for group in shown if (mean := self.scores[group, column].mean) is not None}
            if column in NO_SCORES or len(known) < 2:
                continue
            first = max(known, key=known.__getitem__)
            tests = [
                row
                for row in self.table.comparisons
                if row.column == column
                and self.groups[first] in ((row.first, row.first_coordinates), (row.second, row.second_coordinates))
            ]
            if list(known.values()).count(known[first]) == 1 and tests and all(map(significant, tests)):
                best.add((first, column))
        return best


def significant(row: StudyComparison) -> bool:
    """Whether the interval of a difference leaves out 0, and still does after Holm's correction."""
    return row.p_holm is not None and row.p_holm < SIGNIFICANCE_LEVEL


def claim(row: StudyComparison) -> list[str]:
    """A comparison as two texts: its difference with the interval, and the verdict in words."""
    if row.difference is None:
        return ["missing", ""]
    ends = interval(row.low, row.high, row.column, sign=True)
    more = "" if row.more_units is None else f": about {row.more_units:,} more units would"
    return [f"{number(row.difference, row.column, sign=True)} {ends}".rstrip(), f"{row.verdict or ''}{more}"]


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
    return re.sub(r"(\.\d\d*?)0+$", r"\1", number(value, column))


def paper_difference(layout: Layout, row: StudyComparison) -> str:
    """The difference of two groups in the paper; empty without one."""
    printed = layout.paper_difference(row)
    return "" if printed is None else ("+" if printed > 0 else "") + paper_number(printed, row.column)


def interval(low: float | None, high: float | None, column: str, *, sign: bool = False) -> str:
    """An interval of a column; empty without one."""
    if low is None or high is None:
        return ""
    return f"[{number(low, column, sign=sign)}, {number(high, column, sign=sign)}]"


def our_number(score: Score) -> str:
    """Mean and standard deviation of a line of the frame: ``61.23 (0.40)``."""
    if score.mean is None:
        is_here = score.missing if score.n == 0 else score.reason != NOT_MEASURED
        return "–" if not is_here else "missing" if score.n == 0 else "undefined"
    return number(score.mean, score.column) + ("" if score.sd is None else f" ({number(score.sd, score.column)})")


def their_number(score: Score) -> str:
    """The paper's number and standard deviation; empty without one."""
    if score.paper is None:
        return ""
    spread = "" if score.paper_sd is None else f" ({paper_number(score.paper_sd, score.column)})"
    return paper_number(score.paper, score.column) + spread


def scores_table(layout: Layout) -> render.Table:
    """The table of a study, the paper's numbers after a slash."""
    table, best = layout.table, layout.best()
    caption = layout.study.caption or table.title
    marks: dict[str, str] = {}
    rows: list[list[render.Cell | str]] = []
    for line, groups in layout.lines.items():
        row = layout.study.row(line[0])
        mark = marks.setdefault(row.note, str(len(marks) + 1).translate(_RAISED)) if row.note else ""
        runs = sorted({layout.runs(group) for group in groups.values()})
        cells: list[render.Cell | str] = [render.Cell(row.name, mark), *map(_label, line[1:])]
        cells.append(f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}")
        for labels, column in product(layout.across, table.columns):
            if labels not in groups:
                cells.append("")
                continue
            score = layout.scores[groups[labels], column]
            theirs = their_number(score)
            is_best = (groups[labels], column) in best
            cells.append(render.Cell(our_number(score), f"/ {theirs}" if theirs else "", "best" if is_best else ""))
        rows.append(cells)
    several = len(table.columns) > 1
    headings = [
        ", ".join([*map(_label, labels), *([layout.heading(column)] if several or not labels else [])])
        for labels, column in product(layout.across, table.columns)
    ]
    return render.Table(
        columns=["", *layout.axes, "runs", *headings],
        rows=rows,
        title=f"{caption.rstrip('.')}, at the scale {table.scale}." if table.scale else caption,
        notes=[*(f"{mark} {note}" for note, mark in marks.items()), *filter(None, [_legend(layout, bold=bool(best))])],
        left=1 + len(layout.axes),
    )


def _label(label: str) -> str:
    return AVERAGE.capitalize() if label == AVERAGE else label


def _legend(layout: Layout, *, bold: bool) -> str:
    table, study, shown = layout.table, layout.study, layout.scores.values()
    over = f"the best {study.kept} runs by validation score" if study.kept else "runs"
    sentences = [f"Mean (standard deviation) over {over}."] * any(score.sd is not None for score in shown)
    sentences += ["After the slash, the paper's number."] * any(score.paper is not None for score in shown)
    sentences += ["–: not run or not measured."] * any(our_number(score) == "–" for score in shown)
    if table.study.get("aggregate"):
        sentences.append(f"Tasks with subsets: {study.aggregate}.")
    if table.unseen_pairs:
        counts = [f"{task} {unseen:,} of {pairs:,}" for task, (unseen, pairs) in table.unseen_pairs.items()]
        sentences.append(f"Unseen pairs: no run was trained on them or chosen by them, {', '.join(counts)}.")
    if bold:
        sentences.append(
            "Bold: the best of its column, and significantly better than every line that it is compared with: the "
            "interval of the difference leaves out 0, after Holm's correction."
        )
    return " ".join(sentences)


def study_markdown(table: StudyTable, plots: Sequence[str] = ()) -> str:
    """The page of a table; ``plots`` are paths of image files, relative to the page."""
    layout = Layout(table)
    orders = Counter(order for row in table.comparisons if (order := order_of(layout, row)) is not None)
    ranked = [(layout.heading(column), *agreement(layout, column)) for column in table.columns]
    return render.fill_template(
        Path(__file__).with_name("page.md"),
        layout=layout,
        table=table,
        study=layout.study,
        notes=render.safe_markdown((layout.study.notes or "").strip()),
        scores=render.to_markdown(replace(scores_table(layout), title="")),
        plots=plots,
        intervals=_intervals(layout),
        comparisons=_comparisons(layout),
        explored=not all(map(layout.claims, table.comparisons)),
        orders={order: orders[order] for order in get_args(Order)} if orders else {},
        ranked=[one for one in ranked if one[2]],
        command=render.code_block(table.command) if table.command else "",
        runs=table.runs,
    )


def _intervals(layout: Layout) -> str:
    """The table of intervals; empty without a mean, or if it is too long for a page."""
    rows = [
        [layout.name(*layout.groups[group]), layout.heading(column), number(score.mean, column), ends]
        for (group, column), score in layout.scores.items()
        if score.mean is not None and (ends := interval(score.low, score.high, column))
    ]
    if not 0 < len(rows) <= _MAX_INTERVALS:
        return ""
    return render.to_markdown(render.Table(columns=["", "column", "mean", "95% interval"], rows=rows, left=2))


def _comparisons(layout: Layout) -> str:
    """The table of comparisons, with the paper's differences if there are any; empty without any comparison."""
    columns, rows = ["", "column", "difference [95%]", "verdict", "paper", "order"], list[list[str]]()
    for row in layout.table.comparisons:
        theirs = paper_difference(layout, row), order_of(layout, row) or ""
        rows.append([layout.pair(row), layout.heading(row.column), *claim(row), *theirs])
    if not any(row[4] for row in rows):
        columns, rows = columns[:4], [row[:4] for row in rows]
    return render.to_markdown(render.Table(columns=columns, rows=rows, left=2)) if rows else ""


def order_of(layout: Layout, row: StudyComparison) -> Order | None:
    """Whether a difference has the sign that it has in the paper, and whether it is :func:`significant`.

    None where the two are equal in the paper, the paper or this table lacks one of them, or it is no claim.
    """
    printed = layout.paper_difference(row)
    if not printed or row.difference is None or not layout.claims(row):
        return None
    if printed * row.difference > 0:
        return "same sign, significant" if significant(row) else "same sign, not significant"
    return "opposite sign" if row.difference else "no difference"


def agreement(layout: Layout, column: str) -> tuple[int, int]:
    """How many pairs of groups have the paper's order, and how many have different numbers in the paper.

    Groups that are tested on different tasks, and averages over an axis beside its labels, are not paired.
    """
    known = []
    for group, (_, coordinates) in enumerate(layout.groups):
        score = layout.scores[group, column]
        if score.paper is not None and score.mean is not None:
            labels = [(axis, coordinates.get(axis.name)) for axis in layout.study.axes]
            tested = [label if axis.says_what_is_tested or label == AVERAGE else None for axis, label in labels]
            known.append((tested, score.paper, score.mean))
    pairs = [(one[1] - other[1], one[2] - other[2]) for one, other in combinations(known, 2) if one[0] == other[0]]
    differing = [(paper, here) for paper, here in pairs if round(paper, 6) != 0]
    return sum(paper * here > 0 for paper, here in differing), len(differing)


def study_csv(table: StudyTable) -> str:
    """The table in long form, as :meth:`Layout.frame`; a text that a spreadsheet would compute has an apostrophe."""
    frame = Layout(table).frame()
    return render.csv_lines([list(frame.columns), *frame.to_numpy().tolist()])


def study_latex(table: StudyTable) -> str:
    """The table in LaTeX; needs the package booktabs."""
    scores = scores_table(Layout(table))
    incomplete = [f"Incomplete: {len(table.missing)} runs have no result."] * bool(table.missing)
    return render.to_latex(replace(scores, notes=[*scores.notes, *incomplete]))
