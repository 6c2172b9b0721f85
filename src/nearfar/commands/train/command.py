"""One training run: config -> prepared run (:mod:`nearfar.commands.train.prepare`) -> :mod:`nearfar.runs.execute`.

``nearfar train`` calls it, and so can a notebook; ``model/`` in the run folder is a sentence-transformers folder.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.commands.train.dev import dev_evaluation, load_dev_pairs
from nearfar.commands.train.prepare import prepare, read_training_data
from nearfar.commands.train.settings import resolve_config
from nearfar.config import TrainConfig, dump_toml
from nearfar.disk import path_errors
from nearfar.runs import folder as run_folder
from nearfar.runs.execute import Job, execute, join_processes
from nearfar.runs.fingerprints import fingerprint_model, fingerprint_rows
from nearfar.runs.folder import RunFolder
from nearfar.runs.precision import resolve_run_precision
from nearfar.runs.records import read_run_info

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class TrainResult:
    """The result of a run."""

    model: Path
    """The folder of the trained model."""
    steps: int
    start_score: float
    """Spearman correlation on the dev set before training, in [-1, 1]."""
    best_score: float
    """The best Spearman correlation on the dev set; the score before training counts too."""
    best_step: int


@path_errors()
def train(
    method: "TrainConfig | str | os.PathLike[str]",
    *,
    resume: bool = False,
    console: "Console | None" = None,
    sibling_runs: Sequence[Path] = (),
    **settings: Any,
) -> TrainResult:
    """Train an encoder, and save the model in ``OUTPUT/model``.

    ::

        train("scl", data="my.tsv", evaluate_on="pairs.tsv", output="runs/mine")
        train("configs/liao-scl.toml", output="runs/liao", seed=2)
        train(SclConfig(data=("my.tsv",), output="runs/mine"))

    Args:
        method: a method's name, a TOML file, or a config such as :class:`nearfar.SclConfig`.
        resume: continue a run that was stopped or killed. It ends with bit-identical weights on the same machine with
            the same number of threads and processes; a finished run is left as it is. Data and initial model must be
            unchanged.
        console: shows progress; by default nothing is shown.
        sibling_runs: folders of other runs, whose data and model must be the same as far as they recorded them.
        settings: settings of the method by name, as in its config class (``nearfar train METHOD --help`` lists them);
            they override those of ``method``. A single text or path may stand for a tuple of one, as in ``data``.

    Started by torchrun, several processes train together, like one process with the batches of all.

    Raises:
        NearfarError: bad data, model or settings; a run folder that is not free; data that changed since the run was
            started; a loss that is not finite; a file that cannot be written.
        nearfar.training.loop.Interrupted: after Ctrl-C, with everything saved.
    """
    config = resolve_config(method, settings)
    processes, device, console = join_processes(config, console)
    with RunFolder(
        config, processes, find_differences=partial(_other_second, config), sibling_runs=sibling_runs
    ) as run_dir:
        if run_dir.acquire(resume=resume) == "finished":
            done = processes.broadcast_from_first(partial(load_train_result, config))
            console.print(
                f"{run_dir.path}: this run is already finished; nothing to do.", markup=False, highlight=False
            )
            return done
        settings_files = _settings_files(config)
        config = replace(config, precision=resolve_run_precision(config, run_dir, processes, device))
        pairs = load_dev_pairs(config)
        run_dir.verify_input(f"--evaluate-on {config.evaluate_on}", lambda: fingerprint_rows(pairs))
        rows = read_training_data(config)
        for what, part in rows.fingerprint_inputs(config).items():
            run_dir.verify_input(what, partial(fingerprint_rows, *part))
        run_dir.verify_input(f"--model {config.model}", lambda: fingerprint_model(config.model))
        prepared = prepare(config, rows, processes=processes.size, device=device, console=console)

        def save(folder: Path) -> None:
            prepared.merge()
            prepared.encoder.save_pretrained(folder)

        job = Job(
            mixture=prepared.mixture,
            encoder=prepared.encoder,
            total_steps=prepared.total_steps,
            facts=prepared.facts,
            evaluate=dev_evaluation(prepared.encoder, pairs, config, console),
            metric="spearman",
            evaluated_on="the dev pairs",
            settings=settings_files,
            save=save,
            run_info=lambda _: {"dev": config.evaluate_on},
        )
        progress = execute(config, job, run_dir=run_dir, processes=processes, console=console)
    trained = TrainResult(
        Path(config.output) / "model",
        progress.step,
        progress.start_score or 0.0,
        progress.best_score or 0.0,
        progress.best_step or 0,
    )
    if trained.best_score <= trained.start_score:
        console.print(
            f"Best score on {config.evaluate_on} is still the untrained encoder's. Try a lower --learning-rate.",
            markup=False,
        )
    return trained


def _settings_files(config: TrainConfig) -> dict[str, str]:
    """The files with the run's settings: config.toml, and second.toml if there is a second objective."""
    from nearfar.commands.train.second_objective import SHARED_SETTINGS, second_objective_config

    second = second_objective_config(config)
    files = {"config.toml": dump_toml(config)}
    return files | ({} if second is None else {"second.toml": dump_toml(second, without=SHARED_SETTINGS)})


def check_folder(config: TrainConfig, *, resume: bool) -> run_folder.State:
    """Whether the run folder is free, or holds the run of ``config``, unfinished or finished.

    Raises:
        NearfarError: it holds something else; ``resume`` without a run, or a run without ``resume``.
    """
    return run_folder.check_folder(config, resume=resume, find_differences=partial(_other_second, config))


def load_train_result(config: TrainConfig) -> TrainResult:
    """The result of the finished run in ``config.output``.

    Raises:
        NearfarError: it has other settings, or its run.json is damaged.
    """
    folder = Path(config.output)
    run_folder.refuse_other_settings(folder, config, find_differences=partial(_other_second, config))
    run_info = read_run_info(folder)
    numbers = [run_info.get(key) or 0 for key in ("start_score", "best_score")]
    steps, best_step = (int(run_info.get(key) or 0) for key in ("step", "best_step"))
    return TrainResult(folder / "model", steps, float(numbers[0]), float(numbers[1]), best_step)


def _other_second(config: TrainConfig, folder: Path) -> list[str]:
    """``["second"]`` if the run in ``folder`` has another second objective, else an empty list."""
    from nearfar.commands.train.second_objective import second_objective_config

    file = folder / "second.toml"
    differs = file.exists() and second_objective_config(config) != second_objective_config(
        replace(config, second=str(file))
    )
    return ["second"] if differs else []
