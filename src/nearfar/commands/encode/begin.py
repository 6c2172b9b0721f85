"""What encoding into one file and into a folder have in common: checks before the work, and the plan."""

import hashlib
import warnings
from collections.abc import Iterable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.commands.encode.parts import load_encoder, locate_model
from nearfar.commands.encode.plan import RANGES, PartRecord, Plan, work_of
from nearfar.config.encode import EncodeConfig
from nearfar.disk import check_regular
from nearfar.disk.places import LocalFolder, Place, open_place
from nearfar.encoder.precision import check_computing, precision_record, resolve
from nearfar.types import ARRAY_ERRORS, NearfarError


class EncodeResult(NamedTuple):
    """What a run has written."""

    rows: int
    """Number of rows of this run: all, or those of its ``--shard``."""
    dim: int
    parts: int
    """Number of parts of this run."""
    complete: bool
    """Whether all parts of the output are finished."""


def place_of(config: EncodeConfig) -> Place:
    """The folder of the parts."""
    return open_place(config.output) if config.sharded else LocalFolder(f"{config.output}.partial")


def computes_here(config: EncodeConfig) -> bool:
    """Whether this process encodes, and no others."""
    if config.sharded:
        return config.engine == "local" and config.workers == 1 and not config.threads
    return config.processes == 1


def settings_of(model: str, config: EncodeConfig, ranges: NDArray[np.float32] | None) -> dict[str, Any]:
    """The settings of a plan but the precision, with the fingerprints of model and ranges."""
    calibrate = None if ranges is None else hashlib.sha256(ranges.tobytes()).hexdigest()[:16]
    names = ("column", "pooling", "prompt", "max_length", "normalize", "dimensions", "dtype", "quantize")
    own = {name: getattr(config, name) for name in names}
    return {"model": locate_model(model)[1], **own, "calibrate": calibrate}


def try_model(model: str, config: EncodeConfig, ranges: NDArray[np.float32] | None) -> tuple[int, dict[str, Any]]:
    """Open the encoder, so that settings that it refuses are errors now; the dimensions, and what it decides."""
    from nearfar.encoder.prompts import choose_width

    device = config.device if config.engine == "local" else "cpu"
    check_computing(device, config.precision)
    here = computes_here(config)
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


def write_plan(place: Place, plan: Plan, ranges: NDArray[np.float32] | None) -> None:
    """Write the plan; from then on the folder holds a run."""
    if ranges is not None:
        place.clean(RANGES)
        stream = BytesIO()
        np.save(stream, ranges)
        place.write(RANGES, stream.getvalue())
    work_of(place).begin(plan.to_dict())


def read_ranges(config: EncodeConfig) -> NDArray[np.float32] | None:
    """The ranges of ``--calibrate``; None without it."""
    if config.calibrate is None:
        return None
    from nearfar.quantization import read_ranges

    path, width = Path(config.calibrate).expanduser(), 0
    with suppress(*ARRAY_ERRORS, IndexError, AttributeError):  # read_ranges says what is wrong with the file
        check_regular(path)
        width = int(np.load(path, mmap_mode="r", allow_pickle=False).shape[1])
    return read_ranges(path, width, flag="--calibrate")


def check_disk_space(place: Place, plan: Plan, parts: Iterable[int], *, of: Path | None = None) -> None:
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


def warn_of_truncated(records: Iterable[PartRecord], plan: Plan) -> None:
    """Warn once if texts of any part are longer than the model reads."""
    from nearfar.encoder.token_batches import truncation_message

    counts = [(record.truncated, record.distinct) for record in records]
    truncated, distinct = (sum(count) for count in zip(*counts, strict=True))
    if truncated:
        warnings.warn(truncation_message(truncated, distinct, plan.settings["limit"]), stacklevel=2)
