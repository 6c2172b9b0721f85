"""One training run: config -> prepared run (:mod:`nearfar.commands.train.prepare`) -> :mod:`nearfar.runs.execute`.

``nearfar train`` calls it, and so can a notebook; ``model/`` in the run folder is a sentence-transformers folder.
"""

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.commands.push.card import write_card
from nearfar.commands.train.after import compare_with_start
from nearfar.commands.train.dev import dev_evaluation
from nearfar.commands.train.inputs import load_inputs
from nearfar.commands.train.prepare import prepare
from nearfar.commands.train.settings import resolve_config
from nearfar.commands.train.teacher import attach_teacher_vectors, discard_teacher_vectors
from nearfar.config import TrainConfig, dump_toml, flag
from nearfar.config.values import named_models
from nearfar.disk import path_errors, write_seen
from nearfar.runs import folder as run_folder
from nearfar.runs.execute import Job, execute, join_processes
from nearfar.runs.fingerprints import fingerprint_model
from nearfar.runs.folder import RunFolder
from nearfar.runs.held_out import held_out_files
from nearfar.runs.precision import resolve_run_precision
from nearfar.runs.records import SECOND, read_run_info
from nearfar.runs.seen import seen_hashes
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.encoder.teacher import TeacherVectors
    from nearfar.evaluation.results import ComparisonResult
    from nearfar.training.checkpoint import Progress
    from nearfar.training.processes import Processes


@dataclass(frozen=True)
class TrainResult:
    """The result of a run."""

    model: Path
    """The folder of the trained model."""
    steps: int
    start_score: float | None
    """Score on the dev set before training, in [-1, 1]; None without a dev set."""
    best_score: float | None
    """The best score on the dev set after a step, in [-1, 1]; None without a dev set."""
    best_step: int | None
    """The step with the best score."""
    metric: str | None = None
    """The name of the score: spearman, mrr@10 or accuracy; None without a dev set."""
    dev: str | None = None
    """The name of the dev set."""
    comparison: "ComparisonResult | None" = None
    """The trained model against the model it started from, on the held-out test rows; None if no rows are held out."""


@path_errors()
def train(
    method: "TrainConfig | str | os.PathLike[str] | None" = None,
    *,
    resume: bool = False,
    console: "Console | None" = None,
    **settings: Any,
) -> TrainResult:
    """Train an encoder, and save the model in ``OUTPUT/model``.

    ::

        train(data="pairs.tsv", output="runs/mine")
        train("scl", data="my.tsv", evaluate_on="scored.tsv", output="runs/mine")
        train("configs/liao-scl.toml", output="runs/liao", seed=2)
        train(SclConfig(data=("my.tsv",), output="runs/mine"))

    Args:
        method: a method's name, a TOML file, or a config such as :class:`nearfar.SclConfig`. Without one, the columns
            of ``data`` choose the method (:mod:`nearfar.commands.train.choose`).
        resume: continue a run that was stopped or killed. It ends with bit-identical weights on the same machine with
            the same number of threads and processes; a finished run is left as it is. Data and initial model must be
            unchanged.
        console: shows progress; by default nothing is shown.
        settings: settings of the method by name, as in its config class (``nearfar train METHOD --help`` lists them);
            they override those of ``method``. A single text or path may stand for a tuple of one, as in ``data``.

    Without ``evaluate_on``, rows are held out (:mod:`nearfar.data.hold_out`) and written to ``OUTPUT/held_out``: the
    dev part chooses the best step, and after training the test part compares the model with the one it started from.

    Started by torchrun, several processes train together, like one process with the batches of all.

    Raises:
        NearfarError: bad data, model or settings; a run folder that is not free; data that changed since the run was
            started; a loss that is not finite; a file that cannot be written.
        nearfar.training.loop.Interrupted: after Ctrl-C, with everything saved.
    """
    config = resolve_config(method, settings)
    trained = train_run(config, resume=resume, console=console)
    processes, device, console = join_processes(config, console)
    folder = Path(config.output)
    comparison = processes.broadcast_from_first(
        lambda: compare_with_start(folder, config.model, device=device, progress=console.is_terminal)
    )
    processes.broadcast_from_first(lambda: write_card(folder))
    return replace(trained, comparison=comparison)


