"""The numbers of ``nearfar geometry`` as tables: Markdown for files, rich for screens. Nothing is printed here."""

from rich.table import Table

from nearfar.evaluation.results import Result
from nearfar.evaluation.tables import Grid, page, rich_table

_MEASURES = {"alignment": 3, "uniformity": 3, "isotropy": 3, "mean_cosine": 3, "effective_rank": 1}
_PLOTS = {
    "spectrum.png": "Singular values, relative to the largest",
    "pairs.png": "The most and the least similar pairs, by t-SNE",
    "labels.png": "Labelled texts, by t-SNE",
}


def geometry_table(result: Result) -> Table:
    """The numbers on screen, a column for each model; :func:`geometry_notes` belong below it."""
    return rich_table(
        geometry_grid(result)._replace(notes=[])
    )  # as wide as a table of one model, they would be hard to read


def geometry_markdown(result: Result) -> str:
    """The same in Markdown, with the plots and where the numbers come from."""
    text = page("The geometry of embeddings", [geometry_grid(result)], result)
    images = (f"\n![{_PLOTS.get(file, 'Spearman x 100 by layer and pooling')}]({file})\n" for file in result["plots"])
    return text + "".join(images)


def geometry_notes(result: Result) -> list[str]:
    """What the numbers are of, which way is better, and what could not be had and how to name another."""
    pairs, unavailable = result["pairs"], result["unavailable"]
    notes = [
        f"Alignment (lower is better): of the {pairs['positives']} pairs of {pairs['spec']} scored above "
        f"{result['config']['positive_above']:g}. The other measures: of its {pairs['texts']} distinct texts.",
        "More even: uniformity lower, isotropy nearer 1, mean cosine nearer 0, effective rank higher.",
    ]
    if result["task"]:
        task = result["task"]
        notes.append(
            f"Best layer: Spearman x 100 over all {task['pairs']} pairs of {task['spec']} (layer, pooling). It is the "
            "best on these very pairs, which flatters it."
        )
    notes += [f"{name}: {model['warning']}" for name, model in result["models"].items() if model["warning"]]
    if pairs["instead_of"]:
        notes.append(
            f"These numbers are NOT of {pairs['instead_of']}, which could not be had, but of {pairs['spec']}, which is "
            "generated: do not set them beside numbers of other texts."
        )
    return notes + [f"Left out: {name}. {why}" for name, why in unavailable.items()]


def geometry_grid(result: Result) -> Grid:
    """A row for each measure, a column for each model."""
    models = result["models"].values()
    rows = [["pooling", *(model["pooling"] or "its own" for model in models)]]
    for measure, digits in _MEASURES.items():
        rows.append([measure.replace("_", " "), *(f"{model[measure]:.{digits}f}" for model in models)])
    if result["task"]:
        rows.append([f"best layer on {result['task']['spec']}", *(_best(model["layers"]) for model in models)])
    title = f"Geometry on {result['pairs']['spec']}"
    return Grid(title, ["measure", *result["models"]], [rows], geometry_notes(result))


def _best(layers: dict[str, list[float | None]] | None) -> str:
    cells: list[tuple[float, int, str]] = [
        (score, layer, pooling)
        for pooling, scores in (layers or {}).items()
        for layer, score in enumerate(scores)
        if score is not None
    ]
    if not cells:
        return ""
    score, layer, pooling = max(cells)
    return f"{score:.2f} ({layer}, {pooling})"
