"""A run of encode: its input and settings agree with what is there; missing parts are encoded; a file is their join."""

import os
import warnings
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from rich.filesize import decimal

from nearfar.commands.encode.corpus import InputFile, column_reader, list_files, read_footers, read_texts, same_files
from nearfar.commands.encode.parts import (
    MANIFEST,
    OnTexts,
    PartRecord,
    Parts,
    Piece,
    Plan,
    VectorSettings,
    file_name,
    part_name,
    ranges_file,
    read_plan,
    work_of,
)
from nearfar.commands.encode.vectors import OpenEncoder, open_encoder, pieces_of
from nearfar.config.encoding import DEFAULT_SHARD_ROWS, EncodeConfig
from nearfar.data import lines
from nearfar.disk import check_output_path, check_writable_folder, refuse_existing, refuse_overwriting_inputs, remove
from nearfar.disk.folders import FolderBusyError, folder_lock
from nearfar.disk.places import OWN, WRITING, LocalFolder, open_place
from nearfar.disk.work import PLAN, list_changes, refuse_changes
from nearfar.encoder.precision import check_computing, precision_record, resolve, resumed_precision
from nearfar.encoder.prompts import choose_width
from nearfar.encoder.weights import locate
from nearfar.jobs import Job, JobEvent, JobsFailedError, ScratchStore, run_jobs, shard_of
from nearfar.quantization import bytes_per_vector, read_ranges
from nearfar.runs.fingerprints import fingerprint_model
from nearfar.runtime.progress import progress_bar
from nearfar.runtime.threads import available_cores, cpu_quota
from nearfar.types import NearfarError

JOB = "nearfar.commands.encode:write_part"
"""The function of the jobs."""
OPENING = ("pooling", "max_length", "prompt")
"""Flags that open an encoder, and are settings of a plan as they are."""
OF_VECTORS = ("column", "normalize", "dimensions", "dtype", "quantize")
"""Other flags that are."""
WORDS = {"model": "the model's weights or settings", "calibrate": "the ranges of --calibrate"}
_SHOWN = 10
"""Number of failed parts that an error names."""


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


def encode_part(parts: Parts, part: int, opened: OpenEncoder, scratch: Path) -> None:
    """Encode the rows of a part, and store it.

    Raises:
        NearfarError: see :func:`nearfar.commands.encode.write_part`.
    """
    plan, settings = parts.plan, parts.plan.settings
    start, stop = plan.row_range(part)
    texts = read_texts(plan.files, start, stop, str(settings.column))
    pieces = opened.pieces(
        lines.blocks(texts, size=settings.block, start=start),
        normalize=settings.normalize,
        dimensions=settings.dimensions,
    )
    parts.store(part, pieces, scratch, column_reader(plan.files, start, stop, settings.keep))


class EncodeResult(NamedTuple):
    """What a run has written."""

    rows: int
    """Number of rows of this run: all, or those of its ``--shard``."""
    dim: int
    parts: int
    """Number of parts of this run."""
    complete: bool
    """Whether all parts of the output are finished."""


