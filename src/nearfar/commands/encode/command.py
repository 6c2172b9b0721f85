"""A file of texts -> a file of vectors, however many: what ``nearfar encode`` calls."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nearfar.disk import check_output_path, path_errors, refuse_existing, refuse_overwriting_inputs
from nearfar.types import NearfarError, Precision

if TYPE_CHECKING:
    from nearfar.commands.encode.output import PartialOutput
    from nearfar.encoder.stream import Encoded

BLOCK = 2**14
"""Texts that are sorted by length and searched for duplicates together, and lost at most when a run is stopped."""


@path_errors()
def encode_file(
    model: str | Path,
    source: str | Path,
    output: str | Path,
    *,
    column: str | None = None,
    normalize: bool = False,
    pooling: str | None = None,
    max_length: int | None = None,
    precision: Precision = "auto",
    dtype: Literal["float32", "float16"] = "float32",
    with_texts: bool = False,
    processes: int = 1,
    resume: bool = False,
    device: str | None = None,
    overwrite: bool = False,
    block: int = BLOCK,
    progress: bool = True,
) -> tuple[int, int]:
    """Write the embeddings of the texts of ``source`` to a file; their number and width are returned.

    ``source`` is a text file with one text a line (a blank line is a text too), or, with ``column``, any table that
    :mod:`nearfar.data.sources` reads. Row i of the output belongs to text i, counted from 0. The vectors are those of
    :meth:`nearfar.Encoder.encode`.

    Texts are read twice, first to count, check and fingerprint them, then block after block; no more than a few blocks
    are in memory. Vectors are kept in ``OUTPUT.partial`` until all are there; then the whole file appears at once and
    nothing else is left. A run that was stopped at any moment goes on with ``resume`` after the blocks that were done,
    and ends with the same bytes as one that was not (same machine, same threads).

    Args:
        model: a folder, be it a model's or that of a finished training run, or ``owner/name`` on the hub.
        source: where the texts are.
        output: a .npy file, which holds an array [texts, dim], or a .parquet file with the columns ``row`` and
            ``embedding`` (a list of fixed size), for which the vectors are on the disk twice for a while.
        column: of a table.
        normalize: scale each vector to length 1.
        pooling: override the model's own.
        max_length: tokens kept of a text.
        precision: ``fp32``; ``bf16``, bfloat16; or ``auto``, which is what a run that is resumed began with, else bf16
            where that is native, else fp32.
        dtype: of the numbers in the file.
        with_texts: a third column ``text`` of a .parquet file.
        processes: that encode side by side, sharing this process's threads, or on several GPUs.
        resume: go on with what a stopped run left. Where there is nothing it starts.
        device: cpu, cuda, cuda:1 ...; by default CUDA where there is one.
        overwrite: replace an ``output`` that exists.
        block: texts in a block.
        progress: show a progress bar.

    Raises:
        NearfarError: no such file or column, no texts, one that is no text, an output of another kind or one that
            exists, is the input, cannot be written or does not fit on the disk, what a stopped run left and ``resume``
            does not go on with, or was begun with other texts or settings, a process that died, or what
            :meth:`nearfar.Encoder.from_pretrained` refuses.
    """
    output_path = _check_output(output, source, with_texts=with_texts, resume=resume, overwrite=overwrite)
    for name, value in (("--processes", processes), ("block", block)):
        if value < 1:
            raise NearfarError(f"{name} {value}: must be at least 1.")

    from nearfar.encoder.device import check_device
    from nearfar.encoder.precision import check_precision, precision_record, resolve, resumed_precision

    check_device(device)
    check_precision(precision)
    from nearfar.commands.encode.output import PartialOutput, output_lock, partial_folder, recorded_precision
    from nearfar.data.lines import blocks, read_texts, summarise_source, verify_unchanged
    from nearfar.encoder.encoder import Encoder, truncation_message
    from nearfar.encoder.stream import encode_blocks, tokenize_blocks
    from nearfar.encoder.weights import locate
    from nearfar.encoder.workers import WorkerConfig, assign_devices, encode_in_processes
    from nearfar.runs.fingerprints import fingerprint_model

    begun = recorded_precision(output_path) if resume else None
    if begun is not None and begun.startswith("" if precision == "auto" else precision):
        computed = resumed_precision(begun, device, what=f"{partial_folder(output_path)}: this run")
    else:
        computed = resolve(precision, device)
        begun = precision_record(computed, device)
    summary = summarise_source(read_texts(source, column))
    if summary.empty:
        raise NearfarError(f"{source}: holds no texts.")
    processes = min(processes, -(-summary.texts // block))  # a block is one process's
    folder = locate(model)
    encoder = Encoder.from_pretrained(
        folder, pooling=pooling, max_length=max_length, device=device if processes == 1 else "cpu"
    )
    settings = {
        "model": fingerprint_model(folder),
        "input": summary.digest,
        "texts": summary.texts,
        "column": column,
        "pooling": encoder.pooling,
        "max_length": encoder.max_length,
        "normalize": normalize,
        "precision": begun,
        "dtype": dtype,
        "with_texts": with_texts,
        "block": block,
    }

    def texts() -> Iterator[str]:
        return verify_unchanged(read_texts(source, column), summary, source)

    with output_lock(output_path):
        partial = PartialOutput(
            output_path, (summary.texts, encoder.dim), dtype, settings, resume=resume, overwrite=overwrite
        )
        if not partial.is_complete:
            bf16 = computed == "bf16"
            todo = (found for found in blocks(texts(), size=block) if found.start not in partial.blocks)
            tokens = tokenize_blocks(encoder, todo)
            with _bar(summary.texts, partial.done, shown=progress) as advance:
                if processes == 1:
                    encoded = encode_blocks(encoder, tokens, normalize=normalize, bf16=bf16, on_batch=advance)
                else:
                    work = WorkerConfig(folder, encoder.pooling, encoder.max_length, normalize, bf16)
                    encoded = encode_in_processes(tokens, work, assign_devices(device, processes), on_batch=advance)
                with closing(encoded):
                    _fill(partial, encoded, advance)
        partial.finish(texts() if with_texts else None)
    done = partial.blocks.values()
    if cut := sum(found["cut"] for found in done):
        warnings.warn(
            truncation_message(cut, sum(found["distinct"] for found in done), encoder.max_length), stacklevel=2
        )
    return partial.shape


def _check_output(output: str | Path, source: str | Path, *, with_texts: bool, resume: bool, overwrite: bool) -> Path:
    from nearfar.commands.encode.output import is_renamed, is_unfinished

    output_path = Path(output)
    if output_path.suffix not in (".npy", ".parquet"):
        raise NearfarError(f"--output {output}: must end in .npy or .parquet.")
    check_output_path(output_path)
    refuse_overwriting_inputs(output_path, [source])
    if not is_renamed(output_path):
        if resume and not overwrite and os.path.lexists(output_path) and not is_unfinished(output_path):
            raise NearfarError(
                f"{output_path}: is finished, there is nothing to resume. To make it once more, give --overwrite "
                "in place of --resume."
            )
        refuse_existing([output_path], overwrite=overwrite)
    if with_texts and output_path.suffix != ".parquet":
        raise NearfarError(f"--with-texts: --output {output} holds vectors alone; choose a .parquet file.")
    return output_path


def _fill(partial: "PartialOutput", encoded: "Encoded", advance: Callable[[int], None]) -> None:
    """Write block after block, and say of what goes wrong how to go on."""
    from nearfar.data.lines import SourceChangedError
    from nearfar.encoder.finite import NotFiniteError

    try:
        for block, vectors in encoded:
            distinct = len(vectors)
            partial.write(block.start, block.expand_distinct(vectors), distinct=distinct, cut=block.tokenized.truncated)
            advance(len(block.rows) - distinct)
    except SourceChangedError:
        partial.discard()
        raise
    except NotFiniteError:
        raise  # going on would meet the same text again
    except NearfarError as error:
        raise NearfarError(
            f"{error} {partial.done:,} of {partial.shape[0]:,} texts are done; go on with them by --resume."
        ) from error


@contextmanager
def _bar(total: int, done: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar with rate and time left; gives what to call with the number of further texts."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed:,.0f} texts/s")

    columns = (TextColumn("encoding"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    with Progress(*columns, transient=True, disable=not shown, speed_estimate_period=120) as bar:
        task = bar.add_task("encoding", total=total, completed=done)
        yield lambda texts: bar.advance(task, texts)
