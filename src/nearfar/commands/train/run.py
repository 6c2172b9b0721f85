"""The training of an encoder, as a run: what it evaluates, saves and records, and the vectors of its teachers.

These are computed before the first step, by the pipeline of :mod:`nearfar.commands.encode.vectors`, in the folder
``teachers`` of the run folder, which is there while the run is unfinished: a run that is stopped continues after the
blocks that are finished. They take 4 * dim bytes for each text.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.commands.encode.progress import progress_bar
from nearfar.commands.encode.vectors import encode_texts, read_vectors_file
from nearfar.commands.train.inputs import Inputs
from nearfar.commands.train.prepare import PreparedRun
from nearfar.config import RunConfig
from nearfar.disk import write_seen
from nearfar.encoder.teacher import TeacherVectors
from nearfar.encoder.token_batches import NotFiniteError
from nearfar.evaluation.geometry_measures import collapse_warning, geometry
from nearfar.runs.fingerprints import fingerprint_model
from nearfar.runs.folder import TEACHERS, RunFolder
from nearfar.runs.run import ProcessContext, Run
from nearfar.training.processes import Processes
from nearfar.training.trainer import Evaluation, Interrupted
from nearfar.types import NearfarError


class EncoderRun(Run):
    """Trains an encoder on the rows of one or two objectives, and saves it as a sentence-transformers folder."""

    def __init__(
        self,
        config: RunConfig,
        prepared: PreparedRun,
        inputs: Inputs,
        *,
        folder: RunFolder,
        context: ProcessContext,
    ) -> None:
        super().__init__(
            config,
            prepared,
            folder=folder,
            context=context,
            metric=inputs.dev.metric or "",
            evaluated_on=inputs.dev.shown,
        )
        self.facts = [*prepared.facts, *inputs.dev.facts]
        self.prepared, self.encoder, self.dev = prepared, prepared.encoder, inputs.dev
        self._trained = [part.texts for part in inputs.data]
        self.warned_of_collapse = self.has_score = False

    def evaluate(self) -> Evaluation:
        """Score the encoder on the dev set, and measure the geometry of its embeddings.

        Warns once if the embeddings have collapsed.
        """
        try:
            measured = self.dev.measure(self.encoder, self.config.precision)
            measures = geometry(measured.vectors, measured.positives)
            warning = collapse_warning(measures)
            if warning and not self.warned_of_collapse:
                self.console.print(f"warning: {warning}", highlight=False, style="yellow")
                self.warned_of_collapse = True
            score = measured.score()
        except NearfarError as error:
            if not self.has_score:
                raise
            raise NearfarError(f"training diverged or collapsed; choose a lower --learning-rate. {error}") from error
        self.has_score = True
        return Evaluation(score, measures)

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
        self.encoder.seen = self.seen_with(self.encoder.seen, self._trained, self.dev.rows)
        self.encoder.save_pretrained(folder)

    def conclude(self) -> dict[str, Any]:
        """Write the hashes into the run folder too; name the dev set, and say if no step was better than the start."""
        write_seen(self.folder.path, self.encoder.seen)
        start, best = self.progress.start_score, self.progress.best_score
        if start is not None and best is not None and best <= start:
            advice = "Try a lower --learning-rate."
            self.console.print(
                f"No step scored higher on {self.dev.name} than the untrained encoder. {advice}", markup=False
            )
        return {"dev": self.dev.name, "metric": self.dev.metric}


def attach_teacher_vectors(
    teachers: Sequence[TeacherVectors], folder: Path, processes: Processes, *, progress: bool
) -> None:
    """Give each teacher the vectors of its texts, from the run folder; what is missing there is computed first.

    The first process computes and writes. A process that cannot read its file, because it is on another machine,
    computes the vectors itself.

    Raises:
        NearfarError: a vector is not finite (the message names teacher and text), or a file cannot be written.
    """
    for teacher in teachers:
        with progress_bar("teacher", len(teacher.texts), shown=progress and processes.is_main) as advance:
            compute = partial(_compute, teacher, folder / TEACHERS, processes, advance)
            while not (file := processes.broadcast_from_first(compute)):
                continue  # the first process is still computing
        vectors = read_vectors_file(folder / TEACHERS / file, (len(teacher.texts), teacher.dim))
        if vectors is None:
            with TemporaryDirectory() as temporary:
                vectors = np.array(_encode(teacher, Path(temporary), lambda _: None))
        teacher.attach(vectors)


def _compute(teacher: TeacherVectors, folder: Path, processes: Processes, advance: Callable[[int], None]) -> str:
    """Compute the vectors that are not there yet; the name of the file with all of them.

    The other processes get a sign of life, an empty name, for each batch: they would not wait for all vectors.
    """

    def tell(texts: int) -> None:
        advance(texts)
        processes.broadcast_from_first(str)

    folder.mkdir(exist_ok=True)
    return Path(_encode(teacher, folder, tell).filename).name  # type: ignore[attr-defined]


def _encode(teacher: TeacherVectors, folder: Path, on_texts: Callable[[int], None]) -> NDArray[np.float32]:
    try:
        return encode_texts(
            folder,
            teacher.texts,
            teacher.encoder,
            model=fingerprint_model(teacher.name),
            prompt=teacher.encoder.resolve_prompt(),
            bf16=teacher.bf16,
            normalize=False,
            on_texts=on_texts,
            what=f"teacher {teacher.name}: ",
        )
    except NotFiniteError as error:
        raise NearfarError(f"--teacher {teacher.name}: {error}") from error
