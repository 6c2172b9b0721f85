"""``nearfar tune``: a search over settings around the recommended ones by successive halving, one test of the best.

The candidates are the recipe and settings around it, in a fixed order (:func:`candidates`). In the first round each is
trained for a quarter of its own steps, the better half of them for half of their steps in the second, and the better
half of those for all in the third (Jamieson & Talwalkar 2016, *Non-stochastic Best Arm Identification and
Hyperparameter Optimization*). The recipe is in every round, so the winner has beaten a whole run of it. Time decides
only how many tries begin: rounds end after a third, two thirds and all of the budget, but not before the best of the
others has begun too, and a try that has begun is finished.

Each try is trained anew. A learning rate that falls to 0 does so at the try's own end: a run that is only stopped after
a quarter of its steps would be scored near the peak of its rate, and one that went on from there with another schedule
could not be repeated by its settings. A candidate of the last round takes 1.75 times its steps for it.

A try's score is that of its best step on the dev part of the held-out rows. The highest of many scores is also the
luckiest one, so the winner's dev score is too high; that on the test part, which the search never reads, is not.
"""

import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from rich.console import Console

from nearfar.commands.compare import compare
from nearfar.commands.train import TrainResult, train
from nearfar.commands.train.choose import resolve_config
from nearfar.commands.train.inputs import load_inputs, resolve_sets
from nearfar.commands.train.plan import plan
from nearfar.config.bounds import Positive
from nearfar.config.training import TrainConfig
from nearfar.config.values import flag
from nearfar.data.memory import takes_rows
from nearfar.disk import create_folder, disk_errors, publish, read_json, remove, write_text
from nearfar.disk.checks import path_errors
from nearfar.disk.folders import check_new_folder
from nearfar.evaluation.render import Table, duration, to_markdown
from nearfar.evaluation.results import ComparisonResult, provenance
from nearfar.jobs import JobsFailedError, JobStore, run_jobs
from nearfar.studies.cells import CellStep, job_of
from nearfar.studies.steps import NUMBERS, RUN
from nearfar.types import NearfarError, metric_title
from nearfar.validation import convert

START_WEIGHTS, NEAR = (0.0, 0.3, 0.5, 0.7, 0.85), 0.35
"""The shares of the start that are tried, if they are as near as this to the recipe's."""
MOST = 5
"""The logarithm to base 2 of the largest number of candidates."""
PARTS = {4: "quarter", 2: "half", 1: "whole"}
"""Rounds: a candidate is trained for 1 / PART of its steps -> what such a run is called."""
LEAST = 21
"""Quarters of a run of the recipe in the smallest search: in each round it, and another one of twice the epochs."""
TRIES, BEST, RECIPE, COMPARISON = "tries", "best", "recipe", "best-recipe.json"
"""In the output: the run folders of tries during the search, those of the winner and of the recipe, and the comparison
of the two."""


@dataclass(frozen=True, kw_only=True)
class Try:
    """One training of a candidate."""

    candidate: int
    """Its number; the recipe is 0."""
    part: int
    """1 / PART of its steps were to be trained."""
    settings: dict[str, Any]
    """The searched settings."""
    steps: int = 0
    """The number of steps that were trained."""
    score: float | None = None
    """The best score on the dev rows x 100; None if training failed."""
    seconds: float
    error: str | None = None
    """Why it failed, as of a loss that is not finite."""
    run: Path
    """Its run folder during the search."""


@dataclass(frozen=True)
class TuneResult:
    """The result of a search."""

    config: TrainConfig
    """The winner's settings."""
    winner: int
    """Its number among the candidates; 0 if it is the recipe."""
    tries: Sequence[Try]
    """All tries, in the order of their rounds."""
    trained: TrainResult
    """The winner's run, with the test against its start."""
    comparison: ComparisonResult | None
    """The winner against the recipe on the held-out test rows; None if it is the recipe."""

    def table(self) -> Table:
        """Every try: settings, steps, score on the dev rows, seconds."""
        names, rows = list(self.tries[0].settings), []
        for number, one in enumerate(self.tries, start=1):
            is_winner = one.candidate == self.winner and one.part == 1
            label = f"{number}{' recipe' * (one.candidate == 0)}{' winner' * is_winner}"
            score = "failed" if one.score is None else f"{one.score:.2f}"
            settings = [f"{one.settings[name]:g}" for name in names]
            rows.append([label, *settings, PARTS[one.part], f"{one.steps:,}", score, f"{one.seconds:.0f}"])
        count = len({one.candidate for one in self.tries})
        note = (
            f"{count} settings, {len(self.tries)} tries: the winner's score on the dev rows is too high, because the "
            "highest of many is also the luckiest. The test rows were used once, after the search."
        )
        if count == 1:
            least = 1 + LEAST * self.tries[0].seconds // 60
            note = f"A search takes {least:.0f} minutes or more here (--budget), so only the recipe was trained."
        titles = ["try", *(name.replace("_", " ") for name in names), "run", "steps", "score", "seconds"]
        title = f"{metric_title(self.trained.metric or '')} x 100 on the held-out dev rows"
        return Table(title=title, columns=titles, rows=rows, notes=[note])


