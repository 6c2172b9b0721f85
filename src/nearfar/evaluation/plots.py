"""Plots of embedding spaces. Without pyplot, so no global state changes."""

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from nearfar.disk import write_bytes
from nearfar.evaluation.geometry_measures import FLOAT32_RESOLUTION
from nearfar.evaluation.render import one_line
from nearfar.evaluation.results import Projection

if TYPE_CHECKING:
    from pandas import DataFrame

# Okabe & Ito 2008: distinct for people with any common colour vision deficiency. Its yellow is too light for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_MAX_MARKED = 20
"""Number of points up to which each has a marker."""
_DODGE = 0.006
"""Distance of the intervals of two lines at the same x, as a share of the range of x."""
NUMBERS = ("mean", "low", "high", "paper")
"""The numbers of a point of a line: its height, the ends of its interval, and the paper's number."""
_COLUMNS = {"cls": "CLS", "mean_without_cls": "mean,\nno CLS"}


def spectra(values: Mapping[str, Sequence[Sequence[float]]], *, title: str) -> Any:
    """Singular spectra, a line for each: places and sizes of :func:`nearfar.evaluation.geometry_measures.spectrum`.

    The axes are logarithmic, because the first few values differ most. A flatter line is a more even space.
    """
    from pandas import DataFrame  # imported here: the import is slow

    # LayerNorm removes one direction; its value is rounding error and would stretch the axis.
    lines = {
        name: DataFrame(points, columns=["x", "mean"]).query(f"mean > {FLOAT32_RESOLUTION}")
        for name, points in values.items()
    }
    labels = ("singular value, from the largest", "size, relative to the largest")
    return line_plot(lines, title=title, labels=labels, log=(True, True))


def line_plot(
    lines: Mapping[str, "DataFrame"],
    *,
    title: str,
    labels: tuple[str, str],
    ticks: Sequence[tuple[float, str]] = (),
    log: tuple[bool, bool] = (False, False),
    band: bool = False,
) -> Any:
    """Lines with intervals and a legend at the right; ``log`` are logarithmic axes, ``ticks`` named x values.

    A line has the columns ``x`` and ``mean``, and may have ``low`` and ``high``, the ends of an interval, and
    ``paper``, the paper's numbers, dashed with hollow markers. Without ``x`` it is horizontal.
    """
    import pandas as pd  # imported here: the import is slow

    parts = {name: part.reindex(columns=["x", *NUMBERS]) for name, part in lines.items()}
    figure = new_figure(8.5, 4.4)
    axes = figure.subplots()
    drawn = pd.concat(parts.values()).dropna(subset=["x", "mean"])["x"]
    for place, (line, part) in enumerate(parts.items()):
        look = {"color": COLOURS[place % len(COLOURS)], "marker": _MARKERS[place % len(_MARKERS)], "linewidth": 1.8}
        hollow = {"linestyle": "--", "markerfacecolor": "white", "linewidth": 1.2}
        for column, label, own in (("mean", line, {}), ("paper", f"{line}, paper", hollow)):
            points = part.dropna(subset=[column])
            if part["x"].isna().all():
                for height in points[column][:1]:
                    axes.axhline(height, color=look["color"], linestyle=":" if own else "-.", label=wrapped(label, 34))
            elif len(points):
                many = {"marker": None} if len(points) > _MAX_MARKED else {}
                axes.plot(points["x"], points[column], label=wrapped(label, 34), **look | own | many)
        at, middle, low, high = part.dropna(subset=["x", "low", "high"])[["x", "mean", "low", "high"]].to_numpy().T
        if band and len(at):
            axes.fill_between(at, low, high, color=look["color"], alpha=0.2, linewidth=0)
        elif len(at):
            at = at + (0.0 if log[0] else _DODGE * np.ptp(drawn) * (place - (len(parts) - 1) / 2))
            axes.errorbar(at, middle, yerr=[middle - low, high - middle], color=look["color"], fmt="none", capsize=3)
    axes.set(xlabel=plain(labels[0]), ylabel=plain(labels[1]))
    axes.set_title(wrapped(title, 70), fontsize=10)
    axes.set(xscale="log" if log[0] else "linear", yscale="log" if log[1] else "linear")
    if ticks:
        axes.set_xticks([x for x, _ in ticks], [plain(label) for _, label in ticks])
        axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    names = axes.get_legend_handles_labels()[1]
    figure.set_size_inches(8.5, max(4.4, 0.6 + sum(0.06 + 0.15 * len(name.splitlines()) for name in names)))
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    return figure


def layer_map(
    scores: Mapping[str, Sequence[float | None]], *, title: str, label: str, limits: tuple[float, float] | None = None
) -> Any:
    """Heat map of scores by layer (rows, the embedding layer at the bottom) and pooling (columns).

    ``scores`` maps a pooling's name to one score a layer, None where it is undefined. ``limits`` are the scores at the
    ends of the colour scale, for several maps to share; ``label`` says what the scores are.
    """
    from pandas import DataFrame  # imported here: the import is slow

    layers = list(zip_longest(*scores.values()))
    names = ["0 (embeddings)", *map(str, range(1, len(layers)))]
    grid = DataFrame(layers, index=names, columns=[_COLUMNS.get(name, name) for name in scores], dtype=float)
    return heat_map(grid.rename_axis("layer"), title=title, legend=label, digits=1, limits=limits)


