"""Reads the files that Weights & Biases writes offline."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def wandb_records(file: Path) -> Iterator[Any]:
    """The records of a .wandb file: a header of 7 bytes, then blocks of 32 KiB as in LevelDB's log."""
    from wandb.proto import wandb_internal_pb2

    content, place, parts = file.read_bytes(), 7, b""
    assert content.startswith(b":W&B")
    while place + 7 <= len(content):
        left = 2**15 - place % 2**15
        _, size, kind = struct.unpack("<IHB", content[place : place + 7])
        if left < 7 or kind == 0:
            place += left
            continue
        parts += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # a whole record, or the last part of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record
