"""A run of ``nearfar train`` that benchmarks advance step by step, and functions to write its rows to a file."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nearfar.commands.train.prepare import prepare
from nearfar.config import TrainConfig
from nearfar.data.batching import NliBatch
from nearfar.encoder.training_encoder import TrainingEncoder
from nearfar.training import loop
from nearfar.training.checkpoint import Progress
from nearfar.training.gradients import Gradients
from nearfar.training.optimiser import adamw
from nearfar.training.processes import Processes

Rows = Sequence[tuple[str, ...]]


class NoCheckpoints:
    """Saves nothing."""

    latest = None

    def save(self, *_: object, **__: object) -> None:
        """Do nothing."""

    def save_best(self, *_: object, **__: object) -> None:
        """Do nothing."""


class Run:
    """A run by the library's training loop, without evaluation or checkpoints."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.prepared = prepare(config)
        self.progress = Progress(start_score=0.0)
        self.losses: list[float] = []
        self._optimiser = adamw(
            self.prepared.encoder,
            self.prepared.mixture.heads,
            learning_rate=config.learning_rate,
            head_learning_rate=config.head_learning_rate,
            weight_decay=config.weight_decay,
            beta2=config.beta2,
            epsilon=config.adam_epsilon,
        )

    def advance(self, steps: int) -> float:
        """Run some steps; returns the seconds that the loop measures for them."""
        before, self.progress.finished = self.progress.seconds, False
        heads = {f"head{number}": head for number, head in enumerate(self.prepared.mixture.heads)}
        loop.run(
            self.prepared.mixture,
            Gradients(
                self.config.seed,
                Processes(),
                self.config.micro_batch,
                self.config.micro_batch_tokens,
                bf16=self.prepared.texts.bf16,
            ),
            modules={"encoder": self.prepared.encoder, **heads},
            optimiser=self._optimiser,
            checkpoints=NoCheckpoints(),
            callbacks=(self,),
            evaluate=lambda: loop.Evaluation(0.0, {}),
            describe_rows=lambda _: "",
            progress=self.progress,
            epochs=self.config.epochs,
            total_steps=self.progress.step + steps,
            accumulate=self.config.accumulate,
            warmup=self.config.warmup,
            schedule=self.config.schedule,
            max_grad_norm=self.config.max_grad_norm,
            evaluate_every=self.progress.step + steps,
            patience=None,
            checkpoint_every=self.progress.step + steps,
        )
        return self.progress.seconds - before

    def on_step(self, report: loop.StepReport) -> None:
        """Record the loss; the loop raises an error if it is not finite."""
        self.losses.append(report.terms["loss"])

    def on_evaluate(self, step: int, evaluation: loop.Evaluation, *, best: bool) -> None:
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
        columns = (batch.premises, batch.hypotheses) if isinstance(batch, NliBatch) else batch.columns
        everything += sum(lengths[place] for column in columns for place in column)
        distinct += sum(lengths)
    return everything, distinct
