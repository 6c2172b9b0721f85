"""Comparisons and the measures of ``nearfar geometry`` as tables, and all results as pages of tables in Markdown."""

from pathlib import Path

from nearfar.disk import write_text
from nearfar.evaluation import results
from nearfar.evaluation.render import Table, code_block, code_span, markdown_text, to_html, to_markdown, to_text
from nearfar.evaluation.results import ComparisonResult, EvaluationResult, PairwiseResult, load_result  # noqa: F401
from nearfar.evaluation.tables.comparison import comparison_tables, queries_in_words
from nearfar.evaluation.tables.evaluation import evaluation_tables

# nearfar.EvaluationResult and others are those of this module, so that they show their tables
Tabulated = EvaluationResult | ComparisonResult | PairwiseResult | results.GeometryResult

_DIGITS = {"alignment": 3, "uniformity": 3, "isotropy": 3, "mean_cosine": 3, "effective_rank": 1}
_PLOTS = {
    "spectrum.png": "Singular values, relative to the largest",
    "pairs.png": "The most and the least similar pairs, by t-SNE",
    "labels.png": "Labelled texts, by t-SNE",
}


def geometry_notes(result: results.GeometryResult) -> list[str]:
    """What was measured, which direction is better, which default sets could not be loaded and how to name others."""
    pairs = result.pairs
    notes = [
        f"Alignment (lower is better) is computed on the {pairs.positives} pairs of {pairs.spec} with a score above "
        f"{result.config.positive_above:g}. The other measures are computed on its {pairs.texts} distinct texts.",
        "A more even space has lower uniformity, isotropy closer to 1, mean cosine closer to 0, and a higher effective "
        "rank.",
    ]
    if result.task:
        notes.append(
            f"Best layer: Spearman x 100 over all {result.task.pairs} pairs of {result.task.spec} (layer, pooling). It "
            "is selected on the pairs that it is scored on, so its score is optimistic."
        )
    notes += [f"{name}: {model.warning}" for name, model in result.models.items() if model.warning]
    if pairs.instead_of:
        notes.append(
            f"These measures are NOT computed on {pairs.instead_of}, which could not be loaded, but on {pairs.spec}, "
            "which is generated. Do not compare them with measures on other texts."
        )
    return notes + [f"Left out: {name}. {why}" for name, why in result.unavailable.items()]


def explorer_notes(page: results.ExplorerPage) -> list[str]:
    """What the explorer page shows, and where it is."""
    notes = list(page.notes)
    if page.mean_change is not None:
        before, after = page.models
        notes.append(
            f"From {before} to {after}, the neighbourhood of a text changes by {page.mean_change:.0%} on average "
            f"(Jaccard distance of its {page.compared} nearest texts)."
        )
    return [
        *notes,
        f"Wrote {page.file}: {page.texts:,} texts of {page.spec}. Open it in a browser; it needs no network.",
    ]


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
    return Table(title=title, columns=["measure", *result.models], rows=rows, notes=geometry_notes(result))


def _best(layers: dict[str, list[float | None]] | None) -> str:
    known = [(pooling, layer, score) for pooling, of in (layers or {}).items() for layer, score in enumerate(of)]
    cells = [(score, layer, pooling) for pooling, layer, score in known if score is not None]
    return "{:.2f} ({}, {})".format(*max(cells)) if cells else ""


def screen_tables(result: results.Result) -> list[Table]:
    """What of a result fits on a screen: the tables that its command prints."""
    match result:
        case EvaluationResult():
            return evaluation_tables(result, screen=True)
        case ComparisonResult() | PairwiseResult():
            ranked = isinstance(result, PairwiseResult) and result.ranked
            return comparison_tables(result)[: 1 + ranked]
        case results.GeometryResult():
            return [geometry_table(result)]
    facts = {key: value for key, value in vars(result).items() if isinstance(value, str | int | float | None)}
    rows = [[key, str(value)] for key, value in facts.items() if key not in ("schema", "kind") and value is not None]
    return [Table(columns=["", "value"], rows=rows, title=result.WHAT, left=2)]


def shown_as_text(result: results.Result) -> str:
    """The tables of :func:`screen_tables` in plain letters."""
    return "\n".join(map(to_text, screen_tables(result)))


def shown_as_html(result: results.Result) -> str:
    """The tables of :func:`screen_tables` for a notebook."""
    return "\n".join(to_html(table, name=f"table-{id(table)}") for table in screen_tables(result))


results.Result.SHOWN_AS["text"], results.Result.SHOWN_AS["html"] = shown_as_text, shown_as_html


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
            title = (" against " if isinstance(result, ComparisonResult) else ", ").join(names)
            if isinstance(result, PairwiseResult) and result.ranked:
                title = f"{len(names)} systems compared"
    plots = result.plots if isinstance(result, results.GeometryResult) else []
    images = [f"![{_PLOTS.get(file, 'Spearman x 100 by layer and pooling')}]({file})" for file in plots]
    parts = [f"# {markdown_text(title)}", *(to_markdown(table, level=2) for table in tables)]
    if isinstance(result, ComparisonResult) and (shown := queries_in_words(result)) is not None:
        parts += ["## Queries", markdown_text(shown.summary), code_block("\n".join(shown.lines))]
    return "\n\n".join([*parts, _origin(result.provenance), *images]) + "\n"


def _origin(provenance: results.Provenance) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in (provenance.versions or {}).items() if version)
    hardware = ", ".join(str(value) for value in (provenance.hardware or {}).values() if value)
    facts = f"{provenance.date}, commit {provenance.commit}; {versions}; {hardware}."
    return f"{code_span(str(provenance.command))}, {markdown_text(facts)}"


def save_with_tables(result: Tabulated, file: Path) -> None:
    """Write ``file`` (JSON) and the Markdown file of the same name; each is written completely or not at all.

    Raises:
        NearfarError: the disk is full or cannot be written.
    """
    result.save(file)
    write_text(file.with_suffix(".md"), result_markdown(result))
