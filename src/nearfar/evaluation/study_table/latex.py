"""Tables of studies in LaTeX, with booktabs: ours, and the paper's numbers below them in brackets."""

from nearfar.evaluation.render import latex_text
from nearfar.evaluation.results import GroupScore, StudyTable
from nearfar.evaluation.study_table.layout import Layout, bold_scores, lay_out, our_number, runs_text, their_number
from nearfar.evaluation.study_table.plan import AVERAGE


def study_latex(table: StudyTable) -> str:
    """The table in LaTeX; needs the package booktabs."""
    layout = lay_out(table)
    bold = bold_scores(table, layout)
    leading = 2 + len(layout.axes)
    header = ["", *layout.axes, "runs", *(head.heading for head in layout.heads)]
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_caption(table, bold=bool(bold))}}}",
        rf"\begin{{tabular}}{{{'l' * (leading - 1)}{'r' * (1 + len(layout.heads))}}}",
        r"\toprule",
        " & ".join(map(latex_text, header)) + r" \\",
        r"\midrule",
    ]
    for number, line in enumerate(layout.lines):
        labels = [AVERAGE.capitalize() if label == AVERAGE else label for label in line.labels]
        cells = [latex_text(line.name), *map(latex_text, labels), latex_text(runs_text(line.groups))]
        for place, score in enumerate(line.scores):
            text = "" if score is None else _ours(score, layout, place)
            cells.append(rf"\textbf{{{text}}}" if (number, place) in bold else text)
        lines.append(" & ".join(cells) + r" \\")
        theirs = [
            "" if score is None else their_number(score, head.column)
            for head, score in zip(layout.heads, line.scores, strict=True)
        ]
        if any(theirs):
            shown = [f"({latex_text(_plain(text))})" if text else "" for text in theirs]
            lines.append(" & ".join([r"\quad paper", *[""] * (leading - 1), *shown]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def _ours(score: GroupScore, layout: Layout, place: int) -> str:
    if score.mean is None:
        return "--"
    text = our_number(score, layout.heads[place].column)
    value, _, spread = text.partition(" (")
    return latex_text(value) + (rf" $\pm$ {latex_text(spread.rstrip(')'))}" if spread else "")


def _plain(text: str) -> str:
    """The paper's number and its standard deviation without brackets."""
    value, _, spread = text.partition(" (")
    return value + (f", sd {spread.rstrip(')')}" if spread else "")


def _caption(table: StudyTable, *, bold: bool) -> str:
    words = [latex_text(table.caption or table.title).rstrip(".") + "."]
    scores = [score for group in table.groups for score in group.scores.values()]
    if any(score.sd is not None for score in scores):
        words.append(r"Mean $\pm$ standard deviation over runs.")
    if any(score.paper is not None for score in scores):
        words.append(f"In brackets: {latex_text(table.source or 'the paper')}.")
    if table.missing:
        words.append(f"Incomplete: {len(table.missing)} runs have no result.")
    if bold:
        words.append(
            "Bold: best of its column, and significantly better than every line that it is compared with, on the test "
            f"data and over runs, where there are both tests ($p < {table.level:g}$ after Holm's correction)."
        )
    return " ".join(words)
