"""``nearfar dedup``: groups of similar texts in a file, by exact search; one row of each group is kept."""

import gzip
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
from jaxtyping import Float32, Int64
from numpy.typing import NDArray

from nearfar.commands.encode.vectors import open_encoder, vectors_folder
from nearfar.commands.search.corpus import choose_column
from nearfar.commands.threshold import apply_threshold
from nearfar.config.calls import accepts_settings
from nearfar.config.encoding import DedupConfig
from nearfar.data.cells import text_field
from nearfar.data.files import extension
from nearfar.data.lines import SourceChangedError
from nearfar.data.paths import as_path, file_version
from nearfar.data.sources import open_table
from nearfar.disk import TABLES, disk_errors, new_file, write_table
from nearfar.disk.checks import check_output_file, path_errors
from nearfar.encoder.precision import check_computing
from nearfar.neighbours.exact import compare_all
from nearfar.runtime.progress import progress_bar
from nearfar.types import NearfarError

GROUP_COLUMNS = ("group", "kept", "line", "similarity", "text")
WIDTH = 0.05
"""Width of a bin of the histogram."""


class InputRows(NamedTuple):
    """The rows of a file, without blank lines."""

    texts: list[str]
    """The distinct texts, with normalised white space."""
    text_of: Int64[np.ndarray, " rows"]
    """Position of each row's text."""
    lines: Int64[np.ndarray, " rows"]
    """Number of the line where each row starts, or of the row of a Parquet file, counted from 1."""


class Bin(NamedTuple):
    """The texts whose nearest other text has a cosine from ``low`` up to ``low + WIDTH``."""

    low: float
    texts: int
    """Number of texts in the bin."""
    at_least: int
    """Number of texts in this and all higher bins."""
    first: str
    """A text of the bin whose cosine is the lowest: with a threshold of ``low``, it is merged with ``second``."""
    second: str
    """The nearest other text of ``first``."""
    similarity: float
    """Their cosine."""


@dataclass(frozen=True)
class DedupResult:
    """What ``nearfar dedup`` found."""

    rows: int
    """Number of rows in the input."""
    texts: int
    """Number of distinct texts."""
    histogram: tuple[Bin, ...]
    """Bins of the similarity to the nearest other text, from the highest; empty ones are left out."""
    threshold: float | None = None
    """The threshold, None if there was none."""
    kept: int | None = None
    """Number of rows kept; None without a threshold."""
    groups: int | None = None
    """Number of groups of at least two rows; None without a threshold."""
    largest: int | None = None
    """Number of rows in the largest group; None without a threshold."""


@accepts_settings(DedupConfig)
@path_errors()
def dedup(config: DedupConfig, *, progress: bool = True) -> DedupResult:
    """Write ``config.input`` without near-duplicates to ``config.output``, or measure how similar its texts are.

    Settings can be given by name: ``dedup(model="runs/first", input="texts.txt", output="kept.txt", threshold=0.95)``;
    see :class:`nearfar.DedupConfig`. Rows with equal texts (after white space is normalised) are one text. Texts i and
    j are connected if the cosine of their embeddings is at least ``threshold``; groups are the connected components, so
    two texts of a group may be less similar than the threshold if a chain of similar texts connects them. One row of
    each group is kept, unchanged and in the order of the file, with all its columns.

    All pairs are compared, in blocks: pairs above the threshold are merged into the groups at once, and memory does
    not grow with their number. Vectors are kept in ``OUTPUT.vectors`` until the output is complete. Without
    ``threshold`` nothing else is written, and a second call with ``threshold`` does not encode again.

    Args:
        config: the settings.
        progress: show progress bars.

    Raises:
        NearfarError: the input, its column or the model is missing or unusable; an output has another format, exists,
            is the input or cannot be written; the file of the threshold is of another model, of other settings or of a
            search; the input changes while it is read.
    """
    source, output = as_path(config.input), None if config.output is None else Path(config.output)
    if output is not None:
        if extension(output) != extension(source):
            raise NearfarError(
                f"--output {output}: must have the format of --input {source}; end its name in {extension(source)}."
            )
        check_output_file(output, [source], overwrite=config.overwrite)
    if config.groups is not None:
        how: dict[str, Any] = {"overwrite": config.overwrite, "flag": "--groups", "suffixes": TABLES}
        check_output_file(Path(config.groups), [source], **how)
    check_computing(config.device, config.precision)
    before, rows = file_version(source), read_rows(source, config.column)
    opened = open_encoder(config.model, config.opening, config.precision)
    threshold, _ = apply_threshold(config.threshold, opened, "cosine", top=None)
    with vectors_folder(output, keep=threshold is None) as kept_vectors:
        with progress_bar("encoding", len(rows.texts), shown=progress) as advance:
            vectors = opened.encode_texts(kept_vectors, rows.texts, on_texts=advance)
        with progress_bar("comparing", len(vectors), shown=progress) as advance:
            near = compare_all(vectors, threshold, device=opened.encoder.device, on_rows=advance)
        bins = histogram(rows.texts, near.scores, near.ids)
        if threshold is None:
            return DedupResult(len(rows.lines), len(rows.texts), bins)
        group_of = np.unique(near.groups, return_inverse=True)[1].astype(np.int64)[rows.text_of]
        kept = _choose(rows, group_of, config.keep)
        if config.groups is not None:
            write_table(Path(config.groups), GROUP_COLUMNS, _list_groups(rows, group_of, kept, vectors))
        if output is not None:
            with new_file(output) as copy:
                copy_rows(source, copy, rows.lines[kept], rows.lines)
                if file_version(source) != before:
                    raise SourceChangedError(
                        f"{source}: changed while it was read. Start again when it no longer changes."
                    )
    sizes = np.bincount(group_of)
    counts = (len(kept), int((sizes > 1).sum()), int(sizes.max()))
    return DedupResult(len(rows.lines), len(rows.texts), bins, threshold, *counts)


