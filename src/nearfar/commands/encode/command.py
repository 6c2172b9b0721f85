"""``nearfar encode``: texts -> embeddings, in parts that a later call continues; one file is the join of its parts."""

import hashlib
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.commands.encode.corpus import InputFile, list_files, read_corpus, same_files
from nearfar.commands.encode.parts import (
    JOB,
    forget_encoder,
    load_encoder,
    locate_model,
    missing_blocks,
    open_encoder,
    pieces_of,
    store_stream,
)
from nearfar.commands.encode.plan import (
    MANIFEST,
    RANGES,
    RESOLVED,
    WORDS,
    PartRecord,
    Plan,
    finished_parts,
    part_name,
    read_plan,
    read_records,
    record_name,
    work_of,
    write_manifest,
)
from nearfar.commands.encode.vectors import join_parts, ranges_file
from nearfar.config.calls import accepts_settings
from nearfar.config.encode import DEFAULT_SHARD_ROWS, EncodeConfig
from nearfar.data.lines import SourceChangedError, read_texts, summarise_source, verify_unchanged
from nearfar.data.memory import takes_rows
from nearfar.disk import (
    FolderBusyError,
    check_output_path,
    check_writable_folder,
    folder_lock,
    path_errors,
    refuse_existing,
    refuse_overwriting_inputs,
    remove,
)
from nearfar.disk.places import OWN, WRITING, LocalFolder, Place, open_place
from nearfar.disk.work import PLAN, list_changes, refuse_changes
from nearfar.encoder.precision import check_computing, precision_record, resolve
from nearfar.jobs import Job, JobEvent, JobsFailedError, ScratchStore, run_jobs, shard_of
from nearfar.runtime.progress import progress_bar
from nearfar.types import NearfarError

BLOCK = 2**14
"""Number of texts in a block. A block is sorted by length and deduplicated as a whole. Of one file, it is a part."""
_SHOWN = 10
"""Number of failed parts that an error names."""


class EncodeResult(NamedTuple):
    """What a run has written."""

    rows: int
    """Number of rows of this run: all, or those of its ``--shard``."""
    dim: int
    parts: int
    """Number of parts of this run."""
    complete: bool
    """Whether all parts of the output are finished."""


class _Input(NamedTuple):
    """What a plan has from ``--input``."""

    settings: dict[str, Any]
    """How its rows are divided into parts, and what is kept of them."""
    read: Callable[[], tuple[tuple[InputFile, ...], str]]
    """The files of a new plan, and the schema of the kept columns."""
    compare: Callable[[Plan], tuple[list[str], Sequence[InputFile]]]
    """What changed since a plan was made, in words, and where its files are now."""
    way: str
    """How to start again, for messages."""


@takes_rows
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
    elsewhere = config.sharded or not _computes_here(config)  # jobs and workers have other working directories
    name = str(folder.absolute() if elsewhere and folder.is_dir() else model)
    try:
        if config.sharded:
            return _encode_to_folder(name, config, block, progress=progress)
        return _encode_to_file(name, config, block, progress=progress)
    finally:
        forget_encoder()


def can_be_continued(config: EncodeConfig) -> bool:
    """Whether ``--resume`` would continue a run."""
    place = _place_of(config)
    return work_of(place).exists and MANIFEST not in place.names()


def _place_of(config: EncodeConfig) -> Place:
    """The folder of the parts."""
    return open_place(config.output) if config.sharded else _folder_of_file(config)


def _folder_of_file(config: EncodeConfig) -> LocalFolder:
    return LocalFolder(f"{config.output}.partial")


def _computes_here(config: EncodeConfig) -> bool:
    """Whether this process encodes, and no others."""
    if config.sharded:
        return config.engine == "local" and config.workers == 1 and not config.threads
    return config.processes == 1


