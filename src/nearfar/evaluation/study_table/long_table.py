"""Tables of studies as CSV: a line for each group and column, with everything that is known of the number."""

import csv
import io

from nearfar.evaluation.render import csv_text
from nearfar.evaluation.results import StudyTable
from nearfar.evaluation.study_table.plan import read_plan

_FIELDS = ("mean", "sd", "low", "high", "interval", "paper", "paper_sd", "difference", "reason")


def study_csv(table: StudyTable) -> str:
    """The table in long form: row, name, each axis, column, n, mean, sd, interval, the paper's number, difference.

    A text that a spreadsheet would compute as a formula begins with an apostrophe.
    """
    plan = read_plan(table.study, table.groups)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "name", *map(csv_text, plan.axes), "column", "n", "missing", *_FIELDS])
    for group in table.groups:
        labels = [group.coordinates.get(axis, "") for axis in plan.axes]
        for column, score in group.scores.items():
            values = [getattr(score, name) for name in _FIELDS]
            shown = ["" if value is None else value for value in values]
            name = plan.rows[group.row].name
            line = [group.row, name, *labels, column, score.n, group.missing, *shown]
            writer.writerow([csv_text(value) if isinstance(value, str) else value for value in line])
    return text.getvalue()
