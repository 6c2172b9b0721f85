"""The plots of a study, from its table alone: heat maps, lines over an axis, spectra, layers, curves of training."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nearfar.evaluation.plots import connected_pairs, labelled_texts
from nearfar.evaluation.results import StudyGroup, StudyTable
from nearfar.evaluation.study_table.figures import Series, heat_map, line_plot, wrapped
from nearfar.evaluation.study_table.layout import Layout, digits_of, group_name, heading, lay_out, our_number
from nearfar.evaluation.study_table.plan import AVERAGE, POSITIONS, Axis, plots_of
from nearfar.types import NearfarError

KINDS = ("heat map", "lines", "spectrum", "layers", "curves", *POSITIONS)
_POOLINGS = {"cls": "CLS", "mean_without_cls": "mean, no CLS"}
_WIDE_RANGE = 20


class Plot(NamedTuple):
    """A plot and the name of its files, without ending."""

    name: str
    figure: Any


def study_plots(table: StudyTable) -> list[Plot]:
    """The plots that the study file asks for; without any, lines over each axis that is an x axis, and spectra.

    Plots without numbers are left out.

    Raises:
        NearfarError: an unknown kind of plot, axis, column or curve.
    """
    layout = lay_out(table)
    plots: list[Plot] = []
    for wish in _wishes(table, layout):
        for plot in _draw(table, layout, wish):
            taken = sum(other.name == plot.name or other.name.startswith(f"{plot.name}~") for other in plots)
            plots.append(plot._replace(name=f"{plot.name}~{taken + 1}") if taken else plot)
    return [plot._replace(name=plot.name.replace("~", "-")) for plot in plots]


def _wishes(table: StudyTable, layout: Layout) -> list[Mapping[str, Any]]:
    if table.study.get("plot") is not None:
        return plots_of(table.study)
    value = AVERAGE if AVERAGE in table.columns else table.columns[-1]
    lines = [axis.name for axis in layout.plan.axes.values() if axis.display == "x"]
    wishes: list[Mapping[str, Any]] = [{"kind": "lines", "x": name, "value": value} for name in lines]
    return wishes + ([{"kind": "spectrum"}] if any(group.spectrum for group in table.groups) else [])


def _draw(table: StudyTable, layout: Layout, wish: Mapping[str, Any]) -> Iterator[Plot]:
    kind = wish.get("kind")
    if kind == "heat map":
        return _heat_maps(table, layout, wish)
    if kind == "lines":
        return _lines(table, layout, wish)
    if kind == "spectrum":
        return _spectrum(table, layout, wish)
    if kind == "layers":
        return _layers(table, layout, wish)
    if kind == "curves":
        return _curves(table, layout, wish)
    if kind in POSITIONS:
        return _positions(table, layout, wish)
    raise NearfarError(f"plot: kind {kind!r}: take one of {', '.join(KINDS)}.")


def _axis(layout: Layout, wish: Mapping[str, Any], key: str) -> Axis:
    name = wish.get(key)
    axes = layout.plan.axes
    if name not in axes:
        raise NearfarError(
            f"plot: {key} = {name!r} is not an axis of the study; there are: {', '.join(axes) or 'none'}."
        )
    return axes[str(name)]


def _column(table: StudyTable, wish: Mapping[str, Any]) -> str:
    value = str(wish.get("value") or (AVERAGE if AVERAGE in table.columns else table.columns[-1]))
    if value not in table.columns:
        raise NearfarError(
            f"plot: value = {value!r} is not a column of the study; there are {', '.join(table.columns)}."
        )
    return value


def _groups(table: StudyTable, wish: Mapping[str, Any]) -> list[StudyGroup]:
    """The groups of the plot, without averages over axes."""
    row = wish.get("row")
    return [
        group
        for group in table.groups
        if (row is None or group.row == row) and AVERAGE not in group.coordinates.values()
    ]


def _heat_maps(table: StudyTable, layout: Layout, wish: Mapping[str, Any]) -> Iterator[Plot]:
    """One picture for each row, and for each label of the other axes."""
    across, up, column = _axis(layout, wish, "x"), _axis(layout, wish, "y"), _column(table, wish)
    parts: dict[tuple[Any, ...], list[StudyGroup]] = {}
    for group in _groups(table, wish):
        if across.name in group.coordinates and up.name in group.coordinates:
            others = {name: label for name, label in group.coordinates.items() if name not in (across.name, up.name)}
            parts.setdefault((group.row, *others.items()), []).append(group)
    limits = _limits([one.scores[column].mean for members in parts.values() for one in members])
    beside = [
        f"{group_name(layout, one.row, one.coordinates)}: {our_number(one.scores[column], column)}"
        for one in _groups(table, {})
        if not one.coordinates.keys() & {across.name, up.name} and one.scores[column].mean is not None
    ]
    for members in parts.values():
        row = members[0].row
        others = {name: label for name, label in members[0].coordinates.items() if name not in (across.name, up.name)}
        scores = {(one.coordinates[up.name], one.coordinates[across.name]): one.scores[column].mean for one in members}
        rows = [label for label in up.labels if any(place[0] == label for place in scores)]
        columns = [label for label in across.labels if any(place[1] == label for place in scores)]
        values = [[scores.get((high, wide)) for wide in columns] for high in rows]
        if all(value is None for line in values for value in line):
            continue
        figure = heat_map(
            values,
            rows=rows,
            columns=columns,
            labels=(across.name, up.name),
            title="; ".join([str(wish.get("title") or group_name(layout, row, others)), *beside]),
            legend=heading(layout.plan, column),
            digits=digits_of(column),
            limits=limits,
        )
        yield Plot(_slug("heat-map", column, row, *others.values()), figure)


def _lines(table: StudyTable, layout: Layout, wish: Mapping[str, Any]) -> Iterator[Plot]:
    """A line for each row and each label of the other axes; rows without the axis are horizontal lines."""
    axis, column = _axis(layout, wish, "x"), _column(table, wish)
    labels = [label for label in axis.labels if label != AVERAGE]
    places = dict(zip(labels, axis.positions or range(len(labels)), strict=True))
    parts: dict[str, list[StudyGroup]] = {}
    for group in _groups(table, wish):
        others = {name: label for name, label in group.coordinates.items() if name != axis.name}
        parts.setdefault(group_name(layout, group.row, others), []).append(group)
    series: list[Series] = []
    for name, members in parts.items():
        series += _line(name, members, axis.name, column, places)
    if not any(not one.reference for one in series):
        return
    used = [x for one in series for x in one.x]
    wide = bool(used) and min(used) > 0 and max(used) / min(used) > _WIDE_RANGE
    ticks = [(x, label) for label, x in places.items() if x in used]
    labelled = (axis.name, f"{heading(layout.plan, column)}, 95% interval")
    title = str(wish.get("title") or table.title)
    figure = line_plot(series, title=title, labels=labelled, ticks=ticks, log=(wide, False))
    yield Plot(_slug("lines", axis.name, column), figure)


def _line(
    name: str, groups: Sequence[StudyGroup], axis: str, column: str, places: Mapping[str, float]
) -> Iterator[Series]:
    found = [(group.coordinates.get(axis), group.scores[column]) for group in groups]
    ours = sorted(
        [(places.get(label or "", 0.0), score.mean, score) for label, score in found if score.mean is not None],
        key=lambda point: point[0],
    )
    theirs = sorted((places.get(label or "", 0.0), score.paper) for label, score in found if score.paper is not None)
    constant = any(label is None for label, _ in found)
    if not ours:
        return
    yield Series(
        name,
        [] if constant else [x for x, _, _ in ours],
        [y for _, y, _ in ours],
        [score.low for _, _, score in ours],
        [score.high for _, _, score in ours],
        constant=constant,
    )
    if theirs:
        x = [] if constant else [x for x, _ in theirs]
        yield Series(name, x, [y for _, y in theirs], reference=True, partner=name, constant=constant)


def _spectrum(table: StudyTable, layout: Layout, wish: Mapping[str, Any]) -> Iterator[Plot]:
    series = [
        Series(
            group_name(layout, group.row, group.coordinates),
            [index for index, _ in group.spectrum],
            [max(value, 1e-12) for _, value in group.spectrum],
        )
        for group in _groups(table, wish)
        if group.spectrum
    ]
    if series:
        # LayerNorm removes one direction; its value is rounding error and would stretch the axis.
        lowest = min(value for one in series for value in one.y if value > 1e-6)
        shown = [_above(one, lowest) for one in series]
        labels = ("singular value, from the largest", "size, relative to the largest")
        title = str(wish.get("title") or "Singular spectrum of the embeddings")
        yield Plot("spectrum", line_plot(shown, title=title, labels=labels, log=(True, True)))


def _positions(table: StudyTable, layout: Layout, wish: Mapping[str, Any]) -> Iterator[Plot]:
    """A panel for each line of the table: its pairs of texts, or its labelled texts, by t-SNE."""
    kind = str(wish["kind"])
    found = {
        group_name(layout, group.row, group.coordinates): group.projection
        for group in _groups(table, wish)
        if group.projection is not None
    }
    shown = {name: one for name, one in found.items() if (one.labelled if kind == "labels" else one.similar)}
    if shown:
        figure = (labelled_texts if kind == "labels" else connected_pairs)(shown)
        if title := wish.get("title"):
            figure.suptitle(wrapped(str(title), 70), fontsize=10)
        yield Plot(kind, figure)


def _above(series: Series, lowest: float) -> Series:
    kept = [(x, y) for x, y in zip(series.x, series.y, strict=True) if y >= lowest]
    return Series(series.name, [x for x, _ in kept], [y for _, y in kept])


def _layers(table: StudyTable, layout: Layout, wish: Mapping[str, Any]) -> Iterator[Plot]:
    groups = [group for group in _groups(table, wish) if group.layers]
    limits = _limits([score for group in groups for scores in (group.layers or {}).values() for score in scores])
    for group in groups:
        assert group.layers is not None
        depth = max(map(len, group.layers.values()))
        figure = heat_map(
            [
                [scores[layer] if layer < len(scores) else None for scores in group.layers.values()]
                for layer in range(depth)
            ],
            rows=["0 (embeddings)", *map(str, range(1, depth))],
            columns=[_POOLINGS.get(name, name) for name in group.layers],
            labels=("pooling", "layer"),
            title=str(wish.get("title") or group_name(layout, group.row, group.coordinates)),
            legend="Spearman x 100",
            digits=1,
            limits=limits,
        )
        yield Plot(_slug("layers", group.row, *group.coordinates.values()), figure)


def _curves(table: StudyTable, layout: Layout, wish: Mapping[str, Any]) -> Iterator[Plot]:
    """A measure over training: mean and, over several runs, one standard deviation around it."""
    name = str(wish.get("y"))
    groups = [group for group in _groups(table, wish) if name in group.curves]
    if not groups:
        known = sorted({name for group in table.groups for name in group.curves})
        if known or not table.missing:
            raise NearfarError(
                f"plot: y = {name!r} is not a curve of the runs; there are: {', '.join(known) or 'none'}."
            )
        return
    series = []
    for group in groups:
        curve = group.curves[name]
        spreads = [sd or 0.0 for sd in curve.sd] if any(curve.sd) else [None] * len(curve.mean)
        lows = [None if sd is None else mean - sd for mean, sd in zip(curve.mean, spreads, strict=True)]
        highs = [None if sd is None else mean + sd for mean, sd in zip(curve.mean, spreads, strict=True)]
        series.append(Series(group_name(layout, group.row, group.coordinates), curve.steps, curve.mean, lows, highs))
    title = str(wish.get("title") or f"{name.capitalize()} over training")
    yield Plot(_slug("curves", name), line_plot(series, title=title, labels=("step", name), band=True))


def _limits(values: Sequence[float | None]) -> tuple[float, float] | None:
    """The smallest and the largest value."""
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else None


def _slug(*parts: str) -> str:
    """Part of a file name."""
    return "-".join(filter(None, (re.sub(r"[^a-z0-9.+]+", "-", part.lower()).strip("-.") for part in parts)))
