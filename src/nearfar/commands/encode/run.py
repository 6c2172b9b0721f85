"""A run of encode: its input and settings agree with what is there; missing parts are encoded; a file is their join."""

import os
import warnings
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from nearfar.commands.encode.corpus import InputFile, column_reader, list_files, read_footers, read_texts
from nearfar.commands.encode.parts import (
    MANIFEST,
    OnTexts,
    Parts,
    Piece,
    Plan,
    VectorSettings,
    file_name,
    ranges_file,
    read_plan,
    work_of,
)
from nearfar.commands.encode.vectors import OpenEncoder, open_encoder, pieces_of
from nearfar.config.encoding import DEFAULT_SHARD_ROWS, EncodeConfig
from nearfar.data import lines
from nearfar.disk import remove
from nearfar.disk.checks import check_output_path, check_writable_folder, refuse_existing, refuse_overwriting_inputs
from nearfar.disk.folders import folder_lock
from nearfar.disk.places import OWN, WRITING, LocalFolder, Place, open_place
from nearfar.disk.work import PLAN, list_changes, refuse_changes
from nearfar.encoder.precision import check_computing, precision_record, resolve, resumed_precision
from nearfar.encoder.prompts import choose_width
from nearfar.encoder.token_batches import NotFiniteError, truncation_message
from nearfar.encoder.weights import locate
from nearfar.jobs import Job, JobEvent, JobsFailedError, run_jobs, shard_of
from nearfar.quantization import read_ranges
from nearfar.runs.fingerprints import fingerprint_model
from nearfar.runtime.progress import progress_bar
from nearfar.runtime.threads import available_cores, cpu_quota
from nearfar.types import NearfarError

JOB = "nearfar.commands.encode.run:write_part"
"""The function of the jobs."""
OPENING = ("pooling", "max_length", "prompt")
"""Flags that open an encoder, and are settings of a plan as they are."""
WORDS = {"model": "the model's weights or settings", "calibrate": "the ranges of --calibrate"}
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


@lru_cache(maxsize=1)
def load_encoder(model: str, **opening: str | int | None) -> OpenEncoder:
    """An encoder; of calls with the same arguments, the first one opens it, until the cache is cleared."""
    return open_encoder(model, opening)


def open_planned(model: str, device: str | None, parts: Parts, *, load_on: str | None = None) -> OpenEncoder:
    """The encoder of a plan, opened once for all parts of a process.

    Args:
        model: the model, as this machine knows it.
        device: where vectors are computed.
        parts: the parts of the plan.
        load_on: the device of this process's encoder, if others compute.

    Raises:
        NearfarError: the model of this name is another one on this machine, or cannot be opened; or the plan was made
            in native bfloat16, which the device does not have.
    """
    settings, address = parts.plan.settings, parts.place.address
    opened = load_encoder(model, **{name: getattr(settings, name) for name in OPENING}, device=load_on or device)
    if opened.model != settings.model:
        raise NearfarError(f"{model}: is not the model that the run in {address} started with.")
    precision = resumed_precision(settings.precision, device, what=f"{address}: this run")
    return opened._replace(bf16=precision == "bf16")


def place_of(config: EncodeConfig) -> Place:
    """The folder of the parts."""
    return open_place(config.output) if config.sharded else LocalFolder(f"{config.output}.partial")


