"""The training of an encoder, as a run: what it evaluates, saves and records."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearfar.commands.train.dev import dev_evaluation
from nearfar.commands.train.inputs import Inputs
from nearfar.commands.train.prepare import PreparedRun
from nearfar.commands.train.teacher import attach_teacher_vectors, discard_teacher_vectors
from nearfar.config import TrainConfig
from nearfar.disk import write_seen
from nearfar.runs.folder import RunFolder
from nearfar.runs.run import ProcessContext, Run
from nearfar.training.trainer import Evaluation, Interrupted


class EncoderRun(Run):
    """Trains an encoder on the rows of one or two objectives, and saves it as a sentence-transformers folder."""

    def __init__(
        self,
        config: TrainConfig,
        prepared: PreparedRun,
        inputs: Inputs,
        *,
        folder: RunFolder,
        context: ProcessContext,
        files: Mapping[str, str],
    ) -> None:
        super().__init__(
            config,
            prepared,
            folder=folder,
            context=context,
            files=files,
            metric=inputs.dev.metric or "",
            evaluated_on=inputs.dev.shown,
        )
        self.facts = [*prepared.facts, *inputs.facts]
        self.prepared, self.encoder, self.dev = prepared, prepared.encoder, inputs.dev
        self._evaluate_dev = dev_evaluation(self.encoder, inputs.dev, config.precision, context.console)
        self._trained = [used for used, _ in inputs.rows.fingerprint_inputs(config).values()]
        self._dev_rows = inputs.dev_rows

    def evaluate(self) -> Evaluation:
        """Score the encoder on the dev set, and measure the geometry of its embeddings."""
        return self._evaluate_dev()

    def before_training(self) -> None:
        """Compute the vectors of the teachers. Ctrl-C ends the run as it does during training."""
        try:
            attach_teacher_vectors(
                self.prepared.teachers, self.folder.path, self.processes, progress=self.console.is_terminal
            )
        except KeyboardInterrupt:
            raise Interrupted from None

    def save_model(self, folder: Path) -> None:
        """Write the encoder, without adapters and heads, and with the hashes of the texts that it has seen."""
        self.prepared.merge()
        self.encoder.seen = self.seen_with(self.encoder.seen, self._trained, self._dev_rows)
        self.encoder.save_pretrained(folder)

    def conclude(self) -> dict[str, Any]:
        """Write the hashes into the run folder too; name the dev set."""
        write_seen(self.folder.path, self.encoder.seen)
        return {"dev": self.dev.name, "metric": self.dev.metric}

    def discard(self) -> None:
        """Remove the vectors of the teachers."""
        discard_teacher_vectors(self.folder.path)
