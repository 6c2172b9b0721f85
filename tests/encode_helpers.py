"""Lines, a tiny encoder, and interrupted runs of encode."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nearfar.commands.encode import encode
from nearfar.commands.encode.parts import Parts
from tests.tiny import save_tiny, sentences

TEXTS = [*sentences(9, seed=1, longest=20), "", "dog 🐶", "a dog", "a dog", *sentences(9, seed=2), "a dog"]
BLOCK = 5


class Killed(BaseException):
    """Simulates the end of the process."""


def make_workspace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tiny encoder and lines; the working directory."""
    save_tiny(folder / "tiny")
    (folder / "x.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


def encoded(output: str = "x.npy", source: str = "x.txt", **settings: Any) -> bytes:
    """Encode in small blocks without a progress bar; returns the bytes of the file."""
    encode("tiny", input=source, output=output, **{"block": BLOCK, "progress": False, **settings})
    return Path(output).read_bytes()


def stop_in(patch: pytest.MonkeyPatch, owner: Any, name: str, after: int, stop: BaseException) -> None:
    """Raise ``stop`` in place of a call, after a number of calls."""
    whole, calls = getattr(owner, name), []

    def stopping(*args: Any, **settings: Any) -> Any:
        if len(calls) == after:
            raise stop
        result = whole(*args, **settings)
        calls.append(1)
        return result

    patch.setattr(owner, name, stopping)


def stop_after(blocks: int, patch: pytest.MonkeyPatch, stop: BaseException | None = None) -> None:
    """Interrupt a run after a number of blocks."""
    stop_in(patch, Parts, "store", blocks, stop or Killed())


def stopped(blocks: int = 2, **settings: Any) -> None:
    """Leave the files of a run that was killed."""
    with pytest.MonkeyPatch.context() as patch:
        stop_after(blocks, patch)
        with pytest.raises(Killed):
            encoded(**settings)


def kill_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """End the process before its ``step``-th operation on a file or, for half steps, after it."""
    operations = 0

    def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
        def counted_operation(*args: Any, **kwargs: Any) -> Any:
            nonlocal operations
            if operations == step // 2 and step % 2 == 0:
                raise Killed
            result = operation(*args, **kwargs)
            operations += 1
            if operations == step // 2 + 1:
                raise Killed
            return result

        return counted_operation

    patch.setattr(os, "fsync", counted(os.fsync))
    for name in ("replace", "unlink", "rmdir", "mkdir"):
        patch.setattr(Path, name, counted(getattr(Path, name)))
