"""The one training loop, in the order of the data: batch, gradient, step, evaluation, checkpoint.

It knows no method: what a batch is and what its loss is, only its objectives know.
"""

import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from types import FrameType
from typing import Literal, NamedTuple, Protocol

import torch
from torch import nn

from nearfar.training.checkpoint import Checkpointer, Progress
from nearfar.training.gradients import Gradients, LossPart
from nearfar.training.optimiser import clipped_step, gradient_norm, learning_rate_factor, set_learning_rate
from nearfar.types import NearfarError


class Stream(Protocol):
    """The parts of each batch of any epoch, from any place in it on, always the same ones."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Sequence[LossPart]]: ...  # noqa: D102


class Evaluation(NamedTuple):
    """How good the encoder is."""

    score: float
    """Higher is better."""
    measures: dict[str, float]
    """What else is worth watching, by name."""


class StepReport(NamedTuple):
    """What one optimiser step was like."""

    step: int
    epoch: int
    terms: dict[str, float]
    learning_rate: float
    gradient_norm: float
    items_per_second: float
    """An item is what is encoded on its own, most often a distinct sentence."""


class TrainingCallback(Protocol):
    """Who is told how the run goes."""

    def on_step(self, report: StepReport) -> None:
        """A step was taken."""

    def on_evaluate(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        """The encoder was evaluated; step 0 is the start."""


class Interrupted(Exception):  # noqa: N818  (nothing went wrong)
    """Ctrl-C: the run stopped after a whole step, and saved."""


def run(
    stream: Stream,
    gradients: Gradients,
    *,
    modules: dict[str, nn.Module],
    optimiser: torch.optim.AdamW,
    checkpoints: Checkpointer,
    callbacks: Sequence[TrainingCallback],
    evaluate: Callable[[], Evaluation],
    describe_rows: Callable[[Sequence[LossPart]], str],
    progress: Progress,
    epochs: int,
    total_steps: int,
    accumulate: int,
    warmup: float,
    schedule: Literal["linear", "constant"],
    max_grad_norm: float,
    evaluate_every: int,
    patience: int | None,
    checkpoint_every: int,
) -> None:
    """Train from ``progress`` on to ``total_steps``, or until ``patience`` evaluations bring no new best.

    ``modules`` are trained together; ``evaluate`` looks at them as they are. ``progress`` moves along. Afterwards the
    modules hold the last step's weights, and ``checkpoints`` the best ones too. With several processes all of them
    call this, the first one evaluates and writes, and all come to the same weights.

    Raises:
        NearfarError: a loss or gradient that is not finite (names step, rows and checkpoint), or a disk that refuses.
        Interrupted: after Ctrl-C, once the current step is done and saved, be it the last.
    """
    processes = gradients.processes
    parameters = [parameter for module in modules.values() for parameter in module.parameters()]
    remaining = _remaining_batches(stream, progress, epochs)
    if progress.start_score is None:
        start = processes.broadcast_from_first(evaluate)
        progress.start_score = start.score
        for callback in callbacks:
            callback.on_evaluate(0, start, best=False)

    with _deferred_interrupt() as interrupted:
        stop = False
        while not (progress.finished or stop):
            started = time.perf_counter()
            factor = learning_rate_factor(progress.step, total_steps, warmup=warmup, schedule=schedule)
            set_learning_rate(optimiser, factor)
            for module in modules.values():
                module.train()
            group = list(islice(remaining, accumulate))
            terms, items = gradients.accumulate_mean(group, step=progress.step)
            processes.all_reduce_gradients(parameters)
            norm = gradient_norm(parameters)
            for what, value in (("loss", terms["loss"]), ("gradient", norm)):
                if not math.isfinite(value):
                    raise _not_finite(what, progress, checkpoints, describe_rows([p for parts in group for p in parts]))
            clipped_step(optimiser, norm=norm, max_norm=max_grad_norm)
            optimiser.zero_grad()

            progress.step += 1
            seconds = time.perf_counter() - started
            progress.seconds += seconds
            progress.items += items
            rate = optimiser.param_groups[0]["lr"]
            for callback in callbacks:
                callback.on_step(StepReport(progress.step, progress.epoch, terms, rate, norm, items / seconds))

            last = progress.step == total_steps
            if progress.step % evaluate_every == 0 or last:
                found = processes.broadcast_from_first(evaluate)
                best = progress.record(found.score)
                if best and processes.is_main:
                    checkpoints.save_best(modules)
                for callback in callbacks:
                    callback.on_evaluate(progress.step, found, best=best)
            progress.finished = last or (patience is not None and progress.without_best >= patience)
            stop = processes.any_process(interrupted())
            if (progress.step % checkpoint_every == 0 or progress.finished or stop) and processes.is_main:
                checkpoints.save(progress, modules, optimiser)
        # In the last step, or while it is saved, too: the caller may have more runs to do. And nobody leaves before.
        if processes.any_process(interrupted()):
            raise Interrupted


def _remaining_batches(stream: Stream, progress: Progress, epochs: int) -> Iterator[Sequence[LossPart]]:
    """The batches that are left; ``progress`` says at any time which come next."""
    while progress.epoch < epochs:
        for parts in stream.epoch(progress.epoch, start=progress.batch):
            progress.batch += 1
            yield parts
        progress.epoch, progress.batch = progress.epoch + 1, 0


def _not_finite(what: str, progress: Progress, checkpoints: Checkpointer, rows: str) -> NearfarError:
    there = checkpoints.latest is not None and checkpoints.latest.exists()
    saved = f"The last good checkpoint is {checkpoints.latest}" if there else "No checkpoint was saved yet"
    return NearfarError(
        f"step {progress.step + 1}: the {what} is not finite, so the run stopped before using it. {saved}. A lower "
        f"--learning-rate or a higher --temperature usually helps. The batch's rows:\n{rows}"
    )


@contextmanager
def _deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """While inside, the first Ctrl-C is only remembered; a second one stops at once."""
    seen: list[int] = []

    def remember(number: int, _: FrameType | None) -> None:
        seen.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        previous = signal.signal(signal.SIGINT, remember)
    except ValueError:  # not in the main thread, where Ctrl-C never arrives
        yield lambda: False
        return
    try:
        yield lambda: bool(seen)
    finally:
        signal.signal(signal.SIGINT, previous)
