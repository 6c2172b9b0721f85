"""Checkpoints: everything that a run needs to resume exactly, written so that a complete one survives a kill.

A checkpoint is a folder of safetensors and JSON files: the weights of encoder and heads, their average if there is one,
AdamW's moments, and the run's position, which determines all random numbers of a step.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from nearfar.disk import (
    apply_umask,
    disk_errors,
    flush,
    forget_folder,
    new_folder,
    publish,
    read_json,
    remove,
    restore_folder,
)
from nearfar.training.state import MismatchError, TrainingState
from nearfar.types import NearfarError

WEIGHTS, OPTIMISER_STATE, PROGRESS = "weights.safetensors", "optimiser.safetensors", "progress.json"
METRICS = "metrics.jsonl"
AVERAGE = "average.safetensors"
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
            save_file(state.weights(), fresh / WEIGHTS)
            save_file(state.moments(), fresh / OPTIMISER_STATE)
            if state.average is not None:
                save_file(state.averages(), fresh / AVERAGE)
            (fresh / PROGRESS).write_text(json.dumps(asdict(progress)), encoding="utf-8")
            if (metrics := self.latest.with_name(METRICS)).exists():  # a run that continues keeps its lines
                flush(metrics)

    def check(self, *, best: bool, average: bool = False) -> None:
        """Check the files before anything slow is done; with ``best`` also the best weights, with ``average`` theirs.

        Raises:
            NearfarError: a file is missing, cannot be read or is damaged.
        """
        with disk_errors(self.latest):
            restore_folder(self.latest)
        if not self.latest.exists():
            return
        progress = self._read_progress()
        files = [self.latest / WEIGHTS, self.latest / OPTIMISER_STATE, *([self.latest / AVERAGE] if average else [])]
        if best and progress.best_step is not None:
            files.append(self.best)
        for file in files:
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
        with self._damage_errors(self.latest / WEIGHTS):
            state.load_weights(load_file(self.latest / WEIGHTS))
        with self._damage_errors(self.latest / OPTIMISER_STATE):
            state.load_moments(load_file(self.latest / OPTIMISER_STATE))
        if state.average is not None:
            with self._damage_errors(self.latest / AVERAGE):
                state.load_averages(load_file(self.latest / AVERAGE))
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
        with disk_errors(self.best):
            fresh = self.best.with_name("best.new")  # a folder: safetensors writes to a file of a random name first
            remove(fresh)
            fresh.mkdir(parents=True)
            save_file(state.weights(), fresh / self.best.name)
            apply_umask(fresh)
            publish(fresh / self.best.name, self.best)
            fresh.rmdir()

    def load_best(self, state: TrainingState) -> None:
        """Restore the best weights.

        Raises:
            NearfarError: the file is missing, cannot be read or is damaged.
        """
        with self._damage_errors(self.best):
            state.load_weights(load_file(self.best))

    def clear(self) -> None:
        """Remove the checkpoint and the best weights, which a finished run does not need.

        Raises:
            NearfarError: a file cannot be deleted.
        """
        for path in (self.latest, self.best, self.best.with_name("best.new")):
            remove(path)
        forget_folder(self.latest)
