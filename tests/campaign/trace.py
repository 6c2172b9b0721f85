"""The log of shim.c as objects, and the environment variables that it reads."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote


@dataclass(frozen=True)
class Call:
    """One line of the log; the head of ``shim.c`` describes the fields."""

    number: int
    kind: str
    call: str
    process: int
    path: str
    path2: str
    inode: int
    offset: int
    size: int
    result: int


def read_log(file: Path) -> list[Call]:
    """The calls of a log in their order; a last line that was cut off is ignored."""
    calls = []
    for line in file.read_bytes().split(b"\n")[:-1]:
        number, kind, call, process, path, path2, *rest = line.decode("utf-8", "surrogateescape").split("\t")
        numbers = map(int, rest)
        calls.append(Call(int(number), kind, call, int(process), _plain(path), _plain(path2), *numbers))
    return calls


def _plain(path: str) -> str:
    return unquote(path, errors="surrogateescape")


def settings(root: Path, *, log: Path | None = None, content: Path | None = None, **others: str) -> dict[str, str]:
    """The variables of the shim.

    Args:
        root: the folder whose calls count.
        log: file to append the log to.
        content: folder for the bytes of each write.
        others: ``kill="before:3"``, ``fail="5:ENOSPC"``, ``state=...``.
    """
    found = {"SHIM_ROOT": str(root.resolve()), "SHIM_LOG": str(log or ""), "SHIM_BYTES": str(content or "")}
    return found | {f"SHIM_{name.upper()}": value for name, value in others.items()}
