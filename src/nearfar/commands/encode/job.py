"""One part of a corpus as a job; and the encoder of a plan, which a process keeps for the next part."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.commands.encode.corpus import RowRange
from nearfar.commands.encode.parts import Parts, file_name, part_name
from nearfar.commands.encode.plan import Plan, read_plan
from nearfar.commands.encode.vectors import OpenEncoder
from nearfar.data.lines import blocks
from nearfar.disk.places import open_place
from nearfar.disk.work import PLAN
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder

JOB = f"{__name__}:write_part"
"""The function of the jobs."""


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
    parts = Parts(place, _plan_of_worker(settings["output"], settings["plan"]))
    if parts.finished(part):
        return
    try:
        encode_part(parts, part, open_planned(settings["model"], settings["device"], parts), folder)
    except NearfarError:
        if parts.finished(part):  # another process was faster, and removed the file written aside
            return
        raise
    for name in (file_name(part), f"{part_name(part)}.json"):
        place.clean(name)


@lru_cache(maxsize=1)
def _plan_of_worker(address: str, digest: str) -> Plan:
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
    from nearfar.encoder.precision import resumed_precision

    settings, address = parts.plan.settings, parts.place.address
    if locate_model(model)[1] != settings["model"]:
        raise NearfarError(f"{model}: is not the model that the run in {address} started with.")
    encoder = load_encoder(model, settings["pooling"], settings["max_length"], settings["prompt"], load_on or device)
    precision = resumed_precision(settings["precision"], device, what=f"{address}: this run")
    return OpenEncoder(encoder, settings["model"], precision == "bf16")


@lru_cache(maxsize=1)
def load_encoder(
    model: str, pooling: str | None, max_length: int | None, prompt: str | None, device: str | None
) -> "Encoder":
    """An encoder; of calls with the same arguments, the first one opens it, until :func:`forget_encoder`."""
    from nearfar.encoder.encoder import Encoder

    folder = locate_model(model)[0]
    return Encoder.from_pretrained(folder, pooling=pooling, max_length=max_length, prompt=prompt, device=device)


@lru_cache(maxsize=1)
def locate_model(model: str) -> tuple[Path, str]:
    """The folder of a model, and its fingerprint."""
    from nearfar.encoder.weights import locate
    from nearfar.runs.fingerprints import fingerprint_model

    folder = locate(model)
    return folder, fingerprint_model(folder)


def forget_encoder() -> None:
    """Free the encoder that this process keeps, and forget its plan."""
    for cached in (load_encoder, locate_model, _plan_of_worker):
        cached.cache_clear()
