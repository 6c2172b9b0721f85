"""Checkpoints: everything that a run needs to resume exactly, written so that a complete one survives a kill.

A checkpoint is a folder of safetensors and JSON files: the weights of encoder and heads, AdamW's moments, and the run's
position, which determines all random numbers of a step. A new checkpoint is written next to the old one, flushed to
disk and renamed into place; then the old one is removed.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nearfar.disk import apply_umask, disk_errors, flush, read_json
from nearfar.types import NearfarError

WEIGHTS, OPTIMISER_STATE, PROGRESS = "weights.safetensors", "optimiser.safetensors", "progress.json"
_INTEGERS = ("step", "epoch", "batch", "without_best", "items", "processes")
_NUMBERS = ("start_score", "best_score", "best_step", "seconds")


@dataclass
class Progress:
    """The position and history of a run."""

    step: int = 0
    """Optimiser steps done."""
    epoch: int = 0
    batch: int = 0
    """Batches of this epoch that have been used."""
    best_score: float | None = None
    best_step: int | None = None
    without_best: int = 0
    """Evaluations since the best score."""
    start_score: float | None = None
    """The untrained encoder's score."""
    seconds: float = 0.0
    """Time spent in steps."""
    items: int = 0
    """Items encoded in steps, usually distinct sentences."""
    finished: bool = False
    processes: int = 1
    """Number of processes that train together; a step's random numbers depend on it."""
    history: list[tuple[int, float]] = field(default_factory=list)
    """Step and score of each evaluation."""

    def record(self, score: float) -> bool:
        """Record the score at the current step; return whether it is the best so far."""
        self.history.append((self.step, score))
        best = self.best_score is None or score > self.best_score
        if best:
            self.best_score, self.best_step, self.without_best = score, self.step, 0
        else:
            self.without_best += 1
        return best


class Checkpointer(Protocol):
    """Saves checkpoints and best weights for the training loop."""

    @property
    def latest(self) -> Path | None:
        """Folder of the latest checkpoint, which may not exist yet; None if no checkpoints are written."""

    def save(self, progress: Progress, modules: dict[str, nn.Module], optimiser: torch.optim.Optimizer) -> None:
        """Save everything that the run needs to resume."""

    def save_best(self, modules: dict[str, nn.Module]) -> None:
        """Save the current weights as the best so far."""


