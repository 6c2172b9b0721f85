"""One setting trained with several seeds: a group of runs, and what they came to together.

What ``nearfar train --seeds 1,2,3`` and notebooks call. The group's folder holds a run folder for each seed,
``seed-1`` and so on, and ``group.json`` once all are done. ``nearfar evaluate`` and ``nearfar compare`` take it whole.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from nearfar.config import TrainConfig
from nearfar.data.paths import is_file
from nearfar.disk import write_text
from nearfar.evaluate import evaluate
from nearfar.evaluation.results import Result
from nearfar.train import Trained, check_folder, train, trained_before
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console

FILE = "group.json"


@dataclass(frozen=True)
class Spread:
    """Of one number over runs."""

    mean: float
    sd: float | None
    """The sample standard deviation (n - 1); None of a single run."""
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """The spread of one value or more."""
        return cls(mean(values), stdev(values) if len(values) > 1 else None, min(values), max(values))


@dataclass(frozen=True)
class Group:
    """What came out of a group; scores are Spearman on the dev pairs, in [-1, 1]."""

    runs: dict[int, Trained]
    """By seed."""
    start: Spread
    best: Spread


def runs_of(folder: str | Path) -> list[Path] | None:
    """The run folders of a group, or None where the folder is not a finished group.

    Raises:
        NearfarError: its file cannot be read.
    """
    file = Path(folder) / FILE
    if not is_file(file):
        return None
    try:
        return [file.parent / name for name in json.loads(file.read_text(encoding="utf-8"))["runs"]]
    except (OSError, ValueError, KeyError) as error:
        raise NearfarError(f"{file}: cannot be read as a group of runs ({error}).") from error


def evaluate_group(
    folder: str | Path, *, output: str | Path | None = None, name: str | None = None, **settings: Any
) -> list[Result]:
    """Evaluate each run of a group by :func:`nearfar.evaluate.evaluate`, which takes the ``settings``.

    ``output`` is a folder for the result files, one a run; ``nearfar compare`` takes it as a side.

    Raises:
        NearfarError: the folder is no finished group, ``output`` is a file, and what ``evaluate`` refuses.
    """
    runs = runs_of(folder)
    if runs is None:
        raise NearfarError(f"{folder}: is no finished group of runs (no {FILE}).")
    if output is not None and str(output).endswith(".json"):
        raise NearfarError(f"--output {output}: a group has a result for each run; name a folder for them.")
    files = [None if output is None else Path(output) / f"{run.name}.json" for run in runs]
    return [
        evaluate(run, name=name or str(folder), output=file, **settings) for run, file in zip(runs, files, strict=True)
    ]


def check_group(
    config: TrainConfig, seeds: Sequence[int], *, resume: bool
) -> tuple[dict[int, TrainConfig], dict[int, bool], dict[int, bool]]:
    """Each seed's config, whether its run was begun, and whether it is done.

    Raises:
        NearfarError: a folder is in the way, or holds other runs.
    """
    from nearfar.encoder.device import check_device

    check_device(config.device)
    folder = Path(config.output)
    configs = {seed: replace(config, seed=seed, output=str(folder / f"seed-{seed}")) for seed in seeds}
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not resume:
            raise NearfarError(f"{folder}: is in the way. Go on with it by --resume, or choose another --output.")
        if (folder / "config.toml").exists():
            raise NearfarError(f"{folder}: holds a single run; choose another --output.")
    elif resume:
        raise NearfarError(f"{folder}: there is no group to resume.")
    begun = {seed: Path(one.output, "config.toml").exists() for seed, one in configs.items()}
    done = {seed: Path(one.output, "run.json").exists() for seed, one in configs.items()}
    for seed, one in configs.items():  # all of them, before hours are spent on the first
        if not done[seed]:
            check_folder(one, resume=begun[seed])
        else:
            trained_before(one)
    return configs, begun, done


def next_run(config: TrainConfig, seeds: Sequence[int], *, resume: bool) -> tuple[TrainConfig, bool]:
    """The run of a group that comes next, for a dry run, and whether it would be resumed.

    Raises:
        NearfarError: what :func:`train_group` refuses before its first run; all runs are done.
    """
    configs, begun, done = check_group(config, seeds, resume=resume)
    for seed, one in configs.items():
        if not done[seed]:
            return one, begun[seed]
    raise NearfarError(f"{config.output}: all of its {len(configs)} runs are finished; there is nothing to train.")


def train_group(
    config: TrainConfig, seeds: Sequence[int], *, resume: bool = False, console: "Console | None" = None
) -> Group:
    """Train once for each seed; ``config.seed`` is not used.

    ``resume`` goes on with a group that was stopped: finished runs stay, the one that was stopped goes on, the others
    are begun.

    Raises:
        NearfarError: what :func:`nearfar.train.train` refuses; a folder in the way, before anything is trained.
        nearfar.training.loop.Interrupted: after Ctrl-C, with everything saved.
    """
    from nearfar.training.processes import Processes

    folder = Path(config.output)
    configs, begun, done = check_group(config, seeds, resume=resume)
    runs: dict[int, Trained] = {}
    for seed, one in configs.items():
        if console is not None:
            console.print(f"seed {seed}{': done before' if done[seed] else ''}", highlight=False)
        runs[seed] = trained_before(one) if done[seed] else train(one, resume=begun[seed], console=console)
    group = Group(
        runs,
        Spread.of([run.start_score for run in runs.values()]),
        Spread.of([run.best_score for run in runs.values()]),
    )
    record = {"schema": 1, "kind": "group", "dev": config.evaluate_on, "seeds": list(seeds)}
    record |= {"runs": [Path(one.output).name for one in configs.values()]}
    record |= {"best_scores": [run.best_score for run in runs.values()]}
    record |= {"start": asdict(group.start), "best": asdict(group.best)}
    if Processes().first:
        write_text(folder / FILE, json.dumps(record, indent=1) + "\n")
    return group