def agreed_parts(
    model: str,
    config: EncodeConfig,
    block: int,
    *,
    read_input: Callable[[], list[InputFile]],
    input_changes: Callable[[Plan], list[str]],
    computes_here: bool,
) -> Parts:
    """The parts that all processes write which use a folder: of the plan that is there, or of a new one.

    Args:
        model: the model, as workers find it.
        config: the settings; with ``overwrite``, a new plan replaces the one that is there once it can start.
        block: number of texts in a block.
        read_input: returns the files of a new plan.
        input_changes: what changed since a plan was made, in words.
        computes_here: whether this process encodes, and no others.

    Raises:
        NearfarError: settings, model or input differ; the message names what differs.
    """
    place = place_of(config)
    work = work_of(place)
    wanted: dict[str, Any] = {name: getattr(config, name) for name in (*OPENING, "column", "normalize", "dimensions")}
    wanted |= {"model": fingerprint_model(model), "keep": list(config.keep), "calibrate": None, "block": block}
    wanted["quantize"] = "float16" if config.dtype == "float16" else config.quantize
    wanted["shard_rows"] = (config.shard_rows or DEFAULT_SHARD_ROWS) if config.sharded else block
    if config.calibrate is not None:
        wanted["calibrate"] = read_ranges(Path(config.calibrate).expanduser(), flag="--calibrate").tolist()

    def new_plan() -> dict[str, Any]:
        files, device = read_input(), config.device if config.engine == "local" else "cpu"
        check_computing(device, config.precision)
        opening = {name: wanted[name] for name in OPENING}
        encoder = load_encoder(model, **opening, device=device if computes_here else "cpu").encoder
        dim = choose_width(config.dimensions, encoder.dim, encoder.matryoshka)
        if config.calibrate is not None and len(wanted["calibrate"][0]) != dim:
            raise NearfarError(
                f"--calibrate {config.calibrate}: its vectors have {len(wanted['calibrate'][0])} dimensions, those "
                f"to quantize {dim}; name a file of vectors with the same number."
            )
        precision: Any = precision_record(resolve(config.precision, device), device)
        return asdict(Plan(VectorSettings(**wanted, precision=precision, limit=encoder.max_length), dim, files))

    if config.sharded and config.overwrite:
        content = new_plan()  # before anything is removed
        remove_parts(place)
        work.begin(content)
    work.agree(lambda: work.begin(new_plan()))
    plan = read_plan(place)
    assert plan is not None  # the call before has read it
    now = wanted if config.precision == "auto" else wanted | {"precision": config.precision}
    before = asdict(plan.settings) | {"precision": plan.settings.precision.partition(" ")[0]}
    changes = list_changes({name: before[name] for name in now}, now, WORDS) + input_changes(plan)
    way = "choose another --output" if config.sharded else "remove the folder to start again"
    refuse_changes(place.address, changes, way=way)
    return Parts(place, plan)


def remove_parts(place: Place) -> None:
    """Remove a folder of parts; the plan goes last, so that an interruption leaves a run, and not other files."""
    work_of(place).forget_parts()
    names = [name for name in place.names() if name == MANIFEST or (name.startswith("part-") and "." in name)]
    for name in (*names, PLAN):
        place.remove(name)


def remove_partial(place: LocalFolder) -> None:
    """Remove the parts of a file; the plan goes first, so that what is left by an interruption is not continued."""
    place.remove(PLAN)
    for path in (*place.shared.glob("part-*"), place.shared / OWN):
        remove(path)


def warn_of_truncated(parts: Parts) -> None:
    """Warn once if texts of any part are longer than the model reads."""
    records = parts.records().values()
    if truncated := sum(record.truncated for record in records):
        distinct = sum(record.distinct for record in records)
        warnings.warn(truncation_message(truncated, distinct, parts.plan.settings.limit), stacklevel=2)


def encode_file(model: str, config: EncodeConfig, block: int, *, progress: bool) -> EncodeResult:
    """Write one file: encode the texts into parts, each of a block, and join them.

    The texts are read twice: to count and fingerprint them, and to encode them.
    """
    output, place = Path(config.output), LocalFolder(f"{config.output}.partial")
    files = [output, *([ranges_file(output)] if config.quantize == "int8" else [])]
    if output.suffix not in (".npy", ".parquet"):
        raise NearfarError(
            f"--output {output}: must end in .npy or .parquet. For a folder of parts, give --shard-rows."
        )
    if config.with_texts and output.suffix != ".parquet":
        raise NearfarError(f"--with-texts: --output {output} can only hold embeddings; choose a .parquet file.")
    check_output_path(output)
    for file in files:
        refuse_overwriting_inputs(file, [config.input, config.calibrate])
    check_computing(config.device, config.precision)
    with folder_lock(place.shared, what=output, remove_if_empty=True):
        _check_started(place, files, config)
        summary = lines.summarise_source(lines.read_texts(config.input, config.column))
        if summary.empty:
            raise NearfarError(f"{config.input}: holds no texts.")
        source = InputFile(config.input, summary.texts, 0, summary.digest)

        def changes(plan: Plan) -> list[str]:
            return [] if plan.files[0].footer == source.footer else ["the texts of --input changed"]

        def texts() -> Iterator[str]:
            return lines.verify_unchanged(lines.read_texts(config.input, config.column), summary, config.input)

        how: dict[str, Any] = {"read_input": lambda: [source], "computes_here": config.processes == 1}
        parts = agreed_parts(model, config, block, input_changes=changes, **how)
        done = parts.records(whole=True)
        missing = set(range(parts.plan.parts)) - set(done)
        if missing and not config.overwrite:
            refuse_existing([output], overwrite=False)
        try:
            if missing:
                _encode_missing(model, config, parts, done, texts(), progress=progress)
            parts.join(output, texts() if config.with_texts else None)
        except lines.SourceChangedError:
            remove_partial(place)
            raise
        warn_of_truncated(parts)
        remove_partial(place)
    return EncodeResult(parts.plan.rows, parts.plan.dim, parts.plan.parts, complete=True)