@takes_rows
@path_errors()
def tune(
    method: TrainConfig | str | Path | None = None,
    *,
    budget: float,
    fixed: Collection[str] = (),
    resume: bool = False,
    console: Console | None = None,
    **settings: Any,
) -> TuneResult:
    """Search learning rate, epochs, start weight and batch size on held-out dev rows, and test the winner once.

    ::

        tune(data="pairs.tsv", budget=30, output="tuned")
        tune(data="pairs.tsv", budget=30, output="tuned", batch_size=32)  # which is then not searched

    :mod:`nearfar.studies.tune` describes the search. ``output`` gets ``best``, the winner's run folder with its test
    against the start; ``recipe``, that of the recipe, if it is not the winner, and the comparison of the two on the
    test rows (``best-recipe.json``); and all tries (``tune.json``, ``tune.md``).

    Args:
        method: as of :func:`nearfar.train`.
        budget: minutes in which tries begin. A try that has begun is finished, and the test comes after it.
        fixed: names of settings that are not searched. Those that are given by name never are.
        resume: continue a search that was stopped. Tries with the same settings, rows and start are not trained again.
        console: where to print each try; by default nothing is printed.
        settings: as of :func:`nearfar.train`.

    Raises:
        NearfarError: as :func:`nearfar.train`; a budget that is no positive number; rows of which no dev and test part
            are held out, as of small files; settings with which held-out rows choose nothing; an output that is not
            free.
        nearfar.training.Interrupted: after Ctrl-C, with everything saved.
    """
    seconds = 60 * convert(budget, Positive, source="--budget")
    recipe, console = resolve_config(method, settings), console or Console(quiet=True)
    folder = Path(recipe.output)
    if resume != (folder / TRIES).is_dir():
        state = "there is no search to resume" if resume else "holds a search already; continue it with --resume"
        raise NearfarError(f"{folder}: {state}, or choose another --output.")
    if not resume:
        check_new_folder(folder)
    settings_of = candidates(recipe, {*fixed, *settings}, _count_rows(recipe, console))
    with disk_errors(folder):
        create_folder(folder / TRIES)
    winner, tries = halve(partial(_attempt, recipe, settings_of, console), len(settings_of), seconds)
    result = _test(replace(recipe, **settings_of[winner]), winner, tries)
    record = {**provenance().to_dict(), "config": asdict(recipe), "budget": budget, "winner": settings_of[winner]}
    record["tries"] = [{name: value for name, value in asdict(one).items() if name != "run"} for one in tries]
    write_text(folder / "tune.json", json.dumps(record, indent=1) + "\n")
    write_text(folder / "tune.md", to_markdown(result.table()) + "\n")
    return result


def _count_rows(recipe: TrainConfig, console: Console) -> int:
    """The number of rows to train on.

    Raises:
        NearfarError: rows cannot be read, no dev and test part of them are held out, or they are to choose nothing.
    """
    if recipe.keep == "last" or recipe.guard:
        raise NearfarError(
            "--keep last, --guard: the best score on held-out rows is then not that of the model, and a search chooses "
            "settings by it. Give --keep best and no --guard, or train without a search."
        )
    (first, *_), dev = load_inputs(resolve_sets(recipe), in_folds=True)
    if dev.held_out is None or dev.held_out.folds:
        raise NearfarError(
            f"{first.source}: a search needs held-out rows, half to choose settings by, half to test the winner. Leave "
            "out --evaluate-on and --hold-out 0. Of a small file, which is tested in folds, --hold-out 0.3 holds some "
            "out, but the best of many scores on few rows is mostly luck: rather train with the recipe."
        )
    console.print("\n".join(dev.facts), markup=False, highlight=False)
    return len(first.texts)


