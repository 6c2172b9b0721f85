"""The vectors of a run's teachers: computed before the first step, and kept in the run folder while it is unfinished.

``teacher-KEY.npy`` holds the vectors of all texts. KEY is a hash of teacher, texts and precision, so that vectors of
other texts are never read. While it is computed, finished blocks are in ``teacher-KEY.npy.partial``, and a run that is
stopped there continues after them. The file takes 4 * dim bytes for each text.
"""

import warnings
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nearfar.commands.encode.output import PartialOutput, output_lock
from nearfar.commands.encode.progress import progress_bar
from nearfar.disk import check_regular, remove
from nearfar.encoder.token_batches import truncation_message
from nearfar.runs.fingerprints import fingerprint_model
from nearfar.types import ARRAY_ERRORS, NearfarError

if TYPE_CHECKING:
    from nearfar.encoder.teacher import TeacherVectors
    from nearfar.training.processes import Processes

BLOCK = 2**11
"""Number of texts that are encoded and saved together."""


def attach_teacher_vectors(
    teachers: "Sequence[TeacherVectors]", folder: Path, processes: "Processes", *, progress: bool
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
        vectors = _read(file, teacher)
        if vectors is None:
            vectors = np.concatenate([_encode(teacher, start) for start in range(0, len(teacher.texts), BLOCK)])
        teacher.attach(vectors)


def discard_teacher_vectors(folder: Path) -> None:
    """Remove the files of all teachers from a run folder.

    Raises:
        NearfarError: one cannot be deleted.
    """
    for file in sorted(folder.glob("teacher-*.npy*")):
        remove(file)


def _file(teacher: "TeacherVectors", folder: Path) -> Path:
    return folder / f"teacher-{teacher.key(fingerprint_model(teacher.name))}.npy"


def _compute(teacher: "TeacherVectors", file: Path, processes: "Processes", *, progress: bool) -> None:
    """Compute the blocks that are not yet in the partial file, and then rename it."""
    with ExitStack() as stack:
        found: list[PartialOutput] = []

        def begin() -> set[int]:
            stack.enter_context(output_lock(file))
            shape, settings = (len(teacher.texts), teacher.dim), {"texts": len(teacher.texts)}
            found.append(PartialOutput(file, shape, "float32", settings, resume=True, overwrite=True))
            return set(found[0].blocks)

        def compute(start: int) -> None:
            vectors = _encode(teacher, start)
            found[0].write(start, vectors, distinct=len(vectors), cut=0)

        finished = processes.broadcast_from_first(begin)
        total, done = len(teacher.texts), sum(min(BLOCK, len(teacher.texts) - start) for start in finished)
        with progress_bar("teacher", total, done=done, shown=progress and processes.is_main) as advance:
            for start in range(0, total, BLOCK):
                if start not in finished:
                    processes.broadcast_from_first(partial(compute, start))
                    advance(min(BLOCK, total - start))

        def finish() -> None:
            found[0].finish()

        processes.broadcast_from_first(finish)
    if teacher.truncated:
        warnings.warn(
            f"teacher {teacher.name}: {truncation_message(teacher.truncated, total, teacher.max_length)}", stacklevel=2
        )


def _encode(teacher: "TeacherVectors", start: int) -> NDArray[np.float32]:
    try:
        return teacher.encode(start, start + BLOCK)
    except NearfarError as error:
        raise NearfarError(f"--teacher {teacher.name}: {error}") from error


def _is_missing(file: Path, teacher: "TeacherVectors") -> bool:
    return _read(file, teacher) is None


def _read(file: Path, teacher: "TeacherVectors") -> NDArray[np.float32] | None:
    """The vectors in a file, memory-mapped; None if there is no such file or it is damaged."""
    with suppress(*ARRAY_ERRORS):
        check_regular(file)
        vectors: NDArray[np.float32] = np.load(file, mmap_mode="r", allow_pickle=False)
        if vectors.shape == (len(teacher.texts), teacher.dim) and vectors.dtype == np.dtype("float32"):
            return vectors
    return None
