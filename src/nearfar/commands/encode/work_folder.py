"""Resumable work on the vectors of texts: ``OUTPUT.partial`` holds settings, vectors and finished parts of the work."""

import errno
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from nearfar.commands.encode.output import (
    FINISHING,
    PartialOutput,
    is_finishing,
    is_unfinished,
    output_lock,
    partial_folder,
    remove_empty_partial,
)
from nearfar.config import flag, join_changes
from nearfar.disk import (
    LOCK,
    check_regular,
    disk_errors,
    flush,
    flush_entries,
    fresh_file,
    read_errors,
    read_json,
    write_text,
)
from nearfar.encoder.finite import NotFiniteError
from nearfar.encoder.token_batches import truncation_message
from nearfar.types import ARRAY_ERRORS, ARRAY_HEADER_ERRORS, Encode, NearfarError

BLOCK = 2**11
"""Number of texts that are encoded and saved together."""
_TRUNCATED = re.compile(r"(\d+) of (\d+) distinct texts are longer than (\d+) tokens and were truncated\.")


class WorkFolder:
    """The folder ``OUTPUT.partial`` of a command that encodes texts and then works on their vectors.

    ``settings.json`` records everything that determines the vectors; it exists while there is something to resume. Use
    it inside :func:`nearfar.commands.encode.output.output_lock`.

    Args:
        output: the final file of the command.
        settings: what determines the vectors; must be serialisable as JSON.
        words: setting -> what an error message calls it, if not by its flag.
        resume: continue an interrupted run, if there is one.

    Raises:
        NearfarError: an interrupted run exists and ``resume`` is not set, or its settings differ.
    """

    def __init__(
        self, output: Path, settings: Mapping[str, Any], words: Mapping[str, str], *, resume: bool = False
    ) -> None:
        self.path = partial_folder(output)
        self._settings = self.path / "settings.json"
        if not self._settings.exists():
            self.discard()
            with disk_errors(output):
                write_text(self._settings, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
            return
        if not resume:
            raise NearfarError(
                f"{self.path}: holds an interrupted run. Continue it with --resume, or remove the folder."
            )
        try:
            before = dict(read_json(self._settings, otherwise=f"Remove {self.path} to start again."))
        except (ValueError, TypeError) as error:
            raise NearfarError(
                f"{self._settings}: cannot be read ({error}). Remove {self.path} to start again."
            ) from error
        changed = [
            f"{words[key]} changed" if key in words else f"{flag(key)} was {before.get(key)}, is {settings.get(key)}"
            for key in {**before, **settings}
            if before.get(key) != settings.get(key)
        ]
        if changed:
            raise NearfarError(
                f"{self.path}: was started with different inputs or settings: {join_changes(changed)}. Give the same "
                "ones, or remove the folder to start again."
            )

    def encode(
        self, name: str, texts: Sequence[str], dim: int, encode: Encode, advance: Callable[[int], None]
    ) -> NDArray[np.float32]:
        """The vectors of ``texts``, memory-mapped from ``NAME.npy`` in the folder; missing blocks are encoded first.

        Args:
            name: name of the file, without suffix.
            texts: the texts.
            dim: width of a vector.
            encode: encodes a block of texts.
            advance: called with the number of texts that are done.

        Raises:
            NearfarError: the file is damaged, or cannot be written or read, or a vector is not finite.
        """
        file = self.path / f"{name}.npy"
        is_new = not file.exists()
        if is_new:
            with output_lock(file):
                partial = PartialOutput(file, (len(texts), dim), "float32", {"texts": len(texts)}, resume=True)
                advance(partial.done)
                with _joined_truncation_warnings():
                    for start in range(0, len(texts), BLOCK):
                        if start in partial.blocks:
                            continue
                        block = texts[start : start + BLOCK]
                        partial.write(start, _encode_block(encode, block, start), distinct=len(block), cut=0)
                        advance(len(block))
                partial.finish()
        else:
            advance(len(texts))
        with read_errors(file), suppress(*ARRAY_HEADER_ERRORS):
            check_regular(file)
            vectors: NDArray[np.float32] = np.load(file, mmap_mode="r", allow_pickle=False)
            is_complete = vectors.shape == (len(texts), dim) and vectors.dtype == np.dtype("float32")
            if is_complete and (is_new or _are_finite(vectors)):
                return vectors
        raise NearfarError(f"{file}: is damaged. Remove {self.path} to start again.")

    def arrays(
        self, name: str, compute: Callable[[], Mapping[str, NDArray[Any]]], *, shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, NDArray[Any]]:
        """Arrays from ``NAME.npz`` in the folder.

        They are computed and saved if the file is missing, cannot be read, or has other arrays than ``shapes``, which
        gives the shape of each.
        """
        file = self.path / f"{name}.npz"
        with suppress(*ARRAY_ERRORS, KeyError, BadZipFile):
            check_regular(file)
            with file.open("rb") as stream:
                saved = np.load(stream, allow_pickle=False)
                loaded = {key: saved[key] for key in saved.files}
            if {key: array.shape for key, array in loaded.items()} == shapes:
                return loaded
        found = dict(compute())
        self.save(name, found)
        return found

    def save(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write arrays to ``NAME.npz``, atomically."""
        file = self.path / f"{name}.npz"
        temporary = file.with_suffix(".new")
        with disk_errors(file):
            with temporary.open("wb") as stream:
                np.savez(stream, allow_pickle=False, **dict(arrays))
            flush(temporary)
            temporary.replace(file)

    def finish(self, files: Mapping[Path, Path]) -> None:
        """Move complete files from the folder to their final places, and remove everything else in the folder.

        From the first move on, the folder is marked, so that a resumed run may replace what was moved.
        """
        with disk_errors(self.path):
            (self.path / FINISHING).touch()
            flush(self.path / FINISHING)
        for source, target in files.items():
            with disk_errors(target):
                flush(source)
                try:
                    source.replace(target)
                except OSError as error:
                    if error.errno != errno.EXDEV:  # on another disk, copy it next to its place first
                        raise
                    temporary = target.with_name(target.name + ".new")
                    fresh_file(temporary)
                    shutil.copyfile(source, temporary)
                    flush(temporary)
                    temporary.replace(target)
                flush(target)
        self.discard()

    def discard(self) -> None:
        """Remove the contents of the folder; settings.json after all else, so that an interruption can be resumed.

        Only the mark of :meth:`finish` is removed later.
        """
        last = [self._settings, self.path / FINISHING]
        with disk_errors(self.path):
            for entry in self.path.iterdir():
                if entry.is_dir():
                    shutil.rmtree(entry)
                elif entry not in last and entry.name != LOCK:
                    entry.unlink()
            for file in last:
                flush_entries(self.path)
                file.unlink(missing_ok=True)
            flush_entries(self.path)


def check_new(outputs: Mapping[str, Path], *, resume: bool, overwrite: bool) -> None:
    """Raise an error if an output exists and must not be replaced.

    Args:
        outputs: flag -> file; the first one is the main output.
        resume: continue an interrupted run.
        overwrite: replace outputs that exist.

    Raises:
        NearfarError: an output exists without ``overwrite``; the main one is finished and ``resume`` is set.
    """
    main = next(iter(outputs.values()))
    if resume and not overwrite and main.exists() and not is_unfinished(main):
        remove_empty_partial(main)
        raise NearfarError(
            f"{main}: is finished, there is nothing to resume. To make it again, give --overwrite instead of --resume."
        )
    finishing = resume and is_finishing(main)  # then the outputs are the run's own
    for name, file in outputs.items():
        if os.path.lexists(file) and not overwrite and not finishing:
            raise NearfarError(f"{name} {file}: exists; replace it by --overwrite, or choose another {name}.")


def _are_finite(vectors: NDArray[np.float32]) -> bool:
    """Whether all vectors are finite, as encoded ones are; read in blocks."""
    return all(np.isfinite(vectors[start : start + BLOCK]).all() for start in range(0, len(vectors), BLOCK))


def _encode_block(encode: Encode, texts: Sequence[str], start: int) -> NDArray[np.floating]:
    try:
        return encode(texts)
    except NotFiniteError as error:
        raise NotFiniteError(start + error.number, error.content) from None


@contextmanager
def _joined_truncation_warnings() -> Iterator[None]:
    """One warning about truncated texts in place of one for each block; other warnings are passed on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    found = [_TRUNCATED.fullmatch(str(one.message)) for one in caught]
    for one, counts in zip(caught, found, strict=True):
        if not counts:
            warnings.warn(one.message, one.category, stacklevel=4)
    numbers = [[int(number) for number in counts.groups()] for counts in found if counts]
    if numbers:
        cut, texts = sum(row[0] for row in numbers), sum(row[1] for row in numbers)
        warnings.warn(truncation_message(cut, texts, numbers[0][2]), stacklevel=4)
