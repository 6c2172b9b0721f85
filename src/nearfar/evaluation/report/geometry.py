"""Geometry in a report: the measures, the singular values, and a heat map of scores by layer and pooling."""

from collections.abc import Mapping, Sequence
from itertools import chain

from nearfar.evaluation.geometry_measures import FLOAT32_RESOLUTION
from nearfar.evaluation.report.blocks import Block, Cell, Chart, Figure, Line, Paragraph, Section, Table
from nearfar.evaluation.results import GeometryResult, ModelGeometry
from nearfar.evaluation.tables.geometry import geometry_grid


def geometry_blocks(geometries: Sequence[tuple[str, GeometryResult]]) -> list[Block]:
    """Each geometry file, under its own heading where there are several."""
    if len(geometries) == 1:
        return _blocks(geometries[0][1])
    return [Section(f"From {source}", _blocks(result)) for source, result in geometries]


def _blocks(result: GeometryResult) -> list[Block]:
    grid = geometry_grid(result)
    blocks: list[Block] = [Table(grid.title, grid.header, grid.rows, grid.notes), _spectra(result.models)]
    maps = {name: model.layers for name, model in result.models.items() if model.layers}
    known = [score for layers in maps.values() for score in chain(*layers.values()) if score is not None]
    if known:
        task = result.task.spec if result.task else "the task"
        limits = min(known), max(known)
        blocks += [_layers(name, layers, task, limits) for name, layers in maps.items()]
    missing = [name for name, model in result.models.items() if not model.layers]
    if missing:
        blocks.append(Paragraph(f"There are no scores of layers for {', '.join(missing)}."))
    return blocks


def _spectra(models: Mapping[str, ModelGeometry]) -> Figure:
    lines = []
    for number, (name, model) in enumerate(models.items()):
        kept = [(place, value) for place, value in enumerate(model.spectrum, start=1) if value > FLOAT32_RESOLUTION]
        # All of the first 32 values, then fewer and fewer, because the axis is logarithmic.
        shown = [point for place, point in enumerate(kept) if place < 32 or place % (1 + place // 32) == 0]
        lines.append(Line(name, [float(x) for x, _ in shown], [y for _, y in shown], number))
    chart = Chart("Size, relative to the largest", "singular value, from the largest", lines, logarithmic="both")
    caption = "Singular values of the embeddings, on logarithmic axes; a flatter line is a more even space."
    return Figure(caption, [chart], [(name, number) for number, name in enumerate(models)])


def _layers(name: str, layers: Mapping[str, Sequence[float | None]], task: str, limits: tuple[float, float]) -> Table:
    low, high = limits
    depth = max(map(len, layers.values()))

    def cell(score: float | None) -> Cell:
        if score is None:
            return Cell("undefined")
        return Cell(f"{score:.1f}", shade=(score - low) / (high - low) if high > low else 0.5)

    rows: list[list[Cell | str]] = []
    for layer in reversed(range(depth)):
        title = f"{layer} (embeddings)" if layer == 0 else str(layer)
        columns = (scores[layer] if layer < len(scores) else None for scores in layers.values())
        rows.append([title, *map(cell, columns)])
    caption = (
        f"{name}: Spearman × 100 on {task} by layer and pooling; a stronger colour is higher, the last layer on top"
    )
    return Table(caption, ["layer", *(pooling.replace("_", " ") for pooling in layers)], rows)