class Run:
    """A call of encode: the folder of its parts, and what all processes agree on that use it.

    Args:
        model: the model, as workers find it.
        config: the settings.
        block: number of texts in a block.
    """

    def __init__(self, model: str, config: EncodeConfig, block: int) -> None:
        self.model, self.config, self.block = model, config, block
        self.place = open_place(config.output) if config.sharded else LocalFolder(f"{config.output}.partial")
        here = config.engine == "local" and config.workers == 1 and not config.threads
        self.computes_here = here if config.sharded else config.processes == 1
        """Whether this process encodes, and no others."""

    def agree(
        self,
        read_input: Callable[[], list[InputFile]],
        compare_input: Callable[[Plan], tuple[list[str], list[InputFile]]],
        *,
        anew: bool = False,
    ) -> Parts:
        """The parts that all processes write which use the folder: of the plan that is there, or of a new one.

        Args:
            read_input: returns the files of a new plan.
            compare_input: returns what changed since a plan was made, in words, and where its files are now.
            anew: replace the run that is there, once it is clear that the new one can start.

        Raises:
            NearfarError: settings, model or input differ; the message names what differs.
        """
        config, work = self.config, work_of(self.place)
        wanted: dict[str, Any] = {name: getattr(config, name) for name in (*OPENING, *OF_VECTORS)}
        wanted |= {"model": fingerprint_model(self.model), "keep": list(config.keep), "calibrate": None}
        if config.calibrate is not None:
            wanted["calibrate"] = read_ranges(Path(config.calibrate).expanduser(), flag="--calibrate").tolist()
        wanted["shard_rows"] = (config.shard_rows or DEFAULT_SHARD_ROWS) if config.sharded else self.block
        wanted["block"] = self.block
        if anew:
            plan = self._new_plan(wanted, read_input())  # before anything is removed
            self.remove()
            work.begin(plan)
        work.agree(lambda: work.begin(self._new_plan(wanted, read_input())))
        agreed = read_plan(self.place)
        assert agreed is not None  # the call before has read it
        changes, files = compare_input(agreed)
        changes = [*list_changes({name: getattr(agreed.settings, name) for name in wanted}, wanted, WORDS), *changes]
        recorded = agreed.settings.precision
        if config.precision != "auto" and not recorded.startswith(config.precision):
            changes.append(f"--precision was {recorded}, is {config.precision}")
        way = "choose another --output" if config.sharded else "remove the folder to start again"
        refuse_changes(self.place.address, changes, way=way)
        moved = replace(agreed, files=files)
        if moved != agreed:
            work.begin(asdict(moved))
        return Parts(self.place, moved)

    def _new_plan(self, settings: dict[str, Any], files: list[InputFile]) -> dict[str, Any]:
        """A plan with what this process decides; opens the encoder, so that settings that it refuses are errors now."""
        config = self.config
        device = config.device if config.engine == "local" else "cpu"
        check_computing(device, config.precision)
        opening = {name: settings[name] for name in OPENING}
        encoder = load_encoder(self.model, **opening, device=device if self.computes_here else "cpu").encoder
        dim, limit = choose_width(config.dimensions, encoder.dim, encoder.matryoshka), encoder.max_length
        if config.calibrate is not None and len(settings["calibrate"][0]) != dim:
            raise NearfarError(
                f"--calibrate {config.calibrate}: its vectors have {len(settings['calibrate'][0])} dimensions, those "
                f"to quantize {dim}; name a file of vectors with the same number."
            )
        if config.sharded and not self.computes_here:
            del encoder
            load_encoder.cache_clear()
        precision: Any = precision_record(resolve(config.precision, device), device)
        return asdict(Plan(VectorSettings(**settings, precision=precision, limit=limit), dim, files))

    def encode(self, *, progress: bool) -> EncodeResult:
        """Do what is not done yet."""
        raise NotImplementedError

    def remove(self) -> None:
        """Remove what a run wrote.

        Of a folder, the plan goes last, so that an interruption leaves a run, and not other files; of a file, it goes
        first, so that what is left is nothing to continue.
        """
        names = [name for name in self.place.names() if name == MANIFEST or (name.startswith("part-") and "." in name)]
        if not self.config.sharded:
            self.place.remove(PLAN)
            remove(Path(self.place.address, OWN))
        work_of(self.place).forget_parts()
        for name in (*names, PLAN):
            self.place.remove(name)

    def check_disk_space(self, parts: Parts, missing: Iterable[int], *, joined: Path | None = None) -> None:
        """Raise if the disk has too little free space for the vectors of parts and, if given, of a file of all."""
        free, plan = self.place.free_bytes(), parts.plan
        if free is None:
            return
        kind: Any = plan.settings.quantize or plan.settings.dtype
        needed = parts.rows_in(missing) * parts.width * parts.dtype.itemsize
        needed += 0 if joined is None else plan.rows * bytes_per_vector(plan.dim, kind)
        if free < needed:
            raise NearfarError(
                f"{joined or self.place.address}: needs about {decimal(needed)} of disk space, and {decimal(free)} "
                "are free. Free some, write to another disk, or write smaller embeddings with --quantize."
            )


def warn_of_truncated(records: Collection[PartRecord], plan: Plan) -> None:
    """Warn once if texts of any part are longer than the model reads."""
    from nearfar.encoder.token_batches import truncation_message

    if truncated := sum(record.truncated for record in records):
        distinct = sum(record.distinct for record in records)
        warnings.warn(truncation_message(truncated, distinct, plan.settings.limit), stacklevel=2)


