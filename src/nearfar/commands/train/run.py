"""The training of an encoder, as a run: what it evaluates, saves and records, and the vectors of its teachers.

These are computed before the first step, and kept in the run folder while it is unfinished. ``teacher-KEY.npy`` holds
the vectors of all texts. KEY is a hash of teacher, texts and precision, so that vectors of other texts are never read.
While it is computed, finished parts are in ``teacher-KEY``, and a run that is stopped there continues after them. The
file takes 4 * dim bytes for each text.
"""

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.commands.encode.parts import Piece, store_part
from nearfar.commands.encode.plan import finished_parts
from nearfar.commands.encode.vectors import PART_TEXTS, join_parts, plan_of_texts, read_vectors_file
from nearfar.commands.train.dev import dev_evaluation
from nearfar.commands.train.inputs import Inputs
from nearfar.commands.train.prepare import PreparedRun
from nearfar.config import RunConfig
from nearfar.disk import remove, write_seen
from nearfar.disk.places import LocalFolder
from nearfar.encoder.teacher import TeacherVectors
from nearfar.encoder.token_batches import truncation_message
from nearfar.runs.fingerprints import fingerprint_model
from nearfar.runs.folder import RunFolder
from nearfar.runs.run import ProcessContext, Run
from nearfar.runtime.progress import progress_bar
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
        self._trained = [used for used, _ in inputs.rows.texts_and_targets().values()]
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


def attach_teacher_vectors(
    teachers: Sequence[TeacherVectors], folder: Path, processes: Processes, *, progress: bool
) -> None:
    """Give each teacher the vectors of its texts, from its file in the run folder; what is missing is computed first.

    The first process computes and writes, block by block. A process that cannot read its file, because it is on another
    machine, computes the vectors itself.

    Raises:
        NearfarError: a vector is not finite (the message names teacher and text), or a file cannot be written.
    """
    for teacher in teachers:
        file = processes.broadcast_from_first(partial(_file, teacher, folder))
        if processes.broadcast_from_first(partial(_is_missing, file, teacher)):
            _compute(teacher, file, processes, progress=progress)
        vectors = read_vectors_file(file, (len(teacher.texts), teacher.dim))
        if vectors is None:
            starts = range(0, len(teacher.texts), PART_TEXTS)
            vectors = np.concatenate([_encode(teacher, start, start + PART_TEXTS) for start in starts])
        teacher.attach(vectors)


def discard_teacher_vectors(folder: Path) -> None:
    """Remove the files of all teachers from a run folder.

    Raises:
        NearfarError: one cannot be deleted.
    """
    for file in sorted(folder.glob("teacher-*")):
        remove(file)


def _file(teacher: TeacherVectors, folder: Path) -> Path:
    return folder / f"teacher-{teacher.key(fingerprint_model(teacher.name))}.npy"


def _compute(teacher: TeacherVectors, file: Path, processes: Processes, *, progress: bool) -> None:
    """Compute the parts that are not there yet, and then join them."""
    plan = plan_of_texts(teacher.texts, teacher.dim, {"teacher": file.name})
    place = LocalFolder(str(file.with_suffix("")))
    folder = place.shared

    def compute(part: int) -> None:
        start, stop = plan.row_range(part)
        vectors = _encode(teacher, start, stop)
        store_part(place, plan, part, [Piece(start, vectors, len(vectors), 0)], folder)

    def finish() -> None:
        join_parts(place, plan, file)
        remove(folder)

    finished = processes.broadcast_from_first(lambda: set(finished_parts(place, plan)))
    done = sum(stop - start for start, stop in map(plan.row_range, finished))
    with progress_bar("teacher", plan.rows, done=done, shown=progress and processes.is_main) as advance:
        for part in range(plan.parts):
            if part not in finished:
                processes.broadcast_from_first(partial(compute, part))
                start, stop = plan.row_range(part)
                advance(stop - start)
    processes.broadcast_from_first(finish)
    if teacher.truncated:
        warnings.warn(
            f"teacher {teacher.name}: {truncation_message(teacher.truncated, plan.rows, teacher.max_length)}",
            stacklevel=2,
        )


def _encode(teacher: TeacherVectors, start: int, stop: int) -> NDArray[np.float32]:
    try:
        return teacher.encode(start, stop)
    except NearfarError as error:
        raise NearfarError(f"--teacher {teacher.name}: {error}") from error


def _is_missing(file: Path, teacher: TeacherVectors) -> bool:
    return read_vectors_file(file, (len(teacher.texts), teacher.dim)) is None
