"""The page of a study, from its record alone: the table beside the paper's numbers, intervals, tests and orderings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from nearfar.evaluation.render import (
    Cell,
    Table,
    code_block,
    csv_lines,
    fill_template,
    markdown_text,
    safe_markdown,
    to_latex,
    to_markdown,
)
from nearfar.evaluation.results import GroupScore, StudyComparison, StudyGroup, StudyTable, StudyTest
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
        from pandas import DataFrame  # imported here: the import is slow

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


Verdict: TypeAlias = Literal["same sign, significant", "same sign, not significant", "opposite sign", "no difference"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
EQUAL: Verdict = "no difference"
_OF_PAPER = ("paper", "ours − paper")
"""Columns of numbers that a paper printed, and their difference to ours."""
_MAX_INTERVALS = 60
"""Lines of the table of intervals on a page; a longer one is only in table.csv."""
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def scores_table(layout: Layout) -> Table:
    """The table of a study, the paper's numbers after a slash."""
    table, best = layout.table, layout.best()
    caption = table.caption or table.title
    marks: dict[str, str] = {}
    rows: list[list[Cell | str]] = []
    for line, groups in layout.lines.items():
        row = layout.study.row(line[0])
        mark = marks.setdefault(row.note, str(len(marks) + 1).translate(_RAISED)) if row.note else ""
        runs = sorted({group.runs for group in groups})
        cells: list[Cell | str] = [Cell(row.name, mark), *map(_label, line[1:])]
        cells.append(f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}")
        not_run = any(one.runs == 0 and not one.missing for one in groups)
        for head in layout.heads:
            group = layout.cells.get((line, head))
            if group is None:
                cells.append("")
                continue
            score, column = group.scores[head[-1]], head[-1]
            theirs = their_number(score, column)
            ours = "–" if not_run and score.n == 0 else our_number(score, column)
            cells.append(Cell(ours, f"/ {theirs}" if theirs else "", "best" if (line, head) in best else ""))
        rows.append(cells)
    several = len(table.columns) > 1
    headings = [
        ", ".join([*map(_label, labels), *([layout.heading(column)] if several or not labels else [])])
        for *labels, column in layout.heads
    ]
    return Table(
        columns=["", *layout.axes, "runs", *headings],
        rows=rows,
        title=f"{caption.rstrip('.')}, at the scale {table.scale}." if table.scale else caption,
        notes=[*(f"{mark} {note}" for note, mark in marks.items()), *_legend(layout, bold=bool(best))],
        left=1 + len(layout.axes),
    )


def _label(label: str) -> str:
    return AVERAGE.capitalize() if label == AVERAGE else label


def _legend(layout: Layout, *, bold: bool) -> list[str]:
    table, study = layout.table, layout.study
    scores = [score for group in table.groups for score in group.scores.values()]
    words = []
    if any(score.sd is not None for score in scores):
        over = f"the best {study.kept} runs by validation score" if study.kept else "runs"
        words.append(f"mean (standard deviation) over {over}")
    if any(score.paper is not None for score in scores):
        words.append("after the slash, the paper's number")
    text = "; ".join(words)
    sentences = [f"{text[:1].upper()}{text[1:]}."] if text else []
    if table.study.get("aggregate"):
        sentences.append(f"Tasks with subsets: {study.aggregate}.")
    if table.unseen_pairs:
        counts = [f"{task} {unseen:,} of {pairs:,}" for task, (unseen, pairs) in table.unseen_pairs.items()]
        sentences.append(f"Unseen pairs: no run was trained on them or chosen by them, {', '.join(counts)}.")
    if any(group.runs == 0 and not group.missing for group in table.groups):
        sentences.append("–: not run here.")
    elif any(score.reason == NOT_MEASURED and score.n for score in scores):
        sentences.append("–: not measured.")
    if bold:
        sentences.append(
            "Bold: the best of its column, and significantly better than every line that it is compared with, on the "
            f"test data and over runs, where there are both tests (Holm, {table.level:g})."
        )
    return [" ".join(sentences)] if sentences else []


