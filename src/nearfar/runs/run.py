"""A training run in its folder, from the first step to the saved model. Encoders and classifiers are subclasses of it.

A run folder holds

- ``config.toml``: every setting, resolved, also those of further sets of rows;
- ``metrics.jsonl``: loss terms, learning rate and speed of each step, and the scores of each evaluation;
- ``tracking/``: the files of the trackers of ``--track``;
- while it runs: ``checkpoint/``, ``best.safetensors`` and ``inputs.json`` (fingerprints of its inputs);
- once it is finished: ``model/``, ``nearfar_seen.safetensors`` (hashes of its rows, as in ``model/``) and ``run.json``
  (scores, settings, software and machine).
"""

import atexit
import json
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rich.console import Console
from torch import nn

from nearfar.config.training import RunConfig
from nearfar.config.values import flag
from nearfar.disk import write_text
from nearfar.disk.folders import new_folder
from nearfar.disk.model_folder import SeenHashes, write_seen
from nearfar.encoder.backbone import learning_rate_factors
from nearfar.encoder.precision import check_device
from nearfar.evaluation.results import provenance
from nearfar.methods.mixture import Mixture
from nearfar.runs.fingerprints import seen_hashes
from nearfar.runs.folder import RUN_INFO, RunFolder
from nearfar.runtime import memory
from nearfar.runtime.versions import package_version
from nearfar.settings import method_of
from nearfar.training import LoopSettings, Trainer
from nearfar.training.callbacks import Display, MetricsFile, Tracking, check_installed
from nearfar.training.checkpoint import METRICS, Checkpoints
from nearfar.training.gradients import Gradients, LossPart
from nearfar.training.optimiser import OptimiserSettings
from nearfar.training.processes import Processes, join_process_group, leave_process_group
from nearfar.training.recordings import Recordings

TIMEOUT = timedelta(minutes=30)
"""How long a process waits for the others: the first one alone evaluates and writes files."""
SAME_VERSIONS = ("nearfar", "torch", "transformers", "tokenizers")
Group = TypeVar("Group", LoopSettings, OptimiserSettings, Gradients)


class ProcessContext(NamedTuple):
    """One process among those that train together."""

    processes: Processes
    device: str | None
    """The device that this process computes on; None for the default."""
    console: Console
    """Prints in the first process only."""

    def say(self, line: str) -> None:
        """Print a line as it is."""
        self.console.print(line, markup=False, highlight=False)


def join_processes(config: RunConfig, console: Console | None) -> ProcessContext:
    """Join the process group if torchrun started several processes.

    Raises:
        NearfarError: this machine has no such device, a package of ``--track`` is missing, the other processes cannot
            be reached, or they have different settings (but for the output) or versions.
    """
    check_device(config.device)
    device = join_process_group(cpu=config.device == "cpu", timeout=TIMEOUT)
    processes = Processes()
    if processes.size > 1:
        atexit.register(leave_process_group)
        values = {flag(name): value for name, value in asdict(config).items() if name != "output"}
        values |= {f"the version of {name}": package_version(name) for name in SAME_VERSIONS}
        for what, value in {"the method": method_of(config), **values}.items():
            processes.agree(what, json.dumps(value))
    processes.broadcast_from_first(partial(check_installed, config.track))
    console = console or Console(quiet=not Console().is_jupyter)
    console = console if processes.is_main else Console(quiet=True)
    return ProcessContext(processes, str(device) if processes.size > 1 else config.device, console)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What a run trains."""

    encoder: nn.Module
    mixture: Mixture
    facts: list[str]
    """Sentences that describe the data, printed before training and kept in run.json."""
    recordings: Recordings | None = None
    """What computes losses and steps by CUDA graphs, where the encoder's passes are."""


