"""Checkpoints: everything that a run needs to resume exactly, written so that a complete one survives a kill.

A checkpoint is a folder of safetensors and JSON files: the weights of encoder and heads, their average if there is one,
AdamW's moments, and the run's position, which determines all random numbers of a step.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, TypeAlias

import torch
from msgspec import Meta
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nearfar.disk import disk_errors, flush_entries, new_file_in_folder, read_json, remove
from nearfar.disk.folders import forget_folder, new_folder, restore_folder
from nearfar.training.optimiser import WeightAverage
from nearfar.training.processes import Processes
from nearfar.types import NearfarError
from nearfar.validation import convert

WEIGHTS, OPTIMISER_STATE, PROGRESS = "weights.safetensors", "optimiser.safetensors", "progress.json"
METRICS = "metrics.jsonl"
AVERAGE = "average.safetensors"
Natural: TypeAlias = Annotated[int, Meta(ge=0)]
Tensors: TypeAlias = dict[str, Tensor]


@dataclass
class Progress:
    """The position and history of a run."""

    step: Natural = 0
    """Optimiser steps done."""
    epoch: Natural = 0
    batch: Natural = 0
    """Batches of this epoch that have been used."""
    best_score: float | None = None
    best_step: int | None = None
    """The step with the best score; 0 if nothing was better than before training."""
    without_best: Natural = 0
    """Evaluations since the best score."""
    start_score: float | None = None
    """The score before training."""
    seconds: float = 0.0
    """Time spent in steps."""
    items: Natural = 0
    """Items encoded in steps, usually distinct sentences."""
    finished: bool = False
    processes: Natural = 1
    """Number of processes that train together; a step's random numbers depend on it."""
    history: list[tuple[int, float]] = field(default_factory=list)
    """Step and score of each evaluation after a step."""

    def record(self, score: float, *, candidate: bool = True) -> bool:
        """Record the score at the current step; return whether it is the best so far, which only a candidate can be."""
        if self.step == 0:
            self.start_score = score
        else:
            self.history.append((self.step, score))
        best = candidate and (self.best_score is None or score > self.best_score)
        if best:
            self.best_score, self.best_step, self.without_best = score, self.step, 0
        elif self.step:
            self.without_best += 1
        return best


class MismatchError(Exception):
    """The tensors of a file do not match those of the run."""


