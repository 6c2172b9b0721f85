"""The files and plots of a study, from its record alone: heat maps, lines over an axis, spectra, layers, curves.

Figures are made without pyplot, and saved as PNG and SVG with the same bytes for the same numbers.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nearfar.disk import write_text
from nearfar.evaluation import plots
from nearfar.evaluation.results import StudyGroup, StudyTable
from nearfar.evaluation.results.files import make_folder
from nearfar.studies.page import Layout, Score, digits_of, our_number, study_csv, study_latex, study_markdown
from nearfar.studies.spec import AVERAGE, TABLE, Axis, Plot
from nearfar.types import NearfarError
from nearfar.validation import unknown_name_message

_WIDE_RANGE = 20
"""The ratio of the largest to the smallest x from which the axis is logarithmic."""


def write_outputs(table: StudyTable, folder: str | Path) -> list[Path]:
    """Write study.json, page.md, table.csv, table.tex, and each plot as PNG and SVG; return their paths.

    All files but study.json are made from it alone: ``write_outputs(StudyTable.load(FILE), FOLDER)`` writes the same
    bytes. Each file is written completely or not at all.

    Raises:
        NearfarError: an unknown kind, axis, column or curve of a plot; the disk is full or cannot be written.
    """
    folder = Path(folder)
    make_folder(folder / TABLE)
    figures = study_plots(Layout(table))
    table.save(folder / TABLE)
    pictures = [folder / f"{name}.{ending}" for name in figures for ending in ("png", "svg")]
    for picture in pictures:
        plots.save(figures[picture.stem], picture)
    page = study_markdown(table, [f"{name}.svg" for name in figures])
    texts = {"page.md": page, "table.csv": study_csv(table), "table.tex": study_latex(table)}
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / TABLE, *(folder / name for name in texts), *pictures]


def study_plots(layout: Layout) -> dict[str, Any]:
    """Name of a file, without ending -> figure, for the plots that the study file asks for.

    Without any, lines over each axis that is an x axis, and spectra. Plots without numbers are left out.

    Raises:
        NearfarError: an unknown axis, column or curve of a plot.
    """
    table, plots = layout.table, layout.study.plots
    if plots is None:
        wishes = [Plot("lines", x=axis.name) for axis in layout.study.axes if axis.use == "x"]
        plots = [*wishes, *[Plot("spectrum")] * any(group.spectrum for group in table.groups)]
    figures: dict[str, Any] = {}
    for plot in plots:
        for name, figure in _DRAWN[plot.kind](layout, plot):
            taken = sum(re.fullmatch(rf"{re.escape(name)}(-\d+)?", other) is not None for other in figures)
            figures[f"{name}-{taken + 1}" if taken else name] = figure
    return figures


_Figures = Iterator[tuple[str, Any]]


def _axis(layout: Layout, name: str | None, key: str) -> Axis:
    known = {axis.name: axis for axis in layout.study.axes}
    if name not in known:
        raise NearfarError(f"plot: {key}: {unknown_name_message(str(name), known, what='axis')}")
    return known[name]


def _column(layout: Layout, plot: Plot) -> str:
    columns = layout.table.columns
    value = plot.value or (AVERAGE if AVERAGE in columns else columns[-1])
    if value not in columns:
        raise NearfarError(f"plot: value: {unknown_name_message(value, columns, what='column')}")
    return value


def _groups(layout: Layout) -> dict[str, StudyGroup]:
    """Name -> what is recorded of each group, without averages over axes."""
    shown = [one for one in layout.table.groups if AVERAGE not in one.coordinates.values()]
    return {layout.name(one.row, one.coordinates): one for one in shown}


def _scores(layout: Layout, column: str) -> Iterator[tuple[str, dict[str, str], Score]]:
    """Row, coordinates and score of each group, without averages over axes."""
    for number, (row, coordinates) in enumerate(layout.groups):
        if AVERAGE not in coordinates.values():
            yield row, dict(coordinates), layout.scores[number, column]


def _heat_maps(layout: Layout, plot: Plot) -> _Figures:
    """One picture for each row, and for each label of the other axes; rows without the two axes are in the title."""
    across, up, column = _axis(layout, plot.x, "x"), _axis(layout, plot.y, "y"), _column(layout, plot)
    maps: dict[tuple[str, str], dict[tuple[str, str], float | None]] = {}
    beside: list[str] = []
    for row, at, score in _scores(layout, column):
        place = at.pop(up.name, ""), at.pop(across.name, "")
        if all(place):
            maps.setdefault((_slug(row, *at.values()), layout.name(row, at)), {})[place] = score.mean
        elif not any(place) and score.mean is not None:
            beside.append(f"{layout.name(row, at)}: {our_number(score)}")
    known = [mean for of in maps.values() for mean in of.values() if mean is not None]
    for (slug, line), means in maps.items():
        grid = pd.Series(means, dtype=float).rename_axis([up.name, across.name]).unstack()
        if grid.notna().any(axis=None):
            rows, columns = (
                [one for one in axis.labels if one in used] for axis, used in zip((up, across), grid.axes, strict=True)
            )
            figure = plots.heat_map(
                grid.reindex(index=rows, columns=columns),
                title="; ".join([plot.title or line, *beside]),
                legend=layout.heading(column),
                digits=digits_of(column),
                limits=(min(known), max(known)),
            )
            yield _slug("heat-map", column, slug), figure


def _lines(layout: Layout, plot: Plot) -> _Figures:
    axis, column = _axis(layout, plot.x, "x"), _column(layout, plot)
    points: dict[str, list[list[float | None]]] = {}
    for row, at, score in _scores(layout, column):
        x = axis.places.get(at.pop(axis.name, ""))  # None without the axis: a horizontal line
        points.setdefault(layout.name(row, at), []).append([x, *(getattr(score, key) for key in plots.NUMBERS)])
    frames = {line: pd.DataFrame(some, columns=["x", *plots.NUMBERS], dtype=float) for line, some in points.items()}
    lines = {line: one.sort_values("x", kind="stable") for line, one in frames.items() if one["mean"].notna().any()}
    if not lines:
        return
    used = pd.concat(lines.values()).dropna(subset=["x"]).dropna(subset=["mean", "paper"], how="all")["x"]
    figure = plots.line_plot(
        lines,
        title=plot.title or layout.table.title,
        labels=(axis.name, f"{layout.heading(column)}, 95% interval"),
        ticks=[(x, label) for label, x in axis.places.items() if x in set(used)],
        log=(len(used) > 0 and used.min() > 0 and used.max() / used.min() > _WIDE_RANGE, False),
    )
    yield _slug("lines", axis.name, column), figure


def _spectrum(layout: Layout, plot: Plot) -> _Figures:
    if spectra := {name: one.spectrum for name, one in _groups(layout).items() if one.spectrum}:
        yield "spectrum", plots.spectra(spectra, title=plot.title or "Singular spectrum of the embeddings")


def _positions(layout: Layout, plot: Plot) -> _Figures:
    """A panel for each line of the table: its pairs of texts, or its labelled texts, by t-SNE."""
    known = {name: one.projection for name, one in _groups(layout).items() if one.projection is not None}
    panels = {name: one for name, one in known.items() if (one.labelled if plot.kind == "labels" else one.similar)}
    if panels:
        figure = plots.labelled_texts(panels) if plot.kind == "labels" else plots.connected_pairs(panels)
        if plot.title:
            figure.suptitle(plots.wrapped(plot.title, 70), fontsize=10)
        yield plot.kind, figure


def _layers(layout: Layout, plot: Plot) -> _Figures:
    groups = {name: one for name, one in _groups(layout).items() if any((one.layers or {}).values())}
    scores = [
        score for one in groups.values() for of in (one.layers or {}).values() for score in of if score is not None
    ]
    limits = (min(scores), max(scores)) if scores else (0.0, 1.0)  # of the colours, which all maps share
    for name, one in groups.items():
        figure = plots.layer_map(one.layers or {}, title=plot.title or name, label="Spearman x 100", limits=limits)
        yield _slug("layers", one.row, *one.coordinates.values()), figure


def _curves(layout: Layout, plot: Plot) -> _Figures:
    """A measure over training: mean and, over several runs, one standard deviation around it."""
    measure, lines = str(plot.y), {}
    for name, group in _groups(layout).items():
        if (curve := group.curves.get(measure)) is not None:
            line = pd.DataFrame({"x": curve.steps, "mean": curve.mean, "sd": curve.sd or None}).astype(float)
            spread = line["sd"].fillna(0.0) if any(curve.sd) else np.nan
            lines[name] = line.assign(low=line["mean"] - spread, high=line["mean"] + spread)
    known = sorted({name for group in layout.table.groups for name in group.curves})
    if lines:
        title = plot.title or f"{measure.capitalize()} over training"
        yield _slug("curves", measure), plots.line_plot(lines, title=title, labels=("step", measure), band=True)
    elif known or not layout.table.missing:
        raise NearfarError(f"plot: y: {unknown_name_message(measure, known, what='curve')}")


_DRAWN = {
    "heat map": _heat_maps,
    "lines": _lines,
    "spectrum": _spectrum,
    "layers": _layers,
    "curves": _curves,
    "pairs": _positions,
    "labels": _positions,
}


def _slug(*parts: str) -> str:
    """Part of a file name."""
    return "-".join(filter(None, (re.sub(r"[^a-z0-9.+]+", "-", part.lower()).strip("-.") for part in parts)))
