"""Records flushes and renames in their order."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest


def record_flushes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """A list that gets ("flush", path) and ("rename", from, to) while the test runs."""
    events: list[tuple[str, ...]] = []
    fsync = os.fsync

    def flushed(descriptor: int) -> None:
        own = os.fstat(descriptor)
        folders = [Path.cwd(), *Path.cwd().rglob("*")]
        events.extend(
            ("flush", str(path.relative_to(Path.cwd()))) for path in folders if os.path.samestat(path.lstat(), own)
        )
        fsync(descriptor)

    def renaming(rename: Any) -> Any:
        def renamed(source: Any, target: Any, **more: Any) -> None:
            events.append(("rename", os.path.relpath(source), os.path.relpath(target)))
            rename(source, target, **more)

        return renamed

    monkeypatch.setattr(os, "fsync", flushed)
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, renaming(getattr(os, name)))
    return events


def assert_flushed_before(events: list[tuple[str, ...]], folder: Path, rename: tuple[str, str]) -> None:
    """All files and folders of ``folder``, the target of a rename, were flushed before it, and its parent after it."""
    at = events.index(("rename", *rename))
    before, after = events[:at], events[at:]
    paths = [path for path in (folder, *folder.rglob("*")) if stat.S_IFMT(path.lstat().st_mode) != stat.S_IFLNK]
    names = [str(Path(rename[0]) / path.relative_to(folder)) for path in paths]
    assert [name for name in names if ("flush", name) not in before] == []
    assert ("flush", str(Path(rename[1]).parent)) in after