def _choose(rows: InputRows, group_of: NDArray[np.int64], keep: str) -> Int64[np.ndarray, " kept"]:
    """The positions of the rows to keep, one of each group, in the order of the file."""
    lengths = np.array([len(text) if keep == "longest" else 0 for text in rows.texts], dtype=np.int64)[rows.text_of]
    order = np.lexsort((np.arange(len(group_of)), -lengths, group_of))  # of equally long texts the first
    return np.sort(order[np.unique(group_of[order], return_index=True)[1]])


def _list_groups(
    rows: InputRows, group_of: NDArray[np.int64], kept: NDArray[np.int64], vectors: NDArray[np.float32]
) -> Iterator[tuple[int, str, int, float, str]]:
    """The rows of each group of at least two, with their cosine to the row that is kept."""
    best_of, sizes = dict(zip(group_of[kept].tolist(), kept.tolist(), strict=True)), np.bincount(group_of)
    numbers = np.cumsum(sizes > 1)
    for row in np.argsort(group_of, kind="stable").tolist():
        group = int(group_of[row])
        if sizes[group] > 1:
            best, text = best_of[group], rows.text_of[row]
            other = rows.text_of[best]
            cosine = 1.0 if text == other else float(vectors[text] @ vectors[other])
            is_kept = "yes" if row == best else "no"
            yield int(numbers[group]), is_kept, int(rows.lines[row]), round(cosine, 6), rows.texts[text]


def histogram(
    texts: Sequence[str], scores: Float32[np.ndarray, " texts"], others: Int64[np.ndarray, " texts"]
) -> tuple[Bin, ...]:
    """The histogram of the cosines ``scores`` of each text with its nearest other text ``others``."""
    if len(texts) < 2:
        return ()
    numbers = np.clip(np.floor(np.round(scores.astype(np.float64) / WIDTH, 4)), -1 / WIDTH, 1 / WIDTH - 1).astype(int)
    listed = []
    for number in np.unique(numbers)[::-1].tolist():
        inside = np.flatnonzero(numbers == number)
        lowest = inside[scores[inside].argmin()]
        pair = (texts[lowest], texts[others[lowest]], float(scores[lowest]))
        listed.append(Bin(number * WIDTH, len(inside), int((numbers >= number).sum()), *pair))
    return tuple(listed)


def read_rows(source: Path, column: str | None) -> InputRows:
    """Read the texts of a plain text file, or of a column of a table (:func:`choose_column`).

    Raises:
        NearfarError: the file or the column is missing, malformed or empty, or it is unclear which is meant.
    """
    name, _ = choose_column(source, column, ("text",), flag="--column")
    rows = [(text_field(value, name, where), where.number) for where, (value,) in open_table(source).text_rows((name,))]
    if not rows:
        raise NearfarError(f"{source}: holds no texts.")
    texts, lines = zip(*rows, strict=True)
    text_of, distinct = pandas.factorize(np.array(texts, object))
    return InputRows(distinct.tolist(), text_of, np.array(lines))


def copy_rows(source: Path, target: Path, lines: NDArray[np.int64], starts: NDArray[np.int64]) -> None:
    """Write the rows of ``source`` that start at ``lines``, unchanged, with the header of a table.

    Args:
        source: the file.
        target: file to write; gzipped if the source is.
        lines: numbers of the lines, or of the rows of a Parquet file, to keep.
        starts: the numbers of all rows; a CSV or TSV row may span lines.

    Raises:
        NearfarError: a file cannot be read or written.
    """
    kind = extension(source)
    with disk_errors(target):
        if kind == ".parquet":
            import pyarrow.parquet

            with pyarrow.parquet.ParquetFile(source) as file:
                pyarrow.parquet.write_table(file.read().take(list(lines - 1)), target)
            return
        opener: Any = gzip.open if kind.endswith(".gz") else open
        with opener(source, "rb") as reader, opener(target, "wb") as writer:
            writer.writelines(_kept(reader, set(lines.tolist()), set(starts.tolist()), kind.removesuffix(".gz")))


def _kept(reader: Iterable[bytes], lines: set[int], starts: set[int], kind: str) -> Iterator[bytes]:
    """The lines before the first row of a TSV or CSV file, its header, and the lines of the rows to keep."""
    first, keep, is_table = min(starts), False, kind in (".csv", ".tsv")
    for number, line in enumerate(reader, 1):
        if number in starts or not is_table:  # there a row may go on in the next line
            keep = number in lines
        if keep or (number < first and is_table):
            yield line if line.endswith(b"\n") else line + b"\n"
