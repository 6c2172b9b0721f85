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
from nearfar.validation import convert

KIND, FORMAT = "nearfar embeddings in parts", 1
"""What the folder is, and the version of its layout."""
RANGES = f"{OWN}/ranges.npy"
"""The ranges of int8 codes, float32 [2, dim]."""
MANIFEST = "_manifest.json"
RESOLVED = ("precision", "limit", "block")
"""Settings that the process decides that makes the plan: precision, maximum number of tokens, texts in a block."""
OF_VECTORS = ("column", "pooling", "prompt", "max_length", "normalize", "dimensions", "dtype", "quantize")
"""Flags that are settings of a plan as they are."""
WORDS = {"model": "the model's weights or settings", "calibrate": "the ranges of --calibrate"}


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
        content = asdict(self)
        content["files"] = [{**file, "address": None} for file in content["files"]]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


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
    written = work.settings()
    if written is None:
        return None
    try:
        plan = convert(written, Plan)
        bytes.fromhex(plan.schema)
        if missing := [name for name in ("model", "shard_rows", *OF_VECTORS, *RESOLVED) if name not in plan.settings]:
            raise ValueError(f"it has no {missing[0]}")
        if plan.shard_rows < 1 or plan.rows < 1:
            raise ValueError("it has a wrong number")
        if plan.settings["precision"] not in RECORDED_PRECISIONS:
            raise ValueError(f"precision {plan.settings['precision']!r} is unknown")
    except (ValueError, TypeError) as error:
        raise work.damaged(error) from None
    return plan
