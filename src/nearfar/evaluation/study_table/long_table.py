"""Tables of studies as CSV: a line for each group and column, with everything that is known of the number."""

import csv
import io

from nearfar.evaluation.results import StudyTable
from nearfar.evaluation.study_table.plan import read_plan

_FIELDS = ("mean", "sd", "low", "high", "interval", "paper", "paper_sd", "difference", "reason")


def study_csv(table: StudyTable) -> str:
    """The table in long form: row, name, each axis, column, n, mean, sd, interval, the paper's number, difference."""
    plan = read_plan(table.study, table.groups)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "name", *plan.axes, "column", "n", "missing", *_FIELDS])
    for group in table.groups:
        labels = [group.coordinates.get(axis, "") for axis in plan.axes]
        for column, score in group.scores.items():
            values = [getattr(score, name) for name in _FIELDS]
            shown = ["" if value is None else value for value in values]
            name = plan.rows[group.row].name
            writer.writerow([group.row, name, *labels, column, score.n, group.missing, *shown])
    return text.getvalue()
