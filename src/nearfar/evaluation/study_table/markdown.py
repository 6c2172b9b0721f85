"""Pages of studies in Markdown: the table beside the paper's numbers, tests, plots, and how to run it again."""

from collections.abc import Mapping, Sequence

from nearfar.evaluation.render import code_block, code_span, safe_markdown
from nearfar.evaluation.results import StudyComparison, StudyTable, StudyTest
from nearfar.evaluation.study_table.layout import (
    Layout,
    bold_scores,
    group_name,
    heading,
    lay_out,
    number,
    our_number,
    pair_name,
    paper_number,
    runs_text,
    their_number,
)
from nearfar.evaluation.study_table.orderings import orderings_markdown
from nearfar.evaluation.study_table.plan import AVERAGE, NOT_MEASURED
from nearfar.evaluation.study_table.text import escape, markdown_rows, p_value

_OF_PAPER = ("paper", "ours − paper")
"""Columns of numbers that a paper printed, and their difference to ours."""
_MAX_INTERVALS = 60
"""Lines of the table of intervals on a page; a longer one is only in table.csv."""


def study_markdown(
    table: StudyTable, plots: Sequence[str] = (), *, level: int = 1, csv: str | None = "table.csv"
) -> str:
    """The page of a table.

    Args:
        table: the table.
        plots: paths of image files, relative to the page.
        level: the level of its heading.
        csv: path of the CSV file, relative to the page; None for no link.
    """
    layout = lay_out(table)
    head = "#" * level
    lines = [f"{head} {escape(table.title)}", ""]
    if table.source:
        lines += [f"Source: {escape(table.source)}.", ""]
    lines += [*_warning(table, layout), *([safe_markdown(table.notes.strip()), ""] if table.notes.strip() else [])]
    lines += [*_scale(table), *_scores(table, layout, csv)]
    for plot in plots:
        lines += [
            f"![{escape(table.title)}: {plot.rsplit('/', 1)[-1].rsplit('.', 1)[0].replace('-', ' ')}]({plot})",
            "",
        ]
    lines += _intervals(table, layout, head)
    lines += _comparisons(table, layout, head)
    lines += orderings_markdown(table, level=level + 1)
    lines += _missing(table, layout, head)
    lines += _again(table, head)
    return "\n".join(lines).rstrip("\n") + "\n"


def _warning(table: StudyTable, layout: Layout) -> list[str]:
    if not table.missing:
        return []
    total = len(table.missing) + len(table.cells)
    rows = dict.fromkeys(layout.plan.rows[cell.row].name for cell in table.missing)
    return [
        f"**Incomplete: {len(table.missing)} of {total} runs have no result** (rows {escape(', '.join(rows))}); "
        "they are listed below. Means are over the other runs.",
        "",
    ]


def _scale(table: StudyTable) -> list[str]:
    if table.scale is None and not table.changes:
        return []
    lines = [
        f"Scale: {code_span(table.scale or 'paper')}."
        + (" Different from the paper's scale:" if table.changes else ""),
        "",
    ]
    return lines + ([*(f"- {escape(change)}" for change in table.changes), ""] if table.changes else [])


def _scores(table: StudyTable, layout: Layout, csv: str | None) -> list[str]:
    bold = bold_scores(table, layout)
    header = ["", *map(escape, layout.axes), "runs", *(escape(head.heading) for head in layout.heads)]
    notes: dict[str, int] = {}
    rows = []
    for place, line in enumerate(layout.lines):
        name = escape(line.name)
        if line.note:
            name += f" <sup>{notes.setdefault(line.note, len(notes) + 1)}</sup>"
        cells = [name, *(escape(_label(label)) for label in line.labels), runs_text(line.groups)]
        for position, (head, score) in enumerate(zip(layout.heads, line.scores, strict=True)):
            if score is None:
                cells.append("")
                continue
            ours = our_number(score, head.column)
            if score.n == 0 and any(group.runs == 0 and not group.missing for group in line.groups):
                ours = "–"
            theirs = their_number(score, head.column)
            ours = f"**{ours}**" if (place, position) in bold else ours
            cells.append(f"{ours} / {theirs}" if theirs else ours)
        rows.append(cells)
    lines = [*markdown_rows(header, rows, left=1 + len(layout.axes)), ""]
    lines += [f"{mark}. {escape(note)}" for note, mark in notes.items()]
    lines += [""] if notes else []
    return [*lines, _legend(table, csv, bold=bool(bold)), ""]