class FileRun(Run):
    """A run that writes one file. Its texts are read twice: to count and fingerprint them, and to encode them."""

    place: LocalFolder

    def encode(self, *, progress: bool) -> EncodeResult:
        """Encode the texts into parts, each of a block, and join them."""
        config, output = self.config, Path(self.config.output)
        self._check_output(output)
        check_computing(config.device, config.precision)
        summary = lines.summarise_source(lines.read_texts(config.input, config.column))
        if summary.empty:
            raise NearfarError(f"{config.input}: holds no texts.")
        files = [InputFile(config.input, summary.texts, 0, summary.digest)]

        def compare(plan: Plan) -> tuple[list[str], list[InputFile]]:
            changes = [] if plan.files[0].footer == summary.digest else ["the texts of --input changed"]
            if plan.rows != summary.texts:
                changes.append(f"the number of texts was {plan.rows:,}, is {summary.texts:,}")
            return changes, files

        def texts() -> Iterator[str]:
            return lines.verify_unchanged(lines.read_texts(config.input, config.column), summary, config.input)

        with folder_lock(self.place.shared, what=output, remove_if_empty=True):
            before = read_plan(self.place)
            if before is None:
                self.remove()
            elif not config.resume:
                done = Parts(self.place, before)
                raise NearfarError(
                    f"{config.output}.partial: holds {done.rows_in(done.records()):,} of {before.rows:,} texts of an "
                    "interrupted run. Continue it with --resume, or remove the folder."
                )
            parts = self.agree(lambda: files, compare)
            finished = parts.all_finished()
            missing = [part for part in range(parts.plan.parts) if part not in finished]
            if missing and not config.overwrite:
                refuse_existing([output], overwrite=False)
            self.check_disk_space(parts, missing, joined=output)
            try:
                if missing:
                    self._encode_missing(parts, finished, texts(), progress=progress)
                parts.join(output, texts() if config.with_texts else None)
            except lines.SourceChangedError:
                self.remove()
                raise
            records = parts.records().values()
            self.remove()
        warn_of_truncated(records, parts.plan)
        return EncodeResult(parts.plan.rows, parts.plan.dim, parts.plan.parts, complete=True)

    def _check_output(self, output: Path) -> None:
        """Refuse an output that cannot be written, or is finished."""
        config = self.config
        if output.suffix not in (".npy", ".parquet"):
            raise NearfarError(
                f"--output {output}: must end in .npy or .parquet. For a folder of parts, give --shard-rows."
            )
        check_output_path(output)
        files = [output, *([ranges_file(output)] if config.quantize == "int8" else [])]
        for file in files:
            refuse_overwriting_inputs(file, [config.input, config.calibrate])
        resumes = config.resume and work_of(self.place).exists
        if config.resume and not resumes and not config.overwrite and os.path.lexists(output):
            if self.place.shared.is_dir():  # what a run left that was killed just before its end
                with suppress(FolderBusyError), folder_lock(self.place.shared, what=output, remove_if_empty=True):
                    self.remove()
            raise NearfarError(
                f"{output}: is finished, there is nothing to resume. To encode again, give --overwrite instead of "
                "--resume."
            )
        if not resumes:  # else they may be its own
            refuse_existing(files, overwrite=config.overwrite)
        if config.with_texts and output.suffix != ".parquet":
            raise NearfarError(f"--with-texts: --output {output} can only hold embeddings; choose a .parquet file.")

    def _encode_missing(self, parts: Parts, done: Collection[int], texts: Iterator[str], *, progress: bool) -> None:
        """Encode the texts of the parts that are not done; errors say how to continue."""
        from nearfar.encoder.token_batches import NotFiniteError

        plan = parts.plan
        processes = min(self.config.processes, plan.parts - len(done))
        opened = open_planned(self.model, self.config.device, parts, load_on="cpu" if processes > 1 else None)
        how: dict[str, Any] = {"normalize": plan.settings.normalize, "dimensions": plan.settings.dimensions}
        with progress_bar("encoding", plan.rows, done=parts.rows_in(done), shown=progress) as advance:
            encode: Callable[..., Generator[Piece]] = opened.pieces
            if processes > 1:
                encode = partial(self._pieces_of_processes, opened, processes)
            try:
                parts.complete(texts, done, partial(encode, **how, on_texts=advance))
            except (lines.SourceChangedError, NotFiniteError):
                raise  # another call would fail too
            except NearfarError as error:
                raise NearfarError(
                    f"{error} {parts.rows_in(parts.records()):,} of {plan.rows:,} texts are done; continue with "
                    "--resume."
                ) from error

    def _pieces_of_processes(
        self, opened: OpenEncoder, processes: int, texts: Iterator[lines.Block], *, on_texts: OnTexts, **how: Any
    ) -> Generator[Piece]:
        """The vectors of blocks of texts, computed by several processes; this one tokenises."""
        from nearfar.encoder import stream

        encoder, folder = opened.encoder, locate(self.model)
        opening = {"pooling": encoder.pooling, "max_length": encoder.max_length}
        worker = stream.WorkerConfig(folder, opening, {"bf16": opened.bf16, **how})
        tokens = stream.tokenize_blocks(encoder, texts)
        devices = stream.assign_devices(self.config.device, processes)
        return pieces_of(stream.encode_in_processes(tokens, worker, devices, on_batch=on_texts), on_texts)