def train_run(config: TrainConfig, *, resume: bool, console: "Console | None") -> TrainResult:
    """Train one run, without the comparison after training.

    Raises:
        NearfarError: as :func:`train`.
        nearfar.training.loop.Interrupted: as :func:`train`.
    """
    from nearfar.commands.train.second_objective import second_flag

    processes, device, console = join_processes(config, console)
    with RunFolder(config, processes, find_differences=partial(_other_second, config)) as run_dir:
        if run_dir.acquire(resume=resume) == "finished":
            processes.broadcast_from_first(partial(discard_teacher_vectors, run_dir.path))
            done = processes.broadcast_from_first(partial(load_train_result, config))
            console.print(
                f"{run_dir.path}: this run is already finished; nothing to do.", markup=False, highlight=False
            )
            return done
        requested = config
        config = replace(config, precision=resolve_run_precision(config, run_dir, processes, device))
        with processes.joint_errors():
            settings_files = _settings_files(requested)
            processes.agree(second_flag(config), settings_files.get(SECOND, ""))
            inputs = load_inputs(config, run_dir.verify_input)
            if inputs.held_out is not None:
                settings_files |= held_out_files(inputs.held_out)
            run_dir.verify_input(f"--model {config.model}", lambda: fingerprint_model(config.model))
            for name, model in _named_models(config).items():
                run_dir.verify_input(name, partial(_fingerprint_named, name, model))
        prepared = prepare(config, inputs.rows, processes=processes.size, device=device, console=console)

        def save(folder: Path) -> None:
            prepared.merge()
            prepared.encoder.seen = seen_hashes(
                config,
                trained=[used for used, _ in inputs.rows.fingerprint_inputs(config).values()],
                dev=inputs.dev_rows,
                before=prepared.encoder.seen,
            )
            prepared.encoder.save_pretrained(folder)

        def run_info(_: "Progress") -> dict[str, Any]:
            write_seen(run_dir.path, prepared.encoder.seen)
            return {"dev": inputs.dev.name, "metric": inputs.dev.metric}

        job = Job(
            mixture=prepared.mixture,
            encoder=prepared.encoder,
            total_steps=prepared.total_steps,
            facts=[*prepared.facts, *inputs.facts],
            evaluate=dev_evaluation(prepared.encoder, inputs.dev, config, console),
            metric=inputs.dev.metric or "",
            evaluated_on=inputs.dev.shown,
            settings=settings_files,
            save=save,
            run_info=run_info,
            rate_factors=prepared.rate_factors,
            start_weight=config.start_weight,
            before_training=partial(_compute_teachers, prepared.teachers, run_dir.path, processes, console),
            discard=partial(discard_teacher_vectors, run_dir.path),
        )
        progress = execute(config, job, run_dir=run_dir, processes=processes, console=console)
    trained = TrainResult(
        Path(config.output) / "model",
        progress.step,
        progress.start_score,
        progress.best_score,
        progress.best_step,
        inputs.dev.metric,
        inputs.dev.name,
    )
    start, best = trained.start_score, trained.best_score
    if start is not None and best is not None and best <= start:
        console.print(
            f"No step scored higher on {inputs.dev.name} than the untrained encoder. Try a lower --learning-rate.",
            markup=False,
        )
    return trained


def _named_models(config: TrainConfig) -> dict[str, str]:
    """Flag -> the model that it names, of both objectives; the model to train is not among them."""
    from nearfar.commands.train.second_objective import second_objective_config

    named = {f"{flag(name)} {model}": model for name, model in named_models(config).items()}
    if (second := second_objective_config(config)) is not None:
        named |= {f"{flag(name)} {model} of --second": model for name, model in named_models(second).items()}
    return named


def _fingerprint_named(name: str, model: str) -> str:
    try:
        return fingerprint_model(model)
    except NearfarError as error:
        raise NearfarError(f"{name}: {error}") from error


def _compute_teachers(
    teachers: "tuple[TeacherVectors, ...]", folder: Path, processes: "Processes", console: "Console"
) -> None:
    """Compute the vectors of the teachers. Ctrl-C ends the run as it does during training."""
    from nearfar.training.loop import Interrupted

    try:
        attach_teacher_vectors(teachers, folder, processes, progress=console.is_terminal)
    except KeyboardInterrupt:
        raise Interrupted from None


def _settings_files(config: TrainConfig) -> dict[str, str]:
    """The files with the run's settings: config.toml, and second.toml if there is a second objective."""
    from nearfar.commands.train.second_objective import SHARED_SETTINGS, second_objective_config

    second = second_objective_config(config)
    files = {"config.toml": dump_toml(config)}
    return files | ({} if second is None else {SECOND: dump_toml(second, without=SHARED_SETTINGS)})


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
    start, best = (None if run_info.get(key) is None else float(run_info[key]) for key in ("start_score", "best_score"))
    steps, best_step = (None if run_info.get(key) is None else int(run_info[key]) for key in ("step", "best_step"))
    metric = run_info.get("metric", "spearman")  # earlier versions have no other
    return TrainResult(folder / "model", steps or 0, start, best, best_step, metric, run_info.get("dev"))


def _other_second(config: TrainConfig, folder: Path) -> list[str]:
    """``["second"]`` or ``["sentences"]`` if the run in ``folder`` has another second objective, else an empty list."""
    from nearfar.commands.train.second_objective import second_objective_config

    file = folder / SECOND
    differs = file.exists() and second_objective_config(config) != second_objective_config(
        replace(config, second=str(file), sentences=())
    )
    return ["sentences" if config.sentences else "second"] if differs else []
