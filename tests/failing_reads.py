"""Makes the reading of a file fail after it was opened, so that the error of the system has no name in it."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest


def fail_reads(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let ``read_text`` and ``read_bytes`` of every file with this name fail with EIO."""
    for method in ("read_text", "read_bytes"):
        original = getattr(Path, method)

        def read(self: Path, *given: Any, original: Any = original, **options: Any) -> Any:
            if self.name == name:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return original(self, *given, **options)

        monkeypatch.setattr(Path, method, read)