@dataclass(frozen=True)
class TrainingState:
    """What each step of a run changes, and what a checkpoint holds."""

    modules: dict[str, nn.Module]
    """The trained modules, by name."""
    optimiser: torch.optim.AdamW
    average: WeightAverage | None = None

    def files(self) -> dict[str, Tensors]:
        """The files of a checkpoint: name -> tensors. Those of the optimiser are called ``parameter:key``."""
        moments = {
            f"{name}:{key}": value
            for name, parameter in self._parameters().items()
            for key, value in self.optimiser.state.get(parameter, {}).items()
        }
        files = {WEIGHTS: self.weights(), OPTIMISER_STATE: moments}
        return files if self.average is None else {**files, AVERAGE: self.average.tensors}

    def weights(self) -> Tensors:
        """All weights; a tensor shared by several names (tied weights) only under the first name."""
        tensors: Tensors = {}
        seen: set[int] = set()
        for prefix, module in self.modules.items():
            for name, tensor in module.state_dict().items():
                if tensor.data_ptr() not in seen or tensor.numel() == 0:
                    tensors[f"{prefix}.{name}"] = tensor
                    seen.add(tensor.data_ptr())
        return tensors

    def load(self, file: str, tensors: Tensors) -> None:
        """Restore what :meth:`files` has of a file.

        Raises:
            MismatchError: they are not those of this run, or weights that are not finite.
        """
        if file == OPTIMISER_STATE:
            parameters = self._parameters()
            for name, tensor in tensors.items():
                owner, _, key = name.rpartition(":")
                if owner not in parameters or (tensor.ndim and tensor.shape != parameters[owner].shape):
                    raise MismatchError(f"{name} has another shape, or belongs to no weight of this run")
                # Copy: otherwise the file stays memory-mapped, and on Windows the next checkpoint could not replace it.
                self.optimiser.state[parameters[owner]][key] = tensor.to(parameters[owner].device, copy=True)
            return
        own = self.average.tensors if file == AVERAGE and self.average is not None else self.weights()
        for name in sorted(own.keys() | tensors.keys()):
            ours, theirs = own.get(name), tensors.get(name)
            if ours is None or theirs is None or (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
                raise MismatchError(f"{name} is missing, has another shape or dtype, or is none of this run's")
            if not torch.isfinite(theirs).all():
                raise MismatchError(f"{name} holds NaN or infinity")
        for name, tensor in own.items():
            tensor.copy_(tensors[name])

    def send_from_first(self, processes: Processes) -> None:
        """Give all processes the state of the first one."""
        if processes.size == 1:
            return
        for file, tensors in self.files().items():
            sent = processes.broadcast_from_first(
                lambda: {name: tensor.detach().cpu() for name, tensor in tensors.items()}  # noqa: B023  (called at once)
            )
            if not processes.is_main:
                self.load(file, sent)

    def _parameters(self) -> dict[str, nn.Parameter]:
        return {
            f"{prefix}.{name}": parameter
            for prefix, module in self.modules.items()
            for name, parameter in module.named_parameters()
        }


class Checkpoints:
    """The latest checkpoint and the best weights in a run folder."""

    def __init__(self, folder: Path) -> None:
        self.latest = folder / "checkpoint"
        self.best = folder / "best.safetensors"

    def save(self, progress: Progress, state: TrainingState) -> None:
        """Replace the latest checkpoint.

        Raises:
            NearfarError: the disk is full or not writable; the previous checkpoint is unchanged.
        """
        with new_folder(self.latest, replace=True) as fresh:
            for name, tensors in state.files().items():
                _save(tensors, fresh / name)
            (fresh / PROGRESS).write_text(json.dumps(asdict(progress)), encoding="utf-8")
            if (metrics := self.latest.with_name(METRICS)).exists():  # a run that continues keeps its lines
                flush_entries(metrics)

    def check(self, *, best: bool) -> None:
        """Check the files before anything slow is done; with ``best`` also the best weights.

        Raises:
            NearfarError: a file is missing, cannot be read or is damaged.
        """
        with disk_errors(self.latest):
            restore_folder(self.latest)
        if not self.latest.exists():
            return
        kept = [self.best] if best and self._read_progress().best_step is not None else []
        for file in (self.latest / WEIGHTS, self.latest / OPTIMISER_STATE, *kept):
            with self._damage_errors(file), safe_open(file, framework="pt") as tensors:
                tensors.keys()

    def load(self, state: TrainingState, *, processes: int = 1) -> Progress:
        """Restore the state and the progress; a new :class:`Progress` without a checkpoint.

        Raises:
            NearfarError: another number of processes wrote the checkpoint, so that the run would end with different
                weights; or a file is missing, cannot be read or is damaged.
        """
        restore_folder(self.latest)
        if not self.latest.exists():
            return Progress(processes=processes)
        progress = self._read_progress()
        if progress.processes != processes:
            raise NearfarError(
                f"{self.latest.parent}: was started with {progress.processes} processes and would end with different "
                f"weights with {processes}; use {progress.processes} processes."
            )
        for name in state.files():
            with self._damage_errors(self.latest / name):
                state.load(name, load_file(self.latest / name))
        return progress

    def _read_progress(self) -> Progress:
        file, advice = self.latest / PROGRESS, self._restart_advice
        return convert(read_json(file, otherwise=advice), Progress, source=f"{file}: is damaged. {advice}")

    @property
    def _restart_advice(self) -> str:
        return f"Remove the folder {self.latest} to restart this run from its first step."

    @contextmanager
    def _damage_errors(self, file: Path) -> Iterator[None]:
        """Turn errors of reading ``file`` into a :class:`NearfarError` that says how to continue."""
        if file.exists() and not file.is_file():  # opening a pipe would wait for its writer
            raise NearfarError(f"{file}: is not a regular file. {self._restart_advice}")
        try:
            yield
        except OSError as error:
            raise NearfarError(f"{file}: cannot be read ({error.strerror or error}). {self._restart_advice}") from error
        except (SafetensorError, MismatchError) as error:
            raise NearfarError(f"{file}: is damaged ({str(error)[:300]}). {self._restart_advice}") from error

    def save_best(self, state: TrainingState) -> None:
        """Save the current weights as the best so far."""
        with new_file_in_folder(self.best) as file:
            _save(state.weights(), file)

    def load_best(self, state: TrainingState) -> None:
        """Restore the best weights.

        Raises:
            NearfarError: the file is missing, cannot be read or is damaged.
        """
        with self._damage_errors(self.best):
            state.load(self.best.name, load_file(self.best))

    def clear(self) -> None:
        """Remove the checkpoint and the best weights, which a finished run does not need.

        Raises:
            NearfarError: a file cannot be deleted.
        """
        for path in (self.latest, self.best, self.best.with_name(f"{self.best.name}.new")):
            remove(path)
        forget_folder(self.latest)


def _save(tensors: Tensors, file: Path) -> None:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)
