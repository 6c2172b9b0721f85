"""The plan of embeddings in parts: everything that determines their bytes; and what is known of each finished part."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any

from msgspec import Meta

from nearfar.commands.encode.corpus import InputFile
from nearfar.disk.places import OWN, Place
from nearfar.disk.work import Work
from nearfar.encoder.precision import RECORDED_PRECISIONS
from nearfar.validation import InvalidValueError, convert

KIND, FORMAT = "nearfar embeddings in parts", 1
"""What the folder is, and the version of its layout."""
RANGES = f"{OWN}/ranges.npy"
"""The ranges of int8 codes, float32 [2, dim]."""
MANIFEST = "_manifest.json"
RESOLVED = ("precision", "limit", "block")
"""Settings that the process decides that makes the plan: precision, maximum number of tokens, texts in a block."""
WORDS = {"model": "the model's weights or settings", "calibrate": "the ranges of --calibrate"}
_USED = (
    *("model", "shard_rows", "column", "pooling", "prompt", "max_length", "normalize"),
    *("dimensions", "dtype", "quantize"),
)
"""Settings that a worker reads."""


@dataclass(frozen=True)
class Plan:
    """Everything that determines the bytes of the parts; the same for all processes that write them."""

    settings: Mapping[str, Any]
    """Flags that change the vectors or the columns, the fingerprint of the model, and the precision."""
    dim: Annotated[int, Meta(ge=1)]
    """Number of dimensions of an embedding."""
    files: tuple[InputFile, ...]
    schema: str = ""
    """The kept columns: a serialised Arrow schema, in hexadecimal digits; empty for none."""

    @property
    def rows(self) -> int:
        """Number of rows of all files."""
        return sum(file.rows for file in self.files)

    @property
    def shard_rows(self) -> int:
        """Number of rows of every part but the last one."""
        return int(self.settings["shard_rows"])

    @property
    def parts(self) -> int:
        """Number of parts."""
        return -(-self.rows // self.shard_rows)

    def row_range(self, part: int) -> tuple[int, int]:
        """The first row of a part, and the row after its last one."""
        return part * self.shard_rows, min((part + 1) * self.shard_rows, self.rows)

    @cached_property
    def digest(self) -> str:
        """Fingerprint of all that determines the parts; not of the folders of the input files."""
        content = self.to_dict()
        content["files"] = [{**one, "address": None} for one in content["files"]]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON values, which :func:`read_plan` reads."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class PartRecord:
    """What is known of a finished part. It is written after the part."""

    plan: str
    """The digest of the plan."""
    rows: tuple[int, int]
    """The first row, and the row after the last one."""
    size: int
    """Number of bytes of the file."""
    sha256: str
    texts: str
    """Fingerprint of the texts; empty if they are those of an input that is read as a whole."""
    distinct: int
    """Number of texts that were encoded: the distinct ones of each block."""
    truncated: int
    """How many of them are longer than the maximum length."""


def work_of(place: Place) -> Work:
    """The embeddings in a folder, as work that can be continued."""
    return Work(place, KIND, FORMAT)


def read_plan(place: Place) -> Plan | None:
    """The plan in a folder; None if there is none.

    Raises:
        NearfarError: it is damaged, or a newer version of nearfar wrote it.
    """
    work = work_of(place)
    found = work.settings()
    if found is None:
        return None
    try:
        plan = convert(found, Plan)
        bytes.fromhex(plan.schema)
        if missing := [name for name in (*_USED, *RESOLVED) if name not in plan.settings]:
            raise ValueError(f"it has no {missing[0]}")
        if plan.shard_rows < 1 or plan.rows < 1:
            raise ValueError("it has a wrong number")
        if plan.settings["precision"] not in RECORDED_PRECISIONS:
            raise ValueError(f"precision {plan.settings['precision']!r} is unknown")
    except (ValueError, TypeError) as error:
        raise work.damaged(error) from None
    return plan


def part_name(part: int) -> str:
    """The name of the file of a part."""
    return f"part-{part:05}.parquet"


def record_name(part: int) -> str:
    """The name of the record of a part."""
    return f"part-{part:05}"


def read_records(place: Place, plan: Plan) -> dict[int, PartRecord]:
    """The records of all finished parts, by number, but for those that are damaged or belong to another plan."""
    recorded = set(work_of(place).recorded())
    parts = [part for part in range(plan.parts) if record_name(part) in recorded]
    found = work_of(place).records([record_name(part) for part in parts])
    records = {part: _record_of(found[record_name(part)], plan, part) for part in parts}
    return {part: record for part, record in records.items() if record is not None}


def finished_part(place: Place, plan: Plan, part: int) -> PartRecord | None:
    """The record of a part, if the part is there with the size and the checksum of its record; reads the part."""
    record = _record_of(work_of(place).record(record_name(part)), plan, part)
    name = part_name(part)
    if record is None or place.size(name) != record.size or place.digest(name) != record.sha256:
        return None
    return record


def finished_parts(place: Place, plan: Plan) -> dict[int, Any]:
    """The records of the parts that are there and valid; what is left of others is removed."""
    recorded = set(work_of(place).recorded())
    done = {}
    for part in range(plan.parts):
        if record_name(part) in recorded and (record := finished_part(place, plan, part)):
            done[part] = record
        else:
            place.clean(part_name(part))
    return done


def _record_of(found: Mapping[str, Any] | None, plan: Plan, part: int) -> PartRecord | None:
    try:
        record = convert(found, PartRecord)
    except InvalidValueError:
        return None
    return record if record.plan == plan.digest and record.rows == plan.row_range(part) else None


def write_manifest(place: Place, plan: Plan, records: Mapping[int, PartRecord]) -> None:
    """Write the manifest of a complete output; every process that writes it writes the same bytes."""
    parts = [
        {"file": part_name(part), **{name: value for name, value in asdict(record).items() if name != "plan"}}
        for part, record in sorted(records.items())
    ]
    content = {
        "kind": KIND,
        "format": FORMAT,
        "rows": plan.rows,
        "dim": plan.dim,
        "plan": plan.digest,
        "settings": plan.settings,
        "inputs": [asdict(file) for file in plan.files],
        "parts": parts,
    }
    place.write(MANIFEST, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
