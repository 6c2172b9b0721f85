"""The output of ``nearfar encode``: vectors as they come in ``OUTPUT.partial``, and at the end the whole file.

The folder holds ``vectors.npy``, of its full size from the start; ``blocks.jsonl``, a line for each block whose vectors
are on the disk; and ``settings.json``, which is there as long as there is something to go on with.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from nearfar.config import flag
from nearfar.disk import disk_errors, flush, folder_lock, read_json, write_text
from nearfar.encoder.precision import RECORDED_PRECISIONS
from nearfar.types import NearfarError

ROW_GROUP = 2**14
"""Rows of a parquet file that are written together."""


@contextmanager
def output_lock(output: Path) -> Iterator[None]:
    """Make ``OUTPUT.partial`` and keep others out of it until the end, or death; then remove it if it is empty.

    Raises:
        NearfarError: another process is at work there, or the folder cannot be made.
    """
    with folder_lock(partial_folder(output), what=output, remove_if_empty=True):
        yield


class PartialOutput:
    """The vectors [texts, dim] of an output that is not whole yet, inside :func:`output_lock`.

    Args:
        output: the file to be, .npy or .parquet.
        shape: of the vectors.
        dtype: of the vectors in the file.
        settings: all that the bytes of the file depend on, for JSON.
        resume: go on with what an earlier run left, if it left anything.
        overwrite: replace an output that exists.

    Raises:
        NearfarError: there is something to go on with and ``resume`` does not say so, or it has other settings; there
            is nothing and ``resume`` is set, but the output is there; too little disk, or one that refuses.
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
    ) -> None:
        self.output, self.shape, self.dtype = output, shape, np.dtype(dtype).newbyteorder("<")
        self.folder = partial_folder(output)
        self._vectors, self._log = self.folder / "vectors.npy", self.folder / "blocks.jsonl"
        self._settings, self._table = self.folder / "settings.json", self.folder / "table.parquet"
        self.blocks: dict[int, dict[str, int]] = {}
        """The blocks that are done, by the number of their first text."""
        if self._settings.exists():
            self._resume(settings, resume=resume)
        elif output.exists() and not overwrite:  # another process finished it meanwhile
            raise NearfarError(f"{output}: exists; replace it by --overwrite, or choose another --output.")
        self._header = _header(shape, self.dtype)
        with disk_errors(output):
            if not (self.renamed or self._written):
                self._check_disk_space()
            if not self._settings.exists():
                self._begin(settings)

    @property
    def done(self) -> int:
        """How many texts have their vectors in the file."""
        return sum(block["texts"] for block in self.blocks.values())

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing more to encode."""
        return self.renamed or self._written or self.done == self.shape[0]

    @property
    def renamed(self) -> bool:
        """Whether an earlier run came so far as to put the whole file into its place."""
        return is_renamed(self.output)

    @property
    def _written(self) -> bool:
        """Whether the table is whole, and only has to be put into its place."""
        return self._table.exists() and not self._vectors.exists()

    def write(self, start: int, vectors: NDArray[np.floating], **counts: int) -> None:
        """Put a block's vectors into their place, and when they are on the disk note that they are.

        ``counts`` are noted with it.

        Raises:
            NearfarError: the disk is full or refuses; what was noted before stays good.
        """
        place = len(self._header) + start * self.shape[1] * self.dtype.itemsize
        block = {"start": start, "texts": len(vectors), **counts}
        with disk_errors(self.output):
            with self._vectors.open("r+b") as stream:
                stream.seek(place)
                stream.write(np.ascontiguousarray(vectors, dtype=self.dtype).data)
                _sync(stream)
            with self._log.open("ab") as stream:
                stream.write(json.dumps(block).encode() + b"\n")
                _sync(stream)
        self.blocks[start] = block

    def finish(self, texts: Iterator[str] | None = None) -> None:
        """Put the whole file into its place, as parquet with ``texts`` where there are any, and leave nothing else."""
        with disk_errors(self.output):
            if not self.renamed and self.output.suffix == ".parquet":
                if self._vectors.exists():
                    self._write_parquet(self._table, texts)
                    flush(self._table)
                    self._vectors.unlink()  # from here on the table is whole
                self._table.replace(self.output)
            elif not self.renamed:
                self._vectors.replace(self.output)
            self._log.unlink(missing_ok=True)
            self._settings.unlink()
            flush(self.output)

    def discard(self) -> None:
        """Let go of all blocks, as there is no telling which of them are right."""
        self._settings.unlink(missing_ok=True)

    def _resume(self, settings: Mapping[str, Any], *, resume: bool) -> None:
        """Read which blocks are done."""
        try:
            before = read_json(self._settings, otherwise=f"Remove {self.folder} to start again.")
            total = int(before["texts"])
            noted = self._log.read_bytes() if self._log.exists() else b""
            whole = noted[: noted.rfind(b"\n") + 1]  # a kill may have cut the last line short
            blocks = [json.loads(line) for line in whole.splitlines()]
            if not all(type(block[key]) is int for block in blocks for key in ("start", "texts", "distinct", "cut")):
                raise ValueError(f"{self._log.name} holds values of a wrong type")
            self.blocks = {block["start"]: block for block in blocks}
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise NearfarError(f"{self.folder}: cannot be read ({error}). Remove it to start again.") from error
        if not resume:
            raise NearfarError(
                f"{self.folder}: holds {self.done:,} of {total:,} texts of a run that was stopped. Go on "
                "with it by --resume, or remove the folder."
            )
        if before != settings:
            self._raise_changed_settings(before, settings)
        size = len(_header(self.shape, self.dtype)) + self.shape[0] * self.shape[1] * self.dtype.itemsize
        if not (self.renamed or self._written) and (not self._vectors.exists() or self._vectors.stat().st_size != size):
            raise NearfarError(f"{self._vectors}: is damaged. Remove {self.folder} to start again.")
        with disk_errors(self.output):
            if len(whole) < len(noted):
                os.truncate(self._log, len(whole))

    def _raise_changed_settings(self, before: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """Say what has changed since the folder was begun."""
        words = {"model": "the model's weights or settings", "input": "the texts of --input", "texts": "their number"}
        changed = [
            f"{words[key]} changed" if key in ("model", "input") else f"{words.get(key, flag(key))} was {old}, is {new}"
            for key in {**before, **settings}
            if (old := before.get(key)) != (new := settings.get(key))
        ]
        raise NearfarError(
            f"{self.folder}: was begun with other inputs or settings: {'; '.join(changed)}. Give it the same, or "
            "remove the folder to start again."
        )

    def _check_disk_space(self) -> None:
        """Refuse now what would fill the disk hours later."""
        allocated = getattr(self._vectors.stat(), "st_blocks", 0) * 512 if self._vectors.exists() else 0
        vectors = self.shape[0] * self.shape[1] * self.dtype.itemsize
        needed = vectors - min(allocated, vectors) + (vectors if self.output.suffix == ".parquet" else 0)
        if (free := shutil.disk_usage(self.output.parent).free) < needed:
            raise NearfarError(
                f"{self.output}: needs about {_format_bytes(needed)} of disk, and {_format_bytes(free)} are free. "
                "Make room, choose another place, or halve it by --dtype float16."
            )

    def _begin(self, settings: Mapping[str, Any]) -> None:
        """Make the folder anew; the settings come last, for a kill before that loses nothing."""
        self._log.unlink(missing_ok=True)
        with self._vectors.open("wb") as stream:
            stream.write(self._header)
            stream.truncate(len(self._header) + self.shape[0] * self.shape[1] * self.dtype.itemsize)
        flush(self._vectors)
        write_text(self._settings, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")

    def _write_parquet(self, target: Path, texts: Iterator[str] | None) -> None:
        import pyarrow
        import pyarrow.parquet

        rows, dim = self.shape
        number = pyarrow.from_numpy_dtype(self.dtype)
        columns = [("row", pyarrow.int64()), ("text", pyarrow.string()), ("embedding", pyarrow.list_(number, dim))]

        def array(values: NDArray[Any], kind: Any) -> Any:  # pyarrow.array would import pandas
            return pyarrow.Array.from_buffers(kind, len(values), [None, pyarrow.py_buffer(values)])

        schema = pyarrow.schema([column for column in columns if texts is not None or column[0] != "text"])
        with (
            self._vectors.open("rb") as vectors,
            pyarrow.parquet.ParquetWriter(target, schema, use_dictionary=False, compression="zstd") as writer,
        ):
            vectors.seek(len(self._header))
            for start in range(0, rows, ROW_GROUP):
                count = min(ROW_GROUP, rows - start)
                values = array(np.fromfile(vectors, dtype=self.dtype, count=count * dim), number)
                arrays = [
                    array(np.arange(start, start + count, dtype=np.int64), pyarrow.int64()),
                    pyarrow.FixedSizeListArray.from_arrays(values, dim),
                ]
                if texts is not None:
                    arrays.insert(1, pyarrow.array([next(texts) for _ in range(count)], pyarrow.string()))
                writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
            if texts is not None:
                next(texts, None)  # at their end they tell if they are not those that were encoded


def partial_folder(output: Path) -> Path:
    """Where an output is kept until it is whole."""
    return output.with_name(output.name + ".partial")


def is_unfinished(output: str | Path) -> bool:
    """Whether there is something that ``--resume`` can go on with."""
    return (partial_folder(Path(output)) / "settings.json").exists()


def recorded_precision(output: str | Path) -> str | None:
    """The note of the precision of what ``--resume`` can go on with; None where there is none to read."""
    try:
        begun = json.loads((partial_folder(Path(output)) / "settings.json").read_text(encoding="utf-8"))["precision"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None  # nothing is there, or it is damaged, which PartialOutput tells
    return begun if begun in RECORDED_PRECISIONS else None


def is_renamed(output: str | Path) -> bool:
    """Whether a run came so far as to put the whole file into its place, and was stopped right after."""
    output = Path(output)
    left = [partial_folder(output) / name for name in ("vectors.npy", "table.parquet")]
    return is_unfinished(output) and output.exists() and not any(file.exists() for file in left)


def _format_bytes(size: float) -> str:
    """A number of bytes, in a unit that fits."""
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"


def _header(shape: tuple[int, int], dtype: np.dtype[Any]) -> bytes:
    """What numpy writes before the vectors."""
    stream = BytesIO()
    layout = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, layout)
    return stream.getvalue()


def _sync(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())