class FolderRun(Run):
    """A run that writes a folder of parts. Many processes can take part in it."""

    def encode(self, *, progress: bool) -> EncodeResult:
        """Write the parts of this call, each by a job; and the manifest, if all parts are there."""
        config = self.config
        self._check_output()
        parts = self.agree(self._read_input, self._compare_input, anew=config.overwrite)
        plan = parts.plan
        local = {"output": self.place.address, "model": self.model, "device": config.device}
        uses = "gpu" if config.engine == "ray" and str(config.device).startswith("cuda") else None
        jobs = [Job(JOB, {"part": part, "plan": plan.digest}, local=local, uses=uses) for part in range(plan.parts)]
        jobs = shard_of(jobs, config.shard_numbers)
        own = [_part_of(job) for job in jobs]
        recorded = set(work_of(self.place).recorded())
        self.check_disk_space(parts, [part for part in own if part_name(part) not in recorded])
        self._run_jobs(parts, jobs, progress=progress)
        records = parts.records()
        complete = len(records) == plan.parts
        if complete:
            try:
                parts.write_manifest(records)
            except NearfarError:
                if MANIFEST not in self.place.names():  # else another process was faster, and removed the file aside
                    raise
            self.place.clean(MANIFEST)
            warn_of_truncated(records.values(), plan)
        return EncodeResult(parts.rows_in(own), plan.dim, len(own), complete)

    def _read_input(self) -> list[InputFile]:
        """The Parquet files of ``--input``, by their footers."""
        config = self.config
        files, largest_group = read_footers(config.input, str(config.column), config.keep)
        own = f"{self.place.address.rstrip('/')}/"
        if inside := [file.address for file in files if file.address.startswith(own)]:
            raise NearfarError(
                f"--output {self.place.address}: has the input {inside[0]} in it; choose another folder."
            )
        rows = config.shard_rows or DEFAULT_SHARD_ROWS
        if largest_group > 2 * rows:
            warnings.warn(
                f"--shard-rows {rows:,}: the input has row groups of up to {largest_group:,} rows, and each shard "
                "reads whole row groups. Give more rows.",
                stacklevel=2,
            )
        return files

    def _compare_input(self, plan: Plan) -> tuple[list[str], list[InputFile]]:
        """By names and sizes of the files; a worker compares the footer of a file when it opens it."""
        listed = list_files(self.config.input)
        if difference := same_files(plan.files, listed):
            return [difference], plan.files
        return [], [replace(file, address=address) for file, (address, _) in zip(plan.files, listed, strict=True)]

    def _check_output(self) -> None:
        """Refuse an output that is a file, cannot be written, or holds other files or a run that is not continued."""
        config, output, path = self.config, self.config.output, self.place.shared
        if path is not None:
            if path.exists() and not path.is_dir():
                raise NearfarError(f"--output {output}: is a file; name a folder for the parts.")
            check_writable_folder(path, output)
        others = [name for name in self.place.names() if name != OWN]
        has_run = read_plan(self.place) is not None  # read last: another process may just have started the run
        if has_run and not (config.overwrite or config.resume or config.shard):
            raise NearfarError(
                f"--output {output}: holds a run of nearfar encode. Continue it with --resume, replace it with "
                "--overwrite, or choose another folder."
            )
        if others and not has_run:
            raise NearfarError(
                f"--output {output}: holds other files, such as {others[0]}; choose an empty or a new folder."
            )

    def _run_jobs(self, parts: Parts, jobs: list[Job], *, progress: bool) -> None:
        """Run the jobs; failures are one error that names the parts."""
        config, shared = self.config, self.place.shared
        cores = min(available_cores(), cpu_quota() or available_cores())
        try:
            with progress_bar("encoding", parts.rows_in(map(_part_of, jobs)), shown=progress) as advance:

                def on_event(event: JobEvent) -> None:
                    if event.kind == "finished":
                        advance(parts.rows_in([_part_of(event.job)]))

                run_jobs(
                    jobs,
                    ScratchStore(shared / WRITING if shared else None),
                    engine="inline" if self.computes_here else "ray" if config.engine == "ray" else "process",
                    workers=config.workers,
                    threads=config.threads or (1 if config.ray_address else max(1, cores // config.workers)),
                    ray_address=config.ray_address,
                    on_event=on_event,
                )
        except JobsFailedError as error:
            messages = [f"{len(error.failures):,} of {len(jobs):,} parts failed:"]
            messages += [f"  {file_name(_part_of(each.job))}: {each.message}" for each in error.failures[:_SHOWN]]
            messages += [f"  and {len(error.failures) - _SHOWN:,} more"] if len(error.failures) > _SHOWN else []
            raise NearfarError("\n".join([*messages, "The other parts are kept; continue with --resume."])) from error


def _part_of(job: Job) -> int:
    part = job.settings["part"]
    assert isinstance(part, int)
    return part
