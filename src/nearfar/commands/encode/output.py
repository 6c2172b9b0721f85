"""The output of ``nearfar encode``: finished blocks in ``OUTPUT.partial``, and at the end the complete file.

The folder holds ``vectors.npy``, allocated at its full size; ``blocks.jsonl``, one line for each block whose vectors
are on the disk; ``ranges.npy``, once the ranges of int8 embeddings are known; ``finishing``, once files are moved to
their final places; and ``settings.json``, which exists while there is something to resume.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.commands.encode.array_file import format_bytes, npy_header, sync
from nearfar.commands.encode.parquet import write_parquet
from nearfar.config import flag, join_changes
from nearfar.disk import (
    FolderBusyError,
    disk_errors,
    flush,
    flush_entries,
    folder_lock,
    read_bytes,
    read_errors,
    read_json,
    write_text,
)
from nearfar.encoder.precision import RECORDED_PRECISIONS
from nearfar.types import NearfarError

ROW_GROUP = 2**14
"""Number of rows in a row group of a parquet file."""
FINISHING = "finishing"
"""The file that marks a folder whose files are being moved to their final places."""


@contextmanager
def output_lock(output: Path) -> Iterator[None]:
    """Create and lock ``OUTPUT.partial``; at the end, unlock it and remove it if it is empty.

    Raises:
        NearfarError: another process holds the lock, or the folder cannot be created.
    """
    with folder_lock(partial_folder(output), what=output, remove_if_empty=True):
        yield


class PartialOutput:
    """The vectors [texts, dim] of an incomplete output. Use it inside :func:`output_lock`.

    Args:
        output: the final file, .npy or .parquet.
        shape: (texts, dim).
        dtype: data type of the vectors in the file.
        settings: everything that determines the bytes of the file; must be serialisable as JSON.
        resume: continue an interrupted run, if there is one.
        overwrite: replace an output that exists.
        final_dtype: data type that :meth:`convert` will give the complete vectors; None if they stay as they are.

    Raises:
        NearfarError: an interrupted run exists and ``resume`` is not set, or its settings differ; the output exists;
            too little disk space, or a file cannot be written.
    """

    def __init__(
        self,
        output: Path,
        shape: tuple[int, int],
        dtype: str,
        settings: Mapping[str, Any],
        *,
        resume: bool = False,
        overwrite: bool = False,
        final_dtype: str | None = None,
    ) -> None:
        self.output, self.shape, self.dtype = output, shape, np.dtype(dtype).newbyteorder("<")
        self._final = np.dtype(final_dtype or dtype).newbyteorder("<")
        self.folder = partial_folder(output)
        self._vectors, self._log = self.folder / "vectors.npy", self.folder / "blocks.jsonl"
        self._settings, self._table = self.folder / "settings.json", self.folder / "table.parquet"
        self._converted, self._finishing = self.folder / "converted.npy", self.folder / FINISHING
        self.ranges = self.folder / "ranges.npy"
        """A file that :meth:`finish` moves to :func:`ranges_file`, if it exists."""
        self.blocks: dict[int, dict[str, int]] = {}
        """The finished blocks, by the index of their first text."""
        if self._settings.exists():
            self._resume(settings, resume=resume)
        elif output.exists() and not overwrite:  # another process has finished it since the check
            raise NearfarError(f"{output}: exists; replace it with --overwrite, or choose another --output.")
        self._header = npy_header(shape, self.dtype)
        with disk_errors(output):
            if not (self.renamed or self._written):
                self._check_disk_space()
            if not self._settings.exists():
                self._begin(settings)

    @property
    def done(self) -> int:
        """Number of texts whose vectors are in the file."""
        return sum(block["texts"] for block in self.blocks.values())

    @property
    def is_complete(self) -> bool:
        """Whether all texts are encoded."""
        return self.renamed or self._written or self.done == self.shape[0]

    @property
    def renamed(self) -> bool:
        """Whether an earlier run has already moved the complete file to ``output``."""
        return is_renamed(self.output)

    @property
    def _written(self) -> bool:
        """Whether the parquet file is complete and only has to be moved to ``output``."""
        return self._table.exists() and not self._vectors.exists()

    def write(self, start: int, vectors: NDArray[Any], **counts: int) -> None:
        """Write the vectors of a block, flush them to the disk, and then record the block with its ``counts``.

        Raises:
            NearfarError: the disk is full or a file cannot be written; blocks recorded before stay valid.
        """
        place = len(self._header) + start * self.shape[1] * self.dtype.itemsize
        block = {"start": start, "texts": len(vectors), **counts}
        with disk_errors(self.output):
            with self._vectors.open("r+b") as stream:
                stream.seek(place)
                stream.write(np.ascontiguousarray(vectors, dtype=self.dtype).data)
                sync(stream)
            with self._log.open("ab") as stream:
                stream.write(json.dumps(block).encode() + b"\n")
                sync(stream)
        self.blocks[start] = block

    @property
    def is_converted(self) -> bool:
        """Whether the vectors have their final data type, as they always do without ``final_dtype``."""
        return self.renamed or self._written or self.dtype == self._final

    def stored(self, rows: int) -> Iterator[NDArray[Any]]:
        """The vectors of all texts, at most ``rows`` at a time.

        Raises:
            NearfarError: the file cannot be read.
        """
        with read_errors(self._vectors), self._vectors.open("rb") as stream:
            stream.seek(len(self._header))
            for start in range(0, self.shape[0], rows):
                block = np.empty((min(rows, self.shape[0] - start), self.shape[1]), self.dtype)
                if stream.readinto(block.data.cast("B")) < block.nbytes:
                    raise NearfarError(f"{self._vectors}: is damaged. Remove {self.folder} to start again.")
                yield block

    def convert(self, quantized: Iterator[NDArray[Any]]) -> None:
        """Replace the vectors, all of which must be finished, by ``quantized``, blocks of the same vectors in order."""
        header = npy_header(self.shape, self._final)
        with disk_errors(self.output):
            with self._converted.open("wb") as stream:
                stream.write(header)
                for block in quantized:
                    stream.write(np.ascontiguousarray(block, dtype=self._final).data)
                sync(stream)
            self._converted.replace(self._vectors)
            flush(self._vectors)
        self.dtype, self._header = self._final, header

    def finish(self, texts: Iterator[str] | None = None) -> None:
        """Move the complete file to ``output``, as parquet with ``texts`` if given, and remove all other files.

        From the first move on, the folder is marked, so that a resumed run may replace ``output``: a disk that loses
        its power may keep both names of a file that was moved.
        """
        with disk_errors(self.output):
            if not self.renamed:
                self._finishing.touch()
                flush(self._finishing)
            if not self.renamed and self.output.suffix == ".parquet":
                if self._vectors.exists():
                    write_parquet(self._table, self.stored(ROW_GROUP), self.shape[1], self.dtype, texts)
                    flush(self._table)
                    self._vectors.unlink()  # now the table is the only copy
                self._move_ranges()
                _move(self._table, self.output)
            elif not self.renamed:
                self._move_ranges()
                _move(self._vectors, self.output)
            flush(self.output)
            flush_entries(self.folder)
            for file in (self._log, self._finishing):
                file.unlink(missing_ok=True)
            flush_entries(self.folder)
            self._settings.unlink()  # last: without it, nothing continues or removes what is left
            flush_entries(self.folder)

    def _move_ranges(self) -> None:
        if self.ranges.exists():
            _move(self.ranges, ranges_file(self.output))

    def discard(self) -> None:
        """Forget all blocks, because it is unknown which of them are right."""
        self._settings.unlink(missing_ok=True)

    def _resume(self, settings: Mapping[str, Any], *, resume: bool) -> None:
        """Read the finished blocks of an interrupted run."""
        try:
            before = read_json(self._settings, otherwise=f"Remove {self.folder} to start again.")
            total = int(before["texts"])
            recorded = read_bytes(self._log) if self._log.exists() else b""
            whole = recorded[: recorded.rfind(b"\n") + 1]  # a kill may have cut the last line short
            blocks = [json.loads(line) for line in whole.splitlines()]
            if not all(type(block[key]) is int for block in blocks for key in ("start", "texts", "distinct", "cut")):
                raise ValueError(f"{self._log.name} holds values of a wrong type")
            self.blocks = {block["start"]: block for block in blocks}
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise NearfarError(f"{self.folder}: cannot be read ({error}). Remove it to start again.") from error
        if not resume:
            raise NearfarError(
                f"{self.folder}: holds {self.done:,} of {total:,} texts of an interrupted run. Continue it "
                "with --resume, or remove the folder."
            )
        if before != settings:
            self._raise_changed_settings(before, settings)
        if not (self.renamed or self._written):
            size = self._vectors.stat().st_size if self._vectors.exists() else -1
            if size != self._size(self.dtype) and size == self._size(self._final):
                self.dtype = self._final  # it was converted before the interruption
            if size != self._size(self.dtype):
                raise NearfarError(f"{self._vectors}: is damaged. Remove {self.folder} to start again.")
        with disk_errors(self.output):
            if len(whole) < len(recorded):
                os.truncate(self._log, len(whole))

    def _raise_changed_settings(self, before: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """Raise an error that names the settings and inputs that changed since the run started."""
        words = {
            "model": "the model's weights or settings",
            "input": "the texts of --input",
            "texts": "the number of texts",
            "calibrate": "the ranges of --calibrate",
        }

        def shown(key: str, value: object) -> str:
            return repr(value or "") if key == "prompt" else str(value)

        changed = [
            f"{words[key]} changed"
            if key in ("model", "input", "calibrate")
            else f"{words.get(key, flag(key))} was {shown(key, old)}, is {shown(key, new)}"
            for key in {**before, **settings}
            if (old := before.get(key)) != (new := settings.get(key))
        ]
        raise NearfarError(
            f"{self.folder}: was started with different inputs or settings: {join_changes(changed)}. Give the same "
            "ones, or remove the folder to start again."
        )

    def _size(self, dtype: np.dtype[Any]) -> int:
        """Number of bytes of a .npy file of the vectors."""
        return len(npy_header(self.shape, dtype)) + self.shape[0] * self.shape[1] * dtype.itemsize

    def _check_disk_space(self) -> None:
        """Raise if the disk has too little free space for the output."""
        allocated = getattr(self._vectors.stat(), "st_blocks", 0) * 512 if self._vectors.exists() else 0
        vectors = self.shape[0] * self.shape[1] * self.dtype.itemsize
        final = self.shape[0] * self.shape[1] * self._final.itemsize
        copies = (self.output.suffix == ".parquet") + (self._final != self.dtype)  # each is written beside the vectors
        needed = vectors - min(allocated, vectors) + copies * final
        if (free := shutil.disk_usage(self.output.parent).free) < needed:
            raise NearfarError(
                f"{self.output}: needs about {format_bytes(needed)} of disk space, and {format_bytes(free)} are "
                "free. Free some, write to another disk, or halve the size with --dtype float16."
            )

    def _begin(self, settings: Mapping[str, Any]) -> None:
        """Start a new run in the folder. settings.json is written last: without it the folder counts as empty."""
        for old in (self._log, self.ranges, self._converted, self._finishing):
            old.unlink(missing_ok=True)
        with self._vectors.open("wb") as stream:
            stream.write(self._header)
            stream.truncate(len(self._header) + self.shape[0] * self.shape[1] * self.dtype.itemsize)
        flush(self._vectors)
        write_text(self._settings, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")


def _move(file: Path, target: Path) -> None:
    """Rename a file, also if both paths name it already, where a rename does nothing."""
    file.replace(target)
    file.unlink(missing_ok=True)


def partial_folder(output: Path) -> Path:
    """The folder that holds an output until it is complete."""
    return output.with_name(output.name + ".partial")


def ranges_file(output: Path) -> Path:
    """The file with the ranges of int8 embeddings, float32 [2, dim]: the least and the greatest value of each."""
    return output.with_suffix(".ranges.npy")


def remove_empty_partial(output: Path) -> None:
    """Remove ``OUTPUT.partial`` if it is empty and not in use: what a run left that was killed just before its end."""
    folder = partial_folder(output)
    if folder.is_dir():
        with suppress(FolderBusyError), output_lock(output):
            if not is_unfinished(output):
                (folder / FINISHING).unlink(missing_ok=True)


def is_unfinished(output: str | Path) -> bool:
    """Whether there is an interrupted run that ``--resume`` can continue."""
    return (partial_folder(Path(output)) / "settings.json").exists()


def recorded_precision(output: str | Path) -> str | None:
    """The recorded precision of an interrupted run; None if there is no readable record."""
    try:
        recorded = read_json(partial_folder(Path(output)) / "settings.json")["precision"]
    except (NearfarError, KeyError, TypeError, IndexError):
        return None  # no run, or a damaged file, which PartialOutput reports
    return recorded if recorded in RECORDED_PRECISIONS else None


def is_finishing(output: str | Path) -> bool:
    """Whether a run was interrupted while it moved its complete files to their final places."""
    return is_unfinished(output) and (partial_folder(Path(output)) / FINISHING).exists()


def is_renamed(output: str | Path) -> bool:
    """Whether a run was interrupted right after it moved the complete file to ``output``."""
    output = Path(output)
    left = [partial_folder(output) / name for name in ("vectors.npy", "table.parquet")]
    return is_unfinished(output) and output.exists() and not any(file.exists() for file in left)
