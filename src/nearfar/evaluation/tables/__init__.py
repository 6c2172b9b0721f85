"""Comparisons and the measures of ``nearfar geometry`` as tables, and all results as pages of tables in Markdown."""

from pathlib import Path

from nearfar.disk import write_text
from nearfar.evaluation import results
from nearfar.evaluation.render import Table, fill_template, notes, to_markdown
from nearfar.evaluation.results import ComparisonResult, EvaluationResult, PairwiseResult, load_result  # noqa: F401
from nearfar.evaluation.tables.comparison import comparison_tables, queries_in_words
from nearfar.evaluation.tables.evaluation import evaluation_tables

# nearfar.EvaluationResult and others are those of this module, so that they show their tables
Tabulated = EvaluationResult | ComparisonResult | PairwiseResult | results.GeometryResult

_DIGITS = {"alignment": 3, "uniformity": 3, "isotropy": 3, "mean_cosine": 3, "effective_rank": 1}


def geometry_table(result: results.GeometryResult) -> Table:
    """A row for each measure, a column for each model."""
    models = result.models.values()
    rows = [["pooling", *(model.pooling or "its own" for model in models)]]
    for measure, digits in _DIGITS.items():
        values = (getattr(model, measure) for model in models)
        rows.append([measure.replace("_", " "), *(f"{value:.{digits}f}" for value in values)])
    if result.task:
        rows.append([f"best layer on {result.task.spec}", *(_best(model.layers) for model in models)])
    title = f"Geometry on {result.pairs.spec}"
    return Table(title=title, columns=["measure", *result.models], rows=rows, notes=notes("geometry", result))


def _best(layers: dict[str, list[float | None]] | None) -> str:
    """The highest score, its layer and its pooling; of equal ones the last layer."""
    known = [(score, n, pooling) for pooling, of in (layers or {}).items() for n, score in enumerate(of)]
    cells = [cell for cell in known if cell[0] is not None]
    return "{:.2f} ({}, {})".format(*max(cells)) if cells else ""


def screen_tables(result: results.Result) -> list[Table]:
    """What of a result fits on a screen: the tables that its command prints."""
    match result:
        case EvaluationResult():
            return evaluation_tables(result, screen=True)
        case ComparisonResult() | PairwiseResult():
            return comparison_tables(result)[: 1 + (isinstance(result, PairwiseResult) and result.ranked)]
        case results.GeometryResult():
            return [geometry_table(result)]
    return []


results.Result.TABLES = screen_tables


def result_markdown(result: Tabulated) -> str:
    """The tables of a result in Markdown, with its plots and its provenance."""
    match result:
        case EvaluationResult():
            title = f"Evaluation of {result.model}"
            tables = evaluation_tables(result, metrics=("spearman", "pearson"), subsets=True)
        case results.GeometryResult():
            title, tables = "Geometry of embedding spaces", [geometry_table(result)]
        case _:
            names, tables = [side.name for side in result.sides], comparison_tables(result)
            title = (" against " if len(names) == 2 else ", ").join(names)
            if isinstance(result, PairwiseResult) and result.ranked:
                title = f"{len(names)} systems compared"
    return fill_template(
        Path(__file__).with_name("result.md"),
        title=title,
        tables=[to_markdown(table, level=2) for table in tables],
        queries=queries_in_words(result) if isinstance(result, ComparisonResult) else None,
        origin=result.provenance,
        plots=getattr(result, "plots", []),
    )


def save_with_tables(result: Tabulated, file: Path) -> None:
    """Write ``file`` (JSON) and the Markdown file of the same name; each is written completely or not at all.

    Raises:
        NearfarError: the disk is full or cannot be written.
    """
    result.save(file)
    write_text(file.with_suffix(".md"), result_markdown(result))
