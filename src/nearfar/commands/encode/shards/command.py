"""``nearfar encode`` into a folder of parts: makes or checks the plan, runs the jobs, and gathers the manifest."""

import hashlib
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nearfar.commands.encode.array_file import format_bytes
from nearfar.commands.encode.progress import progress_bar
from nearfar.commands.encode.shards.corpus import read_corpus
from nearfar.commands.encode.shards.folders import OWN, WRITING, OutputFolder, check_folder, open_folder
from nearfar.commands.encode.shards.job import FUNCTION, forget_encoder
from nearfar.commands.encode.shards.plan import (
    PLAN,
    RANGES,
    Plan,
    agree,
    check_same,
    new_plan,
    read_plan,
    settings_of,
    write_plan,
)
from nearfar.commands.encode.shards.records import (
    MANIFEST,
    is_part,
    part_name,
    read_records,
    record_name,
    recorded_parts,
    write_manifest,
)
from nearfar.config.encode import EncodeConfig
from nearfar.disk import check_regular
from nearfar.jobs import Engine, Job, JobEvent, JobsFailedError, ScratchStore, run_jobs, shard_of
from nearfar.types import ARRAY_ERRORS, NearfarError

_SHOWN = 10


class ShardedResult(NamedTuple):
    """What a run in shards has written."""

    rows: int
    """Number of rows of the parts of this run: all, or those of its ``--shard``."""
    dim: int
    parts: int
    """Number of parts of this run."""
    complete: bool
    """Whether all parts of the folder are finished, and the manifest is written."""


def encode_shards(model: str | Path, config: EncodeConfig, *, block: int, progress: bool) -> ShardedResult:
    """Write the embeddings of a corpus as a folder of parts; see :func:`nearfar.encode`.

    Raises:
        NearfarError: no input file, no such column, or a file that is not Parquet; the output is a file, holds other
            files or another run, or does not fit on the disk; or parts failed, which the message lists.
    """
    folder = open_folder(config.output)
    check_folder(folder, config.output)
    before = read_plan(folder)
    if before is not None and not (config.overwrite or config.resume or config.shard):
        raise NearfarError(
            f"--output {config.output}: holds a run of nearfar encode. Continue it with --resume, replace it with "
            "--overwrite, or choose another folder."
        )
    others = [name for name in folder.names() if name != OWN] if before is None else []
    if others and read_plan(folder) is None:  # else another process has just started the run
        raise NearfarError(
            f"--output {config.output}: holds other files, such as {others[0]}; choose an empty or a new folder."
        )
    plan = _agree_on_plan(model, config, folder, block)
    place = str(model) if is_named(model) else str(Path(model).expanduser().absolute())
    jobs = shard_of(
        [
            Job(
                FUNCTION,
                {"part": part, "plan": plan.digest},
                local={"output": folder.address, "model": place, "device": config.device},
            )
            for part in range(plan.parts)
        ],
        config.shard_numbers,
    )
    parts = [_part_of(job) for job in jobs]
    _check_disk_space(folder, plan, config, parts)
    _run(config, folder, plan, jobs, progress=progress)
    records = read_records(folder, plan) if recorded_parts(folder) >= set(range(plan.parts)) else {}
    complete = len(records) == plan.parts
    if complete:
        try:
            write_manifest(folder, plan, records)
        except NearfarError:
            if MANIFEST not in folder.names():  # else another process was faster, and removed what was written aside
                raise
        folder.clean(MANIFEST)
        _warn_of_truncated(records.values(), plan)
    rows = sum(stop - start for start, stop in map(plan.row_range, parts))
    return ShardedResult(rows, plan.dim, len(parts), complete)


def is_named(model: str | Path) -> bool:
    """Whether a model is named as on the hub: there is no such folder here."""
    return not Path(model).expanduser().is_dir()


def is_unfinished_folder(output: str) -> bool:
    """Whether there is a run in the folder that ``--resume`` can continue."""
    folder = open_folder(output)
    return PLAN.rpartition("/")[2] in folder.names(OWN) and MANIFEST not in folder.names()


def _part_of(job: Job) -> int:
    part = job.settings["part"]
    assert isinstance(part, int)
    return part


def _agree_on_plan(model: str | Path, config: EncodeConfig, folder: OutputFolder, block: int) -> Plan:
    from nearfar.encoder.weights import locate
    from nearfar.runs.fingerprints import fingerprint_model

    place = locate(model)
    ranges = _read_ranges(config)
    calibrate = None if ranges is None else hashlib.sha256(ranges.tobytes()).hexdigest()[:16]
    settings = settings_of(config, fingerprint_model(place), calibrate)

    def make() -> Plan:
        corpus = read_corpus(config.input, str(config.column), config.keep)
        _refuse_input_in_output(folder, [file.address for file in corpus.files])
        if corpus.largest_group > 2 * settings["shard_rows"]:
            warnings.warn(
                f"--shard-rows {settings['shard_rows']:,}: the input has row groups of up to "
                f"{corpus.largest_group:,} rows, and each shard reads whole row groups. Give more rows.",
                stacklevel=2,
            )
        dim, resolved = _try_model(place, config)
        if ranges is not None and ranges.shape[1] != dim:
            raise NearfarError(
                f"--calibrate {config.calibrate}: its vectors have {ranges.shape[1]} dimensions, those to quantize "
                f"{dim}; name a file of vectors with the same number."
            )
        return new_plan({**settings, **resolved, "block": block}, dim, corpus)

    def write(plan: Plan) -> None:
        if ranges is not None:
            stream = BytesIO()
            np.save(stream, ranges)
            folder.write(RANGES, stream.getvalue())
        write_plan(folder, plan)

    if config.overwrite:
        plan = make()  # before anything is removed
        _remove_run(folder)
        write(plan)
    return agree(folder, make, write, lambda plan: check_same(plan, settings, config, folder))


