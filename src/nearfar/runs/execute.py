"""Executes one run, from the first step to the saved model. Shared by encoder training and classifier fine-tuning.

A run folder holds

- ``config.toml``: every setting, resolved (and ``second.toml``: the settings of a second objective);
- ``metrics.jsonl``: loss terms, learning rate and speed of each step, and the scores of each evaluation;
- ``tracking/``: the files of the trackers of ``--track``;
- while it runs: ``checkpoint/``, ``best.safetensors`` and ``inputs.json`` (fingerprints of its inputs);
- once it is finished: ``model/``, ``nearfar_seen.safetensors`` (hashes of its rows, as in ``model/``) and ``run.json``
  (scores, settings, software and machine).
"""

import atexit
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from nearfar.config import RunConfig, flag, method_of
from nearfar.disk import new_folder, write_text
from nearfar.encoder.device import check_device
from nearfar.evaluation.results import provenance
from nearfar.runtime.versions import package_version
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from torch import nn

    from nearfar.methods.mixture import Mixture
    from nearfar.runs.folder import RunFolder
    from nearfar.training.average import StartWeights, WeightAverage
    from nearfar.training.checkpoint import Checkpointer, Progress
    from nearfar.training.gradients import LossPart
    from nearfar.training.loop import Evaluation, TrainingCallback
    from nearfar.training.processes import Processes

TIMEOUT = timedelta(minutes=30)
"""How long a process waits for the others: the first one alone evaluates and writes files."""
SAME_VERSIONS = ("nearfar", "torch", "transformers", "tokenizers")


@dataclass(frozen=True)
class Job:
    """Everything that :func:`execute` needs to train, evaluate and save one model."""

    mixture: "Mixture"
    encoder: "nn.Module"
    total_steps: int
    facts: list[str]
    """Sentences that describe the data, printed before training and kept in run.json."""
    evaluate: "Callable[[], Evaluation]"
    metric: str
    """Name of the dev score: spearman, accuracy, mrr@10."""
    evaluated_on: str
    """What the dev score is measured on, as in "the dev pairs"."""
    settings: Mapping[str, str]
    """Configuration files to write into the run folder: name -> text."""
    save: Callable[[Path], None]
    """Writes the model, with the weights that are kept, into a folder."""
    run_info: "Callable[[Progress], dict[str, Any]]"
    """Returns the job's own entries of run.json. Called with the kept weights loaded, in the first process only."""
    rate_factors: "Mapping[nn.Parameter, float]" = field(default_factory=dict)
    """Factors of the learning rate of single parameters of the encoder; 1 for all others."""
    start_weight: float = 0.0
    """Share of the encoder's weights before training in those that evaluations and the saved model use."""
    before_training: Callable[[], None] | None = None
    """Called in all processes before the first step, when the run folder holds a run that can be resumed."""
    discard: Callable[[], None] | None = None
    """Called in the first process at the end, to remove files that only an unfinished run needs."""

    @property
    def batch_size(self) -> int:
        """Rows in a batch of the first method, of all processes together."""
        return self.mixture.parts[0][0].batches.batch_size

    @property
    def modules(self) -> "dict[str, nn.Module]":
        """The trained modules, by name."""
        return {"encoder": self.encoder} | {f"head{number}": head for number, head in enumerate(self.mixture.heads)}


class ProcessContext(NamedTuple):
    """One process among those that train together."""

    processes: "Processes"
    device: str | None
    """The device that this process computes on; None for the default."""
    console: "Console"
    """Prints in the first process only."""


def join_processes(config: RunConfig, console: "Console | None") -> ProcessContext:
    """Join the process group if torchrun started several processes.

    Raises:
        NearfarError: this machine has no such device, a package of ``--track`` is missing, the other processes cannot
            be reached, or they have different settings or versions.
    """
    from nearfar.training.joining import join_process_group
    from nearfar.training.processes import Processes, leave_process_group
    from nearfar.training.trackers import check_installed

    check_device(config.device)
    device = join_process_group(cpu=config.device == "cpu", timeout=TIMEOUT)
    processes = Processes()
    if processes.size > 1:
        atexit.register(leave_process_group)
    _check_same_settings(config, processes)
    processes.broadcast_from_first(partial(check_installed, config.track))
    console = console if console is not None and processes.is_main else Console(quiet=True)
    return ProcessContext(processes, str(device) if processes.size > 1 else config.device, console)


def _check_same_settings(config: RunConfig, processes: "Processes") -> None:
    """Check that all processes have the same settings, but for the output, and the same versions of packages."""
    named = {flag(name): value for name, value in asdict(config).items() if name != "output"}
    named |= {"method": method_of(config)}
    named |= {f"the version of {name}": package_version(name) for name in SAME_VERSIONS}
    (first, text), *others = processes.collect(json.dumps(named))
    expected = json.loads(text)
    for rank, (node, text) in enumerate(others, start=1):
        found = json.loads(text)
        differ = [name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)]
        if differ:
            raise NearfarError(
                f"{', '.join(sorted(differ))}: differs between {first} (process 0) and {node} (process {rank}). Start "
                "all processes with the same settings, files and versions."
            )


