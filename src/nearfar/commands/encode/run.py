"""A run of encode: its input and settings agree with what is there; missing parts are encoded; a file is their join."""

import hashlib
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.filesize import decimal

from nearfar.commands.encode.corpus import InputFile, RowRange, list_files, read_corpus, same_files
from nearfar.commands.encode.parts import (
    MANIFEST,
    OF_VECTORS,
    RANGES,
    RESOLVED,
    WORDS,
    OnTexts,
    PartRecord,
    Parts,
    Piece,
    Plan,
    file_name,
    npy_bytes,
    part_name,
    pieces_of,
    ranges_file,
    read_plan,
    work_of,
)
from nearfar.commands.encode.vectors import OpenEncoder
from nearfar.config.encoding import DEFAULT_SHARD_ROWS, EncodeConfig
from nearfar.data.lines import (
    Block,
    SourceChangedError,
    SourceSummary,
    blocks,
    read_texts,
    summarise_source,
    verify_unchanged,
)
from nearfar.disk import check_output_path, check_writable_folder, refuse_existing, refuse_overwriting_inputs, remove
from nearfar.disk.folders import FolderBusyError, folder_lock
from nearfar.disk.places import OWN, WRITING, LocalFolder, Place, open_place
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

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder


JOB = "nearfar.commands.encode:write_part"
"""The function of the jobs."""


@lru_cache(maxsize=1)
def plan_of_worker(address: str, digest: str) -> Plan:
    """The plan of a run that a worker takes part in, read once.

    Raises:
        NearfarError: it is not there, or another run has replaced it.
    """
    plan = read_plan(open_place(address))
    if plan is None or plan.digest != digest:
        raise NearfarError(f"{address}/{PLAN}: belongs to another run. Start only one run in a folder.")
    return plan


def encode_part(parts: Parts, part: int, opened: OpenEncoder, scratch: Path) -> None:
    """Encode the rows of a part, and store it.

    Raises:
        NearfarError: see :func:`write_part`.
    """
    import pyarrow

    plan, settings = parts.plan, parts.plan.settings
    start, stop = plan.row_range(part)
    kept = pyarrow.schema([])
    if plan.schema:
        kept = pyarrow.ipc.read_schema(pyarrow.py_buffer(bytes.fromhex(plan.schema)))
    rows = RowRange(plan.files, start, stop, settings["column"], kept)
    texts = blocks(rows.texts(), size=settings["block"], start=start)
    pieces = opened.pieces(texts, normalize=settings["normalize"], dimensions=settings["dimensions"])
    parts.store(part, pieces, scratch, rows)


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
    if locate_model(model)[1] != settings["model"]:
        raise NearfarError(f"{model}: is not the model that the run in {address} started with.")
    opening = {name: settings[name] for name in ("pooling", "max_length", "prompt")}
    encoder = load_encoder(model, **opening, device=load_on or device)
    precision = resumed_precision(settings["precision"], device, what=f"{address}: this run")
    return OpenEncoder(encoder, settings["model"], precision == "bf16")


@lru_cache(maxsize=1)
def load_encoder(model: str, **opening: str | int | None) -> "Encoder":
    """An encoder; of calls with the same arguments, the first one opens it, until :func:`forget_encoder`."""
    from nearfar.encoder.encoder import Encoder

    return Encoder.from_pretrained(locate_model(model)[0], **opening)  # type: ignore[arg-type]


@lru_cache(maxsize=1)
def locate_model(model: str) -> tuple[Path, str]:
    """The folder of a model, and its fingerprint."""
    folder = locate(model)
    return folder, fingerprint_model(folder)


def forget_encoder() -> None:
    """Free the encoder that this process keeps, and forget its plan."""
    for cached in (load_encoder, locate_model, plan_of_worker):
        cached.cache_clear()


class EncodeResult(NamedTuple):
    """What a run has written."""

    rows: int
    """Number of rows of this run: all, or those of its ``--shard``."""
    dim: int
    parts: int
    """Number of parts of this run."""
    complete: bool
    """Whether all parts of the output are finished."""


