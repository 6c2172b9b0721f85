"""The texts, pairs and labels that ``nearfar geometry`` measures and plots, and those of its page."""

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas

from nearfar.config.encoding import GeometryConfig
from nearfar.data.catalog import find
from nearfar.data.cells import normalize_whitespace, text_field
from nearfar.data.rows import TextData, known_scale, load_labelled, load_pairs, load_task
from nearfar.data.sources import Table, column_names
from nearfar.evaluation import results
from nearfar.evaluation.explorer import check_color_column, describe_column
from nearfar.evaluation.sts import Subsets
from nearfar.types import NearfarError, ScoredPair

PAIRS, TASK, LABELLED = "stsb:dev", "stsb", "sst2:test"
"""The default data sets."""

FALLBACK_PAIRS = "microworld:dev"

EXTREMES = 20
"""Number of most similar, and of least similar, pairs that are plotted (Kim et al. 2021, section 5.4)."""

MAX_PLOT_LABELS = 20
"""Number of labels that a plot has distinct colours for."""

POSITIVE_SHARE = 0.8
"""Default threshold of positive pairs, as a share of the highest score: 4 on a scale to 5 (Gao et al. 2021)."""

DEFAULT_COLUMN = "text"

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
    columns = f"a file with the columns score, sentence1 and sentence2, or {FALLBACK_PAIRS}, which is generated"
    unavailable: dict[str, str] = {}

    def load(flag: str, default: str, read: Callable[[str], Loaded], advice: str) -> Loaded | None:
        given = getattr(config, flag)
        try:
            return read(given or default)
        except NearfarError as error:
            if given is not None:
                raise
            unavailable[default] = f"{error}\n  Other data: --{flag} with {advice}."
            return None

    own = load("pairs", PAIRS, load_pairs, columns)
    task = load("task", TASK, load_task, columns)
    texts = load("labelled", LABELLED, load_labelled, "a file with the columns text and label")
    spec = config.pairs or (FALLBACK_PAIRS if own is None else PAIRS)
    pairs = load_pairs(FALLBACK_PAIRS) if own is None else own
    highest, above = max(pair.score for pair in pairs), config.positive_above
    if above is None:
        above = POSITIVE_SHARE * (known_scale(spec) or (0, highest))[1]
    positives = [pair for pair in pairs if pair.score > above]
    if not positives:
        raise NearfarError(
            f"{spec}: no pair has a score above --positive-above {above:g}; the highest score is {highest:g}."
        )
    described: dict[str, Any] = {"unavailable": unavailable, "task": None}
    described["pairs"] = results.MeasuredPairs(
        spec=spec,
        instead_of=PAIRS if own is None else None,
        pairs=len(pairs),
        positives=len(positives),
        texts=len({text for pair in pairs for text in pair[:2]}),
        digest=results.digest(pairs),
    )
    if task is not None:
        scored = list(chain(*task.values()))
        described["task"] = results.LayerTask(
            spec=config.task or TASK, pairs=len(scored), digest=results.digest(scored)
        )
    labelled = None
    if texts is not None:
        named = config.labelled or LABELLED
        labelled = _subsample(texts, named, config.labelled_limit)
        labels = list(dict.fromkeys(labelled[1]))
        described["labelled"] = results.PlottedTexts(spec=named, texts=len(labelled[0]), labels=labels)
    extremes = None if own is None else _extremes(own, spec, config.seed)
    return GeometryData(pairs, positives, above, extremes, task, labelled, described)


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


def load_page_texts(config: GeometryConfig) -> PageTexts:
    """Read the distinct texts of ``--texts`` and its other columns; a random sample if there are more than the limit.

    They are any source of :mod:`nearfar.data.catalog`: plain text has no columns; a named set has its own columns of
    texts, and a row with two texts gives two. Other columns are those that all tables have and whose values are single
    ones. The sample keeps the order of the source.

    Raises:
        NearfarError: the source or ``--column`` cannot be found or read, a text is empty or not text (with file and
            line), there are fewer than two distinct texts, or ``--color-by`` is no column to colour by.
    """
    spec = str(config.texts)
    tables = [(table, *_columns(table, config.column)) for table in find(spec)]
    shared = [name for name in tables[0][2] if all(name in names for _, _, names in tables)]
    every = [
        (text_field(value, name, where), *map(_written, values[len(own) :]))
        for table, own, _ in tables
        for where, values in table.text_rows([*own, *shared])
        for name, value in zip(own, values, strict=False)
    ]
    frame = pandas.DataFrame(every, columns=range(len(shared) + 1)).drop_duplicates(0)
    if len(frame) < 2:
        held = f"a single text, {str(every[0][0])[:80]!r}" if len(frame) else "no texts"
        raise NearfarError(f"--texts {spec}: holds {held}; the page needs at least two different texts.")
    chosen = frame.sample(min(config.texts_limit, len(frame)), random_state=config.seed).sort_index()
    columns = {name: chosen[n].tolist() for n, name in enumerate(shared, 1) if chosen[n].notna().all()}
    if config.color_by is not None:
        check_color_column([describe_column(name, values) for name, values in columns.items()], config.color_by, spec)
    return PageTexts(chosen[0].tolist(), columns, len(every), len(frame))


def _columns(table: Table, column: str | None) -> tuple[tuple[str, ...], list[str]]:
    """The columns of a table that hold texts, and those beside them, each by one name."""
    names = [] if table.is_plain_text else column_names(table)
    own = (column,) if column else table.sentences or (DEFAULT_COLUMN,)
    missing = [] if table.is_plain_text and column is None else [name for name in own if name not in names]
    if missing:
        raise NearfarError(
            f"--texts {table.title}: has no column {missing[0]!r}. Its columns: {', '.join(names[:20]) or 'none'}. "
            "Name the column of the texts with --column."
        )
    return own, [name for name in names if name not in own and names.count(name) == 1]


def _written(value: object) -> str | None:
    """A value of another column as text, empty if missing; None for a list or the like, which a page leaves out."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return normalize_whitespace(str(value)) if isinstance(value, str | int | float) else None
