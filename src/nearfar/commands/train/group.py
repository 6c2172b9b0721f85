"""A group of runs: the same settings trained with several seeds, and the mean and spread of their scores.

``nearfar train --seeds 1,2,3`` calls it, and so can a notebook. The group's folder holds a run folder for each seed,
``seed-1`` and so on, and ``group.json`` once all are finished. ``nearfar evaluate`` and ``nearfar compare`` take the
group's folder.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.commands.train.after import compare_with_start
from nearfar.commands.train.command import TrainResult, check_folder, load_train_result, train_run
from nearfar.config import TrainConfig
from nearfar.disk import LOCK, folder_lock, path_errors
from nearfar.evaluation.results import ComparisonResult, GroupResult, ScoreSummary
from nearfar.runs.execute import join_processes
from nearfar.runs.folder import is_empty
from nearfar.runs.group import GROUP_FILE, is_run_name
from nearfar.runs.records import CONFIG
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Group:
    """The results of a group; scores are on the dev set, in [-1, 1]."""

    runs: dict[int, TrainResult]
    """Results by seed."""
    start: ScoreSummary | None
    """Scores before training; None without a dev set."""
    best: ScoreSummary | None
    """Best scores; None without a dev set."""
    comparison: ComparisonResult | None = None
    """All runs against the model they started from, on the held-out test rows; None if no rows are held out."""


@path_errors()
def next_run(config: TrainConfig, seeds: Sequence[int], *, resume: bool) -> tuple[TrainConfig, bool]:
    """The next run of a group, for a dry run, and whether it would be resumed. Writes nothing.

    Raises:
        NearfarError: as :func:`train_group` before its first run; all runs are finished.
    """
    folder = Path(config.output)
    _check_group(folder, resume=resume)
    configs = _configs(config, seeds)
    states = {seed: _state(one) for seed, one in configs.items()}
    for seed, state in states.items():
        if state != "finished":
            return configs[seed], state == "unfinished"
    raise NearfarError(f"{folder}: all of its {len(configs)} runs are finished; there is nothing to train.")


@path_errors()
def train_group(
    config: TrainConfig, seeds: Sequence[int], *, resume: bool = False, console: "Console | None" = None
) -> Group:
    """Train once for each seed; ``config.seed`` is not used.

    ``resume`` continues a group that was stopped: finished runs are kept, the stopped run is resumed, the others are
    started. All runs must have the same data and model.

    Raises:
        NearfarError: as :func:`nearfar.train`; the folder is not free or in use, before anything is trained.
        nearfar.training.loop.Interrupted: after Ctrl-C, with everything saved.
    """
    processes, device, main_console = join_processes(config, console)
    folder = Path(config.output)
    configs = _configs(config, seeds)
    with ExitStack() as locks:
        processes.broadcast_from_first(lambda: _lock_group(locks, folder, resume=resume))
        states = processes.broadcast_from_first(lambda: {seed: _state(one) for seed, one in configs.items()})
        runs: dict[int, TrainResult] = {}
        for seed, one in configs.items():
            done = states[seed] == "finished"
            main_console.print(f"seed {seed}{': already finished' if done else ''}", highlight=False)
            others = [Path(other.output) for other in configs.values() if other is not one]
            runs[seed] = (
                processes.broadcast_from_first(lambda one=one: load_train_result(one))  # type: ignore[misc]
                if done
                else train_run(one, resume=states[seed] == "unfinished", console=console, sibling_runs=others)
            )
        start, best = (
            [score for run in runs.values() if (score := getattr(run, name)) is not None]
            for name in ("start_score", "best_score")
        )
        group = Group(
            runs,
            ScoreSummary.from_values(start) if start else None,
            ScoreSummary.from_values(best) if best else None,
        )
        result = GroupResult(
            dev=next(iter(runs.values())).dev,
            seeds=list(seeds),
            runs=[Path(one.output).name for one in configs.values()],
            best_scores=best,
            start=group.start,
            best=group.best,
        )
        processes.broadcast_from_first(lambda: result.save(folder / GROUP_FILE))
        if set(states.values()) == {"finished"}:
            main_console.print(
                f"{folder}: this group is already finished; nothing to do.", markup=False, highlight=False
            )
        folders = [Path(one.output) for one in configs.values()]
        comparison = processes.broadcast_from_first(
            lambda: compare_with_start(folder, folders, config.model, device=device, progress=main_console.is_terminal)
        )
    return replace(group, comparison=comparison)


def _configs(config: TrainConfig, seeds: Sequence[int]) -> dict[int, TrainConfig]:
    """The config of each seed's run."""
    return {seed: replace(config, seed=seed, output=str(Path(config.output, f"seed-{seed}"))) for seed in seeds}


def _lock_group(locks: ExitStack, folder: Path, *, resume: bool) -> None:
    """Lock the group's folder, after a check that it is free or, to ``resume``, holds a group."""
    if not folder.exists() or not folder.is_dir():
        _check_group(folder, resume=resume)
    locks.enter_context(folder_lock(folder))
    _check_group(folder, resume=resume)


def _check_group(folder: Path, *, resume: bool) -> None:
    """Check that the folder is free or, to ``resume``, holds a group."""
    if folder.exists() and not folder.is_dir():
        raise NearfarError(f"{folder}: is in the way; choose another --output.")
    if resume and not folder.exists():
        raise NearfarError(f"{folder}: there is no group to resume.")
    found = [entry for entry in folder.iterdir() if not _is_leftover(entry)] if folder.exists() else []
    if found and not resume:
        raise NearfarError(f"{folder}: is in the way. Continue it with --resume, or choose another --output.")
    if (folder / CONFIG).exists():
        raise NearfarError(f"{folder}: holds a single run; choose another --output.")


def _is_leftover(entry: Path) -> bool:
    """Whether a group that was killed before its first run may have left ``entry``."""
    return entry.name in (LOCK, f"{GROUP_FILE}.new") or (is_run_name(entry.name) and is_empty(entry))


def _state(config: TrainConfig) -> str:
    """The state of one run of the group; raises its errors now, before the first run is trained."""
    started = Path(config.output, CONFIG).exists()
    state = check_folder(config, resume=started)
    if state == "finished":
        load_train_result(config)
    return state