def _encode_to_file(model: str, config: EncodeConfig, block: int, *, progress: bool) -> EncodeResult:
    """Encode a stream of texts into parts, and join them."""
    place = _folder_of_file(config)
    output = _check_file(config, place)
    check_computing(config.device, config.precision)
    summary = summarise_source(read_texts(config.input, config.column))
    if summary.empty:
        raise NearfarError(f"{config.input}: holds no texts.")
    source = InputFile(config.input, summary.texts, 0, summary.digest)

    def compare(plan: Plan) -> tuple[list[str], Sequence[InputFile]]:
        changed = [] if plan.files[0].footer == source.footer else ["the texts of --input changed"]
        if plan.rows != source.rows:
            changed.append(f"the number of texts was {plan.rows:,}, is {source.rows:,}")
        return changed, [source]

    def texts() -> Iterator[str]:
        return verify_unchanged(read_texts(config.input, config.column), summary, config.input)

    settings = {"shard_rows": block, "block": block}
    texts_of_plan = _Input(settings, lambda: ((source,), ""), compare, "remove the folder to start again")
    with folder_lock(place.shared, what=output, remove_if_empty=True):
        before = read_plan(place)
        if before is None:
            _remove_work(place)
        elif not config.resume:
            raise NearfarError(
                f"{config.output}.partial: holds {_finished_rows(place, before):,} of {before.rows:,} texts of an "
                "interrupted run. Continue it with --resume, or remove the folder."
            )
        plan = _agree_on_plan(model, config, place, block, texts_of_plan)
        done = finished_parts(place, plan)
        if len(done) < plan.parts and not config.overwrite:
            refuse_existing([output], overwrite=False)
        missing = [part for part in range(plan.parts) if part not in done]
        _check_disk_space(place, plan, missing, of=output)
        try:
            if missing:
                _stream(model, config, plan, place, done=done, texts=texts(), progress=progress)
            join_parts(place, plan, output, texts() if config.with_texts else None)
        except SourceChangedError:
            _remove_work(place)
            raise
        records = read_records(place, plan)
        _remove_work(place)
    _warn_of_truncated(records.values(), plan)
    return EncodeResult(plan.rows, plan.dim, plan.parts, complete=True)


def _encode_to_folder(model: str, config: EncodeConfig, block: int, *, progress: bool) -> EncodeResult:
    """Write the embeddings of a corpus as a folder of parts, each by a job of its own."""
    place = open_place(config.output)
    _check_folder(config, place)
    plan = _agree_on_plan(model, config, place, block, _corpus_of(config, place))
    local = {"output": place.address, "model": model, "device": config.device}
    uses = "gpu" if config.engine == "ray" and str(config.device).startswith("cuda") else None
    jobs = [Job(JOB, {"part": part, "plan": plan.digest}, local=local, uses=uses) for part in range(plan.parts)]
    jobs = shard_of(jobs, config.shard_numbers)
    parts = [_part_of(job) for job in jobs]
    recorded = set(work_of(place).recorded())
    _check_disk_space(place, plan, [part for part in parts if record_name(part) not in recorded])
    rows = sum(stop - start for start, stop in map(plan.row_range, parts))
    _run_jobs(config, place, plan, jobs, rows, progress=progress)
    records = read_records(place, plan)
    complete = len(records) == plan.parts
    if complete:
        try:
            write_manifest(place, plan, records)
        except NearfarError:
            if MANIFEST not in place.names():  # else another process was faster, and removed what was written aside
                raise
        place.clean(MANIFEST)
        _warn_of_truncated(records.values(), plan)
    return EncodeResult(rows, plan.dim, len(parts), complete)


def _check_file(config: EncodeConfig, place: LocalFolder) -> Path:
    """The output file, once it is clear that it can be written."""
    output = Path(config.output)
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


def _check_folder(config: EncodeConfig, place: Place) -> None:
    """Refuse an output that is a file, cannot be written, or holds other files or a run that is not continued."""
    output, path = config.output, place.shared
    if path is not None:
        if path.exists() and not path.is_dir():
            raise NearfarError(f"--output {output}: is a file; name a folder for the parts.")
        check_writable_folder(path, output)
    before = read_plan(place)
    if before is not None and not (config.overwrite or config.resume or config.shard):
        raise NearfarError(
            f"--output {output}: holds a run of nearfar encode. Continue it with --resume, replace it with "
            "--overwrite, or choose another folder."
        )
    others = [name for name in place.names() if name != OWN] if before is None else []
    if others and read_plan(place) is None:  # else another process has just started the run
        raise NearfarError(
            f"--output {output}: holds other files, such as {others[0]}; choose an empty or a new folder."
        )