def _label(label: str) -> str:
    return AVERAGE.capitalize() if label == AVERAGE else label


def _legend(table: StudyTable, csv: str | None, *, bold: bool) -> str:
    scores = [score for group in table.groups for score in group.scores.values()]
    best = table.study.get("best")
    words = []
    if any(score.sd is not None for score in scores):
        over = f"the best {escape(str(best['count']))} runs by validation score" if best else "runs"
        words.append(f"Mean (standard deviation) over {over}")
    if any(score.paper is not None for score in scores):
        words.append("after the slash, the paper's number")
    text = "; ".join(words)
    text = f"{text[:1].upper()}{text[1:]}. " if text else ""
    if table.study.get("aggregate"):
        text += f"Tasks with subsets: {code_span(str(table.study['aggregate']))}. "
    if table.unseen_pairs:
        counts = [f"{escape(task)} {unseen:,} of {pairs:,}" for task, (unseen, pairs) in table.unseen_pairs.items()]
        text += f"Unseen pairs: no run was trained on them or chosen by them, {', '.join(counts)}. "
    if any(group.runs == 0 and not group.missing for group in table.groups):
        text += "–: not run here. "
    elif any(score.reason == NOT_MEASURED and score.n for score in scores):
        text += "–: not measured. "
    if bold:
        text += (
            "Bold: the best of its column, and significantly better than every line that it is compared with, on the "
            f"test data and over runs, where there are both tests (Holm, {table.level:g}). "
        )
    if csv is not None:
        text += f"All numbers with 95% intervals: [{csv.rsplit('/', 1)[-1]}]({csv})."
    return text.rstrip()


def _intervals(table: StudyTable, layout: Layout, head: str) -> list[str]:
    rows = []
    for group in table.groups:
        for column, score in group.scores.items():
            if score.mean is None:
                continue
            interval = ""
            if score.low is not None and score.high is not None:
                interval = f"[{number(score.low, column)}, {number(score.high, column)}]"
            rows.append(
                [
                    escape(group_name(layout, group.row, group.coordinates)),
                    escape(heading(layout.plan, column)),
                    str(score.n),
                    number(score.mean, column),
                    "" if score.sd is None else number(score.sd, column),
                    interval,
                    {"t over replicates": "t", "bootstrap over pairs": "bootstrap"}.get(score.interval or "", ""),
                    their_number(score, column),
                    "" if score.difference is None else number(score.difference, column, sign=True),
                ]
            )
    if not rows or len(rows) > _MAX_INTERVALS:
        return []
    header, rows = _without_paper(["", "column", "runs", "mean", "sd", "95% interval", "by", *_OF_PAPER], rows)
    return [
        f"{head}# Intervals",
        "",
        *markdown_rows(header, rows, left=2),
        "",
        "Intervals: t over runs (other training runs), or for a single run the bootstrap over the test data "
        "(other test data).",
        "",
    ]


