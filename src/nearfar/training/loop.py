"""The training loop of all methods: batch, gradient, step, evaluation, checkpoint.

Batches are opaque to the loop; only their objectives know what they contain and what their loss is.
"""

import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from types import FrameType
from typing import NamedTuple, Protocol

import torch
from torch import nn

from nearfar.training.average import StartWeights, WeightAverage, all_applied
from nearfar.training.checkpoint import Checkpointer, Progress
from nearfar.training.gradients import Gradients, LossPart
from nearfar.training.optimiser import clipped_step, gradient_norm, learning_rate_factor, set_learning_rate
from nearfar.training.overlap import gradient_sums
from nearfar.types import NearfarError, Schedule


class Stream(Protocol):
    """Deterministic source of batches, each of which has one or more loss parts."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Sequence[LossPart]]:
        """The batches of an epoch from batch number ``start`` on; equal calls give equal batches."""


class Evaluation(NamedTuple):
    """The result of an evaluation during training."""

    score: float | None
    """Higher is better. None where there is nothing to choose the best step by; then no step is the best."""
    measures: dict[str, float]
    """Further metrics by name."""


class StepReport(NamedTuple):
    """The metrics of one optimiser step."""

    step: int
    epoch: int
    terms: dict[str, float]
    learning_rate: float
    gradient_norm: float
    items_per_second: float
    """An item is one input that is encoded independently, usually a distinct sentence."""


class TrainingCallback(Protocol):
    """Called by the loop after steps and evaluations."""

    def on_step(self, report: StepReport) -> None:
        """Called after each optimiser step."""

    def on_evaluate(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        """Called after each evaluation; step 0 is the evaluation before training."""


class Interrupted(Exception):  # noqa: N818  (not an error)
    """Ctrl-C: the run stopped after a complete step and saved a checkpoint."""


def run(
    stream: Stream,
    gradients: Gradients,
    *,
    modules: dict[str, nn.Module],
    optimiser: torch.optim.AdamW,
    average: WeightAverage | None = None,
    start: StartWeights | None = None,
    checkpoints: Checkpointer,
    callbacks: Sequence[TrainingCallback],
    evaluate: Callable[[], Evaluation],
    describe_rows: Callable[[Sequence[LossPart]], str],
    progress: Progress,
    epochs: int,
    total_steps: int,
    accumulate: int,
    warmup: float,
    schedule: Schedule,
    max_grad_norm: float,
    evaluate_every: int,
    patience: int | None,
    checkpoint_every: int,
) -> None:
    """Train from ``progress`` to ``total_steps``, or until ``patience`` evaluations in a row give no new best score.

    ``modules`` are trained together; ``evaluate`` evaluates their current state. ``progress`` is updated in place.
    Afterwards the modules have the weights of the last step, and ``checkpoints`` has the best ones. With several
    processes, all of them call this function and end with the same weights; the first one evaluates and writes.

    An ``average`` is updated after each step; evaluations and the best weights are then those of the average. With
    ``start`` they are averaged with the weights before training.

    Raises:
        NearfarError: a loss or gradient is not finite (the message names step, rows and checkpoint), or a checkpoint
            cannot be written.
        Interrupted: after Ctrl-C, when the current step is done and saved, even if it is the last step.
    """
    processes = gradients.processes
    parameters = [parameter for module in modules.values() for parameter in module.parameters()]
    remaining = _remaining_batches(stream, progress, epochs)
    if progress.start_score is None and progress.step == 0:
        before = processes.broadcast_from_first(evaluate)
        progress.start_score = before.score
        for callback in callbacks:
            callback.on_evaluate(0, before, best=False)

    with gradient_sums(processes, parameters) as sums, _deferred_interrupt() as interrupted:
        stop = False
        while not (progress.finished or stop):
            started = time.perf_counter()
            factor = learning_rate_factor(progress.step, total_steps, warmup=warmup, schedule=schedule)
            set_learning_rate(optimiser, factor)
            _switch_to_training(modules)
            group = list(islice(remaining, accumulate))
            terms, items = gradients.accumulate_mean(group, step=progress.step, sums=sums)
            sums.finish()
            norm = gradient_norm(parameters)
            if not (math.isfinite(terms["loss"]) and math.isfinite(norm)):
                what = "gradient" if math.isfinite(terms["loss"]) else "loss"
                raise _not_finite(what, progress, checkpoints, describe_rows([p for parts in group for p in parts]))
            clipped_step(optimiser, norm=norm, max_norm=max_grad_norm)
            optimiser.zero_grad()

            progress.step += 1
            if average is not None:
                average.update(progress.step)
            seconds = time.perf_counter() - started
            progress.seconds += seconds
            progress.items += items
            rate = optimiser.param_groups[0]["lr"]
            for callback in callbacks:
                callback.on_step(StepReport(progress.step, progress.epoch, terms, rate, norm, items / seconds))

            last = progress.step == total_steps
            if progress.step % evaluate_every == 0 or last:
                with all_applied((average, start)):
                    found = processes.broadcast_from_first(evaluate)
                    best = found.score is not None and progress.record(found.score)
                    if best and processes.is_main:
                        checkpoints.save_best(modules)
                for callback in callbacks:
                    callback.on_evaluate(progress.step, found, best=best)
            progress.finished = last or (patience is not None and progress.without_best >= patience)
            stop = processes.any_process(interrupted())
            if (progress.step % checkpoint_every == 0 or progress.finished or stop) and processes.is_main:
                checkpoints.save(progress, modules, optimiser, average)
        # Also after Ctrl-C in the last step or during its save, because the caller may have further runs to do. The
        # reduction makes all processes wait for the checkpoint.
        if processes.any_process(interrupted()):
            raise Interrupted


def _switch_to_training(modules: dict[str, nn.Module]) -> None:
    """Undo what an evaluation may have changed; to visit all submodules at each step would take milliseconds."""
    for module in modules.values():
        if not module.training:
            module.train()


def _remaining_batches(stream: Stream, progress: Progress, epochs: int) -> Iterator[Sequence[LossPart]]:
    """The batches from ``progress`` on; updates ``progress`` to the position after the batch it yields."""
    while progress.epoch < epochs:
        for parts in stream.epoch(progress.epoch, start=progress.batch):
            progress.batch += 1
            yield parts
        progress.epoch, progress.batch = progress.epoch + 1, 0


def _not_finite(what: str, progress: Progress, checkpoints: Checkpointer, rows: str) -> NearfarError:
    exists = checkpoints.latest is not None and checkpoints.latest.exists()
    saved = f"The last good checkpoint is {checkpoints.latest}" if exists else "No checkpoint was saved yet"
    return NearfarError(
        f"step {progress.step + 1}: the {what} is not finite, so the run stopped before using it. {saved}. A lower "
        f"--learning-rate or a higher --temperature usually helps. The batch's rows:\n{rows}"
    )


@contextmanager
def _deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Inside the block, record the first Ctrl-C without raising; a second one raises KeyboardInterrupt.

    Gives a function that returns whether Ctrl-C was pressed.
    """
    received: list[int] = []

    def record(number: int, _: FrameType | None) -> None:
        received.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        previous = signal.signal(signal.SIGINT, record)
    except ValueError:  # not the main thread; only the main thread receives Ctrl-C
        yield lambda: False
        return
    try:
        yield lambda: bool(received)
    finally:
        signal.signal(signal.SIGINT, previous)