def _corpus_of(config: EncodeConfig, place: Place) -> _Input:
    """The Parquet files of ``--input``."""
    shard_rows = config.shard_rows or DEFAULT_SHARD_ROWS

    def read() -> tuple[tuple[InputFile, ...], str]:
        corpus = read_corpus(config.input, str(config.column), config.keep)
        inside = [file.address for file in corpus.files if file.address.startswith(place.address.rstrip("/") + "/")]
        if inside:
            raise NearfarError(f"--output {place.address}: has the input {inside[0]} in it; choose another folder.")
        if corpus.largest_group > 2 * shard_rows:
            warnings.warn(
                f"--shard-rows {shard_rows:,}: the input has row groups of up to {corpus.largest_group:,} rows, and "
                "each shard reads whole row groups. Give more rows.",
                stacklevel=2,
            )
        return corpus.files, corpus.kept.serialize().to_pybytes().hex() if corpus.kept.names else ""

    def compare(plan: Plan) -> tuple[list[str], Sequence[InputFile]]:
        """Files are compared by names and sizes; a worker compares the footer of a file when it opens it."""
        listed = list_files(config.input)
        if difference := same_files(plan.files, listed):
            return [difference], plan.files
        return [], [replace(file, address=address) for file, (address, _) in zip(plan.files, listed, strict=True)]

    return _Input({"shard_rows": shard_rows, "keep": list(config.keep)}, read, compare, "choose another --output")


def _agree_on_plan(model: str, config: EncodeConfig, place: Place, block: int, source: _Input) -> Plan:
    """The plan of all processes that write to the folder: the one that is there, checked, or the one that is made.

    Raises:
        NearfarError: settings, model or input differ; the message names what differs.
    """
    ranges = _read_ranges(config)
    names = ("column", "pooling", "prompt", "max_length", "normalize", "dimensions", "dtype", "quantize")
    settings = {
        "model": locate_model(model)[1],
        **{name: getattr(config, name) for name in names},
        "calibrate": None if ranges is None else hashlib.sha256(ranges.tobytes()).hexdigest()[:16],
        **source.settings,
    }

    def new_plan() -> Plan:
        files, schema = source.read()
        dim, resolved = _try_model(model, config, ranges)
        return Plan({**settings, **resolved, "block": block}, dim, files, schema)

    if config.sharded and config.overwrite:
        plan = new_plan()  # before anything is removed
        _remove_run(place)
        _write_plan(place, plan, ranges)
    work_of(place).agree(lambda: _write_plan(place, new_plan(), ranges))
    agreed = read_plan(place)
    assert agreed is not None  # the call before has read it
    before = {name: value for name, value in agreed.settings.items() if name not in RESOLVED or name in settings}
    changed, files = source.compare(agreed)
    changed = [*list_changes(before, settings, WORDS), *changed]
    recorded = str(agreed.settings["precision"])
    if config.precision != "auto" and not recorded.startswith(config.precision):
        changed.append(f"--precision was {recorded}, is {config.precision}")
    refuse_changes(place.address, changed, way=source.way)
    moved = replace(agreed, files=tuple(files))
    if moved != agreed:
        work_of(place).begin(moved.to_dict())
    return moved


def _read_ranges(config: EncodeConfig) -> NDArray[np.float32] | None:
    """The ranges of ``--calibrate``; None without it."""
    if config.calibrate is None:
        return None
    from nearfar.quantization import read_ranges

    return read_ranges(Path(config.calibrate).expanduser(), flag="--calibrate")


def _try_model(model: str, config: EncodeConfig, ranges: NDArray[np.float32] | None) -> tuple[int, dict[str, Any]]:
    """Open the encoder, so that settings that it refuses are errors now; the dimensions, and what it decides."""
    from nearfar.encoder.prompts import choose_width

    device = config.device if config.engine == "local" else "cpu"
    check_computing(device, config.precision)
    here = _computes_here(config)
    encoder = load_encoder(model, config.pooling, config.max_length, config.prompt, device if here else "cpu")
    dim, limit = choose_width(config.dimensions, encoder.dim, encoder.matryoshka), encoder.max_length
    if ranges is not None and ranges.shape[1] != dim:
        raise NearfarError(
            f"--calibrate {config.calibrate}: its vectors have {ranges.shape[1]} dimensions, those to quantize "
            f"{dim}; name a file of vectors with the same number."
        )
    if config.sharded and not here:
        del encoder
        load_encoder.cache_clear()
    return dim, {"precision": precision_record(resolve(config.precision, device), device), "limit": limit}


def _write_plan(place: Place, plan: Plan, ranges: NDArray[np.float32] | None) -> None:
    """Write the plan; from then on the folder holds a run."""
    if ranges is not None:
        place.clean(RANGES)
        stream = BytesIO()
        np.save(stream, ranges)
        place.write(RANGES, stream.getvalue())
    work_of(place).begin(plan.to_dict())


