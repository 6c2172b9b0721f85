"""The explorer page of ``nearfar geometry``: reads its texts, computes neighbours and layouts, writes the file."""

import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nearfar.config.geometry import GeometryConfig
from nearfar.data.catalog import NamedTable, find
from nearfar.data.cells import normalize_whitespace, text_field
from nearfar.data.files import extension
from nearfar.data.sources import Table, column_names
from nearfar.disk import check_output_file, write_text
from nearfar.evaluation.explorer.layout import (
    EXAGGERATED,
    ITERATIONS,
    SLOW,
    align,
    normalise,
    plane_layout,
    uses_opentsne,
)
from nearfar.evaluation.explorer.page import (
    Column,
    Neighbourhoods,
    change,
    check_color_column,
    compared_neighbours,
    describe_column,
    explorer_data,
    explorer_html,
    neighbourhoods,
    unit_vectors,
)
from nearfar.evaluation.results import ExplorerPage
from nearfar.runtime.progress import progress_bar
from nearfar.types import NearfarError

DEFAULT_COLUMN = "text"
_PEEKED = 100
"""Number of rows that show whether a column holds single values, which the page has, or lists, which it leaves out."""


@dataclass(frozen=True)
class PageTexts:
    """The texts of a page, and what was left out."""

    texts: list[str]
    columns: dict[str, list[str]]
    """Other columns: name -> the value of each text, empty where it is missing."""
    rows: int
    """Number of texts in the source."""
    distinct: int
    """Number of distinct texts in the source; the first row of each counts."""

    def notes(self, seed: int) -> list[str]:
        """Sentences about texts that are not shown."""
        notes = []
        if repeated := self.rows - self.distinct:
            notes.append(f"{repeated:,} of {self.rows:,} texts are repetitions; each distinct text is shown once.")
        if self.distinct > len(self.texts):
            notes.append(
                f"{len(self.texts):,} of {self.distinct:,} distinct texts are shown, a random sample (seed {seed})."
            )
        return notes


def check_page(config: GeometryConfig, inputs: Sequence[object]) -> Path:
    """The path of the page, once it is clear that it can be written."""
    page = Path(str(config.page))
    check_output_file(page, inputs, overwrite=config.overwrite, flag="--page")
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
    from nearfar.encoder.precision import choose_device

    units = {name: _checked(found, len(texts.texts), name) for name, found in vectors.items()}
    device = str(choose_device(config.device))
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
        with progress_bar(f"neighbours, {name}", 2 * len(found) ** 2, unit="pairs", shown=progress) as advance:
            lists.append(neighbourhoods(found, device=device, on_block=advance))
    for name, found in units.items():
        start = points[0] if points else None
        steps = EXAGGERATED + ITERATIONS
        with progress_bar(f"layout, {name}", steps, unit="steps", shown=progress) as advance:
            points.append(plane_layout(found, start=start, seed=config.seed, on_iteration=_differences(advance)))
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


def _differences(advance: Callable[[int], None]) -> Callable[[int], None]:
    """A function of the number of steps so far, which calls ``advance`` with the steps since its last call."""
    before = 0

    def report(finished: int) -> None:
        nonlocal before
        advance(finished - before)
        before = finished

    return report


def load_page_texts(spec: str, *, column: str | None = None, limit: int, seed: int = 0) -> PageTexts:
    """Read the distinct texts of ``spec`` and its other columns; a random sample if there are more than ``limit``.

    ``spec`` is any source of :mod:`nearfar.data.catalog`: plain text has no columns; a named set has its own columns of
    texts, and a row with two texts gives two. Other columns are those that all tables of ``spec`` have and whose values
    are single ones. The sample keeps the order of the source.

    Raises:
        NearfarError: the source or ``column`` cannot be found or read, a text is empty or not text (with file and
            line), or there are fewer than two distinct texts.
    """
    names, entries = _entries(spec, column)
    chooser, seen = random.Random(seed), set[int]()
    kept: list[tuple[int, str, tuple[str, ...]]] = []
    rows = 0
    for text, values in entries:
        rows += 1
        key = hash(text)
        if key in seen:
            continue
        entry = (len(seen), text, values)
        seen.add(key)
        if len(kept) < limit:
            kept.append(entry)
        elif (place := chooser.randrange(len(seen))) < limit:
            kept[place] = entry  # reservoir sampling: each text so far is kept with the same probability
    if len(seen) < 2:
        found = "no texts" if not seen else f"a single text, {kept[0][1][:80]!r}"
        raise NearfarError(f"--texts {spec}: holds {found}; the page needs at least two different texts.")
    kept.sort()
    columns = {name: [values[place] for _, _, values in kept] for place, name in enumerate(names)}
    return PageTexts([text for _, text, _ in kept], columns, rows, len(seen))


def _entries(spec: str, column: str | None) -> tuple[list[str], Iterator[tuple[str, tuple[str, ...]]]]:
    """The names of the other columns, and the texts with their values of these."""
    tables = [(found.table, *_columns(found, spec, column)) for found in find(spec)]
    shared = [name for name in tables[0][2] if all(name in others for _, _, others in tables)]
    return shared, (entry for table, own, _ in tables for entry in _read(table, own, shared))


def _columns(found: NamedTable, spec: str, column: str | None) -> tuple[tuple[str, ...], list[str]]:
    """The columns of a table that hold texts, and those beside them that have one value per row, each by one name."""
    table = found.table
    if table.is_plain_text:
        if column is not None:
            raise NearfarError(
                f"--column {column}: --texts {spec} is plain text, which has no columns. Remove --column."
            )
        return (DEFAULT_COLUMN,), []
    own, names = (column,) if column else found.sentences or (DEFAULT_COLUMN,), column_names(table)
    for name in own:
        if name not in names:
            shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise NearfarError(
                f"--texts {table.title}: has no column {name!r}. Its columns: {shown}. Name the column of the "
                "texts with --column."
            )
    others = [name for name in names if name not in own and names.count(name) == 1]
    if not others or (isinstance(table.data, Path) and extension(table.data).startswith((".tsv", ".csv"))):
        return own, others
    rows = (values for _, values in islice(table.rows(others), _PEEKED))
    lists = {place for values in rows for place, value in enumerate(values) if not _is_single(value)}
    return own, [name for place, name in enumerate(others) if place not in lists]


def _is_single(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


def _read(table: Table, own: Sequence[str], others: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for where, values in table.text_rows([*own, *others]):
        beside = tuple(_written(value) for value in values[len(own) :])
        for name, value in zip(own, values, strict=False):
            yield text_field(value, name, where), beside


def _written(value: object) -> str:
    """A value of another column as text; empty if it is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return normalize_whitespace(str(value))
