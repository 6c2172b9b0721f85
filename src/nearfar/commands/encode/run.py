"""What a run of ``nearfar encode`` is, whether it writes one file or a folder: its plan, its parts and its encoder."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from nearfar.commands.encode.corpus import InputFile, column_reader, read_texts
from nearfar.commands.encode.parts import MANIFEST, Parts, Plan, VectorSettings, file_name, read_plan, work_of
from nearfar.commands.encode.vectors import OpenEncoder, open_encoder
from nearfar.config.encoding import DEFAULT_SHARD_ROWS, EncodeConfig
from nearfar.data import lines
from nearfar.disk.places import LocalFolder, Place, open_place
from nearfar.disk.work import PLAN, list_changes, refuse_changes
from nearfar.encoder.precision import precision_record, resolve, resumed_precision
from nearfar.encoder.prompts import choose_width
from nearfar.jobs import Job, JobEvent, JobsFailedError, run_jobs
from nearfar.quantization import read_ranges
from nearfar.runs.fingerprints import fingerprint_model
from nearfar.runtime.progress import progress_bar
from nearfar.runtime.threads import available_cores, cpu_quota
from nearfar.types import NearfarError

OPENING = ("pooling", "max_length", "prompt")
"""Flags that open an encoder, and are settings of a plan as they are."""

JOB = "nearfar.commands.encode.run:write_part"
"""The function of the jobs."""
_SHOWN = 10
"""Number of failed parts that an error names."""

WORDS = {"model": "the model's weights or settings", "calibrate": "the ranges of --calibrate"}


class EncodeResult(NamedTuple):
    """What a run has written."""

    rows: int
    """Number of rows of this run: all, or those of its ``--shard``."""
    dim: int
    parts: int
    """Number of parts of this run."""
    complete: bool
    """Whether all parts of the output are finished."""


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


def jobs_of_parts(parts: Parts, config: EncodeConfig, model: str, **local: Any) -> dict[Job, int]:
    """A job for each part; ``local`` are further settings of :func:`write_part`, which do not change the results."""
    uses = "gpu" if config.engine == "ray" and str(config.device).startswith("cuda") else None
    local |= {"output": parts.place.address, "model": model, "device": config.device}
    digest, numbers = parts.plan.digest, range(parts.plan.parts)
    return {Job(JOB, {"part": part, "plan": digest}, local=local, uses=uses): part for part in numbers}


def run_jobs_of_parts(parts: Parts, jobs: Mapping[Job, int], config: EncodeConfig, *, progress: bool) -> None:
    """Write parts by jobs: in this process, in workers or on Ray.

    Raises:
        NearfarError: parts failed; the message names them.
    """
    cores, here = min(available_cores(), cpu_quota() or available_cores()), computes_here(config)
    if not here:
        load_encoder.cache_clear()  # frees it
    try:
        with progress_bar("encoding", parts.rows_in(jobs.values()), shown=progress) as advance:

            def on_event(event: JobEvent) -> None:
                if event.kind == "finished":
                    advance(parts.rows_in([jobs[event.job]]))

            run_jobs(
                list(jobs),
                None,  # each part is published in its place
                engine="inline" if here else {"local": "process"}.get(config.engine, config.engine),
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
    """Encode the texts of a part and publish its file and its record, unless both are there and valid.

    Args:
        settings: ``part``, the number of the part; ``plan``, the digest of the plan; ``output``, the address of the
            folder; ``model`` and ``device``, as this machine knows them; and ``input``, where the texts are not those
            of Parquet files.
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
    how, (start, stop), column = plan.settings, plan.row_range(part), plan.settings.column
    if "input" in settings:
        texts = _texts_from(settings["input"], column, start)
    else:
        texts = read_texts(plan.files, start, stop, str(column))
    blocks = lines.blocks(islice(texts, stop - start), size=how.block, start=start)
    opened = open_planned(settings["model"], settings["device"], parts)
    pieces = opened.pieces(blocks, normalize=how.normalize, dimensions=how.dimensions)
    parts.store(part, pieces, folder, column_reader(plan.files, start, stop, how.keep))
    if "input" in settings:
        _reading[settings["input"]] = stop, texts


_reading: dict[str, tuple[int, Iterator[str]]] = {}
"""The input of the latest part of this worker: the number of its next text, and the texts from there on."""


def _texts_from(source: str, column: str | None, start: int) -> Iterator[str]:
    """The texts of a source from number ``start`` on; a worker goes on where its latest part has ended."""
    following, texts = _reading.pop(source, (start + 1, iter(())))
    if following > start:
        following, texts = 0, lines.read_texts(source, column)
    deque(islice(texts, start - following), maxlen=0)
    return texts


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
        return asdict(Plan(VectorSettings(**wanted, precision=precision, limit=encoder.length_of(None)), dim, files))

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