def heat_map(
    grid: "DataFrame", *, title: str, legend: str, digits: int, limits: tuple[float, float] | None = None
) -> Any:
    """Numbers in colours that are distinct in grey too, and in the cells; the first row is at the bottom.

    The names of the frame's index and columns are those of the axes.
    """
    values = grid.to_numpy(dtype=np.float64)
    low, high = limits or (np.nanmin(values, initial=np.inf), np.nanmax(values, initial=-np.inf))
    low, high = (low, max(high, low + 1e-9)) if high >= low else (0.0, 1.0)
    rows, columns = grid.index, grid.columns
    figure = new_figure(2.8 + 0.85 * len(columns), 1.7 + 0.42 * len(rows))
    axes = figure.subplots()
    for (row, column), value in np.ndenumerate(values):
        text = f"{value:,.{digits}f}" if np.isfinite(value) else "none"
        colour = "white" if value <= low + 0.6 * (high - low) else "black"
        axes.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)
    image = axes.imshow(values, origin="lower", aspect="auto", cmap="viridis", vmin=low, vmax=high)
    names = [*map(plain, columns)]
    axes.set_xticks(range(len(names)), names, rotation=90 if max(map(len, names), default=0) > 14 else 0)
    axes.set_yticks(range(len(rows)), [*map(plain, rows)])
    axes.set(xlabel=plain(columns.name or ""), ylabel=plain(rows.name or ""))
    axes.set_title(wrapped(title, 16 + 11 * len(columns)), fontsize=10)
    figure.colorbar(image, ax=axes, label=plain(legend))
    return figure


def confusions(gold: ArrayLike, predicted: ArrayLike, classes: Sequence[str], file: Path) -> None:
    """Number of rows by label (rows) and predicted label (columns); the arguments are numbers of ``classes``."""
    from pandas import DataFrame
    from sklearn.metrics import confusion_matrix

    names = [name[:30] for name in classes]
    counts = DataFrame(confusion_matrix(gold, predicted, labels=range(len(names))), index=names, columns=names)
    counts = counts.iloc[::-1].rename_axis(index="label", columns="predicted label")
    save(heat_map(counts, title="", legend="rows", digits=0), file)


def labelled_texts(models: Mapping[str, Projection]) -> Any:
    """t-SNE of the same labelled texts by several encoders, a panel for each (Gunel et al. 2021, Figures 2 and 3)."""
    names = sorted({name for projection in models.values() for name in projection.labelled})

    def draw(axes: Any, projection: Projection) -> None:
        for number, name in enumerate(names):
            points = np.reshape(projection.labelled.get(name, []), (-1, 2)).T
            look = {"color": f"C{number % 10}", "marker": "oxs^v+"[number // 10 % 6], "s": 8, "rasterized": True}
            axes.scatter(*points, label=wrapped(name if len(name) <= 30 else f"{name[:29]}…", 30), **look)

    return _panels(models, draw, markerscale=2)


def connected_pairs(models: Mapping[str, Projection]) -> Any:
    """t-SNE of pairs of texts by several encoders, a panel for each, partners joined by a line.

    After Kim et al. 2021, Figure 5. Similar pairs are red circles and dissimilar ones blue crosses, the paper's
    colours; similar partners should lie together, dissimilar ones apart.
    """

    def draw(axes: Any, projection: Projection) -> None:
        for name, colour, marker in (("dissimilar", "tab:blue", "x"), ("similar", "tab:red", "o")):
            look = {"color": colour, "marker": marker, "markersize": 4, "linewidth": 0.8}
            for number, pair in enumerate(getattr(projection, name)):
                axes.plot(pair[::2], pair[1::2], label=None if number else f"{name} pairs", **look)

    return _panels(models, draw)


def _panels(models: Mapping[str, Projection], draw: Callable[[Any, Projection], None], **legend: Any) -> Any:
    """A figure with a square panel for each model, at most four in a row and rows as full as can be, and one legend."""
    rows = -(-len(models) // 4)
    columns = -(-len(models) // rows)
    figure = new_figure(5 * columns + 1.5, 5 * rows)
    panels = list(np.atleast_1d(figure.subplots(rows, columns)).flat)
    for axes, (title, projection) in zip(panels, models.items(), strict=False):
        draw(axes, projection)
        axes.set(title=wrapped(title, 38), xticks=[], yticks=[])
    for axes in panels[len(models) :]:
        axes.remove()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", **legend)
    return figure


def wrapped(text: str, width: int) -> str:
    """Text in lines of at most ``width`` characters; dollar signs are no formulas."""
    return "\n".join(map(plain, wrap(text, width))) or plain(text)


def plain(text: str) -> str:
    """Text as Matplotlib shows it: dollar signs are no formulas, and no control characters but line breaks."""
    return "\n".join(map(one_line, text.splitlines())).replace("$", r"\$")


def new_figure(width: float, height: float) -> Any:
    """An empty figure, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, file: Path) -> None:
    """Write a figure as the kind of file that its name says, without date and with fixed identifiers.

    Raises:
        NearfarError: the disk is full or cannot be written.
    """
    write_bytes(file, file_content(figure, file.suffix.removeprefix(".").lower() or "png", dpi=120))


def file_content(figure: Any, ending: str, **settings: Any) -> bytes:
    """A figure as a file of this kind, always in the same bytes."""
    from matplotlib import rc_context

    metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}.get(ending)
    content = BytesIO()
    with rc_context({"svg.hashsalt": "nearfar", "svg.fonttype": "none"}):
        figure.savefig(content, format=ending, metadata=metadata, **settings)
    return content.getvalue()
