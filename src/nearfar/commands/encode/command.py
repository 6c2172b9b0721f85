"""``nearfar encode``: a file of texts -> a file of embeddings."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.commands.encode.output import (
    PartialOutput,
    is_finishing,
    is_renamed,
    is_unfinished,
    output_lock,
    partial_folder,
    ranges_file,
    recorded_precision,
    remove_empty_partial,
)
from nearfar.commands.encode.progress import progress_bar
from nearfar.commands.encode.smaller import Codes, choose_codes, quantize_all
from nearfar.config.calls import accepts_settings
from nearfar.config.encode import EncodeConfig
from nearfar.data.lines import SourceChangedError, blocks, read_texts, summarise_source, verify_unchanged
from nearfar.disk import check_output_path, path_errors, refuse_existing, refuse_overwriting_inputs
from nearfar.encoder.precision import check_computing, precision_record, resolve, resumed_precision
from nearfar.runs.fingerprints import fingerprint_model
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.encoder.stream import Encoded

BLOCK = 2**14
"""Number of texts in a block. A block is sorted by length and deduplicated as a whole, and saved as a whole."""


@accepts_settings(EncodeConfig)
@path_errors()
def encode(model: str | Path, config: EncodeConfig, *, block: int = BLOCK, progress: bool = True) -> tuple[int, int]:
    """Write the embeddings of the texts in ``config.input`` to ``config.output``; returns their shape (texts, dim).

    Settings can be given by name: ``encode("model", input="texts.txt", output="texts.npy")``; see
    :class:`nearfar.EncodeConfig`. Row i of the output belongs to text i, counted from 0. The embeddings are those of
    :meth:`nearfar.Encoder.encode`. A .npy file holds one array [texts, dim]. A .parquet file has the columns ``row``
    and ``embedding`` (a list of fixed size); it needs disk space for the embeddings twice while it is written.

    ``dimensions`` keeps the first dimensions, ``quantize`` writes the codes of :mod:`nearfar.quantization` in place of
    float32 embeddings. The ranges of int8 codes are in ``OUTPUT.ranges.npy`` (without the suffix of ``OUTPUT``),
    float32 [2, dim]; where they are those of the embeddings themselves, the disk holds the float32 embeddings until all
    are done.

    Texts are read twice: first to count, check and fingerprint them, then block by block. At most a few blocks are in
    memory. Embeddings are kept in ``OUTPUT.partial`` until all are done; then the output appears at once. An
    interrupted run continues with ``resume`` after the last finished block, and ends with the same bytes as an
    uninterrupted run (same machine, same number of threads). A resumed run with precision ``auto`` keeps the precision
    that it started with.

    If :attr:`nearfar.EncodeConfig.sharded` is set, the output is a folder of parts: ``part-00000.parquet`` and so on,
    with the columns ``row``, ``vector`` and those of ``keep``; ``_manifest.json``, when all of them are finished; and
    ``_nearfar``. Part k has the rows k * ``shard_rows`` to (k + 1) * ``shard_rows`` of the files in the order of their
    names. The shape is then that of the parts of this call: all, or those of ``shard``.

    Args:
        model: a model folder, the folder of a finished training run, or ``owner/name`` on the Hugging Face Hub.
        config: the settings.
        block: number of texts in a block.
        progress: show a progress bar.

    Raises:
        NearfarError: the input or its column is missing, empty or not text; the output has another suffix, exists, is
            the input, cannot be written or does not fit on the disk; an interrupted run exists and ``resume`` is not
            set, or it has other texts or settings; a process died; or :meth:`nearfar.Encoder.from_pretrained` refuses
            the model.
    """
    if block < 1:
        raise NearfarError(f"block {block}: must be at least 1.")
    if config.sharded:
        from nearfar.commands.encode.shards.command import encode_shards

        result = encode_shards(model, config, block=block, progress=progress)
        return result.rows, result.dim
    output = _check_output(config)

    check_computing(config.device, config.precision)
    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.stream import encode_blocks, tokenize_blocks
    from nearfar.encoder.token_batches import truncation_message
    from nearfar.encoder.weights import locate
    from nearfar.encoder.widths import choose_width
    from nearfar.encoder.workers import WorkerConfig, assign_devices, encode_in_processes

    source, column, device = config.input, config.column, config.device
    precision, recorded = _choose_precision(config, output)
    summary = summarise_source(read_texts(source, column))
    if summary.empty:
        raise NearfarError(f"{source}: holds no texts.")
    processes = min(config.processes, -(-summary.texts // block))  # a process encodes whole blocks
    folder = locate(model)
    encoder = Encoder.from_pretrained(folder, **config.opening | {"device": device if processes == 1 else "cpu"})
    prompt = encoder.resolve_prompt()
    dim = choose_width(config.dimensions, encoder.dim, encoder.matryoshka)
    codes = choose_codes(config, dim)
    settings = {
        "model": fingerprint_model(folder),
        "input": summary.digest,
        "texts": summary.texts,
        "column": column,
        "pooling": encoder.pooling,
        "max_length": encoder.max_length,
        "normalize": config.normalize,
        "precision": recorded,
        "dtype": config.dtype,
        "with_texts": config.with_texts,
        "block": block,
        **({"prompt": prompt} if prompt else {}),
        **({} if config.dimensions is None else {"dimensions": dim}),
        **codes.settings,
    }

    def texts() -> Iterator[str]:
        return verify_unchanged(read_texts(source, column), summary, source)

    with output_lock(output):
        partial = PartialOutput(
            output,
            (summary.texts, codes.width),
            codes.dtype,
            settings,
            resume=config.resume,
            overwrite=config.overwrite,
            final_dtype=codes.final_dtype,
        )
        if not partial.is_complete:
            bf16 = precision == "bf16"
            remaining = (found for found in blocks(texts(), size=block) if found.start not in partial.blocks)
            tokens = tokenize_blocks(encoder, remaining)
            with progress_bar("encoding", summary.texts, done=partial.done, shown=progress) as advance:
                if processes == 1:
                    encoded = encode_blocks(
                        encoder, tokens, normalize=config.normalize, dimensions=dim, bf16=bf16, on_batch=advance
                    )
                else:
                    work = WorkerConfig(
                        folder,
                        encoder.pooling,
                        encoder.max_length,
                        config.normalize,
                        bf16,
                        encoder.prompt_length(prompt),
                        dim,
                    )
                    encoded = encode_in_processes(tokens, work, assign_devices(device, processes), on_batch=advance)
                with closing(encoded):
                    _write_blocks(partial, encoded, codes, advance)
        quantize_all(partial, codes)
        partial.finish(texts() if config.with_texts else None)
    done = partial.blocks.values()
    if cut := sum(found["cut"] for found in done):
        warnings.warn(
            truncation_message(cut, sum(found["distinct"] for found in done), encoder.max_length), stacklevel=2
        )
    return summary.texts, dim


def _choose_precision(config: EncodeConfig, output: Path) -> tuple[str, str]:
    """The precision to compute in, and what the run records of it; a resumed run keeps that of its beginning."""
    recorded = recorded_precision(output) if config.resume else None
    if recorded is not None and recorded.startswith("" if config.precision == "auto" else config.precision):
        return resumed_precision(recorded, config.device, what=f"{partial_folder(output)}: this run"), recorded
    precision = resolve(config.precision, config.device)
    return precision, precision_record(precision, config.device)


def _check_output(config: EncodeConfig) -> Path:
    """The output path, once it is clear that it can be written."""
    output = Path(config.output)
    if output.suffix not in (".npy", ".parquet"):
        raise NearfarError(
            f"--output {output}: must end in .npy or .parquet. For a folder of parts, give --shard-rows."
        )
    check_output_path(output)
    refuse_overwriting_inputs(output, [config.input, config.calibrate])
    if config.quantize == "int8":
        refuse_overwriting_inputs(ranges_file(output), [config.input, config.calibrate])
    if not is_renamed(output):
        if config.resume and not config.overwrite and os.path.lexists(output) and not is_unfinished(output):
            remove_empty_partial(output)
            raise NearfarError(
                f"{output}: is finished, there is nothing to resume. To encode again, give --overwrite instead of "
                "--resume."
            )
        unfinished = config.resume and is_unfinished(output)  # then the ranges may be its own
        ranges = [ranges_file(output)] if config.quantize == "int8" and not unfinished else []
        if not (config.resume and is_finishing(output)):
            refuse_existing([output, *ranges], overwrite=config.overwrite)
    if config.with_texts and output.suffix != ".parquet":
        raise NearfarError(f"--with-texts: --output {output} can only hold embeddings; choose a .parquet file.")
    return output


def _write_blocks(partial: "PartialOutput", encoded: "Encoded", codes: Codes, advance: Callable[[int], None]) -> None:
    """Write the blocks as they are encoded; errors say how to resume."""
    from nearfar.encoder.finite import NotFiniteError

    try:
        for block, vectors in encoded:
            distinct = len(vectors)
            stored = codes.of_block(block.expand_distinct(vectors))
            partial.write(block.start, stored, distinct=distinct, cut=block.tokenized.truncated)
            advance(len(block.rows) - distinct)
    except SourceChangedError:
        partial.discard()
        raise
    except NotFiniteError:
        raise  # resuming would fail on the same text
    except NearfarError as error:
        raise NearfarError(
            f"{error} {partial.done:,} of {partial.shape[0]:,} texts are done; continue with --resume."
        ) from error