class Run(ABC):
    """A call of encode.

    Args:
        model: the model, as workers find it.
        config: the settings.
        place: the folder of the parts.
        block: number of texts in a block.
        computes_here: whether this process encodes, and no others.
    """

    way_out: ClassVar[str]
    """How to start again, for messages."""

    def __init__(self, model: str, config: EncodeConfig, place: Place, block: int, *, computes_here: bool) -> None:
        self.model, self.config, self.place, self.block = model, config, place, block
        self.computes_here = computes_here

    @abstractmethod
    def encode(self, *, progress: bool) -> EncodeResult:
        """Do what is not done yet."""

    @abstractmethod
    def division(self) -> dict[str, Any]:
        """How the rows of the input are divided into parts, and what is kept of them."""

    @abstractmethod
    def read_input(self) -> tuple[tuple[InputFile, ...], str]:
        """The files of a new plan, and the schema of the kept columns."""

    @abstractmethod
    def compare_input(self, plan: Plan) -> tuple[list[str], Sequence[InputFile]]:
        """What changed since a plan was made, in words, and where its files are now."""

    def agree(self, *, anew: bool = False) -> Parts:
        """The parts that all processes write which use the folder: of the plan that is there, or of a new one.

        Args:
            anew: replace the run that is there, once it is clear that the new one can start.

        Raises:
            NearfarError: settings, model or input differ; the message names what differs.
        """
        config, ranges, work = self.config, self._ranges(), work_of(self.place)
        settings = {
            "model": locate_model(self.model)[1],
            **{name: getattr(config, name) for name in OF_VECTORS},
            "calibrate": None if ranges is None else hashlib.sha256(ranges.tobytes()).hexdigest()[:16],
            **self.division(),
        }

        def begin(plan: Plan) -> None:
            if ranges is not None:
                self.place.clean(RANGES)
                self.place.write(RANGES, npy_bytes(ranges))
            work.begin(asdict(plan))

        def new_plan() -> Plan:
            files, schema = self.read_input()
            dim, resolved = self._try_model(ranges)
            return Plan({**settings, **resolved, "block": self.block}, dim, files, schema)

        if anew:
            plan = new_plan()  # before anything is removed
            self.remove()
            begin(plan)
        work.agree(lambda: begin(new_plan()))
        agreed = read_plan(self.place)
        assert agreed is not None  # the call before has read it
        before = {name: value for name, value in agreed.settings.items() if name not in RESOLVED or name in settings}
        changed, files = self.compare_input(agreed)
        changed = [*list_changes(before, settings, WORDS), *changed]
        recorded = str(agreed.settings["precision"])
        if config.precision != "auto" and not recorded.startswith(config.precision):
            changed.append(f"--precision was {recorded}, is {config.precision}")
        refuse_changes(self.place.address, changed, way=self.way_out)
        moved = replace(agreed, files=tuple(files))
        if moved != agreed:
            work.begin(asdict(moved))
        return Parts(self.place, moved)

    @abstractmethod
    def remove(self) -> None:
        """Remove what a run wrote."""

    def _ranges(self) -> NDArray[np.float32] | None:
        """The ranges of ``--calibrate``; None without it."""
        if self.config.calibrate is None:
            return None
        return read_ranges(Path(self.config.calibrate).expanduser(), flag="--calibrate")

    def _try_model(self, ranges: NDArray[np.float32] | None) -> tuple[int, dict[str, Any]]:
        """Open the encoder, so that settings that it refuses are errors now; the dimensions, and what it decides."""
        config = self.config
        device = config.device if config.engine == "local" else "cpu"
        check_computing(device, config.precision)
        load_on = device if self.computes_here else "cpu"
        opening = {name: getattr(config, name) for name in ("pooling", "max_length", "prompt")}
        encoder = load_encoder(self.model, **opening, device=load_on)
        dim, limit = choose_width(config.dimensions, encoder.dim, encoder.matryoshka), encoder.max_length
        if ranges is not None and ranges.shape[1] != dim:
            raise NearfarError(
                f"--calibrate {config.calibrate}: its vectors have {ranges.shape[1]} dimensions, those to quantize "
                f"{dim}; name a file of vectors with the same number."
            )
        if config.sharded and not self.computes_here:
            del encoder
            load_encoder.cache_clear()
        return dim, {"precision": precision_record(resolve(config.precision, device), device), "limit": limit}

    def check_disk_space(self, parts: Parts, missing: Iterable[int], *, joined: Path | None = None) -> None:
        """Raise if the disk has too little free space for the vectors of parts and, if given, of a file of all."""
        free, plan = self.place.free_bytes(), parts.plan
        if free is None:
            return
        kind: Any = plan.settings["quantize"] or plan.settings["dtype"]
        size = bytes_per_vector(plan.dim, kind)
        in_parts = bytes_per_vector(plan.dim, "float32") if parts.stored.dtype == "float32" else size
        needed = parts.rows_in(missing) * in_parts + (0 if joined is None else plan.rows * size)
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
        warnings.warn(truncation_message(truncated, distinct, plan.settings["limit"]), stacklevel=2)