def _try_model(place: Path, config: EncodeConfig) -> tuple[int, dict[str, Any]]:
    """Open the encoder once, so that settings that it refuses are errors now; dimensions, and what it decides."""
    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.precision import check_computing, precision_record, resolve
    from nearfar.encoder.widths import choose_width

    device = config.device if config.engine == "local" else "cpu"
    check_computing(device, config.precision)
    encoder = Encoder.from_pretrained(place, **config.opening | {"device": "cpu"})
    precision = resolve(config.precision, device)
    dim = choose_width(config.dimensions, encoder.dim, encoder.matryoshka)
    return dim, {"precision": precision_record(precision, device), "limit": encoder.max_length}


def _read_ranges(config: EncodeConfig) -> Any:
    """The ranges of ``--calibrate``; None without it."""
    if config.calibrate is None:
        return None
    from nearfar.quantization import read_ranges

    return read_ranges(Path(config.calibrate).expanduser(), _width_of(config.calibrate), flag="--calibrate")


def _width_of(file: str) -> int:
    path = Path(file).expanduser()
    try:
        check_regular(path)
        return int(np.load(path, mmap_mode="r", allow_pickle=False).shape[1])
    except (*ARRAY_ERRORS, IndexError, AttributeError):
        return 0  # read_ranges then says what is wrong with the file


def _refuse_input_in_output(folder: OutputFolder, addresses: list[str]) -> None:
    inside = [address for address in addresses if address.startswith(folder.address.rstrip("/") + "/")]
    if inside:
        raise NearfarError(f"--output {folder.address}: has the input {inside[0]} in it; choose another folder.")


def _check_disk_space(folder: OutputFolder, plan: Plan, config: EncodeConfig, parts: list[int]) -> None:
    """Raise if the disk has too little free space for the vectors of the parts that are not finished."""
    free = folder.free_bytes()
    if free is None:
        return
    from nearfar.quantization import bytes_per_vector

    kind = config.quantize or ("float16" if config.dtype == "float16" else "float32")
    finished = recorded_parts(folder)
    rows = sum(stop - start for start, stop in (plan.row_range(part) for part in parts if part not in finished))
    needed = rows * bytes_per_vector(plan.dim, kind)
    if free < needed:
        raise NearfarError(
            f"{folder.address}: needs about {format_bytes(needed)} of disk space, and {format_bytes(free)} are free. "
            "Free some, write to another disk, or write smaller embeddings with --quantize."
        )


def _run(config: EncodeConfig, folder: OutputFolder, plan: Plan, jobs: list[Job], *, progress: bool) -> None:
    """Run the jobs; failures are one error that names the parts."""
    total = sum(stop - start for start, stop in (plan.row_range(_part_of(job)) for job in jobs))
    store = ScratchStore(folder.shared / WRITING if folder.shared else None)
    try:
        with progress_bar("encoding", total, shown=progress, unit="texts") as advance:

            def on_event(event: JobEvent) -> None:
                if event.kind == "finished":
                    start, stop = plan.row_range(_part_of(event.job))
                    advance(stop - start)

            if jobs:
                run_jobs(jobs, store, engine=_engine(config, store), on_event=on_event)
    except JobsFailedError as error:
        lines = [f"{len(error.failures):,} of {len(jobs):,} parts failed:"]
        lines += [f"  {part_name(_part_of(one.job))}: {one.message}" for one in error.failures[:_SHOWN]]
        lines += [f"  and {len(error.failures) - _SHOWN:,} more"] if len(error.failures) > _SHOWN else []
        raise NearfarError("\n".join([*lines, "The other parts are kept; continue with --resume."])) from error
    finally:
        forget_encoder()


def _engine(config: EncodeConfig, store: ScratchStore) -> Engine:
    """The engine that runs the jobs."""
    from nearfar.runtime.threads import available_cores, cpu_quota

    cores = min(available_cores(), cpu_quota() or available_cores())
    threads = config.threads or (1 if config.ray_address else max(1, cores // config.workers))
    if config.engine == "ray":
        from nearfar.jobs.ray_workers import RayWorkers

        gpus = int(str(config.device).startswith("cuda"))
        return RayWorkers(store, workers=config.workers, threads=threads, gpus=gpus, address=config.ray_address)
    if config.workers > 1 or config.threads:
        from nearfar.jobs.process import ProcessEngine

        return ProcessEngine(workers=config.workers, threads=threads)
    from nearfar.jobs.inline import InlineEngine

    return InlineEngine()


def _remove_run(folder: OutputFolder) -> None:
    """Remove what a run wrote; the plan last, so that an interruption leaves a run, and not other files.

    Raises:
        NearfarError: a file cannot be removed.
    """
    for part in sorted(recorded_parts(folder)):
        folder.remove(record_name(part))
    for name in folder.names():
        if name == MANIFEST or is_part(name):
            folder.remove(name)
    for name in (RANGES, PLAN):
        folder.remove(name)


def _warn_of_truncated(records: Any, plan: Plan) -> None:
    from nearfar.encoder.token_batches import truncation_message

    truncated, distinct = sum(one.truncated for one in records), sum(one.distinct for one in records)
    if truncated:
        warnings.warn(truncation_message(truncated, distinct, plan.settings["limit"]), stacklevel=2)
