"""The inputs of ``nearfar geometry``: pairs, a task and labelled texts to measure; texts with columns for the page."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from nearfar.config.encoding import GeometryConfig
from nearfar.data.catalog import find
from nearfar.data.cells import normalize_whitespace, text_field
from nearfar.data.files import extension
from nearfar.data.rows import TextData, known_scale, load_labelled, load_pairs, load_task
from nearfar.data.sources import Table, column_names
from nearfar.evaluation.explorer import Column, check_color_column, describe_column
from nearfar.evaluation.results import (
    LayerTask,
    MeasuredPairs,
    PlottedTexts,
    digest,
)
from nearfar.evaluation.sts import Subsets
from nearfar.types import NearfarError, ScoredPair

if TYPE_CHECKING:
    pass


PAIRS, TASK, LABELLED = "stsb:dev", "stsb", "sst2:test"


FALLBACK_PAIRS = "microworld:dev"


EXTREMES = 20
"""Number of most similar, and of least similar, pairs that are plotted (Kim et al. 2021, section 5.4)."""


MAX_PLOT_LABELS = 20
"""Number of labels that a plot has distinct colours for."""


POSITIVE_SHARE = 0.8
"""Default threshold of positive pairs, as a share of the highest score: 4 on a scale to 5 (Gao et al. 2021)."""


DEFAULT_COLUMN = "text"


_PEEKED = 100
"""Number of rows that show whether a column holds single values, which the page has, or lists, which it leaves out."""


Loaded = TypeVar("Loaded")


class GeometryData(NamedTuple):
    """The data sets; None for a default set that cannot be loaded."""

    pairs: list[ScoredPair]
    positives: list[ScoredPair]
    """The pairs with a score above ``positive_above``."""
    positive_above: float
    extremes: tuple[list[ScoredPair], list[ScoredPair]] | None
    """The most and the least similar pairs, to plot."""
    task: Subsets | None
    labelled: tuple[list[str], list[str]] | None
    """Texts and their labels, to plot."""
    described: dict[str, Any]
    """What the result says of them: ``pairs``, ``task``, ``labelled``; and of ``unavailable`` default sets, why they
    cannot be loaded, and how to name others."""


def load_geometry_data(config: GeometryConfig) -> GeometryData:
    """Load the data sets that are named, and the default ones that are available.

    ``positive_above`` is by default :data:`POSITIVE_SHARE` of the top of the scale, which for a user's own pairs is
    their highest score. Without :data:`PAIRS`, measures are computed on :data:`FALLBACK_PAIRS`, and no pairs are
    plotted.

    Raises:
        NearfarError: a data set that is named cannot be loaded; one has no positive pair, too few pairs or too many
            labels to plot.
    """
    unavailable: dict[str, str] = {}

    def load_or_skip(name: str | None, default: str, load: Callable[[str], Loaded], advice: str) -> Loaded | None:
        try:
            return load(name or default)
        except NearfarError as error:
            if name is not None:
                raise
            unavailable[default] = f"{error}\n  {advice}"
            return None

    columns = f"a file with the columns score, sentence1 and sentence2, or {FALLBACK_PAIRS}, which is generated"
    own = load_or_skip(config.pairs, PAIRS, load_pairs, f"Other pairs: --pairs with {columns}.")
    scored = load_or_skip(config.task, TASK, load_task, f"Another task for the layers: --task with {columns}.")
    advice = "Other texts: --labelled with a file with the columns text and label."
    texts = load_or_skip(config.labelled, LABELLED, load_labelled, advice)
    name = config.pairs or (FALLBACK_PAIRS if own is None else PAIRS)
    used = load_pairs(FALLBACK_PAIRS) if own is None else own
    highest = max(pair.score for pair in used)
    above = config.positive_above
    if above is None:
        above = POSITIVE_SHARE * (known_scale(name) or (0, highest))[1]
    positives = [pair for pair in used if pair.score > above]
    if not positives:
        raise NearfarError(
            f"{name}: no pair has a score above --positive-above {above:g}; the highest score is {highest:g}."
        )
    described: dict[str, Any] = {"unavailable": unavailable, "task": None}
    described["pairs"] = MeasuredPairs(
        spec=name,
        instead_of=PAIRS if PAIRS in unavailable else None,
        pairs=len(used),
        positives=len(positives),
        texts=len({text for pair in used for text in pair[:2]}),
        digest=digest(used),
    )
    if scored is not None:
        task_pairs = list(chain(*scored.values()))
        described["task"] = LayerTask(spec=config.task or TASK, pairs=len(task_pairs), digest=digest(task_pairs))
    labelled = None if texts is None else _subsample(texts, config.labelled or LABELLED, config.labelled_limit)
    if labelled is not None:
        spec, labels = config.labelled or LABELLED, list(dict.fromkeys(labelled[1]))
        described["labelled"] = PlottedTexts(spec=spec, texts=len(labelled[0]), labels=labels)
    extremes = None if own is None else _extremes(own, name, config.seed)
    return GeometryData(used, positives, above, extremes, scored, labelled, described)


def _extremes(pairs: Sequence[ScoredPair], spec: str, seed: int) -> tuple[list[ScoredPair], list[ScoredPair]]:
    """The most and the least similar pairs, at random among equal scores, because neighbours in a file are similar."""
    order = [pairs[number] for number in np.random.default_rng(seed).permutation(len(pairs))]
    order = sorted((pair for pair in order if pair.first != pair.second), key=lambda pair: pair.score)
    if len(order) < 4:
        raise NearfarError(f"{spec}: {len(order)} pairs of two different texts; a plot of pairs needs 4 or more.")
    count = min(EXTREMES, len(order) // 2)
    return order[-count:], order[:count]


def _subsample(loaded: TextData, spec: str, limit: int) -> tuple[list[str], list[str]]:
    """The first texts and their labels, or evenly spaced ones where the first lack a label, as in a sorted file."""
    if len(loaded.label_names) > MAX_PLOT_LABELS:
        raise NearfarError(f"{spec}: has {len(loaded.label_names)} labels; a plot shows at most {MAX_PLOT_LABELS}.")
    labels = [loaded.label_names[int(number)] for number in loaded.targets or ()]
    chosen = list(range(min(limit, len(labels))))
    if len({labels[row] for row in chosen}) < len(loaded.label_names):
        chosen = np.linspace(0, len(labels) - 1, len(chosen)).round().astype(int).tolist()
    return [loaded.rows[row][0] for row in chosen], [labels[row] for row in chosen]


class PageTexts(NamedTuple):
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


def load_texts(config: GeometryConfig) -> tuple[PageTexts, list[Column]]:
    """The texts of the page and its columns; checks ``--color-by``."""
    spec = str(config.texts)
    found = load_page_texts(spec, column=config.column, limit=config.texts_limit, seed=config.seed)
    columns = [describe_column(name, values) for name, values in found.columns.items()]
    if config.color_by is not None:
        check_color_column(columns, config.color_by, spec)
    return found, columns


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
    tables = [(table, *_columns(table, spec, column)) for table in find(spec)]
    shared = [name for name in tables[0][2] if all(name in others for _, _, others in tables)]
    return shared, (entry for table, own, _ in tables for entry in _read(table, own, shared))


def _columns(table: Table, spec: str, column: str | None) -> tuple[tuple[str, ...], list[str]]:
    """The columns of a table that hold texts, and those beside them that have one value per row, each by one name."""
    if table.is_plain_text:
        if column is not None:
            raise NearfarError(
                f"--column {column}: --texts {spec} is plain text, which has no columns. Remove --column."
            )
        return (DEFAULT_COLUMN,), []
    own, names = (column,) if column else table.sentences or (DEFAULT_COLUMN,), column_names(table)
    if missing := [name for name in own if name not in names]:
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise NearfarError(
            f"--texts {table.title}: has no column {missing[0]!r}. Its columns: {shown}. Name the column of the texts "
            "with --column."
        )
    others = [name for name in names if name not in own and names.count(name) == 1]
    if not others or (isinstance(table.data, Path) and extension(table.data).startswith((".tsv", ".csv"))):
        return own, others
    rows = (values for _, values in islice(table.rows(others), _PEEKED))
    single = (str, int, float, type(None))
    lists = {place for values in rows for place, value in enumerate(values) if not isinstance(value, single)}
    return own, [name for place, name in enumerate(others) if place not in lists]


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
