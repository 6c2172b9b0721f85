"""A result as two files: JSON, and beside it its tables in Markdown."""

from pathlib import Path

from nearfar.disk import write_text
from nearfar.evaluation.results import ComparisonResult, EvaluationResult, GeometryResult, PairwiseResult
from nearfar.evaluation.tables.comparison import comparison_markdown, pairwise_markdown
from nearfar.evaluation.tables.evaluation import evaluation_markdown
from nearfar.evaluation.tables.geometry import geometry_markdown

Tabulated = EvaluationResult | ComparisonResult | PairwiseResult | GeometryResult


def to_markdown(result: Tabulated) -> str:
    """The tables of a result in Markdown."""
    match result:
        case EvaluationResult():
            return evaluation_markdown(result)
        case ComparisonResult():
            return comparison_markdown(result)
        case PairwiseResult():
            return pairwise_markdown(result)
        case GeometryResult():
            return geometry_markdown(result)


def save_with_tables(result: Tabulated, file: Path) -> None:
    """Write ``file`` (JSON) and the Markdown file of the same name; each is written completely or not at all.

    Raises:
        NearfarError: the disk is full or cannot be written.
    """
    result.save(file)
    write_text(file.with_suffix(".md"), to_markdown(result))
