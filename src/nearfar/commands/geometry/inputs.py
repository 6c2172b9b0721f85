"""What ``nearfar geometry`` measures on and draws: scored pairs, a task for the layers, labelled texts."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np

from nearfar.data.rows import TextData, load_labelled
from nearfar.data.sts import known_scale, load_pairs, load_task
from nearfar.evaluation.results import digest
from nearfar.evaluation.sts import Subsets
from nearfar.types import NearfarError, ScoredPair

PAIRS, TASK, LABELLED = "stsb:dev", "stsb", "sst2:test"
FALLBACK_PAIRS = "microworld:dev"
EXTREMES = 20
"""Pairs drawn at either end, as Kim et al. 2021, section 5.4."""
MAX_PLOT_LABELS = 20
"""Labels that a plot can tell apart."""
POSITIVE_SHARE = 0.8
"""Of the top of the scale, above which pairs are positive: above 4 on 0 to 5, as Gao et al. 2021 choose."""


Loaded = TypeVar("Loaded")


class GeometryData(NamedTuple):
    """What is measured on; None for a default set that cannot be had."""

    pairs_name: str
    pairs: list[ScoredPair]
    positives: list[ScoredPair]
    """Those that are scored above the limit."""
    positive_above: float
    """The limit."""
    extremes: tuple[list[ScoredPair], list[ScoredPair]] | None
    """The most and the least similar pairs, to be drawn."""
    task_name: str
    task: Subsets | None
    labelled_name: str
    labelled: tuple[list[str], list[str]] | None
    """Texts and their labels, to be drawn."""
    unavailable: dict[str, str]
    """Default set -> why it cannot be had, and what to do."""

    def summary(self) -> dict[str, Any]:
        """The sets as the result file tells them."""
        texts = {text for pair in self.pairs for text in pair[:2]}
        scored = None if self.task is None else list(chain(*self.task.values()))
        return {
            "pairs": {
                "spec": self.pairs_name,
                "instead_of": PAIRS if PAIRS in self.unavailable else None,
                "pairs": len(self.pairs),
                "positives": len(self.positives),
                "texts": len(texts),
                "digest": digest(self.pairs),
            },
            "task": scored and {"spec": self.task_name, "pairs": len(scored), "digest": digest(scored)},
            "labelled": self.labelled
            and {
                "spec": self.labelled_name,
                "texts": len(self.labelled[0]),
                "labels": list(dict.fromkeys(self.labelled[1])),
            },
            "unavailable": self.unavailable,
        }


def load_sets(
    pairs: str | None,
    task: str | None,
    labelled: str | None,
    *,
    positive_above: float | None,
    labelled_limit: int,
    seed: int,
) -> GeometryData:
    """Load the sets that are named, and of the defaults what can be had.

    ``positive_above`` is by default :data:`POSITIVE_SHARE` of the top of the scale, which for one's own pairs is their
    highest score. Without :data:`PAIRS`, numbers are of :data:`FALLBACK_PAIRS`, and nothing of it is drawn.

    Raises:
        NearfarError: a set that is named cannot be had; one holds no positive pair, too few pairs or too many labels to
            draw.
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
    own = load_or_skip(pairs, PAIRS, load_pairs, f"Other pairs: --pairs with {columns}.")
    scored = load_or_skip(task, TASK, load_task, f"Another task for the layers: --task with {columns}.")
    texts = load_or_skip(
        labelled, LABELLED, load_labelled, "Other texts: --labelled with a file with the columns text and label."
    )
    name = pairs or (FALLBACK_PAIRS if own is None else PAIRS)
    used = load_pairs(FALLBACK_PAIRS) if own is None else own
    highest = max(pair.score for pair in used)
    if positive_above is None:
        scale = known_scale(name)
        positive_above = POSITIVE_SHARE * (highest if scale is None else scale[1])
    positives = [pair for pair in used if pair.score > positive_above]
    if not positives:
        raise NearfarError(
            f"{name}: no pair is scored above --positive-above {positive_above:g}; the highest score is {highest:g}."
        )
    extremes = None if own is None else _extremes(own, name, seed)
    drawn = None if texts is None else _subsample(texts, labelled or LABELLED, labelled_limit)
    return GeometryData(
        name, used, positives, positive_above, extremes, task or TASK, scored, labelled or LABELLED, drawn, unavailable
    )


def _extremes(pairs: Sequence[ScoredPair], spec: str, seed: int) -> tuple[list[ScoredPair], list[ScoredPair]]:
    """The most and the least similar pairs; among equal scores by chance, for neighbours in a file are alike."""
    order = [pairs[number] for number in np.random.default_rng(seed).permutation(len(pairs))]
    order = sorted((pair for pair in order if pair.first != pair.second), key=lambda pair: pair.score)
    if len(order) < 4:
        raise NearfarError(f"{spec}: {len(order)} pairs of two different texts; a plot of pairs needs 4 or more.")
    count = min(EXTREMES, len(order) // 2)
    return order[-count:], order[:count]


def _subsample(loaded: TextData, spec: str, limit: int) -> tuple[list[str], list[str]]:
    """The first texts and their labels, or evenly spaced ones where the first lack a label, as in a sorted file."""
    if len(loaded.label_names) > MAX_PLOT_LABELS:
        raise NearfarError(f"{spec}: has {len(loaded.label_names)} labels; a plot can tell {MAX_PLOT_LABELS} apart.")
    labels = [loaded.label_names[int(number)] for number in loaded.targets or ()]
    chosen = list(range(min(limit, len(labels))))
    if len({labels[row] for row in chosen}) < len(loaded.label_names):
        chosen = np.linspace(0, len(labels) - 1, len(chosen)).round().astype(int).tolist()
    return [loaded.rows[row][0] for row in chosen], [labels[row] for row in chosen]