def study_markdown(table: StudyTable, plots: Sequence[str] = (), *, level: int = 1) -> str:
    """The page of a table, or at a deeper ``level`` of its heading a section of a page, without table.csv beside it.

    ``plots`` are paths of image files, relative to the page.
    """
    layout = Layout(table)
    missing: dict[str, list[str]] = {}
    for cell in table.missing:
        missing.setdefault(cell.reason, []).append(layout.name(cell.row, {**cell.coordinates, **cell.replicate}))
    tests = [(row.pairs, row.seeds) for row in table.comparisons]
    counts = {
        of: sum(map(bool, both))
        for of, both in zip(("on test data", "over runs"), zip(*tests, strict=True), strict=False)
    }
    listed = orderings(layout)
    by_verdict = {verdict: [one.text for one in listed if one.verdict == verdict] for verdict in VERDICTS}
    ranked = [(layout.heading(column), *agreement(layout, column)) for column in table.columns]
    return fill_template(
        Path(__file__).with_name("page.md"),
        table=table,
        heading="#" * level,
        incomplete=", ".join(dict.fromkeys(layout.study.row(cell.row).name for cell in table.missing)),
        notes=safe_markdown(table.notes.strip()),
        scores=to_markdown(replace(scores_table(layout), title="")),
        csv=level == 1,
        plots=plots,
        intervals=_intervals(layout),
        comparisons=_comparisons(layout),
        tests=", ".join(dict.fromkeys(test.test for both in tests for test in both if test)),
        families=", and ".join(f"over all {count} tests {of}" for of, count in counts.items() if count),
        reasons=list(dict.fromkeys(row.reason for row in table.comparisons if row.reason)),
        orderings=listed,
        by_verdict=by_verdict,
        counts="; ".join(f"{len(own)} {verdict}" for verdict, own in by_verdict.items() if own or verdict != EQUAL),
        ranked=[one for one in ranked if one[2]],
        missing=missing,
        command=code_block(table.command) if table.command else "",
        facts=_facts(table),
    )


def _intervals(layout: Layout) -> str:
    """The table of intervals; empty without a mean, or if it is too long for a page."""
    rows = [
        [
            layout.name(group.row, group.coordinates),
            layout.heading(column),
            str(score.n),
            number(score.mean, column),
            "" if score.sd is None else number(score.sd, column),
            _interval(score.low, score.high, column),
            {"t over replicates": "t", "bootstrap over pairs": "bootstrap"}.get(score.interval or "", ""),
            their_number(score, column),
            "" if score.difference is None else number(score.difference, column, sign=True),
        ]
        for group in layout.table.groups
        for column, score in group.scores.items()
        if score.mean is not None
    ]
    columns = ["", "column", "runs", "mean", "sd", "95% interval", "by", *_OF_PAPER]
    return _without_paper(columns, rows) if len(rows) <= _MAX_INTERVALS else ""


def _interval(low: float | None, high: float | None, column: str) -> str:
    return "" if low is None or high is None else f"[{number(low, column)}, {number(high, column)}]"


def _without_paper(columns: list[str], rows: list[list[str]]) -> str:
    """A table without its columns of printed numbers if it has no printed number; empty without a row."""
    kept = [place for place, name in enumerate(columns) if name not in _OF_PAPER or any(row[place] for row in rows)]
    rows = [[row[place] for place in kept] for row in rows]
    return to_markdown(Table(columns=[columns[place] for place in kept], rows=rows, left=2)) if rows else ""


def _comparisons(layout: Layout) -> str:
    """The table of comparisons; empty without any."""
    rows = []
    for row in layout.table.comparisons:
        difference, test = "missing", row.pairs or row.seeds
        if row.difference is not None:
            interval = _interval(test.low, test.high, row.column) if test else ""
            difference = f"{number(row.difference, row.column, sign=True)} {interval}".rstrip()
        paper = "" if row.paper is None else _signed(row.paper, row.column)
        names = [layout.pair(row), layout.heading(row.column)]
        rows.append([*names, difference, paper, *_p(row.pairs), *_p(row.seeds)])
    columns = ["", "column", "difference [95%]", _OF_PAPER[0], "p, test data", "Holm", "p, runs", "Holm"]
    return _without_paper(columns, rows)


def _signed(value: float, column: str) -> str:
    return ("+" if value > 0 else "") + paper_number(value, column)


def _p(test: StudyTest | None) -> list[str]:
    return ["", ""] if test is None else [p_value(test.p), p_value(test.p_holm)]


class Ordering(NamedTuple):
    """One difference that the paper has too."""

    verdict: Verdict
    text: str
    """In words, with the numbers."""


