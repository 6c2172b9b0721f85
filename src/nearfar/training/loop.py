"""The one training loop, in the order of the data: batch, loss, gradient, step, evaluation, checkpoint.

It receives ``loss_of(batch)`` and knows no method.
"""

import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from types import FrameType
from typing import Literal, NamedTuple, Protocol, TypeVar

from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim import Optimizer

from nearfar.training.checkpoint import Checkpoints, Progress
from nearfar.training.optimiser import learning_rate_factor, set_learning_rate
from nearfar.types import NearfarError


class Batch(Protocol):
    """What the loop looks at in a batch: its distinct texts, and its row numbers in the data."""

    @property
    def sentences(self) -> Sequence[str]: ...  # noqa: D102

    @property
    def rows(self) -> Sequence[int]: ...  # noqa: D102


AnyBatch = TypeVar("AnyBatch", bound=Batch)
AnyBatch_co = TypeVar("AnyBatch_co", bound=Batch, covariant=True)


class Batches(Protocol[AnyBatch_co]):
    """Batches of any epoch, from any place in it on, always the same ones."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[AnyBatch_co]: ...  # noqa: D102


class Loss(Protocol):
    """A batch's loss: the scalar to minimise, and detached scalars to show, by name."""

    @property
    def total(self) -> Tensor: ...  # noqa: D102

    @property
    def terms(self) -> dict[str, Tensor]: ...  # noqa: D102


class StepReport(NamedTuple):
    """What one optimiser step was like."""

    step: int
    epoch: int
    terms: dict[str, float]
    learning_rate: float
    gradient_norm: float
    sentences_per_second: float


class Watcher(Protocol):
    """Who is told how the run goes."""

    def stepped(self, report: StepReport) -> None:
        """A step was taken."""

    def evaluated(self, step: int, score: float, *, best: bool) -> None:
        """The encoder was evaluated; step 0 is the start."""


class Interrupted(Exception):  # noqa: N818  (nothing went wrong)
    """Ctrl-C: the run stopped after a whole step, and saved."""


def run(
    batches: Batches[AnyBatch],
    loss_of: Callable[[AnyBatch], Loss],
    *,
    modules: dict[str, nn.Module],
    optimiser: Optimizer,
    accelerator: Accelerator,
    checkpoints: Checkpoints,
    watchers: Sequence[Watcher],
    score: Callable[[], float],
    describe_rows: Callable[[Sequence[int]], str],
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

    ``modules`` are trained together; ``score`` evaluates them, higher being better. ``progress`` moves along.
    Afterwards the modules hold the last step's weights, and ``checkpoints`` the best ones too.

    Raises:
        NearfarError: a loss or gradient that is not finite (names step, rows and checkpoint), or a disk that refuses.
        Interrupted: after Ctrl-C, once the current step is done and saved.
    """
    parameters = [parameter for module in modules.values() for parameter in module.parameters()]
    stream = _stream(batches, progress, epochs)
    if progress.start_score is None:
        progress.start_score = score()
        for watcher in watchers:
            watcher.evaluated(0, progress.start_score, best=False)

    with _ctrl_c() as interrupted:
        while not progress.finished:
            started = time.perf_counter()
            factor = learning_rate_factor(progress.step, total_steps, warmup=warmup, schedule=schedule)
            set_learning_rate(optimiser, factor)
            for module in modules.values():
                module.train()
            group = list(islice(stream, accumulate))
            terms: dict[str, float] = {}
            for batch in group:
                loss = loss_of(batch)
                shown = {"loss": loss.total.detach(), **loss.terms}
                if not math.isfinite(float(shown["loss"])):
                    raise _not_finite("loss", progress, checkpoints, describe_rows(batch.rows))
                accelerator.backward(loss.total / len(group))
                for name, value in shown.items():
                    terms[name] = terms.get(name, 0.0) + float(value) / len(group)
            norm = float(accelerator.clip_grad_norm_(parameters, max_grad_norm or math.inf))
            if not math.isfinite(norm):
                rows = [row for batch in group for row in batch.rows]
                raise _not_finite("gradient", progress, checkpoints, describe_rows(rows))
            optimiser.step()
            optimiser.zero_grad()

            progress.step += 1
            seconds, sentences = time.perf_counter() - started, sum(len(batch.sentences) for batch in group)
            progress.seconds += seconds
            progress.sentences += sentences
            rate = optimiser.param_groups[0]["lr"]
            for watcher in watchers:
                watcher.stepped(StepReport(progress.step, progress.epoch, terms, rate, norm, sentences / seconds))

            last = progress.step == total_steps
            if progress.step % evaluate_every == 0 or last:
                _evaluate(score, progress, checkpoints, modules, watchers)
            progress.finished = last or (patience is not None and progress.without_best >= patience)
            if progress.step % checkpoint_every == 0 or progress.finished or interrupted():
                checkpoints.save(progress, modules, optimiser)
            if interrupted() and not progress.finished:
                raise Interrupted


def _stream(batches: Batches[AnyBatch], progress: Progress, epochs: int) -> Iterator[AnyBatch]:
    """The batches that are left; ``progress`` says at any time which come next."""
    while progress.epoch < epochs:
        for batch in batches.epoch(progress.epoch, start=progress.batch):
            progress.batch += 1
            yield batch
        progress.epoch, progress.batch = progress.epoch + 1, 0


def _evaluate(
    score: Callable[[], float],
    progress: Progress,
    checkpoints: Checkpoints,
    modules: dict[str, nn.Module],
    watchers: Sequence[Watcher],
) -> None:
    found = score()
    best = progress.best_score is None or found > progress.best_score
    progress.history.append((progress.step, found))
    if best:
        progress.best_score, progress.best_step, progress.without_best = found, progress.step, 0
        checkpoints.save_best(modules)
    else:
        progress.without_best += 1
    for watcher in watchers:
        watcher.evaluated(progress.step, found, best=best)


def _not_finite(what: str, progress: Progress, checkpoints: Checkpoints, rows: str) -> NearfarError:
    there = checkpoints.latest.exists()
    saved = f"The last good checkpoint is {checkpoints.latest}" if there else "No checkpoint was saved yet"
    return NearfarError(
        f"step {progress.step + 1}: the {what} is not finite, so the run stopped before using it. {saved}. A lower "
        f"--learning-rate or a higher --temperature usually helps. The batch's rows:\n{rows}"
    )


@contextmanager
def _ctrl_c() -> Iterator[Callable[[], bool]]:
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
