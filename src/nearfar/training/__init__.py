"""The training loop of all methods: batch, gradient, clipping, step, average, log, evaluation, checkpoint, stop.

Batches are opaque to the loop; only their objectives know what they contain and what their loss is.
"""

import math
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import NamedTuple, Protocol

from torch import Tensor, nn

from nearfar.runtime import memory
from nearfar.training.checkpoint import Checkpoints, Progress, TrainingState
from nearfar.training.gradients import Gradients, LossPart, read_later
from nearfar.training.optimiser import (
    EvaluatedWeights,
    OptimiserSettings,
    StartWeights,
    WeightAverage,
    adamw,
    applied,
    clipped_step,
    gradient_norm,
    learning_rate_factor,
    set_learning_rate,
)
from nearfar.types import NearfarError

TRIM_EVERY = 32
"""Steps after which free memory is returned to the system."""
EVALUATIONS = 10
"""The default number of evaluations after a step."""


class Stream(Protocol):
    """Deterministic source of batches, each of which has one or more loss parts."""

    @property
    def heads(self) -> Sequence[nn.Module]:
        """The modules that are trained beside the encoder."""

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


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """How long a run trains, and when it evaluates, saves and stops."""

    epochs: int
    total_steps: int
    accumulate: int = 1
    """Batches whose gradients are averaged into one step."""
    evaluate_every: int | None = None
    """Steps between evaluations; None for a tenth of the run. The weights before the first step and after the last one
    are always evaluated."""
    patience: int | None = None
    """Evaluations in a row without a new best score after which training stops."""
    checkpoint_every: int
    """Steps between checkpoints."""
    ema: float | None = None
    """Decay of the average over the steps that evaluations and the best weights are of; None for no average."""
    start_weight: float = 0.0
    """Share of the encoder's weights before training in those that evaluations and the best weights are of."""

    @property
    def every(self) -> int:
        """Steps between evaluations."""
        return self.evaluate_every or -(-self.total_steps // EVALUATIONS)

    def evaluates(self, step: int) -> bool:
        """Whether the weights after this step are evaluated."""
        return step == self.total_steps or step % self.every == 0


class Trainer(ABC):
    """Trains an encoder together with the heads of the objectives. A subclass says how it is evaluated.

    The weights before training are a candidate for the best ones, so a model that only gets worse is not replaced.

    With several processes, all of them make one and call :meth:`train`, and end with the same weights; the first one
    evaluates and writes.

    Args:
        stream: the batches and their objectives.
        encoder: the encoder, with its weights before training.
        loop: how long to train, and when to evaluate, save and stop.
        optimiser: AdamW's settings, the schedule of the learning rate, and clipping.
        gradients: how the gradient of a batch is computed.
        checkpoints: where to save; None saves nothing.
        rate_factors: factors of the learning rate of single parameters; 1 for all others.
    """

    start_is_candidate = True
    """Whether the weights before training may be the best ones. Those of a new classifier, whose head is random, may
    not."""

    def __init__(
        self,
        stream: Stream,
        encoder: nn.Module,
        *,
        loop: LoopSettings,
        optimiser: OptimiserSettings,
        gradients: Gradients,
        checkpoints: Checkpoints | None = None,
        rate_factors: Mapping[nn.Parameter, float] | None = None,
    ) -> None:
        self.stream, self.loop, self.optimiser, self.gradients = stream, loop, optimiser, gradients
        self.checkpoints = checkpoints
        self.processes = gradients.processes
        modules = {"encoder": encoder} | {f"head{number}": head for number, head in enumerate(stream.heads)}
        self.state = TrainingState(
            modules,
            adamw(encoder, stream.heads, optimiser, rate_factors),
            None if loop.ema is None else WeightAverage(modules, loop.ema),
        )
        start = [StartWeights(encoder, loop.start_weight)] if loop.start_weight else []
        self.averages: list[EvaluatedWeights] = [*([self.state.average] if self.state.average else []), *start]
        """The averages that are evaluated and kept in place of the weights; each is of what the one before left."""
        self.in_flight = int(any(parameter.is_cuda for parameter in encoder.parameters()))
        """Steps whose numbers are not waited for until the next one is started, so that a GPU has always work to do; a
        CPU has computed them at once."""
        self.progress = Progress(processes=self.processes.size)
        self.callbacks: list[TrainingCallback] = []

    @abstractmethod
    def evaluate(self) -> Evaluation:
        """Evaluate the current weights. Called in the first process only."""

    def describe_rows(self, parts: Sequence[LossPart]) -> str:  # noqa: ARG002
        """The rows of a batch, for an error message."""
        return ""

    def train(self) -> None:
        """Train from ``progress`` to the last step, or until ``patience`` evaluations in a row give no new best score.

        ``progress`` is updated in place. Afterwards the modules have the weights of the last step, and ``checkpoints``
        the best ones. Evaluations and the best weights are those of the averages, if there are any.

        Raises:
            NearfarError: a loss or gradient is not finite (the message names step, rows and checkpoint), and has not
                changed the weights; or a checkpoint cannot be written.
            Interrupted: after Ctrl-C, when the current step is done and saved, even if it is the last step.
        """
        loop, progress = self.loop, self.progress
        parameters = [parameter for module in self.state.modules.values() for parameter in module.parameters()]
        batches = self._remaining_batches()
        if progress.start_score is None and progress.step == 0:
            self._evaluate_step()

        launched: list[Iterator[None]] = []
        with _deferred_interrupt() as interrupted:
            stop = False
            while not (progress.finished or stop):
                launched.append(self._step(batches, parameters))
                next(launched[-1])
                _finish(launched, but=self.in_flight)
                if progress.step % TRIM_EVERY == 0:
                    memory.trim()  # blocks between those of other shapes
                if loop.evaluates(progress.step):
                    _finish(launched)
                    self._evaluate_step()
                out_of_patience = loop.patience is not None and progress.without_best >= loop.patience
                progress.finished = progress.step == loop.total_steps or out_of_patience
                stop = self.processes.any_process(interrupted())
                due = progress.step % loop.checkpoint_every == 0 or progress.finished or stop
                if due:
                    _finish(launched)
                if due and self.checkpoints is not None and self.processes.is_main:
                    self.checkpoints.save(progress, self.state)
            # Also after Ctrl-C in the last step or during its save, because the caller may have further runs to do. The
            # reduction makes all processes wait for the checkpoint.
            if self.processes.any_process(interrupted()):
                raise Interrupted

    def _step(self, batches: Iterator[Sequence[LossPart]], parameters: Sequence[nn.Parameter]) -> Iterator[None]:
        """Start the computations of a step, which a GPU continues after the ``yield``; then wait for them, and report.

        Raises:
            NearfarError: the loss or the gradient is not finite; the weights have not changed.
        """
        progress, optimiser, started = self.progress, self.state.optimiser, time.perf_counter()
        set_learning_rate(optimiser, learning_rate_factor(progress.step, self.loop.total_steps, self.optimiser))
        for module in self.state.modules.values():  # an evaluation may have changed their mode
            if not module.training:  # to visit all submodules at each step would take milliseconds
                module.train()
        group = list(islice(batches, self.loop.accumulate))
        parts, items = self.gradients.accumulate_mean(group, step=progress.step)
        self.processes.all_reduce_gradients(parameters)
        norm = self._close(parameters, [value for name, _, value in parts if name == "loss"])

        progress.step += 1
        if self.state.average is not None:
            self.state.average.update(progress.step)
        step, epoch, rate = progress.step, progress.epoch, optimiser.param_groups[0]["lr"]
        read = read_later([("gradient norm", 1.0, norm), *parts])
        seconds = time.perf_counter() - started
        yield
        started = time.perf_counter()
        terms = read()
        length = terms.pop("gradient norm")
        if not (math.isfinite(terms["loss"]) and math.isfinite(length)):
            raise self._not_finite("gradient" if math.isfinite(terms["loss"]) else "loss", step, group)
        seconds += time.perf_counter() - started
        progress.seconds += seconds
        progress.items += items
        for callback in self.callbacks:
            callback.on_step(StepReport(step, epoch, terms, rate, length, items / seconds))

    def _close(self, parameters: Sequence[nn.Parameter], losses: Sequence[Tensor]) -> Tensor:
        """Clip the gradients, step, and remove them; returns their norm before."""
        optimiser, settings = self.state.optimiser, {"max_norm": self.optimiser.max_grad_norm}
        trained = [parameter for parameter in parameters if parameter.grad is not None]
        norm = None
        if self.gradients.recordings is not None:
            norm = self.gradients.recordings.step(optimiser, trained, losses, **settings)
        if norm is None:
            norm = gradient_norm(trained)
            clipped_step(optimiser, norm=norm, also=losses, **settings)
        for parameter in trained:
            parameter.grad = None
        return norm

    def use_averages(self) -> None:
        """Give the modules the weights that are evaluated and kept: the averages, if there are any."""
        for weights in self.averages:
            weights.copy_to_modules()

    def _remaining_batches(self) -> Iterator[Sequence[LossPart]]:
        """The batches from ``progress`` on; updates it to the position after the batch that is yielded."""
        progress = self.progress
        while progress.epoch < self.loop.epochs:
            for parts in self.stream.epoch(progress.epoch, start=progress.batch):
                progress.batch += 1
                yield parts
            progress.epoch, progress.batch = progress.epoch + 1, 0

    def _evaluate_step(self) -> None:
        """Evaluate, and save the weights if they are the best so far; after step 0 those of the averages."""
        progress = self.progress
        memory.trim()  # an evaluation needs other blocks than the steps before it
        with applied(self.averages if progress.step else ()):
            evaluation = self.processes.broadcast_from_first(self.evaluate)
            score, candidate = evaluation.score, progress.step > 0 or self.start_is_candidate
            best = score is not None and progress.record(score, candidate=candidate)
            if best and self.checkpoints is not None and self.processes.is_main:
                self.checkpoints.save_best(self.state)
        for callback in self.callbacks:
            callback.on_evaluate(progress.step, evaluation, best=best)

    def _not_finite(self, what: str, step: int, group: Sequence[Sequence[LossPart]]) -> NearfarError:
        latest = None if self.checkpoints is None else self.checkpoints.latest
        exists = latest is not None and latest.exists()
        saved = f"The last good checkpoint is {latest}" if exists else "No checkpoint was saved yet"
        rows = self.describe_rows([part for parts in group for part in parts])
        return NearfarError(
            f"step {step}: the {what} is not finite, so the run stopped before using it. {saved}. A "
            f"lower --learning-rate or a higher --temperature usually helps. The batch's rows:\n{rows}"
        )


def _finish(launched: list[Iterator[None]], *, but: int = 0) -> None:
    """Finish all steps that were started, but for the last ones."""
    while len(launched) > but:
        next(launched.pop(0), None)


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
