"""``nearfar encode``: texts -> embeddings, in parts that a later call continues; one file is the join of its parts."""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from nearfar.commands.encode.begin import (
    EncodeResult,
    check_disk_space,
    computes_here,
    place_of,
    read_ranges,
    settings_of,
    try_model,
    warn_of_truncated,
    write_plan,
)
from nearfar.commands.encode.corpus import InputFile
from nearfar.commands.encode.folder import encode_to_folder
from nearfar.commands.encode.parts import (
    forget_encoder,
    locate_model,
    missing_blocks,
    open_encoder,
    pieces_of,
    store_stream,
)
from nearfar.commands.encode.plan import (
    MANIFEST,
    Plan,
    agree_on_plan,
    finished_parts,
    read_plan,
    read_records,
    work_of,
)
from nearfar.commands.encode.vectors import join_parts, ranges_file
from nearfar.config.calls import accepts_settings
from nearfar.config.encode import EncodeConfig
from nearfar.data.lines import SourceChangedError, SourceSummary, read_texts, summarise_source, verify_unchanged
from nearfar.disk import (
    FolderBusyError,
    check_output_path,
    folder_lock,
    path_errors,
    refuse_existing,
    refuse_overwriting_inputs,
    remove,
)
from nearfar.disk.places import OWN, Place
from nearfar.disk.work import PLAN
from nearfar.encoder.precision import check_computing
from nearfar.runtime.progress import progress_bar
from nearfar.types import NearfarError

BLOCK = 2**14
"""Number of texts in a block. A block is sorted by length and deduplicated as a whole. Of one file, it is a part."""