def count_steps(config: RunConfig, mixture: Mixture) -> int:
    """Number of optimiser steps of a run."""
    at_most = config.max_steps and config.max_steps * config.accumulate
    steps = -(-mixture.total_steps(config.epochs, at_most=at_most) // config.accumulate)
    return min(steps, config.max_steps or steps)


def group_of(kind: type[Group], config: RunConfig, **others: Any) -> Group:
    """A group of settings: those that ``config`` has under the same names, and ``others``."""
    names = [setting.name for setting in fields(kind) if hasattr(config, setting.name)]
    return kind(**{name: getattr(config, name) for name in names}, **others)


class Run(Trainer):
    """A trainer whose settings, checkpoints, metrics and model are in a locked run folder.

    Args:
        config: the settings; ``config.precision`` is resolved, that is, not ``auto``.
        prepared: what is trained.
        folder: the run folder.
        context: the processes, and where to print.
    """

    stream: Mixture
    checkpoints: Checkpoints
    metric: str | None
    """Name of the dev score, which a subclass sets: spearman, accuracy, mrr@10; None if nothing is scored."""
    evaluated_on: str
    """The name of the dev set, which a subclass sets."""
    seen: SeenHashes | None
    """The hashes of what the model has seen, which a subclass sets at the latest when it saves the model."""

    def __init__(self, config: RunConfig, prepared: Prepared, *, folder: RunFolder, context: ProcessContext) -> None:
        self.config, self.folder, self.context, self.facts = config, folder, context, prepared.facts
        self.outcome: dict[str, Any] = {}
        """Further entries of run.json, which saving the model may add."""
        mixture = prepared.mixture
        backbone: Any = getattr(prepared.encoder, "backbone", prepared.encoder)
        super().__init__(
            mixture,
            prepared.encoder,
            loop=group_of(LoopSettings, config, total_steps=count_steps(config, mixture)),
            optimiser=group_of(OptimiserSettings, config, epsilon=config.adam_epsilon),
            gradients=group_of(
                Gradients,
                config,
                processes=context.processes,
                bf16=config.precision == "bf16",
                name_terms=len(mixture.losses) > 1,
                recordings=prepared.recordings,
            ),
            checkpoints=Checkpoints(folder.path),
            rate_factors=learning_rate_factors(backbone, config.layer_decay),
        )

    @abstractmethod
    def save_model(self, folder: Path) -> None:
        """Write the model, with the weights that are kept, into a folder."""

    def conclude(self) -> None:
        """Called in the first process only, when the kept weights are loaded and saved, to write further results."""

    def before_training(self) -> None:
        """Called in all processes before the first step, when the run folder holds a run that can be resumed."""

    def seen_with(
        self, before: SeenHashes | None, trained: Iterable[Sequence[Sequence[object]]], dev: Sequence[Sequence[object]]
    ) -> SeenHashes | None:
        """The hashes of what the model has seen: ``before`` this run, in training, and to choose the step.

        None with ``--no-fingerprints``.
        """
        if not self.config.fingerprints:
            return None
        chooses = self.config.keep == "best" or self.config.patience is not None
        return seen_hashes(trained, dev if chooses else (), before=before)

    def execute(self) -> None:
        """Train, from the checkpoint if there is one, and write ``model/`` and ``run.json``.

        Raises:
            NearfarError: a loss that is not finite; a file that cannot be written; another process uses the folder.
            nearfar.training.Interrupted: after Ctrl-C, with everything saved.
        """
        processes, average = self.processes, "evaluations and the saved model"
        for line in self.facts:
            self.context.say(line)
        if processes.size > 1:
            rows = self.stream.losses[0].batches.batch_size
            self.context.say(f"{processes.size} processes, {rows} rows a batch")
        if self.config.ema is not None:
            self.context.say(f"{average} use averaged weights (--ema {self.config.ema:g})")
        if self.loop.start_weight:
            self.context.say(f"{average} average with the start (--start-weight {self.loop.start_weight:g})")
        if self.loop.patience is not None and self.metric is not None:
            self.context.say(self._patience_in_words(self.loop.patience))
        self.folder.begin()
        self.before_training()
        load = partial(self.checkpoints.load, self.state, processes=processes.size)
        self.progress = processes.broadcast_from_first(load)
        self.state.send_from_first(processes)
        memory.trim()  # what the rows took while they were read
        with ExitStack() as stack:
            self._open_callbacks(stack)
            self.train()
        if (step := self.progress.step) < self.loop.total_steps:
            self.context.say(f"stopped early, after step {step:,} of {self.loop.total_steps:,} (--patience)")
        self.use_averages()  # those of the last step, if no better ones are loaded
        self.state.optimiser.state.clear()
        memory.trim()
        processes.broadcast_from_first(self._finish)  # no process exits before the model is written

    def _patience_in_words(self, patience: int) -> str:
        """When the run stops early, and with which weights."""
        count = -(-self.loop.total_steps // self.loop.every)
        if patience >= count:
            return f"--patience {patience} cannot stop this run early: it has {count} evaluations (--evaluate-every)"
        kept = "the best weights" if self.config.keep == "best" else "those weights, not the best ones (--keep last)"
        return f"stops after {patience} evaluations (of {count}) in a row without a new best score, and keeps {kept}"

    def describe_rows(self, parts: Sequence[LossPart], *, show: int = 16) -> str:
        """Row numbers and texts of a batch, for an error message; at most ``show`` lines of text for each part."""
        lines: list[str] = []
        for method, batch, _ in parts:
            words = method.describe(batch)
            lines += ["  rows " + ", ".join(map(str, batch.rows)), *(f"  {line}" for line in words[:show])]
        return "\n".join(lines)

    def _open_callbacks(self, stack: ExitStack) -> None:
        """Open what shows and records the steps; ``stack`` closes it."""
        folder, config, start, metric = self.folder.path, self.config, self.progress.step, self.metric or ""
        shown = {"metric": metric, "evaluated_on": self.evaluated_on}
        display = Display(self.context.console, total_steps=self.loop.total_steps, start=start, **shown)
        self.callbacks = [display]
        if self.processes.is_main:
            if config.track:
                settings = {"method": method_of(config), **asdict(config)}
                tracking = Tracking(config.track, folder, settings=settings, metric=metric)
                self.callbacks.append(tracking)
                stack.callback(tracking.close)
            self.callbacks.append(MetricsFile(folder / METRICS, resume_at=start, metric=metric))
        stack.enter_context(display.bar)

    def _finish(self) -> None:
        folder, config, progress = self.folder.path, self.config, self.progress
        if config.keep == "best" and progress.best_step is not None:
            self.checkpoints.load_best(self.state)
        with new_folder(folder / "model", replace=True) as model:
            self.save_model(model)
        write_seen(folder, self.seen)
        self.conclude()
        record = {**provenance().to_dict(), "config": asdict(config), "data": self.facts, "inputs": self.folder.inputs}
        record |= {"precision": config.precision, "dev": self.evaluated_on, "metric": self.metric}
        record |= asdict(progress) | self.outcome
        write_text(folder / RUN_INFO, json.dumps(record, indent=1) + "\n")  # last: it marks the run as finished
        self.folder.finish()
