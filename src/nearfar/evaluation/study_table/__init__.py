"""Tables of studies: from the results of all runs to means, tests, pages and plots beside the paper's numbers."""

from nearfar.evaluation.study_table.build import build_table
from nearfar.evaluation.study_table.cells import FinishedCell

__all__ = ["FinishedCell", "build_table"]