def _without_paper(header: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """A table without its columns of printed numbers if it has no printed number."""
    kept = [place for place, name in enumerate(header) if name not in _OF_PAPER or any(row[place] for row in rows)]
    return [header[place] for place in kept], [[row[place] for place in kept] for row in rows]


def _comparisons(table: StudyTable, layout: Layout, head: str) -> list[str]:
    if not table.comparisons:
        return []
    rows = []
    for row in table.comparisons:
        rows.append(
            [
                escape(pair_name(layout, row)),
                escape(heading(layout.plan, row.column)),
                _difference(row),
                "" if row.paper is None else _signed(row.paper, row.column),
                *_p(row.pairs),
                *_p(row.seeds),
            ]
        )
    header = ["", "column", "difference [95%]", _OF_PAPER[0], "p, test data", "Holm", "p, runs", "Holm"]
    header, rows = _without_paper(header, rows)
    tests = dict.fromkeys(test.test for row in table.comparisons for test in (row.pairs, row.seeds) if test)
    lines = [f"{head}# Comparisons", "", *markdown_rows(header, rows, left=2), ""]
    if tests:
        counts = [sum(test is not None for test in side) for side in _sides(table.comparisons)]
        families = [
            f"over all {count} tests {of}"
            for count, of in zip(counts, ("on test data", "over runs"), strict=True)
            if count
        ]
        words = f"Tests: {escape(', '.join(tests))}. Holm's correction is {', and '.join(families)}."
        lines += [f"{words} The interval is over the test data; without a test there, over runs.", ""]
    reasons = dict.fromkeys(row.reason for row in table.comparisons if row.reason)
    return lines + [line for why in reasons for line in (f"- {escape(why)}", "")]


def _sides(rows: Sequence[StudyComparison]) -> tuple[list[StudyTest | None], list[StudyTest | None]]:
    return [row.pairs for row in rows], [row.seeds for row in rows]


def _difference(row: StudyComparison) -> str:
    if row.difference is None:
        return "missing"
    test = row.pairs or row.seeds
    text = number(row.difference, row.column, sign=True)
    if test is None or test.low is None or test.high is None:
        return text
    return f"{text} [{number(test.low, row.column)}, {number(test.high, row.column)}]"


def _signed(value: float, column: str) -> str:
    return ("+" if value > 0 else "") + paper_number(value, column)


def _p(test: StudyTest | None) -> list[str]:
    return ["", ""] if test is None else [p_value(test.p), p_value(test.p_holm)]


def _missing(table: StudyTable, layout: Layout, head: str) -> list[str]:
    if not table.missing:
        return []
    reasons: dict[str, list[str]] = {}
    for cell in table.missing:
        places: Mapping[str, object] = {**cell.coordinates, **cell.replicate}
        words = ", ".join(f"{name} = {value}" for name, value in places.items())
        name = layout.plan.rows[cell.row].name + (f" ({words})" if words else "")
        reasons.setdefault(cell.reason, []).append(name)
    listed = [f"- {escape(reason)}: {escape('; '.join(names))}" for reason, names in reasons.items()]
    return [f"{head}# Missing runs", "", *listed, ""]


def _again(table: StudyTable, head: str) -> list[str]:
    lines = [f"{head}# Run it again", ""]
    if table.command:
        lines += [*code_block(table.command), ""]
    runs = table.runs
    facts = []
    if runs.commits:
        facts.append(
            f"commits {', '.join(f'{_short(commit)} ({count} results)' for commit, count in runs.commits.items())}"
        )
    versions = [f"{package} {' and '.join(found)}" for package, found in runs.versions.items()]
    facts += [", ".join(versions)] if versions else []
    for machine in runs.hardware:
        units = {name: f" {name}" for name in ("cores", "threads")}
        shown = {name: value for name, value in machine.items() if name != "results" and value not in (None, "")}
        values = [f"{value}{units.get(name, '')}" for name, value in shown.items()]
        facts.append(f"{', '.join(values)} ({machine.get('results', 0)} results)")
    if runs.first_date:
        days = list(dict.fromkeys(date[:10] for date in (runs.first_date, runs.last_date or runs.first_date)))
        facts.append(f"run {' to '.join(days)}")
    return lines + ([f"Results: {escape('; '.join(facts))}.", ""] if facts else [])


def _short(commit: str) -> str:
    """The first twelve digits of a commit, and whether its code was changed."""
    digits, dash, changed = commit.partition("-")
    return f"{digits[:12]}{dash}{changed}"
