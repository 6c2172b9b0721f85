"""The page of a study, from its record alone: the table beside the paper's numbers, intervals, tests and orderings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, get_args

from nearfar.disk import write_text
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
from nearfar.evaluation.results import StudyTable, StudyTest
from nearfar.evaluation.results.files import make_folder
from nearfar.studies.layout import Layout, number, our_number, p_value, paper_number, significant, their_number
from nearfar.studies.plots import save, study_plots
from nearfar.studies.scores import NOT_MEASURED
from nearfar.studies.spec import AVERAGE

RECORD = "study.json"
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


def write_outputs(table: StudyTable, folder: str | Path) -> list[Path]:
    """Write study.json, page.md, table.csv, table.tex, and each plot as PNG and SVG; return their paths.

    All files but study.json are made from it alone: ``write_outputs(StudyTable.load(FILE), FOLDER)`` writes the same
    bytes. Each file is written completely or not at all.

    Raises:
        NearfarError: an unknown kind, axis, column or curve of a plot; the disk is full or cannot be written.
    """
    folder = Path(folder)
    make_folder(folder / RECORD)
    plots = study_plots(Layout(table))
    table.save(folder / RECORD)
    for name, figure in plots.items():
        save(figure, folder / name)
    texts = {
        "page.md": study_markdown(table, [f"{name}.svg" for name in plots]),
        "table.csv": study_csv(table),
        "table.tex": study_latex(table),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in (RECORD, *texts, *(f"{plot}.{end}" for plot in plots for end in ("png", "svg")))]


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
