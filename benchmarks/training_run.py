"""A run of ``nearfar train`` that benchmarks advance step by step, and functions to write its rows to a file."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nearfar import TrainConfig
from nearfar.commands.train.prepare import prepare
from nearfar.encoder.training_encoder import TrainingEncoder
from nearfar.runs.run import group_of
from nearfar.training import Evaluation, LoopSettings, StepReport, Trainer
from nearfar.training.gradients import Gradients
from nearfar.training.optimiser import OptimiserSettings
from nearfar.training.processes import Processes

Rows = Sequence[tuple[str, ...]]


class Run(Trainer):
    """A run by the library's training loop, without evaluation or checkpoints."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.losses: list[float] = []
        self.prepared = prepare(config)
        super().__init__(
            self.prepared.mixture,
            self.prepared.encoder,
            loop=group_of(LoopSettings, config, total_steps=0),
            optimiser=group_of(OptimiserSettings, config, epsilon=config.adam_epsilon),
            gradients=group_of(
                Gradients,
                config,
                processes=Processes(),
                bf16=self.prepared.texts.bf16,
                recordings=self.prepared.recordings,
            ),
        )
        self.progress.start_score = 0.0
        self.callbacks.append(self)

    def advance(self, steps: int) -> float:
        """Run some steps; returns the seconds that the loop measures for them."""
        before, self.progress.finished = self.progress.seconds, False
        last = self.progress.step + steps
        self.loop = replace(self.loop, total_steps=last, evaluate_every=last, checkpoint_every=last, patience=None)
        self.train()
        return self.progress.seconds - before

    def evaluate(self) -> Evaluation:
        """Score nothing."""
        return Evaluation(0.0, {})

    def on_step(self, report: StepReport) -> None:
        """Record the loss; the loop raises an error if it is not finite."""
        self.losses.append(report.terms["loss"])

    def on_evaluate(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        """Do nothing."""

    def tokenization_seconds(self, texts: Sequence[str]) -> float:
        """Seconds to tokenise the texts in the same way as the preparation of the run."""
        fresh = TrainingEncoder(
            self.prepared.encoder,
            max_length=self.config.train_max_length,
            bf16=False,
            broadcast_from_first=Processes().broadcast_from_first,
        )
        started = time.perf_counter()
        fresh.read([texts])
        return time.perf_counter() - started


def write_rows(file: Path, columns: Sequence[str], rows: Rows) -> Path:
    """Write rows as a TSV file; the loaders guarantee that texts contain no tabs or line breaks."""
    file.write_text("".join("\t".join(row) + "\n" for row in (tuple(columns), *rows)), encoding="utf-8")
    return file


def tokens_of(run: Run, batches: Sequence[Any]) -> tuple[int, int]:
    """Number of tokens of all texts of the batches, and of the distinct texts of each batch."""
    everything = distinct = 0
    for batch in batches:
        lengths = run.prepared.texts.ids(batch.sentences).lengths.tolist()
        columns = batch.columns
        everything += sum(lengths[place] for column in columns for place in column)
        distinct += sum(lengths)
    return everything, distinct
