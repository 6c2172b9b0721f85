"""Scores of a study on the test pairs that none of its settings has seen, from its committed result files.

A pair is seen if a setting was trained on it, or if it is in STS-B dev, which chose the training steps. Result files
hold the cosine and gold score of each pair, so no model is needed; NEARFAR_DATA gives the texts, whose digests must be
those of the result files. The studies call `write` by their command `unseen`, and `tables` in their reports.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
from common import HERE, TASKS, if_committed, load, spread, table

from nearfar.config import METHODS
from nearfar.config.files import build
from nearfar.data.fingerprints import RowHashes, row_hashes
from nearfar.data.sts import load_pairs, load_task
from nearfar.disk import SeenHashes, write_text
from nearfar.evaluation.comparison import compare_runs
from nearfar.evaluation.paired import EvaluationRun
from nearfar.evaluation.results import (
    AggregateEstimates,
    Estimate,
    EvaluationResult,
    SimilarityScores,
    SubsetScores,
    digest,
    provenance,
)
from nearfar.evaluation.seen import seen_shares, unseen_scores
from nearfar.methods.build import read_rows

DEV = "stsb:dev"
NOT_COMPUTED = Estimate(None, None, None, "not computed on unseen pairs")


class Setting(NamedTuple):
    """The result files of a setting, one for each seed, and the method that read its training rows."""

    files: Sequence[Path]
    method: str | None = None
    """None for an encoder without training."""


def file_of(study: str) -> Path:
    """Return the path of a study's scores on unseen pairs."""
    return HERE / "unseen" / f"{study}.json"


def write(study: str, settings: Mapping[str, Setting], differences: Sequence[tuple[str, str]]) -> None:
    """Compute the scores of all settings on the pairs that none has seen, and the ``differences`` between settings."""
    tasks = {task: load_task(task) for task in TASKS}
    rows = {task: row_hashes(pair for pairs in subsets.values() for pair in pairs) for task, subsets in tasks.items()}
    dev = row_hashes(load_pairs(DEV))
    seen = {name: _seen(setting, dev) for name, setting in settings.items()}
    everything = np.unique(np.concatenate([dev.pairs, *(one.trained_pairs for one in seen.values())]))
    known = {task: np.isin(rows[task].pairs, everything) for task in TASKS}
    results = {name: [_load(file, tasks) for file in setting.files] for name, setting in settings.items()}
    unseen = {name: [_restrict(run, known, tasks) for run in runs] for name, runs in results.items()}
    found = {
        **provenance().to_dict(),
        "chosen_by": DEV,
        "tasks": {task: {"pairs": len(known[task]), "unseen": int((~known[task]).sum())} for task in TASKS},
        "seen": {
            name: {task: seen_shares(one, rows[task]).to_dict() for task in TASKS}
            for name, one in seen.items()
            if settings[name].method
        },
        "all": {name: [_scores(run) for run in runs] for name, runs in results.items()},
        "unseen": {name: [_scores(run) for run in runs] for name, runs in unseen.items()},
        "differences": {f"{a} - {b}": _difference(unseen[a], unseen[b]) for a, b in differences},
    }
    file = file_of(study)
    file.parent.mkdir(exist_ok=True)
    write_text(if_committed(file.parent) / file.name, json.dumps(found, indent=1) + "\n")


def _seen(setting: Setting, dev: RowHashes) -> SeenHashes:
    """Return what a setting has seen; the seeds of a setting have the same rows."""
    if setting.method is None:
        trained, dev = row_hashes([]), row_hashes([])
    else:
        run_info = load(setting.files[0].with_suffix(".run.json"))
        config, facts = run_info["config"], run_info.get("data", [])
        data = config["data"] if isinstance(config["data"], list) else [config["data"]]
        trained = _training_rows(setting.method, tuple(data), config.get("limit"), tuple(facts))
    return SeenHashes(*(np.unique(hashes) for hashes in (*trained, *dev)))


@cache
def _training_rows(method: str, data: tuple[str, ...], limit: int | None, facts: tuple[str, ...]) -> RowHashes:
    """Read the rows of a run again; their sources must have the numbers of rows that the run recorded."""
    rows = read_rows(build(METHODS[method], {"data": data, "limit": limit, "output": "-"}, source=method))
    sources = [_file_and_count(source) for source in rows.sources]
    if facts and sources != [_file_and_count(fact) for fact in facts[: len(sources)]]:
        raise SystemExit(f"{method}: {'; '.join(sources)}: the runs were trained on other rows: {'; '.join(facts)}.")
    return row_hashes(rows.rows[:limit])


def _file_and_count(source: str) -> str:
    """``runs/data/text/a.txt: 5 sentences, 0 dropped`` -> ``a.txt: 5 sentences``."""
    return source.rpartition("/")[2].partition(",")[0]


