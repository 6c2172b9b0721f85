"""The record of each part, ``_nearfar/parts/part-00017.json``, and the manifest that is gathered from all records."""

import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from nearfar.commands.encode.shards.folders import OWN, OutputFolder
from nearfar.commands.encode.shards.plan import FORMAT, KIND, Plan

MANIFEST = "_manifest.json"
PARTS = f"{OWN}/parts"
_THREADS = 16
"""Number of records that are read at the same time."""
_RECORD, _PART = re.compile(r"part-(\d{5,})\.json"), re.compile(r"part-\d{5,}\.parquet")


def part_name(part: int) -> str:
    """The name of the file of a part."""
    return f"part-{part:05}.parquet"


def is_part(name: str) -> bool:
    """Whether a file has the name of a part."""
    return _PART.fullmatch(name) is not None


def record_name(part: int) -> str:
    """The name of the record of a part."""
    return f"{PARTS}/part-{part:05}.json"


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
    """Fingerprint of the texts."""
    distinct: int
    """Number of texts that were encoded: the distinct ones of each block."""
    truncated: int
    """How many of them are longer than the maximum length."""

    def to_json(self) -> bytes:
        """The content of the file."""
        return (json.dumps(asdict(self), indent=1) + "\n").encode()


def read_record(folder: OutputFolder, plan: Plan, part: int) -> PartRecord | None:
    """The record of a part; None if there is none, or one that is damaged or belongs to another plan."""
    content = folder.read(record_name(part))
    if content is None:
        return None
    try:
        found = json.loads(content)
        record = PartRecord(**{**found, "rows": tuple(found["rows"])})
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    numbers = (record.size, record.distinct, record.truncated)
    if not all(type(number) is int for number in numbers):
        return None
    return record if record.plan == plan.digest and record.rows == plan.row_range(part) else None


def is_valid(folder: OutputFolder, part: int, record: PartRecord) -> bool:
    """Whether the part is there with the size and the checksum of its record; reads the part."""
    return folder.size(part_name(part)) == record.size and folder.digest(part_name(part)) == record.sha256


def recorded_parts(folder: OutputFolder) -> set[int]:
    """The numbers of the parts that have a record."""
    return {int(found[1]) for name in folder.names(PARTS) if (found := _RECORD.fullmatch(name))}


def read_records(folder: OutputFolder, plan: Plan) -> dict[int, PartRecord]:
    """The records of all finished parts, by number."""
    parts = sorted(part for part in recorded_parts(folder) if part < plan.parts)
    with ThreadPoolExecutor(_THREADS) as threads:
        found = threads.map(lambda part: (part, read_record(folder, plan, part)), parts)
        return {part: record for part, record in found if record is not None}


def write_manifest(folder: OutputFolder, plan: Plan, records: Mapping[int, PartRecord]) -> None:
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
        "inputs": [file._asdict() for file in plan.files],
        "parts": parts,
    }
    folder.write(MANIFEST, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
