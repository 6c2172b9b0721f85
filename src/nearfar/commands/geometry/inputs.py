"""The data of ``nearfar geometry``: scored pairs to measure on, a task to score layers on, labelled texts to plot."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np

from nearfar.config.geometry import GeometryConfig
from nearfar.data.rows import TextData, known_scale, load_labelled, load_pairs, load_task
from nearfar.evaluation.results import LayerTask, MeasuredPairs, PlottedTexts, digest
from nearfar.evaluation.sts import Subsets
from nearfar.types import NearfarError, ScoredPair

PAIRS, TASK, LABELLED = "stsb:dev", "stsb", "sst2:test"
FALLBACK_PAIRS = "microworld:dev"
EXTREMES = 20
"""Number of most similar, and of least similar, pairs that are plotted (Kim et al. 2021, section 5.4)."""
MAX_PLOT_LABELS = 20
"""Number of labels that a plot has distinct colours for."""
POSITIVE_SHARE = 0.8
"""Default threshold of positive pairs, as a share of the highest score: 4 on a scale to 5 (Gao et al. 2021)."""


Loaded = TypeVar("Loaded")


class GeometryData(NamedTuple):
    """The data sets; None for a default set that cannot be loaded."""

    pairs_name: str
    pairs: list[ScoredPair]
    positives: list[ScoredPair]
    """The pairs with a score above ``positive_above``."""
    positive_above: float
    extremes: tuple[list[ScoredPair], list[ScoredPair]] | None
    """The most and the least similar pairs, to plot."""
    task_name: str
    task: Subsets | None
    labelled_name: str
    labelled: tuple[list[str], list[str]] | None
    """Texts and their labels, to plot."""
    unavailable: dict[str, str]
    """Default set -> why it cannot be loaded, and how to name another one."""

    @property
    def measured_pairs(self) -> MeasuredPairs:
        """The description of ``pairs`` in a result file."""
        return MeasuredPairs(
            spec=self.pairs_name,
            instead_of=PAIRS if PAIRS in self.unavailable else None,
            pairs=len(self.pairs),
            positives=len(self.positives),
            texts=len({text for pair in self.pairs for text in pair[:2]}),
            digest=digest(self.pairs),
        )

    @property
    def layer_task(self) -> LayerTask | None:
        """The description of ``task`` in a result file."""
        pairs = [] if self.task is None else list(chain(*self.task.values()))
        return LayerTask(spec=self.task_name, pairs=len(pairs), digest=digest(pairs)) if pairs else None

    @property
    def plotted_texts(self) -> PlottedTexts | None:
        """The description of ``labelled`` in a result file."""
        if self.labelled is None:
            return None
        texts, labels = self.labelled
        return PlottedTexts(spec=self.labelled_name, texts=len(texts), labels=list(dict.fromkeys(labels)))


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
    texts = load_or_skip(
        config.labelled, LABELLED, load_labelled, "Other texts: --labelled with a file with the columns text and label."
    )
    name = config.pairs or (FALLBACK_PAIRS if own is None else PAIRS)
    used = load_pairs(FALLBACK_PAIRS) if own is None else own
    highest = max(pair.score for pair in used)
    positive_above = config.positive_above
    if positive_above is None:
        scale = known_scale(name)
        positive_above = POSITIVE_SHARE * (highest if scale is None else scale[1])
    positives = [pair for pair in used if pair.score > positive_above]
    if not positives:
        raise NearfarError(
            f"{name}: no pair has a score above --positive-above {positive_above:g}; the highest score is {highest:g}."
        )
    extremes = None if own is None else _extremes(own, name, config.seed)
    task, labelled = config.task or TASK, config.labelled or LABELLED
    plotted = None if texts is None else _subsample(texts, labelled, config.labelled_limit)
    return GeometryData(name, used, positives, positive_above, extremes, task, scored, labelled, plotted, unavailable)


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