class Checkpoints:
    """The latest checkpoint and the best weights in a run folder."""

    def __init__(self, folder: Path) -> None:
        self.latest = folder / "checkpoint"
        self.best = folder / "best.safetensors"

    def save(self, progress: Progress, modules: dict[str, nn.Module], optimiser: torch.optim.Optimizer) -> None:
        """Replace the latest checkpoint.

        Raises:
            NearfarError: the disk is full or not writable; the previous checkpoint is unchanged.
        """
        fresh, old = self.latest.with_name("checkpoint.new"), self.latest.with_name("checkpoint.old")
        with disk_errors(self.latest):
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            save_file(_weights(modules), fresh / WEIGHTS)
            save_file(_optimiser_state(modules, optimiser), fresh / OPTIMISER_STATE)
            (fresh / PROGRESS).write_text(json.dumps(asdict(progress)), encoding="utf-8")
            apply_umask(fresh)
            flush(fresh)
            if self.latest.exists():
                self.latest.rename(old)
            fresh.rename(self.latest)
            shutil.rmtree(old, ignore_errors=True)

    def recover(self) -> None:
        """Restore the previous checkpoint if the run was killed between the two renames of :meth:`save`."""
        old = self.latest.with_name("checkpoint.old")
        if not self.latest.exists() and old.exists():
            old.rename(self.latest)

    def check(self, *, best: bool) -> None:
        """Check the files before anything slow is done; with ``best`` also the best weights.

        Raises:
            NearfarError: a file is missing, cannot be read or is damaged.
        """
        with disk_errors(self.latest):
            self.recover()
        if not self.latest.exists():
            return
        progress = self._read_progress()
        files = [self.latest / WEIGHTS, self.latest / OPTIMISER_STATE]
        if best and progress.best_step is not None:
            files.append(self.best)
        for file in files:
            with self._damage_errors(file), safe_open(file, framework="pt") as tensors:
                tensors.keys()

    def load(self, modules: dict[str, nn.Module], optimiser: torch.optim.Optimizer, *, processes: int = 1) -> Progress:
        """Restore weights, optimiser and progress; a new :class:`Progress` if there is no checkpoint yet.

        Raises:
            NearfarError: another number of processes wrote the checkpoint, so that the run would end with different
                weights; or a file is missing, cannot be read or is damaged.
        """
        self.recover()
        if not self.latest.exists():
            return Progress(processes=processes)
        progress = self._read_progress()
        if progress.processes != processes:
            raise NearfarError(
                f"{self.latest.parent}: was started with {progress.processes} processes and would end with different "
                f"weights with {processes}; use {progress.processes} processes."
            )
        with self._damage_errors(self.latest / WEIGHTS):
            _load_weights(modules, load_file(self.latest / WEIGHTS))
        with self._damage_errors(self.latest / OPTIMISER_STATE):
            _load_optimiser_state(modules, optimiser, load_file(self.latest / OPTIMISER_STATE))
        return progress

    def _read_progress(self) -> Progress:
        file = self.latest / PROGRESS
        values = read_json(file, otherwise=self._restart_advice)
        try:
            progress = Progress(**values)
            progress.history = [(step, score) for step, score in progress.history]
        except (TypeError, ValueError) as error:
            raise NearfarError(
                f"{file}: is damaged: it does not hold a run's progress. {self._restart_advice}"
            ) from error
        numbers = [value for point in progress.history for value in point]
        numbers += [value for name in _NUMBERS if (value := getattr(progress, name)) is not None]
        integers = all(type(getattr(progress, name)) is int and getattr(progress, name) >= 0 for name in _INTEGERS)
        if not (integers and all(type(value) in (int, float) for value in numbers) and type(progress.finished) is bool):
            raise NearfarError(f"{file}: is damaged: it holds values of a wrong type. {self._restart_advice}")
        return progress

    @property
    def _restart_advice(self) -> str:
        return f"Remove the folder {self.latest} to restart this run from its first step."

    @contextmanager
    def _damage_errors(self, file: Path) -> Iterator[None]:
        """Turn errors of reading ``file`` into a :class:`NearfarError` that says how to continue."""
        try:
            yield
        except OSError as error:
            raise NearfarError(f"{file}: cannot be read ({error.strerror or error}). {self._restart_advice}") from error
        except (SafetensorError, _MismatchError) as error:
            raise NearfarError(f"{file}: is damaged ({error}). {self._restart_advice}") from error

    def save_best(self, modules: dict[str, nn.Module]) -> None:
        """Save the current weights as the best so far."""
        with disk_errors(self.best):
            fresh = self.best.with_name("best.new")
            save_file(_weights(modules), fresh)
            apply_umask(fresh)
            flush(fresh)
            fresh.replace(self.best)

    def load_best(self, modules: dict[str, nn.Module]) -> None:
        """Restore the best weights.

        Raises:
            NearfarError: the file is missing, cannot be read or is damaged.
        """
        with self._damage_errors(self.best):
            _load_weights(modules, load_file(self.best))

    def clear(self) -> None:
        """Remove the checkpoint and the best weights, which a finished run does not need."""
        shutil.rmtree(self.latest, ignore_errors=True)
        self.best.unlink(missing_ok=True)


def _weights(modules: dict[str, nn.Module]) -> dict[str, Tensor]:
    """All weights; a tensor shared by several names (tied weights) only under the first name."""
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for prefix, module in modules.items():
        for name, tensor in module.state_dict().items():
            if tensor.data_ptr() not in seen or tensor.numel() == 0:
                tensors[f"{prefix}.{name}"] = tensor.contiguous()
                seen.add(tensor.data_ptr())
    return tensors


class _MismatchError(Exception):
    """The tensors of a file do not match those of the run."""


def _load_weights(modules: dict[str, nn.Module], tensors: dict[str, Tensor]) -> None:
    expected = _weights(modules)
    for name in sorted(expected.keys() | tensors.keys()):
        if name not in expected or name not in tensors or expected[name].shape != tensors[name].shape:
            raise _MismatchError(f"{name} is missing, has another shape, or is not a weight of this run")
    for prefix, module in modules.items():
        state = module.state_dict()
        with torch.no_grad():
            for name, tensor in state.items():
                if f"{prefix}.{name}" in tensors:
                    tensor.copy_(tensors[f"{prefix}.{name}"])


def _named_parameters(modules: dict[str, nn.Module]) -> dict[str, nn.Parameter]:
    return {f"{prefix}.{name}": p for prefix, module in modules.items() for name, p in module.named_parameters()}


def _optimiser_state(modules: dict[str, nn.Module], optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{name}:{key}": value.contiguous()
        for name, parameter in _named_parameters(modules).items()
        for key, value in optimiser.state.get(parameter, {}).items()
    }


def _load_optimiser_state(
    modules: dict[str, nn.Module], optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]
) -> None:
    parameters = _named_parameters(modules)
    for name, tensor in tensors.items():
        owner, _, key = name.rpartition(":")
        if owner not in parameters or (tensor.ndim and tensor.shape != parameters[owner].shape):
            raise _MismatchError(f"{name} has another shape, or belongs to no weight of this run")
        # Copy: otherwise the file stays memory-mapped, and on Windows the next checkpoint could not replace it.
        optimiser.state[parameters[owner]][key] = tensor.to(parameters[owner].device, copy=True)
