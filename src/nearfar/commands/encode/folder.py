"""Encoding into a folder of parts, each by a job of its own: here, in processes, or on Ray."""

import warnings
from collections.abc import Sequence
from typing import Any

from nearfar.commands.encode.begin import (
    EncodeResult,
    check_disk_space,
    computes_here,
    read_ranges,
    settings_of,
    try_model,
    warn_of_truncated,
    write_plan,
)
from nearfar.commands.encode.corpus import InputFile, list_files, read_corpus, same_files
from nearfar.commands.encode.parts import JOB
from nearfar.commands.encode.plan import (
    MANIFEST,
    RANGES,
    Plan,
    agree_on_plan,
    part_name,
    plan_of_corpus,
    read_plan,
    read_records,
    record_name,
    work_of,
    write_manifest,
)
from nearfar.config.encode import DEFAULT_SHARD_ROWS, EncodeConfig
from nearfar.disk import check_writable_folder
from nearfar.disk.places import OWN, WRITING, Place, open_place
from nearfar.disk.work import PLAN
from nearfar.jobs import Job, JobEvent, JobsFailedError, ScratchStore, run_jobs, shard_of
from nearfar.runtime.progress import progress_bar
from nearfar.types import NearfarError

_SHOWN = 10


def encode_to_folder(model: str, config: EncodeConfig, block: int, *, progress: bool) -> EncodeResult:
    """Write the embeddings of a corpus as a folder of parts, each by a job of its own."""
    place = open_place(config.output)
    _check_folder(config, place)
    plan = _plan_of_folder(model, config, place, block)
    local = {"output": place.address, "model": model, "device": config.device}
    uses = "gpu" if config.engine == "ray" and str(config.device).startswith("cuda") else None
    jobs = [Job(JOB, {"part": part, "plan": plan.digest}, local=local, uses=uses) for part in range(plan.parts)]
    jobs = shard_of(jobs, config.shard_numbers)
    parts = [_part_of(job) for job in jobs]
    recorded = set(work_of(place).recorded())
    check_disk_space(place, plan, [part for part in parts if record_name(part) not in recorded])
    _run(config, place, plan, jobs, progress=progress)
    records = read_records(place, plan)
    complete = len(records) == plan.parts
    if complete:
        try:
            write_manifest(place, plan, records)
        except NearfarError:
            if MANIFEST not in place.names():  # else another process was faster, and removed what was written aside
                raise
        place.clean(MANIFEST)
        warn_of_truncated(records.values(), plan)
    rows = sum(stop - start for start, stop in map(plan.row_range, parts))
    return EncodeResult(rows, plan.dim, len(parts), complete)


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


def _plan_of_folder(model: str, config: EncodeConfig, place: Place, block: int) -> Plan:
    ranges = read_ranges(config)
    shard_rows = config.shard_rows or DEFAULT_SHARD_ROWS
    settings = {**settings_of(model, config, ranges), "shard_rows": shard_rows, "keep": list(config.keep)}

    def new_plan() -> Plan:
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
        dim, resolved = try_model(model, config, ranges)
        return plan_of_corpus({**settings, **resolved, "block": block}, dim, corpus)

    def inputs(plan: Plan) -> tuple[list[str], Sequence[InputFile]]:
        """Files are compared by names and sizes; a worker compares the footer of a file when it opens it."""
        listed = list_files(config.input)
        if difference := same_files(plan.files, listed):
            return [difference], plan.files
        return [], [file._replace(address=address) for file, (address, _) in zip(plan.files, listed, strict=True)]

    if config.overwrite:
        plan = new_plan()  # before anything is removed
        _remove_run(place)
        write_plan(place, plan, ranges)
    return agree_on_plan(
        place,
        lambda: write_plan(place, new_plan(), ranges),
        settings,
        precision=config.precision,
        inputs=inputs,
        way="choose another --output",
    )


def _remove_run(place: Place) -> None:
    """Remove what a run wrote; the plan last, so that an interruption leaves a run, and not other files."""
    parts = [name for name in place.names() if name == MANIFEST or (name.startswith("part-") and "." in name)]
    work_of(place).forget_parts()
    for name in (*parts, RANGES, PLAN):
        place.remove(name)


def _run(config: EncodeConfig, place: Place, plan: Plan, jobs: list[Job], *, progress: bool) -> None:
    """Run the jobs; failures are one error that names the parts."""
    total = sum(stop - start for start, stop in (plan.row_range(_part_of(job)) for job in jobs))
    store = ScratchStore(place.shared / WRITING if place.shared else None)
    try:
        with progress_bar("encoding", total, shown=progress) as advance:

            def on_event(event: JobEvent) -> None:
                if event.kind == "finished":
                    start, stop = plan.row_range(_part_of(event.job))
                    advance(stop - start)

            if jobs:
                run_jobs(jobs, store, on_event=on_event, **_how(config))
    except JobsFailedError as error:
        lines = [f"{len(error.failures):,} of {len(jobs):,} parts failed:"]
        lines += [f"  {part_name(_part_of(one.job))}: {one.message}" for one in error.failures[:_SHOWN]]
        lines += [f"  and {len(error.failures) - _SHOWN:,} more"] if len(error.failures) > _SHOWN else []
        raise NearfarError("\n".join([*lines, "The other parts are kept; continue with --resume."])) from error


def _part_of(job: Job) -> int:
    part = job.settings["part"]
    assert isinstance(part, int)
    return part


def _how(config: EncodeConfig) -> dict[str, Any]:
    """Where the jobs run: the settings of :func:`nearfar.jobs.run_jobs`."""
    from nearfar.runtime.threads import available_cores, cpu_quota

    cores = min(available_cores(), cpu_quota() or available_cores())
    threads = config.threads or (1 if config.ray_address else max(1, cores // config.workers))
    here = "inline" if computes_here(config) else "process"
    engine = "ray" if config.engine == "ray" else here
    return {"engine": engine, "workers": config.workers, "threads": threads, "ray_address": config.ray_address}