def execute(
    config: RunConfig, job: Job, *, run_dir: "RunFolder", processes: "Processes", console: "Console"
) -> "Progress":
    """Train in a locked run folder, from its checkpoint if there is one, and write ``model/`` and ``run.json``.

    ``config.precision`` must be resolved, that is, not ``auto``.

    Raises:
        NearfarError: a loss that is not finite; a file that cannot be written; another process uses the folder.
        nearfar.training.loop.Interrupted: after Ctrl-C, with everything saved.
    """
    from nearfar.training.checkpoint import Checkpoints
    from nearfar.training.display import Display, MetricsFile
    from nearfar.training.shared_state import load_state
    from nearfar.training.tracking import Tracking

    folder = run_dir.path
    for fact in job.facts:
        console.print(fact, markup=False, highlight=False)
    if processes.size > 1:
        console.print(f"{processes.size} processes, {job.batch_size} rows a batch", highlight=False)
    if config.ema is not None:
        console.print(f"evaluations and the saved model use averaged weights (--ema {config.ema:g})", highlight=False)
    if job.start_weight:
        console.print(
            f"evaluations and the saved model average the trained weights with those of {config.model} "
            f"(--start-weight {job.start_weight:g})",
            markup=False,
            highlight=False,
        )
    run_dir.begin(job.settings)
    if job.before_training is not None:
        job.before_training()
    checkpoints = Checkpoints(folder)
    optimiser, average, start = _optimiser(config, job), _average(config, job), _start(job)
    progress = load_state(checkpoints, job.modules, optimiser, average, processes=processes)
    display = Display(
        console, total_steps=job.total_steps, start=progress.step, metric=job.metric, evaluated_on=job.evaluated_on
    )
    callbacks: list[TrainingCallback] = [display]
    with ExitStack() as stack:
        if processes.is_main:
            callbacks.append(MetricsFile(folder / "metrics.jsonl", resume_at=progress.step, metric=job.metric))
            if config.track:
                tracking = Tracking(config.track, folder, settings=_recorded_settings(config), metric=job.metric)
                callbacks.append(tracking)
                stack.callback(tracking.close)
        stack.enter_context(display)
        _loop(
            config,
            job,
            optimiser,
            average=average,
            start=start,
            checkpointer=checkpoints,
            callbacks=callbacks,
            progress=progress,
            processes=processes,
        )

    def finish() -> None:
        if config.keep == "best" and progress.best_step is not None:
            checkpoints.load_best(job.modules)
        with new_folder(folder / "model", replace=True) as model:
            job.save(model)
        own = job.run_info(progress)
        record = {**provenance().to_dict(), "config": asdict(config), "data": job.facts, "inputs": run_dir.inputs}
        record |= {"precision": config.precision, **own, **asdict(progress)}
        write_text(
            folder / "run.json", json.dumps(record, indent=1) + "\n"
        )  # last: this file marks the run as finished
        checkpoints.clear()
        if job.discard is not None:
            job.discard()
        run_dir.finish()

    processes.broadcast_from_first(finish)  # no process exits before the model is written
    return progress


def _recorded_settings(config: RunConfig) -> dict[str, Any]:
    """The settings that trackers record as hyper-parameters."""
    return {"method": method_of(config), **asdict(config)}


def _optimiser(config: RunConfig, job: Job) -> Any:
    from nearfar.training.optimiser import adamw

    return adamw(
        job.encoder,
        job.mixture.heads,
        learning_rate=config.learning_rate,
        head_learning_rate=config.head_learning_rate,
        weight_decay=config.weight_decay,
        beta2=config.beta2,
        epsilon=config.adam_epsilon,
        rate_factors=job.rate_factors,
    )


def _average(config: RunConfig, job: Job) -> "WeightAverage | None":
    from nearfar.training.average import WeightAverage

    return None if config.ema is None else WeightAverage(job.modules, config.ema)


def _start(job: Job) -> "StartWeights | None":
    """The encoder's weights before training; called before a checkpoint is loaded."""
    from nearfar.training.average import StartWeights

    return StartWeights(job.encoder, job.start_weight) if job.start_weight else None


def _loop(
    config: RunConfig,
    job: Job,
    optimiser: Any,
    *,
    average: "WeightAverage | None",
    start: "StartWeights | None",
    checkpointer: "Checkpointer",
    callbacks: "Sequence[TrainingCallback]",
    progress: "Progress",
    processes: "Processes",
) -> None:
    from nearfar.training.gradients import Gradients
    from nearfar.training.loop import run

    run(
        job.mixture,
        Gradients(
            config.seed, processes, config.micro_batch, config.micro_batch_tokens, bf16=config.precision == "bf16"
        ),
        modules=job.modules,
        optimiser=optimiser,
        average=average,
        start=start,
        checkpoints=checkpointer,
        callbacks=callbacks,
        evaluate=job.evaluate,
        describe_rows=_describe_rows,
        progress=progress,
        epochs=config.epochs,
        total_steps=job.total_steps,
        accumulate=config.accumulate,
        warmup=config.warmup,
        schedule=config.schedule,
        max_grad_norm=config.max_grad_norm,
        evaluate_every=config.evaluate_every,
        patience=config.patience,
        checkpoint_every=config.checkpoint_every,
    )
    for weights in (average, start):  # after the last step, if no better ones are loaded
        if weights is not None:
            weights.copy_to_modules()


def _describe_rows(parts: "Sequence[LossPart]", *, show: int = 16) -> str:
    """Row numbers and texts of a batch, for an error message; at most ``show`` lines of text for each part."""
    lines: list[str] = []
    for method, batch, _ in parts:
        words = method.describe(batch)  # type: ignore[attr-defined]
        lines += ["  rows " + ", ".join(map(str, batch.rows)), *(f"  {line}" for line in words[:show])]
        lines += ["  ..."] if len(words) > show else []
    return "\n".join(lines)
