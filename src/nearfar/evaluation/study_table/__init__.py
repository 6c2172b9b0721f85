"""Tables of studies: from the results of all runs to means, tests, pages and plots beside the paper's numbers."""

from nearfar.evaluation.study_table.build import build_table
from nearfar.evaluation.study_table.cells import FinishedCell
from nearfar.evaluation.study_table.markdown import study_markdown
from nearfar.evaluation.study_table.orderings import Ordering, orderings, orderings_markdown
from nearfar.evaluation.study_table.outputs import paper_page, write_outputs

__all__ = [
    "FinishedCell",
    "Ordering",
    "build_table",
    "orderings",
    "orderings_markdown",
    "paper_page",
    "study_markdown",
    "write_outputs",
]
