"""One page on runs and results: typed results in, the page in HTML and in Markdown out. No file is opened here."""

from nearfar.evaluation.report.blocks import GENERATOR, to_html, to_markdown
from nearfar.evaluation.report.inputs import EvaluatedModel, ReportInputs, TrainingRun
from nearfar.evaluation.report.page import compose

__all__ = ["GENERATOR", "EvaluatedModel", "ReportInputs", "TrainingRun", "compose", "to_html", "to_markdown"]
