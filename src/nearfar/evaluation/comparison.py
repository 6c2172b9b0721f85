"""Is the first better than the second? Evaluations of two sides in, paired tests per task and overall out.

A comparison (schema 1)::

    {
      "schema": 1, "kind": "comparison",
      "first": {"name", "models": [one per run], "sources": [file or model], "training_seeds": [...]}, "second": same,
      "config": {"metric", "aggregate", "resamples", "seed", "level"},
      "provenance": as in an evaluation,
      "not_compared": [tasks that not all runs have],
      "tasks": {task: {"pairs", "first", "second", "difference", "low", "high", "p", "p_holm", "separable",
                       "seeds": {"difference", "low", "high", "p", "test"} or null}},
      "overall": {"tasks": [those averaged], and the same but "pairs" and "p_holm"}
    }

Scores and differences are Spearman x 100; a difference is first minus second. Where a score is undefined, so are the
difference and what follows from it: they are null, and ``"reason"`` says why.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track

from nearfar.evaluation.correlation import (
    AGGREGATES,
    Aggregate,
    Floats,
    bootstrap_scores,
    check_resampling,
    scores,
    weighted_spearman,
)
from nearfar.evaluation.results import SCHEMA, Result, provenance
from nearfar.evaluation.statistics import Difference, between_sides, holm, paired_test, seeds_test
from nearfar.types import NearfarError

LEVEL = 0.05


class Run(NamedTuple):
    """One evaluation, and the file or model that it came from, for messages."""

    source: str
    result: Result


class _Scored(NamedTuple):
    """Scores of each run [runs] and on each resample [runs, resamples]; or why a run has none."""

    points: Floats
    draws: Floats
    reason: str | None


def check_comparison(aggregate: str, resamples: int, seed: int) -> None:
    """Refuse settings that no comparison can run with, before models are encoded.

    Raises:
        NearfarError: an unknown aggregate, fewer than one resample, a negative seed.
    """
    check_resampling(resamples, seed, at_least=1)
    if aggregate not in AGGREGATES:
        raise NearfarError(f"aggregate {aggregate!r}: take one of {', '.join(AGGREGATES)}.")


def compare_runs(
    first: Sequence[Run],
    second: Sequence[Run],
    *,
    tasks: Sequence[str] | None = None,
    aggregate: Aggregate = "all",
    resamples: int = 10_000,
    seed: int = 0,
    progress: bool = False,
) -> Result:
    """Test the mean score of the ``first`` runs against that of the ``second``; a comparison as described above.

    The paired bootstrap draws pairs, the same for all runs of both sides; its p is corrected over tasks (Holm). It
    speaks of other pairs. With two runs or more on both sides there is a t-test too, paired where both have the same
    training seeds, else Welch's; it speaks of other training runs. In the average each resample draws every task;
    ``sickr-full`` is left out of it where ``sickr``, a part of it, is there too.

    Raises:
        NearfarError: a task that a run does not have, no common task, or runs that were scored on different data.
    """
    check_comparison(aggregate, resamples, seed)
    runs = [*first, *second]
    chosen, left_out = _choose(runs, tasks)
    for task in chosen:
        _check_same_data(task, runs)

    scored: dict[str, _Scored] = {}
    for task in track(chosen, "comparing", console=Console(stderr=True), transient=True, disable=not progress):
        scored[task] = _score(task, runs, aggregate, resamples=resamples, seed=seed)
    averaged = [task for task in chosen if task != "sickr-full" or "sickr" not in chosen]
    order = _pairing(first, second)
    rows = {task: {"pairs": _pairs(task, runs)} | _judge(one, len(first), order) for task, one in scored.items()}
    overall = _judge(_average({task: scored[task] for task in averaged}), len(first), order)

    tested = [task for task in chosen if rows[task]["p"] is not None]
    for task, p in zip(tested, holm([rows[task]["p"] for task in tested]), strict=True):
        rows[task] |= {"p_holm": round(p, 6), "separable": p < LEVEL}
    if overall["p"] is not None:
        overall["separable"] = overall["p"] < LEVEL
    return {
        "schema": SCHEMA,
        "kind": "comparison",
        "first": _describe(first),
        "second": _describe(second),
        "config": {
            "metric": "spearman",
            "aggregate": aggregate,
            "resamples": resamples,
            "seed": seed,
            "level": LEVEL,
        },
        "provenance": provenance(),
        "not_compared": left_out,
        "tasks": rows,
        "overall": {"tasks": averaged} | overall,
    }


def shared_tasks(runs: Sequence[Run]) -> list[str]:
    """The tasks that all ``runs`` have, in the first one's order.

    Raises:
        NearfarError: there are none.
    """
    shared = [task for task in runs[0].result["tasks"] if all(task in run.result["tasks"] for run in runs)]
    if not shared:
        each = "; ".join(f"{run.source}: {', '.join(run.result['tasks'])}" for run in runs)
        raise NearfarError(f"no task was evaluated everywhere ({each}).")
    return shared


def _choose(runs: Sequence[Run], tasks: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """The tasks to compare on, and those left out because not all runs have them."""
    if tasks:
        for run in runs:
            for task in tasks:
                if task not in run.result["tasks"]:
                    raise NearfarError(f"{run.source}: has no task {task}, only {', '.join(run.result['tasks'])}.")
        return list(dict.fromkeys(tasks)), []
    shared = shared_tasks(runs)
    everything = dict.fromkeys(task for run in runs for task in run.result["tasks"])
    return shared, [task for task in everything if task not in shared]


def _check_same_data(task: str, runs: Sequence[Run]) -> None:
    digests = [{name: held["digest"] for name, held in run.result["tasks"][task]["subsets"].items()} for run in runs]
    for run, found in zip(runs, digests, strict=True):
        if found != digests[0]:
            subset = next(name for name in digests[0] | found if found.get(name) != digests[0].get(name))
            raise NearfarError(
                f"{runs[0].source} and {run.source} were scored on different data (task {task}, subset {subset}), so "
                "that their pairs cannot be compared. Evaluate both on the same data."
            )


def _pairs(task: str, runs: Sequence[Run]) -> int:
    return sum(held["pairs"] for held in runs[0].result["tasks"][task]["subsets"].values())


def _score(task: str, runs: Sequence[Run], aggregate: Aggregate, *, resamples: int, seed: int) -> _Scored:
    names = list(runs[0].result["tasks"][task]["subsets"])
    scored = [run.result["tasks"][task] for run in runs]
    gold = np.concatenate([np.array(scored[0]["subsets"][name]["gold"], dtype=np.float64) for name in names])
    systems = np.array([[x for name in names for x in one["subsets"][name]["cosines_e6"]] for one in scored], float)
    sizes = [scored[0]["subsets"][name]["pairs"] for name in names]
    reasons = [one["spearman"][aggregate].get("reason") for one in scored]
    points = scores(weighted_spearman, gold, systems, sizes=sizes).aggregate(aggregate)[:, 0]
    points[[why is not None for why in reasons]] = np.nan
    undefined = (f"undefined for {run.source}: {why}" for run, why in zip(runs, reasons, strict=True) if why)
    draws = bootstrap_scores(
        weighted_spearman,
        gold,
        systems,
        sizes=sizes,
        resamples=resamples,
        seed=[seed, *task.encode()],
        per_subset=aggregate != "all",
    )
    return _Scored(points, draws.aggregate(aggregate), next(undefined, None))


def _average(scored: Mapping[str, _Scored]) -> _Scored:
    reasons = (f"{task}: {one.reason}" for task, one in scored.items() if one.reason)
    points = np.mean([one.points for one in scored.values()], axis=0)
    return _Scored(points, np.mean([one.draws for one in scored.values()], axis=0), next(reasons, None))


def _judge(scored: _Scored, first: int, order: Sequence[int] | None) -> dict[str, Any]:
    """One row of the comparison; ``order`` puts the second side's runs beside the first's, where they pair."""
    a, b = scored.points[:first], scored.points[first:]
    row: dict[str, Any] = {"first": _percent(a.mean()), "second": _percent(b.mean())}
    reason, tested, over_seeds = scored.reason, None, None
    if reason is None:
        tested = paired_test(float(a.mean() - b.mean()), between_sides(scored.draws, first))
        over_seeds = seeds_test(a, b if order is None else b[order], paired=order is not None)
        reason = None if tested else "undefined on every resample"
    numbers = {key: value for key, value in _percents(tested).items() if key != "test"}
    row |= numbers | {"separable": None, "seeds": _percents(over_seeds) if over_seeds else None}
    return row | ({"reason": reason} if reason else {})


def _pairing(first: Sequence[Run], second: Sequence[Run]) -> list[int] | None:
    """For each run of ``first``, the run of ``second`` with the same training seed; None where they do not pair."""
    a, b = _training_seeds(first), _training_seeds(second)
    if None in a or len(set(a)) < len(a) or len(a) != len(b) or set(a) != set(b):
        return None
    return [b.index(seed) for seed in a]


def _training_seeds(side: Sequence[Run]) -> list[int | None]:
    return [run.result["config"].get("training_seed") for run in side]


def _describe(side: Sequence[Run]) -> dict[str, Any]:
    models = [run.result["model"] for run in side]
    return {
        "name": ", ".join(dict.fromkeys(models)),
        "models": models,
        "sources": [run.source for run in side],
        "training_seeds": _training_seeds(side),
    }


def _percent(score: float) -> float | None:
    return None if np.isnan(score) else round(100 * float(score), 4)


def _percents(difference: Difference | None) -> dict[str, Any]:
    if difference is None:
        return dict.fromkeys(Difference._fields)
    scaled = {key: _percent(getattr(difference, key)) for key in ("difference", "low", "high")}
    return scaled | {"p": round(difference.p, 6), "test": difference.test}
