"""The guard of a run: judged sets on which a trained model may not be worse than its start (``--guard``).

With the trained weights w and those of the start w_0, the averages

    (1 - a) * w + a * w_0,  a in :data:`SHARES`,

cost no training (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models"). Those that are better than the start
on the dev rows are tried, the best first. The first that is no worse than the start by more than the margin on any
guard set is kept: its difference is at least minus the margin, and its 95% interval is not all below zero. If none is,
the model is the start, as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import torch

from nearfar.commands.evaluate import evaluate
from nearfar.commands.evaluate.tasks import LoadedTasks, load_tasks
from nearfar.config.training import TrainConfig
from nearfar.config.verbs import EvaluateConfig
from nearfar.data.paths import as_path
from nearfar.evaluation.comparison import EvaluationRun, compare_runs
from nearfar.evaluation.results import ComparisonResult, EvaluationResult
from nearfar.runs.held_out import Tried
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder

SHARES = (0.0, 0.25, 0.5, 0.75)
"""The shares of the start in the averages that are tried."""


@dataclass(frozen=True)
class Guard:
    """The guard sets of a run, and the margin in points."""

    settings: EvaluateConfig
    tasks: LoadedTasks
    margin: float

    @property
    def rows(self) -> list[tuple[object, ...]]:
        """The pairs and queries, for fingerprints: what chooses the weights counts as seen."""
        pairs = chain.from_iterable(chain.from_iterable(task.values()) for task in self.tasks.similarity.values())
        queries = chain.from_iterable(task.queries for task in self.tasks.retrieval.values())
        return [*map(tuple, pairs), *((query,) for query in queries)]

    def describe(self) -> str:
        """The guard sets and their sizes, in words."""
        sizes = {name: f"{sum(map(len, task.values())):,} pairs" for name, task in self.tasks.similarity.items()}
        sizes |= {name: f"{len(task.queries):,} queries" for name, task in self.tasks.retrieval.items()}
        sets = ", ".join(f"{name} ({size})" for name, size in sizes.items())
        return f"guard: at most {self.margin:g} points worse than the start on {sets}"

    def score(self, model: "Encoder | str") -> EvaluationResult:
        """The scores of a model on the guard sets, with those of each pair and query."""
        return evaluate(model, self.settings, progress=False)

    def passes(self, comparison: ComparisonResult) -> bool:
        """Whether no guard set is worse by more than the margin, or worse beyond doubt."""
        tests = comparison.tasks.values()
        return all((test.difference or 0.0) >= -self.margin and test.verdict != "worse" for test in tests)


def open_guard(config: TrainConfig) -> Guard | None:
    """The guard sets of a config: folders in BEIR's layout are searched, all others are scored pairs; None without any.

    Raises:
        NearfarError: a set that is missing or malformed.
    """
    if not config.guard:
        return None
    folders = tuple(spec for spec in config.guard if as_path(spec).is_dir())
    pairs = tuple(spec for spec in config.guard if spec not in folders)
    settings = EvaluateConfig(tasks=pairs, retrieval=folders, resamples=0, precision=config.precision)
    try:
        return Guard(settings, load_tasks((), settings), config.guard_margin)
    except NearfarError as error:
        raise NearfarError(f"--guard: {error}") from error


def keep_guarded(
    guard: Guard,
    encoder: "Encoder",
    start: "Encoder",
    model: str,
    *,
    dev_score: Callable[["Encoder"], float | None],
    above: float | None,
    ranked: bool,
) -> tuple[list[Tried], ComparisonResult | None]:
    """Give the encoder the average that is kept; what was tried, and the comparison on the guard sets.

    If none is kept, the last one tried has ``kept`` False, and the encoder's weights are those of the start. If none is
    better than the start on the dev rows, the trained weights alone are tried, to show what is refused.

    Args:
        guard: the guard sets.
        encoder: the encoder with the trained weights.
        start: the same with the weights before training.
        model: the name of the model that training started from, which is compared as it is.
        dev_score: the score on the dev rows; None where nothing is scored.
        above: the dev score of the start, which an average must exceed; None if nothing is scored.
        ranked: try the averages in the order of their dev scores, not the trained weights first.
    """
    own = {name: value.clone() for name, value in encoder.state_dict().items() if value.is_floating_point()}
    before = start.state_dict()

    def average(share: float) -> None:
        for name, value in encoder.state_dict().items():
            if name in own:
                value.copy_(torch.lerp(own[name], before[name].to(value), share))

    candidates: list[tuple[float, float | None]] = []
    for share in SHARES:
        average(share)
        candidates.append((share, dev_score(encoder)))
    better = [(share, score) for share, score in candidates if above is None or (score is not None and score > above)]
    if above is not None and ranked:
        better.sort(key=lambda one: -(one[1] or 0.0))
    tried: list[Tried] = []
    comparison, before_scores = None, [EvaluationRun(model, guard.score(model))]
    for share, score in better or candidates[:1]:
        average(share)
        comparison = compare_runs([EvaluationRun("trained", guard.score(encoder))], before_scores, margin=guard.margin)
        differences = {task: test.difference or 0.0 for task, test in comparison.tasks.items()}
        kept = bool(better) and guard.passes(comparison)
        tried.append(Tried(start_share=share, score=score, differences=differences, kept=kept))
        if kept:
            return tried, comparison
    average(1.0)
    return tried, comparison
