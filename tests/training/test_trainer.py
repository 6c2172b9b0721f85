"""The loop of training on a toy encoder: what it calls and when, when it stops, and that it continues exactly."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nearfar.methods import Loss, Method
from nearfar.training import Evaluation, LoopSettings, StepReport, Trainer
from nearfar.training.checkpoint import Checkpoints
from nearfar.training.gradients import Gradients, LossPart
from nearfar.training.optimiser import OptimiserSettings
from nearfar.training.processes import Processes
from nearfar.types import NearfarError

STEPS_OF_AN_EPOCH = 5


class ToyStream:
    """Batches of two numbers, which the encoder shall map to 0."""

    heads: Sequence[nn.Module] = ()

    def __init__(self, encoder: nn.Linear) -> None:
        self.method = Method(
            name="toy",
            batches=None,  # type: ignore[arg-type]
            extract_items=lambda batch: batch,
            represent=lambda items: encoder(torch.tensor(items)[:, None]),
            loss_fn=lambda _, rows: Loss(rows.square().mean(), {}),
            describe=lambda batch: [str(batch)],
        )

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Sequence[LossPart]]:
        for number in range(start, STEPS_OF_AN_EPOCH):
            step = epoch * STEPS_OF_AN_EPOCH + number
            yield [(self.method, [float(step), 1.0], 1.0)]


class ToyTrainer(Trainer):
    """Records what the loop does; its scores are given."""

    def __init__(
        self, scores: Sequence[float] = (0.0,) * 20, *, checkpoints: Checkpoints | None = None, **loop: Any
    ) -> None:
        torch.manual_seed(0)
        encoder = nn.Linear(1, 2)
        settings = {"epochs": 2, "total_steps": 10, "evaluate_every": 3, "checkpoint_every": 2, **loop}
        super().__init__(
            ToyStream(encoder),
            encoder,
            loop=LoopSettings(**settings),
            optimiser=OptimiserSettings(learning_rate=0.1, schedule="linear", warmup=0.3),
            gradients=Gradients(1, Processes()),
            checkpoints=checkpoints,
        )
        self.encoder, self.scores = encoder, iter(scores)
        self.seen: list[tuple[float, ...]] = []
        self.evaluated: list[tuple[int, bool]] = []
        self.stop_at: int | None = None
        self.callbacks.append(self)

    def evaluate(self) -> Evaluation:
        self.seen.append(tuple(self.encoder.weight.flatten().tolist()))
        return Evaluation(next(self.scores), {})

    def on_step(self, report: StepReport) -> None:
        if report.step == self.stop_at:
            raise KeyboardInterrupt

    def on_evaluate(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        self.evaluated.append((step, best))


def test_it_evaluates_before_training_every_few_steps_and_at_the_end() -> None:
    trainer = ToyTrainer([0.1, 0.3, 0.2, 0.4, 0.4])
    trainer.train()
    assert trainer.evaluated == [(0, True), (3, True), (6, False), (9, True), (10, False)]
    progress = trainer.progress
    assert (progress.step, progress.epoch, progress.finished, progress.items) == (10, 1, True, 20)
    assert (progress.start_score, progress.best_score, progress.best_step) == (0.1, 0.4, 9)


@pytest.mark.parametrize(
    ("steps", "every", "expected"),
    [
        (41, None, [5, 10, 15, 20, 25, 30, 35, 40, 41]),
        (4, None, [1, 2, 3, 4]),
        (100_000, None, [10_000 * n for n in range(1, 11)]),
        (41, 100, [41]),
        (41, 20, [20, 40, 41]),
    ],
)
def test_a_run_of_any_length_is_evaluated_about_ten_times(steps: int, every: int | None, expected: list[int]) -> None:
    loop = LoopSettings(epochs=1, total_steps=steps, evaluate_every=every, checkpoint_every=1)
    assert [step for step in range(1, steps + 1) if loop.evaluates(step)] == expected


@pytest.mark.parametrize(("candidate", "best", "kept"), [(True, (0.9, 0), 0), (False, (0.3, 3), 1)])
def test_the_weights_before_training_are_kept_if_no_step_is_better(
    candidate: bool, best: tuple[float, int], kept: int, tmp_path: Path
) -> None:
    trainer = ToyTrainer([0.9, 0.3, 0.2, 0.3, 0.1], checkpoints=Checkpoints(tmp_path), ema=0.9)
    trainer.start_is_candidate = candidate
    trainer.train()
    progress = trainer.progress
    assert (progress.start_score, progress.best_score, progress.best_step) == (0.9, *best)
    assert [step for step, _ in progress.history] == [3, 6, 9, 10]
    Checkpoints(tmp_path).load_best(trainer.state)
    assert tuple(trainer.encoder.weight.flatten().tolist()) == trainer.seen[kept]


def test_it_stops_when_patience_ends() -> None:
    trainer = ToyTrainer([0.0, 0.5, 0.4, 0.3, 0.6], patience=2)
    trainer.train()
    assert (trainer.progress.step, trainer.progress.best_step) == (9, 3)


def test_the_average_is_evaluated_and_training_goes_on_with_the_weights() -> None:
    plain, averaged = ToyTrainer(), ToyTrainer(ema=0.9)
    plain.train()
    averaged.train()
    assert torch.equal(plain.encoder.weight, averaged.encoder.weight)
    assert plain.seen[0] == averaged.seen[0]
    assert all(one != other for one, other in zip(plain.seen[1:], averaged.seen[1:], strict=True))
    averaged.use_averages()
    assert tuple(averaged.encoder.weight.flatten().tolist()) == averaged.seen[-1]


@pytest.mark.parametrize("stop_at", [1, 4, 5, 9])
def test_a_trainer_continues_exactly_from_the_checkpoint_of_another(stop_at: int, tmp_path: Path) -> None:
    whole = ToyTrainer(ema=0.9)
    whole.train()
    stopped = ToyTrainer(ema=0.9, checkpoints=Checkpoints(tmp_path))
    stopped.stop_at = stop_at
    with pytest.raises(KeyboardInterrupt):
        stopped.train()
    again = ToyTrainer(ema=0.9, checkpoints=Checkpoints(tmp_path))
    again.progress = Checkpoints(tmp_path).load(again.state)
    assert again.progress.step == 2 * ((stop_at - 1) // 2)
    again.train()
    assert torch.equal(again.encoder.weight, whole.encoder.weight)
    ours, theirs = (trainer.state.files()["average.safetensors"] for trainer in (again, whole))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
    assert (again.progress.history, again.seen[-1]) == (whole.progress.history, whole.seen[-1])


class RecordingTrainer(ToyTrainer):
    """Also records which batches were computed when, and what the steps report."""

    def __init__(self, *, in_flight: int, broken: int | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.in_flight = in_flight
        self.events: list[str] = []
        self.reports: list[StepReport] = []
        method, computed = self.stream.method, iter(range(1, 100))

        def loss(batch: Any, rows: torch.Tensor) -> Loss:
            self.events.append(f"computed {(number := next(computed))}")
            value = method.loss_fn(batch, rows).value
            return Loss(value * float("nan") if number == broken else value, {"half": value.detach() / 2})

        self.stream.method = replace(method, loss_fn=loss)

    def on_step(self, report: StepReport) -> None:
        self.events.append(f"reported {report.step}")
        self.reports.append(report._replace(items_per_second=0.0))

    def on_evaluate(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        super().on_evaluate(step, evaluation, best=best)
        self.events.append(f"evaluated {step}")

    def describe_rows(self, parts: Sequence[LossPart]) -> str:
        return "\n".join(str(batch) for _, batch, _ in parts)


def test_on_a_gpu_a_step_is_reported_when_the_next_one_is_started(tmp_path: Path) -> None:
    """But before anything is evaluated or saved; what it reports and the weights are the same."""
    settings: dict[str, Any] = {"ema": 0.9, "evaluate_every": 4, "checkpoint_every": 7, "accumulate": 1}
    waiting = RecordingTrainer(in_flight=0, checkpoints=Checkpoints(tmp_path / "one"), **settings)
    late = RecordingTrainer(in_flight=1, checkpoints=Checkpoints(tmp_path / "other"), **settings)
    for trainer in (waiting, late):
        trainer.train()
    assert [report.step for report in late.reports] == list(range(1, 11))
    assert late.reports == waiting.reports
    assert (late.evaluated, late.seen) == (waiting.evaluated, waiting.seen)
    assert torch.equal(late.encoder.weight, waiting.encoder.weight)
    assert late.progress.items == waiting.progress.items == 20
    assert waiting.events[:5] == ["evaluated 0", "computed 1", "reported 1", "computed 2", "reported 2"]
    steps = [1, 2, "reported 1", 3, "reported 2", 4, "reported 3", "reported 4", "evaluated 4"]
    steps += [5, 6, "reported 5", 7, "reported 6", "reported 7", 8, "reported 8", "evaluated 8"]
    steps += [9, 10, "reported 9", "reported 10", "evaluated 10"]
    assert late.events == ["evaluated 0", *(step if isinstance(step, str) else f"computed {step}" for step in steps)]


@pytest.mark.parametrize("in_flight", [0, 1])
def test_a_step_that_is_not_finite_is_named_and_not_used(in_flight: int, tmp_path: Path) -> None:
    """Also if the next one was started before it was noticed; the checkpoint is that before it."""
    settings: dict[str, Any] = {"evaluate_every": 10, "checkpoint_every": 3}
    trainer = RecordingTrainer(in_flight=in_flight, broken=5, checkpoints=Checkpoints(tmp_path), **settings)
    with pytest.raises(NearfarError, match=r"(?s)step 5: the loss is not finite.*checkpoint.*rows:\n\[4.0, 1.0\]$"):
        trainer.train()
    assert trainer.events[-1] == ("computed 5" if in_flight == 0 else "computed 6")
    assert [report.step for report in trainer.reports] == [1, 2, 3, 4]
    assert trainer.encoder.weight.isfinite().all()
    assert Checkpoints(tmp_path).load(trainer.state).step == 3
