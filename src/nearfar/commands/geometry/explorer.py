"""The explorer page of ``nearfar geometry``: checks its settings, computes neighbours and layouts, writes the file."""

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

from nearfar.commands.geometry.texts import PageTexts, load_page_texts
from nearfar.config.geometry import GeometryConfig
from nearfar.disk import check_output_path, refuse_existing, refuse_overwriting_inputs, write_text
from nearfar.evaluation.explorer.layout import (
    EXAGGERATED,
    ITERATIONS,
    SLOW,
    align,
    normalise,
    plane_layout,
    uses_opentsne,
)
from nearfar.evaluation.explorer.neighbourhoods import (
    Neighbourhoods,
    change,
    compared_neighbours,
    neighbourhoods,
    unit_vectors,
)
from nearfar.evaluation.explorer.page import Column, check_color_column, describe_column, explorer_data, explorer_html
from nearfar.evaluation.results import ExplorerPage
from nearfar.types import NearfarError


def check_page(config: GeometryConfig, inputs: Sequence[object]) -> Path:
    """The path of the page, once it is clear that it can be written."""
    page = Path(str(config.page))
    check_output_path(page, flag="--page")
    refuse_overwriting_inputs(page, inputs, flag="--page")
    refuse_existing([page], overwrite=config.overwrite, flag="--page")
    return page


def load_texts(config: GeometryConfig) -> tuple[PageTexts, list[Column]]:
    """The texts of the page and its columns; checks ``--color-by``."""
    spec = str(config.texts)
    found = load_page_texts(spec, column=config.column, limit=config.texts_limit, seed=config.seed)
    columns = [describe_column(name, values) for name, values in found.columns.items()]
    if config.color_by is not None:
        check_color_column(columns, config.color_by, spec)
    return found, columns


def write_page(
    file: Path,
    texts: PageTexts,
    columns: Sequence[Column],
    vectors: Mapping[str, NDArray[np.floating]],
    config: GeometryConfig,
    *,
    progress: bool,
) -> ExplorerPage:
    """Compute the neighbours and the layouts by each model, and write the page.

    Args:
        file: the page.
        texts: its texts.
        columns: their other columns.
        vectors: name of the model -> a vector of each text; at most two models.
        config: the settings.
        progress: show progress bars.
    """
    units = {name: _checked(found, len(texts.texts), name) for name, found in vectors.items()}
    device = _device(config.device)
    notes = texts.notes(config.seed)
    if len(texts.texts) > SLOW and not uses_opentsne(len(texts.texts)):
        warnings.warn(
            f"The layout of {len(texts.texts):,} texts takes minutes with scikit-learn. openTSNE is several times as "
            "fast: pip install nearfar[explorer]. A smaller --texts-limit helps too.",
            stacklevel=2,
        )
    lists: list[Neighbourhoods] = []
    points: list[NDArray[np.float32]] = []
    for name, found in units.items():
        with _bar(f"neighbours, {name}", 2 * len(found) ** 2, shown=progress) as (bar, task):
            lists.append(neighbourhoods(found, device=device, on_block=partial(bar.advance, task)))
    for name, found in units.items():
        start = points[0] if points else None
        with _bar(f"layout, {name}", EXAGGERATED + ITERATIONS, shown=progress) as (bar, task):
            report = partial(_report_iteration, bar, task)
            points.append(plane_layout(found, start=start, seed=config.seed, on_iteration=report))
    first = normalise(points[0])
    layouts = [first, *(align(one, first) for one in points[1:])]
    data = explorer_data(texts.texts, columns, units, lists, layouts, color_by=config.color_by, notes=notes)
    write_text(file, explorer_html(data, title=f"Explorer: {', '.join(units)}"))
    return ExplorerPage(
        file=str(file),
        spec=str(config.texts),
        texts=len(texts.texts),
        models=list(units),
        compared=compared_neighbours(len(texts.texts)),
        mean_change=round(float(change(*lists).mean()), 6) if len(lists) == 2 else None,
        notes=notes,
    )


def _checked(vectors: NDArray[np.floating], texts: int, name: str) -> NDArray[np.float32]:
    """The unit vectors of a model; refuses vectors of another number, and vectors that are not finite."""
    if vectors.ndim != 2 or len(vectors) != texts:
        raise NearfarError(f"{name}: returned shape {vectors.shape} for {texts} texts, not one vector for each.")
    return unit_vectors(vectors, name)


def _device(name: str | None) -> str:
    from nearfar.encoder.precision import choose_device

    return str(choose_device(name))


def _report_iteration(bar: Progress, task: TaskID, finished: int) -> None:
    bar.update(task, completed=finished)


@contextmanager
def _bar(title: str, total: int, *, shown: bool) -> Iterator[tuple[Progress, TaskID]]:
    # The console has its file from the start, because the layout redirects sys.stdout.
    columns = (TextColumn(escape(title)), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    console = Console(file=sys.stdout)
    hidden = not (shown and console.is_terminal)
    with Progress(*columns, console=console, transient=True, disable=hidden, redirect_stdout=False) as bar:
        yield bar, bar.add_task(title, total=total)