def _check_started(place: LocalFolder, files: list[Path], config: EncodeConfig) -> None:
    """Refuse a run that is there and is not continued, and without one, files that exist."""
    plan = read_plan(place)
    if plan is None:
        remove_partial(place)  # what a run left that was killed just before its end
        if config.resume and not config.overwrite and os.path.lexists(files[0]):
            raise NearfarError(
                f"{files[0]}: is finished, there is nothing to resume. To encode again, give --overwrite instead of "
                "--resume."
            )
        refuse_existing(files, overwrite=config.overwrite)
    elif not config.resume:
        done = Parts(place, plan)
        raise NearfarError(
            f"{config.output}.partial: holds {done.rows_in(done.records()):,} of {plan.rows:,} texts of an "
            "interrupted run. Continue it with --resume, or remove the folder."
        )


def _encode_missing(
    model: str, config: EncodeConfig, parts: Parts, done: Collection[int], texts: Iterator[str], *, progress: bool
) -> None:
    """Encode the texts of the parts that are not done; errors say how to continue."""
    plan = parts.plan
    processes = min(config.processes, plan.parts - len(done))
    opened = open_planned(model, config.device, parts, load_on="cpu" if processes > 1 else None)
    encode: Callable[..., Generator[Piece]] = opened.pieces
    if processes > 1:
        encode = partial(_pieces_of_processes, opened, locate(model), config.device, processes)
    how: dict[str, Any] = {"normalize": plan.settings.normalize, "dimensions": plan.settings.dimensions}
    with progress_bar("encoding", plan.rows, done=parts.rows_in(done), shown=progress) as advance:
        try:
            parts.complete(texts, done, partial(encode, **how, on_texts=advance))
        except (lines.SourceChangedError, NotFiniteError):
            raise  # another call would fail too
        except NearfarError as error:
            rows = parts.rows_in(parts.records())
            raise NearfarError(f"{error} {rows:,} of {plan.rows:,} texts are done; continue with --resume.") from error


def _pieces_of_processes(
    opened: OpenEncoder,
    folder: Path,
    device: str | None,
    processes: int,
    texts: Iterator[lines.Block],
    *,
    on_texts: OnTexts,
    **how: Any,
) -> Generator[Piece]:
    """The vectors of blocks of texts, computed by several processes; this one tokenises."""
    from nearfar.encoder import stream

    opening = {"pooling": opened.encoder.pooling, "max_length": opened.encoder.max_length}
    worker = stream.WorkerConfig(folder, opening, {"bf16": opened.bf16, **how})
    tokens, devices = stream.tokenize_blocks(opened.encoder, texts), stream.assign_devices(device, processes)
    return pieces_of(stream.encode_in_processes(tokens, worker, devices, on_batch=on_texts), on_texts)


def encode_folder(model: str, config: EncodeConfig, block: int, *, progress: bool) -> EncodeResult:
    """Write the parts of this call, each by a job; and the manifest, if all parts are there.

    Many processes can take part in it.
    """
    place = open_place(config.output)
    _check_folder(place, config)

    def changes(plan: Plan) -> list[str]:
        """By names and sizes of the files; a worker compares the footer of a file when it opens it."""
        before = {(file.address, file.size) for file in plan.files}
        different = sorted(before ^ set(list_files(config.input)))
        return [f"files of --input changed, such as {different[0][0]}"] if different else []

    def read() -> list[InputFile]:
        files = read_footers(config.input, str(config.column), config.keep)
        if inside := [file.address for file in files if file.address.startswith(f"{place.address.rstrip('/')}/")]:
            raise NearfarError(f"--output {place.address}: has the input {inside[0]} in it; choose another folder.")
        return files

    here = config.engine == "local" and config.workers == 1 and not config.threads
    parts = agreed_parts(model, config, block, read_input=read, input_changes=changes, computes_here=here)
    if not here:
        load_encoder.cache_clear()  # frees it
    local = {"output": place.address, "model": model, "device": config.device}
    uses = "gpu" if config.engine == "ray" and str(config.device).startswith("cuda") else None
    settings: list[dict[str, Any]] = [{"part": part, "plan": parts.plan.digest} for part in range(parts.plan.parts)]
    jobs = shard_of([Job(JOB, each, local=local, uses=uses) for each in settings], config.shard_numbers)
    own = list(map(_part_of, jobs))
    _run_jobs(parts, jobs, config, engine="inline" if here else config.engine, progress=progress)
    records = parts.records()
    complete = len(records) == parts.plan.parts
    if complete:
        parts.write_manifest(records)
        for name in place.names(WRITING):
            if name.startswith("part-"):  # left by a killed process
                place.remove(f"{WRITING}/{name}")
        warn_of_truncated(parts)
    return EncodeResult(parts.rows_in(own), parts.plan.dim, len(own), complete)