def _check_disk_space(place: Place, plan: Plan, parts: Iterable[int], *, of: Path | None = None) -> None:
    """Raise if the disk has too little free space for the vectors of ``parts`` and, with ``of``, for that file."""
    free = place.free_bytes()
    if free is None:
        return
    from nearfar.quantization import bytes_per_vector

    kind: Any = plan.settings["quantize"] or ("float16" if plan.settings["dtype"] == "float16" else "float32")
    size = bytes_per_vector(plan.dim, kind)
    is_converted = kind == "int8" and plan.settings["calibrate"] is None  # when the parts are joined
    rows = sum(stop - start for start, stop in map(plan.row_range, parts))
    needed = rows * (bytes_per_vector(plan.dim, "float32") if is_converted else size)
    needed += 0 if of is None else plan.rows * size
    if free < needed:
        raise NearfarError(
            f"{of or place.address}: needs about {_format_bytes(needed)} of disk space, and {_format_bytes(free)} are "
            "free. Free some, write to another disk, or write smaller embeddings with --quantize."
        )


def _format_bytes(size: float) -> str:
    """A number of bytes in a readable unit."""
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"


def _stream(
    model: str,
    config: EncodeConfig,
    plan: Plan,
    place: LocalFolder,
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
            with closing(encoded):
                store_stream(place, plan, pieces_of(encoded, advance), place.shared)
        except (SourceChangedError, NotFiniteError):
            raise  # another call would fail too
        except NearfarError as error:
            raise NearfarError(
                f"{error} {_finished_rows(place, plan):,} of {plan.rows:,} texts are done; continue with --resume."
            ) from error


def _finished_rows(place: Place, plan: Plan) -> int:
    return sum(stop - start for start, stop in (record.rows for record in read_records(place, plan).values()))


def _run_jobs(config: EncodeConfig, place: Place, plan: Plan, jobs: list[Job], rows: int, *, progress: bool) -> None:
    """Run the jobs, which encode ``rows`` rows; failures are one error that names the parts."""
    from nearfar.runtime.threads import available_cores, cpu_quota

    cores = min(available_cores(), cpu_quota() or available_cores())
    threads = config.threads or (1 if config.ray_address else max(1, cores // config.workers))
    here = "inline" if _computes_here(config) else "process"
    try:
        with progress_bar("encoding", rows, shown=progress) as advance:

            def on_event(event: JobEvent) -> None:
                if event.kind == "finished":
                    start, stop = plan.row_range(_part_of(event.job))
                    advance(stop - start)

            run_jobs(
                jobs,
                ScratchStore(place.shared / WRITING if place.shared else None),
                engine="ray" if config.engine == "ray" else here,
                workers=config.workers,
                threads=threads,
                ray_address=config.ray_address,
                on_event=on_event,
            )
    except JobsFailedError as error:
        lines = [f"{len(error.failures):,} of {len(jobs):,} parts failed:"]
        lines += [f"  {part_name(_part_of(one.job))}: {one.message}" for one in error.failures[:_SHOWN]]
        lines += [f"  and {len(error.failures) - _SHOWN:,} more"] if len(error.failures) > _SHOWN else []
        raise NearfarError("\n".join([*lines, "The other parts are kept; continue with --resume."])) from error


def _part_of(job: Job) -> int:
    part = job.settings["part"]
    assert isinstance(part, int)
    return part


def _warn_of_truncated(records: Iterable[PartRecord], plan: Plan) -> None:
    """Warn once if texts of any part are longer than the model reads."""
    from nearfar.encoder.token_batches import truncation_message

    counts = [(record.truncated, record.distinct) for record in records]
    truncated, distinct = (sum(count) for count in zip(*counts, strict=True))
    if truncated:
        warnings.warn(truncation_message(truncated, distinct, plan.settings["limit"]), stacklevel=2)


def _remove_work(place: LocalFolder) -> None:
    """Remove the parts of one file; the plan first, so that what is left later is nothing to continue."""
    if place.shared.is_dir():
        place.remove(PLAN)
        for entry in list(place.shared.iterdir()):
            if entry.name == OWN or entry.suffix == ".parquet":
                remove(entry)


def _remove_run(place: Place) -> None:
    """Remove what a run wrote; the plan last, so that an interruption leaves a run, and not other files."""
    parts = [name for name in place.names() if name == MANIFEST or (name.startswith("part-") and "." in name)]
    work_of(place).forget_parts()
    for name in (*parts, RANGES, PLAN):
        place.remove(name)