def orderings(layout: Layout) -> list[Ordering]:
    """For each compared pair with numbers in the paper, whether the difference here has the same sign.

    Pairs that are equal in the paper, or have no result here, are left out. Significant means p < 0.05 after Holm's
    correction, on the test data and over runs, where there are both tests.
    """
    listed = []
    for row in layout.table.comparisons:
        if row.paper is None or row.difference is None or round(row.paper, 6) == 0:
            continue
        sure, product = significant(row, layout.table.level), row.paper * row.difference
        verdict: Verdict = "no difference" if product == 0 else "opposite sign"
        if product > 0:
            verdict = "same sign, significant" if sure else "same sign, not significant"
        tests = ((row.pairs, "on test data"), (row.seeds, "over runs"))
        ps = ", ".join(f"p = {p_value(test.p_holm)} {of}" for test, of in tests if test)
        shown = f"{'' if sure else 'not '}significant: {ps}" if ps else "not tested"
        text = (
            f"{layout.pair(row)}, {layout.heading(row.column)}: {_signed(row.paper, row.column)} in the paper, "
            f"{number(row.difference, row.column, sign=True)} here ({shown})"
        )
        listed.append(Ordering(verdict, text))
    return listed


def agreement(layout: Layout, column: str) -> tuple[int, int]:
    """How many pairs of groups have the paper's order, and how many have different numbers in the paper.

    Groups that are tested on different tasks, and averages over an axis beside its labels, are not paired.
    """
    known = []
    for group in layout.table.groups:
        score = group.scores[column]
        if score.paper is not None and score.mean is not None:
            labels = [(axis, group.coordinates.get(axis.name)) for axis in layout.study.axes]
            tested = [label if axis.says_what_is_tested or label == AVERAGE else None for axis, label in labels]
            known.append((tested, score.paper, score.mean))
    pairs = [(one[1] - other[1], one[2] - other[2]) for one, other in combinations(known, 2) if one[0] == other[0]]
    differing = [(paper, here) for paper, here in pairs if round(paper, 6) != 0]
    return sum(paper * here > 0 for paper, here in differing), len(differing)


def _facts(table: StudyTable) -> list[str]:
    """Where and by what the results were made."""
    facts, runs = [], table.runs
    if runs.commits:
        commits = [(*commit.partition("-"), count) for commit, count in runs.commits.items()]
        shown = [f"{digits[:12]}{dash}{changed} ({count} results)" for digits, dash, changed, count in commits]
        facts.append(f"commits {', '.join(shown)}")
    if runs.versions:
        facts.append(", ".join(f"{package} {' and '.join(counts)}" for package, counts in runs.versions.items()))
    units = {"cores": " cores", "threads": " threads"}
    for machine in runs.hardware:
        values = {name: value for name, value in machine.items() if name != "results" and value not in (None, "")}
        words = ", ".join(f"{value}{units.get(name, '')}" for name, value in values.items())
        facts.append(f"{words} ({machine.get('results', 0)} results)")
    if runs.first_date:
        days = dict.fromkeys(date[:10] for date in (runs.first_date, runs.last_date or runs.first_date))
        facts.append(f"run {' to '.join(days)}")
    return facts


def study_csv(table: StudyTable) -> str:
    """The table in long form, as :meth:`Layout.frame`; a text that a spreadsheet would compute has an apostrophe."""
    frame = Layout(table).frame()
    return csv_lines([list(frame.columns), *frame.to_numpy().tolist()])


def study_latex(table: StudyTable) -> str:
    """The table in LaTeX; needs the package booktabs."""
    scores = scores_table(Layout(table))
    incomplete = [f"Incomplete: {len(table.missing)} runs have no result."] * bool(table.missing)
    return to_latex(replace(scores, notes=[*scores.notes, *incomplete]))


def paper_page(
    title: str,
    tables: Sequence[StudyTable],
    notes: str = "",
    *,
    plots: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Several tables on one page in Markdown, a section for each.

    Args:
        title: the heading of the page.
        tables: the tables in order.
        notes: Markdown between heading and tables.
        plots: title of a table -> paths of its plots, relative to the page.
    """
    parts = [f"# {markdown_text(title)}\n", *([f"{notes.strip()}\n"] if notes.strip() else [])]
    parts += [study_markdown(table, (plots or {}).get(table.title, ()), level=2) for table in tables]
    return "\n".join(parts)