def _check_folder(place: Place, config: EncodeConfig) -> None:
    """Refuse an output that is a file, cannot be written, or holds other files or a run that is not continued."""
    output = config.output
    if place.shared is not None:
        check_writable_folder(place.shared, output)
    others = [name for name in place.names() if name != OWN]
    has_run = read_plan(place) is not None  # read last: another process may just have started the run
    if has_run and not (config.overwrite or config.resume or config.shard):
        raise NearfarError(
            f"--output {output}: holds a run of nearfar encode. Continue it with --resume, replace it with "
            "--overwrite, or choose another folder."
        )
    if others and not has_run:
        raise NearfarError(
            f"--output {output}: holds other files, such as {others[0]}; choose an empty or a new folder."
        )


def _part_of(job: Job) -> int:
    part = job.settings["part"]
    assert isinstance(part, int)
    return part


def _run_jobs(parts: Parts, jobs: list[Job], config: EncodeConfig, *, engine: str, progress: bool) -> None:
    """Run the jobs; failures are one error that names the parts."""
    cores = min(available_cores(), cpu_quota() or available_cores())
    try:
        with progress_bar("encoding", parts.rows_in(map(_part_of, jobs)), shown=progress) as advance:

            def on_event(event: JobEvent) -> None:
                if event.kind == "finished":
                    advance(parts.rows_in([_part_of(event.job)]))

            run_jobs(
                jobs,
                None,  # each part is published in its place
                engine="process" if engine == "local" else engine,
                workers=config.workers,
                threads=config.threads or (1 if config.ray_address else max(1, cores // config.workers)),
                ray_address=config.ray_address,
                on_event=on_event,
            )
    except JobsFailedError as error:
        listed = [f"\n  {file_name(_part_of(each.job))}: {each.message}" for each in error.failures[:_SHOWN]]
        raise NearfarError(
            f"{len(error.failures):,} of {len(jobs):,} parts failed:{''.join(listed)}\nThe other parts are kept; "
            "continue with --resume."
        ) from error


def write_part(settings: Mapping[str, Any], inputs: Mapping[str, Path], folder: Path) -> None:  # noqa: ARG001
    """Encode the rows of a part and publish its file and its record, unless both are there and valid.

    Args:
        settings: ``part``, the number of the part; ``plan``, the digest of the plan; ``output``, the address of the
            folder; ``model`` and ``device``, as this machine knows them.
        inputs: none.
        folder: a temporary folder.

    Raises:
        NearfarError: a text is not valid, an input file or the model is not that of the plan, or a file cannot be read
            or written.
    """
    part, place = int(settings["part"]), open_place(settings["output"])
    plan = read_plan(place)
    if plan is None or plan.digest != settings["plan"]:
        raise NearfarError(
            f"{place.address}/{PLAN}: is not seen by this machine, or belongs to another run. Start only one run in a "
            "folder, which all machines see."
        )
    parts = Parts(place, plan)
    if parts.finished(part):
        return
    how, (start, stop) = plan.settings, plan.row_range(part)
    texts = lines.blocks(read_texts(plan.files, start, stop, str(how.column)), size=how.block, start=start)
    opened = open_planned(settings["model"], settings["device"], parts)
    pieces = opened.pieces(texts, normalize=how.normalize, dimensions=how.dimensions)
    parts.store(part, pieces, folder, column_reader(plan.files, start, stop, how.keep))
