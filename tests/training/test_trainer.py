"""The loop of training on a toy encoder: what it calls and when, when it stops, and that it continues exactly."""

from collections.abc import Iterator, Sequence
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
