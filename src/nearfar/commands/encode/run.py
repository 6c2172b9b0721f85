"""A run of ``nearfar encode``: the plan that it makes, or that it continues, whatever its input and output are."""

import hashlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.filesize import decimal

from nearfar.commands.encode.corpus import InputFile
from nearfar.commands.encode.job import load_encoder, locate_model
from nearfar.commands.encode.parts import Parts, npy_bytes
from nearfar.commands.encode.plan import OF_VECTORS, RANGES, RESOLVED, WORDS, PartRecord, Plan, read_plan, work_of
from nearfar.config.encode import EncodeConfig
from nearfar.disk.places import Place
from nearfar.disk.work import list_changes, refuse_changes
from nearfar.encoder.precision import check_computing, precision_record, resolve
from nearfar.types import NearfarError


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
        from nearfar.quantization import read_ranges

        return read_ranges(Path(self.config.calibrate).expanduser(), flag="--calibrate")

    def _try_model(self, ranges: NDArray[np.float32] | None) -> tuple[int, dict[str, Any]]:
        """Open the encoder, so that settings that it refuses are errors now; the dimensions, and what it decides."""
        from nearfar.encoder.prompts import choose_width

        config = self.config
        device = config.device if config.engine == "local" else "cpu"
        check_computing(device, config.precision)
        load_on = device if self.computes_here else "cpu"
        encoder = load_encoder(self.model, config.pooling, config.max_length, config.prompt, load_on)
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
        from nearfar.quantization import bytes_per_vector

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