class FileRun(Run):
    """A run that writes one file. Its texts are read twice: to count and fingerprint them, and to encode them."""

    way_out = "remove the folder to start again"
    place: LocalFolder

    def __init__(self, model: str, config: EncodeConfig, block: int) -> None:
        place = LocalFolder(f"{config.output}.partial")
        super().__init__(model, config, place, block, computes_here=config.processes == 1)
        self.output = Path(config.output)

    @cached_property
    def summary(self) -> SourceSummary:
        """Number and fingerprint of the texts, all of which are read."""
        return summarise_source(self._read())

    def texts(self) -> Iterator[str]:
        """The texts; after the last one it is an error if they have changed."""
        return verify_unchanged(self._read(), self.summary, self.config.input)

    def _read(self) -> Iterator[str]:
        return read_texts(self.config.input, self.config.column)

    def division(self) -> dict[str, Any]:
        """A part is a block."""
        return {"shard_rows": self.block, "block": self.block}

    def read_input(self) -> tuple[tuple[InputFile, ...], str]:
        """The source as one file, without kept columns."""
        return (InputFile(self.config.input, self.summary.texts, 0, self.summary.digest),), ""

    def compare_input(self, plan: Plan) -> tuple[list[str], Sequence[InputFile]]:
        """By the fingerprint and the number of the texts."""
        files, _ = self.read_input()
        changed = [] if plan.files[0].footer == files[0].footer else ["the texts of --input changed"]
        if plan.rows != files[0].rows:
            changed.append(f"the number of texts was {plan.rows:,}, is {files[0].rows:,}")
        return changed, files

    def encode(self, *, progress: bool) -> EncodeResult:
        """Encode the texts into parts, and join them."""
        config, output = self.config, self.output
        self._check_output()
        check_computing(config.device, config.precision)
        if self.summary.empty:
            raise NearfarError(f"{config.input}: holds no texts.")
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
            parts = self.agree()
            done_before = parts.all_finished()
            missing = [part for part in range(parts.plan.parts) if part not in done_before]
            if missing and not config.overwrite:
                refuse_existing([output], overwrite=False)
            self.check_disk_space(parts, missing, joined=output)
            try:
                if missing:
                    self._encode_missing(parts, done_before, progress=progress)
                parts.join(output, self.texts() if config.with_texts else None)
            except SourceChangedError:
                self.remove()
                raise
            records = parts.records().values()
            self.remove()
        warn_of_truncated(records, parts.plan)
        return EncodeResult(parts.plan.rows, parts.plan.dim, parts.plan.parts, complete=True)

    def _check_output(self) -> None:
        """Refuse an output that cannot be written, or is finished."""
        config, output = self.config, self.output
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

    def remove(self) -> None:
        """Remove the parts; the plan first, so that what is left later is nothing to continue."""
        if self.place.shared.is_dir():
            self.place.remove(PLAN)
            for entry in list(self.place.shared.iterdir()):
                if entry.name == OWN or entry.suffix == ".parquet":
                    remove(entry)

    def _encode_missing(self, parts: Parts, done: Collection[int], *, progress: bool) -> None:
        """Encode the texts of the parts that are not done; errors say how to continue."""
        from nearfar.encoder.token_batches import NotFiniteError

        plan = parts.plan
        processes = min(self.config.processes, plan.parts - len(done))
        opened = open_planned(self.model, self.config.device, parts, load_on="cpu" if processes > 1 else None)
        with progress_bar("encoding", plan.rows, done=parts.rows_in(done), shown=progress) as advance:
            missing = parts.missing_blocks(self.texts(), done)
            how = {name: plan.settings[name] for name in ("normalize", "dimensions")}
            if processes == 1:
                pieces = opened.pieces(missing, **how, on_texts=advance)
            else:
                pieces = self._pieces_of_processes(opened, missing, how, processes, advance)
            try:
                with closing(pieces):
                    parts.store_stream(pieces, self.place.shared)
            except (SourceChangedError, NotFiniteError):
                raise  # another call would fail too
            except NearfarError as error:
                raise NearfarError(
                    f"{error} {parts.rows_in(parts.records()):,} of {plan.rows:,} texts are done; continue with "
                    "--resume."
                ) from error

    def _pieces_of_processes(
        self, opened: OpenEncoder, texts: Iterator[Block], how: dict[str, Any], processes: int, on_texts: OnTexts
    ) -> Generator[Piece]:
        """The vectors of blocks of texts, computed by several processes; this one tokenises."""
        from nearfar.encoder import stream

        encoder = opened.encoder
        opening = {"pooling": encoder.pooling, "max_length": encoder.max_length}
        worker = stream.WorkerConfig(locate_model(self.model)[0], opening, {"bf16": opened.bf16, **how})
        tokens = stream.tokenize_blocks(encoder, texts)
        devices = stream.assign_devices(self.config.device, processes)
        return pieces_of(stream.encode_in_processes(tokens, worker, devices, on_batch=on_texts), on_texts)


_SHOWN = 10
"""Number of failed parts that an error names."""


