"""What may be in place of a file: folders, links, pipes, devices and sockets."""

import contextlib
import os
import shutil
import socket
import sys
from pathlib import Path

KINDS_OF_FILE = (
    "folder",
    "link to itself",
    "link to nothing",
    "pipe",
    "device zero",
    "device null",
    "socket",
    "missing",
)


def replace_by(kind: str, file: Path) -> None:
    """Replace a file by something that is not a regular file."""
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    else:
        file.unlink()
    if kind == "folder":
        file.mkdir()
    elif kind == "link to itself":
        file.symlink_to(file.name)
    elif kind == "link to nothing":
        file.symlink_to("nothing-here")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "socket":
        folder = os.open(file.parent, os.O_RDONLY)
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as made:  # a path of a socket has at most 107 bytes
            made.bind(f"/proc/self/fd/{folder}/{file.name}" if sys.platform == "linux" else str(file))
        os.close(folder)
    elif kind.startswith("device"):
        file.symlink_to(f"/dev/{kind.split()[1]}")
