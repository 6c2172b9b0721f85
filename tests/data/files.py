"""Helpers of the tests in this folder: write small data files, and get error messages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nearfar.data.labelled import Split
from nearfar.types import NearfarError


def write(path: Path, text: str) -> str:
    """Write a file and create its parent folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return str(path)


def write_lines(path: Path, *lines: str) -> str:
    return write(path, "".join(f"{line}\n" for line in lines))


def error_of(load: Callable[..., object], *args: Any, **kwargs: Any) -> str:
    """Return the message of the NearfarError that ``load`` raises."""
    with pytest.raises(NearfarError) as caught:
        load(*args, **kwargs)
    return str(caught.value)


def texts_of(*splits: Split) -> list[tuple[str, ...]]:
    return [text for split in splits for text in split.texts]