def _load(file: Path, tasks: Mapping[str, Mapping[str, Any]]) -> EvaluationResult:
    result = EvaluationResult.load(file)
    for task, subsets in tasks.items():
        if [digest(pairs) for pairs in subsets.values()] != [one.digest for one in result.tasks[task].subsets.values()]:
            raise SystemExit(f"{file}: {task} in NEARFAR_DATA has other pairs than the result.")
    return result


def _restrict(result: EvaluationResult, known: Mapping[str, Any], tasks: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return a result without the pairs that are known, with Spearman over all remaining pairs of a task."""
    restricted = {}
    for task in TASKS:
        subsets: dict[str, SubsetScores] = {}
        start = 0
        for (name, one), pairs in zip(result.tasks[task].subsets.items(), tasks[task].values(), strict=True):
            kept = np.flatnonzero(~known[task][start : start + one.pairs]).tolist()
            start += one.pairs
            if kept:
                subsets[name] = replace(
                    one,
                    pairs=len(kept),
                    digest=digest(pairs[row] for row in kept),
                    gold=[one.gold[row] for row in kept],
                    cosines_e6=[one.cosines_e6[row] for row in kept],
                )
        score = unseen_scores(task, result.tasks[task], known[task], resamples=0)
        spearman = AggregateEstimates(all=score.spearman, mean=NOT_COMPUTED, wmean=NOT_COMPUTED)
        pearson = AggregateEstimates(all=NOT_COMPUTED, mean=NOT_COMPUTED, wmean=NOT_COMPUTED)
        restricted[task] = SimilarityScores(pairs=score.pairs, spearman=spearman, pearson=pearson, subsets=subsets)
    return replace(result, tasks=restricted, averages={})


def _scores(result: EvaluationResult) -> dict[str, float | None]:
    return {task: result.tasks[task].spearman.all.score for task in TASKS}


def _difference(first: Sequence[EvaluationResult], second: Sequence[EvaluationResult]) -> dict[str, Any]:
    sides = [[EvaluationRun(result.model, result) for result in side] for side in (first, second)]
    overall = compare_runs(*sides, tasks=TASKS).overall
    assert overall is not None
    return overall.to_dict()


def average(runs: Sequence[Mapping[str, float]]) -> float:
    """Return the mean over seeds and tasks."""
    return mean(mean(run.values()) for run in runs)


def tables(study: str, title: Callable[[str], str] = str) -> list[str]:
    """Format the shares that were seen, and the scores on unseen pairs, in the order of their averages."""
    found = load(file_of(study))
    shares = found["seen"]
    dev = next(iter(shares.values()))
    in_dev = [f"{100 * dev[task]['chosen_pairs']:.1f}" for task in TASKS]
    trained = {
        name: [f"{100 * (one[task]['pairs'] - one[task]['chosen_pairs']):.1f}" for task in TASKS]
        for name, one in shares.items()
    }
    rows = [["STS-B dev, which chose the step of each run", *in_dev]]
    rows += [[f"training rows of {title(name)}", *row] for name, row in trained.items() if set(row) != {"0.0"}]
    rest = sum(set(row) == {"0.0"} for row in trained.values())
    rows += [
        [f"training rows of the other {rest} trained settings" if len(rows) > 1 else "training rows", *["0.0"] * 7]
    ]
    lines = ["Share of the test pairs, in percent, that is in", "", *table(["", *TASKS], rows), ""]
    counts = [f"{one['unseen']:,} of {one['pairs']:,}" for one in found["tasks"].values()]
    everywhere, unseen = found["all"], found["unseen"]
    order = sorted(unseen, key=lambda name: -average(unseen[name]))
    before = sorted(everywhere, key=lambda name: -average(everywhere[name]))
    rows = [["pairs", "", "", *counts, ""]]
    for rank, name in enumerate(order, start=1):
        scores = [[*run.values(), mean(run.values())] for run in unseen[name]]
        was = f"{average(everywhere[name]):.2f}"
        rows.append(
            [title(name), str(rank), f"{before.index(name) + 1} ({was})", *map(spread, zip(*scores, strict=True))]
        )
    header = ["setting", "rank", "rank (average) on all pairs", *TASKS, "average"]
    lines += ["Spearman x 100, `all`, on the pairs that no setting has seen:", "", *table(header, rows), ""]
    return [*lines, f"Unseen pairs: `python studies/{found['command']}`, commit {found['commit']}."]


def difference(study: str, first: str, second: str) -> list[str]:
    """Format a difference on unseen pairs: the average with its interval, p over pairs and p over seeds."""
    found = load(file_of(study))["differences"][f"{first} - {second}"]
    over_seeds = f"{found['seeds']['p']:.3f}" if found["seeds"] else ""
    interval = f"{found['difference']:+.2f} [{found['low']:+.2f}, {found['high']:+.2f}]"
    return [interval, f"{found['p']:.4f}", over_seeds]