def candidates(recipe: TrainConfig, fixed: Collection[str], rows: int) -> list[dict[str, Any]]:
    """The searched settings of each candidate, the recipe first; at most 2^MOST.

    They are the points of a Sobol sequence without scrambling, which spreads few points evenly over all settings. Its
    first point is 0, and the first value of each setting is the recipe's.

    Args:
        recipe: the settings around which is searched.
        fixed: names of settings that keep the recipe's value.
        rows: the number of rows; no larger batches are tried.

    Raises:
        NearfarError: nothing is left to search.
    """
    from scipy.stats.qmc import Sobol

    rate, epochs, size, share = recipe.learning_rate, recipe.epochs, recipe.batch_size, recipe.start_weight
    near = [other for other in START_WEIGHTS if abs(other - share) <= NEAR and recipe.lora_rank is None]
    tried: dict[str, list[float]] = {
        "learning_rate": [rate, 2 * rate, rate / 2, 4 * rate, rate / 4],
        "epochs": [epochs, 2 * epochs, max(1, epochs // 2)],
        "start_weight": [share, *near],
        "batch_size": [size, *(other for other in (2 * size, size // 2) if 1 < other <= rows)],
    }
    values = {name: list(dict.fromkeys(of)) for name, of in tried.items() if name not in fixed}
    if not values:
        raise NearfarError(f"{', '.join(map(flag, tried))}: all are given, so nothing is left to search.")
    points = Sobol(len(values), scramble=False).random_base2(MOST)
    chosen = [tuple(of[int(at * len(of))] for of, at in zip(values.values(), point, strict=True)) for point in points]
    return [dict(zip(values, one, strict=True)) for one in dict.fromkeys(chosen)]


def halve(attempt: Callable[[int, int], Try], count: int, budget: float) -> tuple[int, list[Try]]:
    """The winner of ``count`` candidates, and all tries; ``attempt`` trains a candidate for 1 / part of its steps.

    A round of :data:`PARTS` begins no further try when all tries together have taken its share of the ``budget``
    (seconds). Candidate 0 begins every round, and the best of the others that go on always has its turn. If the first
    try shows that there is no time for the smallest search (:data:`LEAST`), or if no other goes on, candidate 0 is
    trained whole at once.
    """
    going, tries, ranked = list(range(count)), list[Try](), [0]
    for number, part in enumerate(PARTS, start=1):
        if tries and going == [0] and part > 1:
            continue
        begun: list[Try] = []
        for candidate in going:
            spent = sum(one.seconds for one in tries)
            limit = budget * number / len(PARTS) if len(tries) > 1 else budget / LEAST
            if len(begun) >= min(number, 2) and spent >= limit:
                break
            begun.append(attempt(candidate, part))
            tries.append(begun[-1])
        in_order = sorted(begun, key=lambda one: float("-inf") if one.score is None else one.score, reverse=True)
        ranked = [one.candidate for one in in_order]
        going = list(dict.fromkeys([0, *ranked[: -(-len(ranked) // 2)]]))
    return ranked[0], tries


@cache
def _steps(recipe: TrainConfig, epochs: int, batch_size: int) -> int:
    """The number of steps of a whole run."""
    return plan(replace(recipe, epochs=epochs, batch_size=batch_size, output=f"{recipe.output}/{BEST}")).steps


def _attempt(
    recipe: TrainConfig, settings_of: Sequence[dict[str, Any]], console: Console, number: int, part: int
) -> Try:
    """Train a candidate for a part of its steps, as a job, unless that is done; only whole runs keep their models.

    Raises:
        NearfarError: the recipe cannot be trained.
    """
    started, settings = time.monotonic(), settings_of[number]
    config = replace(recipe, **settings)
    if part > 1:
        config = replace(config, max_steps=-(-_steps(recipe, config.epochs, config.batch_size) // part))
    store = JobStore(Path(recipe.output, TRIES))
    job, _ = job_of(CellStep("train", config, config.model), None, Path(), keep_model=True)
    run = store.folder(job) / RUN
    try:
        run_jobs([job], store, engine="inline")
        numbers = read_json(store.folder(job) / NUMBERS)
        outcome = {"score": numbers["validation"], "steps": numbers["steps"], "seconds": store.seconds(job) or 0.0}
    except JobsFailedError as failed:
        if number == 0:
            raise NearfarError(failed.failures[0].message) from None
        outcome = {"error": failed.failures[0].message, "seconds": time.monotonic() - started}
    done = Try(candidate=number, part=part, settings=settings, run=run, **outcome)
    if part > 1:
        remove(run / "model")
    words = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in settings.items())
    said = f"failed: {done.error}" if done.score is None else f"{done.score:.2f} on the dev rows"
    console.print(f"{PARTS[part]} run, {words}: {said} ({duration(done.seconds)})", markup=False, highlight=False)
    return done


def _test(config: TrainConfig, winner: int, tries: Sequence[Try]) -> TuneResult:
    """Keep the runs of the winner and of the recipe, and test the winner against its start and against the recipe."""
    folder = Path(config.output)
    whole = {one.candidate: one.run for one in tries if one.part == 1}
    for number, name in {0: RECIPE, winner: BEST}.items():  # if they are one, it is the best
        if not (folder / name).exists():
            with disk_errors(folder / name):
                publish(whole.pop(number), folder / name)
    for run in whole.values():
        remove(run / "model")
    config = replace(config, output=str(folder / BEST))
    trained = train(config, resume=True, console=Console(quiet=True))
    how: dict[str, Any] = {"held_out": True, "output": str(folder / COMPARISON), "progress": False}
    comparison: Any = compare(config.output, str(folder / RECIPE), **how) if winner else None
    return TuneResult(config, winner, tries, trained, comparison)
