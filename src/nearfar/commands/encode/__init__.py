"""``nearfar encode``: texts -> embeddings, in parts that a later call continues; one file is the join of its parts.

A folder of parts is written by jobs, in this process, in workers or on Ray. One file is the join of its parts, which
are encoded in one or several processes.
"""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from nearfar.commands.encode.corpus import InputFile, column_reader, list_files, read_footers, read_texts
from nearfar.commands.encode.parts import (
    MANIFEST,
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
from nearfar.config.calls import accepts_settings
from nearfar.config.encoding import DEFAULT_SHARD_ROWS, EncodeConfig
from nearfar.data import lines
from nearfar.data.memory import takes_rows
from nearfar.data.paths import as_path
from nearfar.disk import remove
from nearfar.disk.checks import (
    check_output_path,
    check_writable_folder,
    path_errors,
    refuse_existing,
    refuse_overwriting_inputs,
)
from nearfar.disk.folders import folder_lock
from nearfar.disk.places import OWN, WRITING, LocalFolder, Place, open_place
from nearfar.disk.work import PLAN, list_changes, refuse_changes
from nearfar.encoder.precision import check_computing, precision_record, resolve, resumed_precision
from nearfar.encoder.prompts import choose_width
from nearfar.encoder.token_batches import NotFiniteError
from nearfar.encoder.weights import locate
from nearfar.jobs import Job, JobEvent, JobsFailedError, run_jobs, shard_of
from nearfar.quantization import read_ranges
from nearfar.runs.fingerprints import fingerprint_model
from nearfar.runtime.progress import progress_bar
from nearfar.runtime.threads import available_cores, cpu_quota
from nearfar.types import NearfarError

BLOCK = 2**14
"""Number of texts in a block. A block is sorted by length and deduplicated as a whole. Of one file, it is a part."""
JOB = "nearfar.commands.encode:write_part"
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
    check_computing(config.device if config.engine == "local" else "cpu", config.precision)
    folder = as_path(model)
    name = str(folder.absolute() if folder.is_dir() else model)  # jobs and workers have other working directories
    try:
        return (_encode_folder if config.sharded else _encode_file)(name, config, block, progress=progress)
    finally:
        load_encoder.cache_clear()  # frees it


def can_be_continued(config: EncodeConfig) -> bool:
    """Whether ``--resume`` would continue a run."""
    place = place_of(config)
    return work_of(place).exists and MANIFEST not in place.names()


@lru_cache(maxsize=1)
def load_encoder(model: str, **opening: str | int | None) -> OpenEncoder:
    """An encoder; of calls with the same arguments, the first one opens it, until the cache is cleared."""
    return open_encoder(model, opening)


def open_planned(model: str, device: str | None, parts: Parts) -> OpenEncoder:
    """The encoder of a plan, opened once for all parts of a process; ``model`` is its name on this machine.

    Raises:
        NearfarError: the model of this name is another one on this machine, or cannot be opened; or the plan was made
            in native bfloat16, which the device does not have.
    """
    settings, address = parts.plan.settings, parts.place.address
    opened = load_encoder(model, **{name: getattr(settings, name) for name in OPENING}, device=device)
    if opened.model != settings.model:
        raise NearfarError(f"{model}: is not the model that the run in {address} started with.")
    precision = resumed_precision(settings.precision, device, what=f"{address}: this run")
    return opened._replace(bf16=precision == "bf16")


def place_of(config: EncodeConfig) -> Place:
    """The folder of the parts."""
    return open_place(config.output) if config.sharded else LocalFolder(f"{config.output}.partial")


def computes_here(config: EncodeConfig) -> bool:
    """Whether this process encodes, and not workers that write parts."""
    return config.engine == "local" and config.workers == 1 and not config.threads


def agreed_parts(
    model: str,
    config: EncodeConfig,
    block: int,
    *,
    read_input: Callable[[], list[InputFile]],
    input_changes: Callable[[Plan], list[str]],
) -> Parts:
    """The parts that all processes write which use a folder: of the plan that is there, or of a new one.

    Args:
        model: the model, as workers find it.
        config: the settings; with ``overwrite``, a new plan replaces the one that is there once it can start.
        block: number of texts in a block.
        read_input: returns the files of a new plan.
        input_changes: what changed since a plan was made, in words.

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
        opening = {name: wanted[name] for name in OPENING}
        encoder = load_encoder(model, **opening, device=device if computes_here(config) else "cpu").encoder
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


def _encode_file(model: str, config: EncodeConfig, block: int, *, progress: bool) -> EncodeResult:
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
    with folder_lock(place.shared, what=output, remove_if_empty=True):
        if read_plan(place) is None:
            remove_partial(place)  # what a run left that was killed just before its end
            refuse_existing(files, overwrite=config.overwrite)
        elif not config.resume:
            raise NearfarError(
                f"{place.address}: holds an interrupted run. Continue it with --resume, or remove the folder."
            )
        summary = lines.summarise_source(lines.read_texts(config.input, config.column))
        if summary.empty:
            raise NearfarError(f"{config.input}: holds no texts.")
        source = InputFile(config.input, summary.texts, 0, summary.digest)

        def changes(plan: Plan) -> list[str]:
            return [] if plan.files[0].footer == source.footer else ["the texts of --input changed"]

        def texts() -> Iterator[str]:
            return lines.verify_unchanged(lines.read_texts(config.input, config.column), summary, config.input)

        parts = agreed_parts(model, config, block, read_input=lambda: [source], input_changes=changes)
        done = parts.records(whole=True)
        try:
            if len(done) < parts.plan.parts:
                refuse_existing([output], overwrite=config.overwrite)
                _encode_missing(model, config, parts, done, texts(), progress=progress)
            parts.join(output, texts() if config.with_texts else None)
        except lines.SourceChangedError:
            remove_partial(place)
            raise
        parts.warn_of_truncated()
        remove_partial(place)
    return EncodeResult(parts.plan.rows, parts.plan.dim, parts.plan.parts, complete=True)


def _encode_missing(
    model: str, config: EncodeConfig, parts: Parts, done: Collection[int], texts: Iterator[str], *, progress: bool
) -> None:
    """Encode the texts of the parts that are not done, here or in processes whose texts this one tokenises.

    Errors say how to continue.
    """
    from nearfar.encoder import stream

    plan = parts.plan
    processes = min(config.processes, plan.parts - len(done))
    opened = open_planned(model, config.device, parts)
    how: dict[str, Any] = {"normalize": plan.settings.normalize, "dimensions": plan.settings.dimensions}
    with progress_bar("encoding", plan.rows, done=parts.rows_in(done), shown=progress) as advance:

        def encode_blocks(blocks: Iterator[lines.Block]) -> Generator[Piece]:
            if processes == 1:
                return opened.pieces(blocks, **how, on_texts=advance)
            opening = {"pooling": opened.encoder.pooling, "max_length": opened.encoder.max_length}
            worker = stream.WorkerConfig(locate(model), opening, {"bf16": opened.bf16, **how})
            tokens = stream.tokenize_blocks(opened.encoder, blocks)
            devices = stream.assign_devices(config.device, processes)
            return pieces_of(stream.encode_in_processes(tokens, worker, devices, on_batch=advance), advance)

        try:
            parts.complete(texts, done, encode_blocks)
        except (lines.SourceChangedError, NotFiniteError):
            raise  # another call would fail too
        except NearfarError as error:
            rows = parts.rows_in(parts.records())
            raise NearfarError(f"{error} {rows:,} of {plan.rows:,} texts are done; continue with --resume.") from error


def _encode_folder(model: str, config: EncodeConfig, block: int, *, progress: bool) -> EncodeResult:
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

    here = computes_here(config)
    parts = agreed_parts(model, config, block, read_input=read, input_changes=changes)
    if not here:
        load_encoder.cache_clear()  # frees it
    local = {"output": place.address, "model": model, "device": config.device}
    uses = "gpu" if config.engine == "ray" and str(config.device).startswith("cuda") else None
    settings: list[dict[str, Any]] = [{"part": part, "plan": parts.plan.digest} for part in range(parts.plan.parts)]
    numbers = {Job(JOB, each, local=local, uses=uses): part for part, each in enumerate(settings)}
    own = {job: numbers[job] for job in shard_of(list(numbers), config.shard_numbers)}
    _run_jobs(parts, own, config, engine="inline" if here else config.engine, progress=progress)
    records = parts.records()
    complete = len(records) == parts.plan.parts
    if complete:
        parts.write_manifest(records)
        for name in place.names(WRITING):
            if name.startswith("part-"):  # left by a killed process
                place.remove(f"{WRITING}/{name}")
        parts.warn_of_truncated()
    return EncodeResult(parts.rows_in(own.values()), parts.plan.dim, len(own), complete)


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


def _run_jobs(parts: Parts, jobs: Mapping[Job, int], config: EncodeConfig, *, engine: str, progress: bool) -> None:
    """Run the jobs of parts; failures are one error that names the parts."""
    cores = min(available_cores(), cpu_quota() or available_cores())
    try:
        with progress_bar("encoding", parts.rows_in(jobs.values()), shown=progress) as advance:

            def on_event(event: JobEvent) -> None:
                if event.kind == "finished":
                    advance(parts.rows_in([jobs[event.job]]))

            run_jobs(
                list(jobs),
                None,  # each part is published in its place
                engine="process" if engine == "local" else engine,
                workers=config.workers,
                threads=config.threads or (1 if config.ray_address else max(1, cores // config.workers)),
                ray_address=config.ray_address,
                on_event=on_event,
            )
    except JobsFailedError as error:
        listed = [f"\n  {file_name(jobs[each.job])}: {each.message}" for each in error.failures[:_SHOWN]]
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
    if parts.records([part], whole=True):
        return
    how, (start, stop) = plan.settings, plan.row_range(part)
    texts = lines.blocks(read_texts(plan.files, start, stop, str(how.column)), size=how.block, start=start)
    opened = open_planned(settings["model"], settings["device"], parts)
    pieces = opened.pieces(texts, normalize=how.normalize, dimensions=how.dimensions)
    parts.store(part, pieces, folder, column_reader(plan.files, start, stop, how.keep))