class FolderRun(Run):
    """A run that writes a folder of parts. Many processes can take part in it."""

    way_out = "choose another --output"

    def __init__(self, model: str, config: EncodeConfig, block: int) -> None:
        here = config.engine == "local" and config.workers == 1 and not config.threads
        super().__init__(model, config, open_place(config.output), block, computes_here=here)
        self.shard_rows = config.shard_rows or DEFAULT_SHARD_ROWS

    def division(self) -> dict[str, Any]:
        """Parts of ``--shard-rows`` rows, with the columns of ``--keep``."""
        return {"shard_rows": self.shard_rows, "keep": list(self.config.keep)}

    def read_input(self) -> tuple[tuple[InputFile, ...], str]:
        """The Parquet files of ``--input``, by their footers."""
        corpus = read_corpus(self.config.input, str(self.config.column), self.config.keep)
        own = f"{self.place.address.rstrip('/')}/"
        if inside := [file.address for file in corpus.files if file.address.startswith(own)]:
            raise NearfarError(
                f"--output {self.place.address}: has the input {inside[0]} in it; choose another folder."
            )
        if corpus.largest_group > 2 * self.shard_rows:
            warnings.warn(
                f"--shard-rows {self.shard_rows:,}: the input has row groups of up to {corpus.largest_group:,} rows, "
                "and each shard reads whole row groups. Give more rows.",
                stacklevel=2,
            )
        return corpus.files, corpus.kept.serialize().to_pybytes().hex() if corpus.kept.names else ""

    def compare_input(self, plan: Plan) -> tuple[list[str], Sequence[InputFile]]:
        """By names and sizes of the files; a worker compares the footer of a file when it opens it."""
        listed = list_files(self.config.input)
        if difference := same_files(plan.files, listed):
            return [difference], plan.files
        return [], [replace(file, address=address) for file, (address, _) in zip(plan.files, listed, strict=True)]

    def encode(self, *, progress: bool) -> EncodeResult:
        """Write the parts of this call, each by a job; and the manifest, if all parts are there."""
        config = self.config
        self._check_output()
        parts = self.agree(anew=config.overwrite)
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

    def _check_output(self) -> None:
        """Refuse an output that is a file, cannot be written, or holds other files or a run that is not continued."""
        config, output, path = self.config, self.config.output, self.place.shared
        if path is not None:
            if path.exists() and not path.is_dir():
                raise NearfarError(f"--output {output}: is a file; name a folder for the parts.")
            check_writable_folder(path, output)
        before = read_plan(self.place)
        if before is not None and not (config.overwrite or config.resume or config.shard):
            raise NearfarError(
                f"--output {output}: holds a run of nearfar encode. Continue it with --resume, replace it with "
                "--overwrite, or choose another folder."
            )
        others = [name for name in self.place.names() if name != OWN] if before is None else []
        if others and read_plan(self.place) is None:  # else another process has just started the run
            raise NearfarError(
                f"--output {output}: holds other files, such as {others[0]}; choose an empty or a new folder."
            )

    def remove(self) -> None:
        """Remove what a run wrote; the plan last, so that an interruption leaves a run, and not other files."""
        names = [name for name in self.place.names() if name == MANIFEST or (name.startswith("part-") and "." in name)]
        work_of(self.place).forget_parts()
        for name in (*names, RANGES, PLAN):
            self.place.remove(name)

    def _run_jobs(self, parts: Parts, jobs: list[Job], *, progress: bool) -> None:
        """Run the jobs; failures are one error that names the parts."""
        config, shared = self.config, self.place.shared
        cores = min(available_cores(), cpu_quota() or available_cores())
        here = "inline" if self.computes_here else "process"
        try:
            with progress_bar("encoding", parts.rows_in(map(_part_of, jobs)), shown=progress) as advance:

                def on_event(event: JobEvent) -> None:
                    if event.kind == "finished":
                        advance(parts.rows_in([_part_of(event.job)]))

                run_jobs(
                    jobs,
                    ScratchStore(shared / WRITING if shared else None),
                    engine="ray" if config.engine == "ray" else here,
                    workers=config.workers,
                    threads=config.threads or (1 if config.ray_address else max(1, cores // config.workers)),
                    ray_address=config.ray_address,
                    on_event=on_event,
                )
        except JobsFailedError as error:
            lines = [f"{len(error.failures):,} of {len(jobs):,} parts failed:"]
            lines += [f"  {file_name(_part_of(failed.job))}: {failed.message}" for failed in error.failures[:_SHOWN]]
            lines += [f"  and {len(error.failures) - _SHOWN:,} more"] if len(error.failures) > _SHOWN else []
            raise NearfarError("\n".join([*lines, "The other parts are kept; continue with --resume."])) from error


def _part_of(job: Job) -> int:
    part = job.settings["part"]
    assert isinstance(part, int)
    return part