@accepts_settings(EncodeConfig)
@path_errors()
def encode(model: str | Path, config: EncodeConfig, *, block: int = BLOCK, progress: bool = True) -> tuple[int, int]:
    """Write the embeddings of the texts in ``config.input`` to ``config.output``; returns their shape (texts, dim).

    Settings can be given by name: ``encode("model", input="texts.txt", output="texts.npy")``; see
    :class:`nearfar.EncodeConfig`. Row i of the output belongs to text i, counted from 0. The embeddings are those of
    :meth:`nearfar.Encoder.encode`. A .npy file holds one array [texts, dim]. A .parquet file has the columns ``row``
    and ``embedding`` (a list of fixed size).

    ``dimensions`` keeps the first dimensions, ``quantize`` writes the codes of :mod:`nearfar.quantization` in place of
    float32 embeddings. The ranges of int8 codes are in ``OUTPUT.ranges.npy`` (without the suffix of ``OUTPUT``),
    float32 [2, dim]; where they are those of the embeddings themselves, the parts hold float32 embeddings.

    Texts are read twice: first to count, check and fingerprint them, then block by block. At most a few blocks are in
    memory. Embeddings are kept as parts in ``OUTPUT.partial`` until all are done; then they are joined, and the output
    appears at once. An interrupted run continues with ``resume`` after the last finished part, and ends with the same
    bytes as an uninterrupted run (same machine, same number of threads). A resumed run with precision ``auto`` keeps
    the precision that it started with.

    If :attr:`nearfar.EncodeConfig.sharded` is set, the output is the folder of parts itself: ``part-00000.parquet`` and
    so on, with the columns ``row``, ``vector`` and those of ``keep``; ``_manifest.json``, when all of them are
    finished; and ``_nearfar``. Part k has the rows k * ``shard_rows`` to (k + 1) * ``shard_rows`` of the files in the
    order of their names. The shape is then that of the parts of this call: all, or those of ``shard``.

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
    result = encode_parts(model, config, block=block, progress=progress)
    return result.rows, result.dim


@path_errors()
def encode_parts(model: str | Path, config: EncodeConfig, *, block: int = BLOCK, progress: bool = True) -> EncodeResult:
    """:func:`encode`, which returns what was written.

    Raises:
        NearfarError: see :func:`encode`.
    """
    if block < 1:
        raise NearfarError(f"block {block}: must be at least 1.")
    folder = Path(os.path.expanduser(model))
    elsewhere = config.sharded or not computes_here(config)  # jobs and workers have other working directories
    name = str(folder.absolute() if elsewhere and folder.is_dir() else model)
    try:
        if config.sharded:
            return encode_to_folder(name, config, block, progress=progress)
        return _encode_to_file(name, config, block, progress=progress)
    finally:
        forget_encoder()


def can_be_continued(config: EncodeConfig) -> bool:
    """Whether ``--resume`` would continue a run."""
    place = place_of(config)
    return work_of(place).exists and MANIFEST not in place.names()


def _encode_to_file(model: str, config: EncodeConfig, block: int, *, progress: bool) -> EncodeResult:
    """Encode a stream of texts into parts, and join them."""
    output = _check_file(config)
    check_computing(config.device, config.precision)
    summary = summarise_source(read_texts(config.input, config.column))
    if summary.empty:
        raise NearfarError(f"{config.input}: holds no texts.")

    def texts() -> Iterator[str]:
        return verify_unchanged(read_texts(config.input, config.column), summary, config.input)

    place = place_of(config)
    assert place.shared is not None
    with folder_lock(place.shared, what=output, remove_if_empty=True):
        plan = _plan_of_file(model, config, place, summary, block)
        done = finished_parts(place, plan)
        if len(done) < plan.parts and not config.overwrite:
            refuse_existing([output], overwrite=False)
        missing = [part for part in range(plan.parts) if part not in done]
        check_disk_space(place, plan, missing, of=output)
        try:
            if missing:
                _stream(model, config, plan, place, done=done, texts=texts(), progress=progress)
            join_parts(place, plan, output, texts() if config.with_texts else None)
        except SourceChangedError:
            _remove_work(place)
            raise
        records = read_records(place, plan)
        _remove_work(place)
    warn_of_truncated(records.values(), plan)
    return EncodeResult(plan.rows, plan.dim, plan.parts, complete=True)


def _check_file(config: EncodeConfig) -> Path:
    """The output file, once it is clear that it can be written."""
    output, place = Path(config.output), place_of(config)
    assert place.shared is not None
    if output.suffix not in (".npy", ".parquet"):
        raise NearfarError(
            f"--output {output}: must end in .npy or .parquet. For a folder of parts, give --shard-rows."
        )
    check_output_path(output)
    ranges = [ranges_file(output)] if config.quantize == "int8" else []
    for file in (output, *ranges):
        refuse_overwriting_inputs(file, [config.input, config.calibrate])
    resumes = config.resume and work_of(place).exists
    if config.resume and not resumes and not config.overwrite and os.path.lexists(output):
        if place.shared.is_dir():  # what a run left that was killed just before its end
            with suppress(FolderBusyError), folder_lock(place.shared, what=output, remove_if_empty=True):
                _remove_work(place)
        raise NearfarError(
            f"{output}: is finished, there is nothing to resume. To encode again, give --overwrite instead of --resume."
        )
    if not resumes:  # else they may be its own
        refuse_existing([output, *ranges], overwrite=config.overwrite)
    if config.with_texts and output.suffix != ".parquet":
        raise NearfarError(f"--with-texts: --output {output} can only hold embeddings; choose a .parquet file.")
    return output


def _plan_of_file(model: str, config: EncodeConfig, place: Place, summary: SourceSummary, block: int) -> Plan:
    before = read_plan(place)
    if before is not None and not config.resume:
        done = sum(record.rows[1] - record.rows[0] for record in read_records(place, before).values())
        raise NearfarError(
            f"{config.output}.partial: holds {done:,} of {before.rows:,} texts of an interrupted run. Continue it with "
            "--resume, or remove the folder."
        )
    if before is None:
        _remove_work(place)
    ranges = read_ranges(config)
    settings = {**settings_of(model, config, ranges), "shard_rows": block, "block": block}
    source = InputFile(config.input, summary.texts, 0, summary.digest)

    def make() -> None:
        dim, resolved = try_model(model, config, ranges)
        write_plan(place, Plan({**settings, **resolved}, dim, (source,)), ranges)

    def inputs(plan: Plan) -> tuple[list[str], Sequence[InputFile]]:
        changed = [] if plan.files[0].footer == source.footer else ["the texts of --input changed"]
        if plan.rows != source.rows:
            changed.append(f"the number of texts was {plan.rows:,}, is {source.rows:,}")
        return changed, [source]

    way = "remove the folder to start again"
    return agree_on_plan(place, make, settings, precision=config.precision, inputs=inputs, way=way)


def _stream(
    model: str,
    config: EncodeConfig,
    plan: Plan,
    place: Place,
    *,
    done: Collection[int],
    texts: Iterator[str],
    progress: bool,
) -> None:
    """Encode the texts of the parts that are not done; errors say how to continue."""
    from nearfar.encoder.stream import WorkerConfig, assign_devices, encode_blocks, encode_in_processes, tokenize_blocks
    from nearfar.encoder.token_batches import NotFiniteError

    settings = plan.settings
    processes = min(config.processes, plan.parts - len(done))
    opened = open_encoder(model, config.device, plan, place, load_on="cpu" if processes > 1 else None)
    encoder = opened.encoder
    how = {"normalize": settings["normalize"], "dimensions": settings["dimensions"], "bf16": opened.bf16}
    tokens = tokenize_blocks(encoder, missing_blocks(texts, plan, done))
    rows_done = sum(stop - start for start, stop in map(plan.row_range, done))
    with progress_bar("encoding", plan.rows, done=rows_done, shown=progress) as advance:
        if processes == 1:
            encoded = encode_blocks(encoder, tokens, **how, on_batch=advance)
        else:
            prompt_length = encoder.prompt_length(encoder.resolve_prompt())
            work = WorkerConfig(
                locate_model(model)[0], encoder.pooling, encoder.max_length, prompt_length=prompt_length, **how
            )
            encoded = encode_in_processes(tokens, work, assign_devices(config.device, processes), on_batch=advance)
        try:
            assert place.shared is not None
            with closing(encoded):
                store_stream(place, plan, pieces_of(encoded, advance), place.shared)
        except (SourceChangedError, NotFiniteError):
            raise  # another call would fail too
        except NearfarError as error:
            finished = sum(record.rows[1] - record.rows[0] for record in read_records(place, plan).values())
            raise NearfarError(
                f"{error} {finished:,} of {plan.rows:,} texts are done; continue with --resume."
            ) from error


def _remove_work(place: Place) -> None:
    """Remove the parts of one file; the plan first, so that what is left later is nothing to continue."""
    assert place.shared is not None
    if place.shared.is_dir():
        place.remove(PLAN)
        for entry in list(place.shared.iterdir()):
            if entry.name == OWN or entry.suffix == ".parquet":
                remove(entry)
