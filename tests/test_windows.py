"""nearfar uses what only POSIX has behind ``hasattr``; the rest of Windows is tested on Windows, by the workflows."""

import ast
import re
from pathlib import Path

import pytest

import nearfar

GUARDED = {"getgid", "getuid", "killpg", "sched_getaffinity"}
"""Functions of ``os`` that Windows lacks; nearfar uses them only behind ``hasattr(os, ...)``."""
MISSING = GUARDED | set("O_DIRECTORY O_NOFOLLOW chown fchmod fork getpgid mkfifo posix_fadvise pread pwrite".split())
MISSING |= set("setsid statvfs sync_file_range uname".split())
MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}


@pytest.mark.long
def test_posix_functions_are_behind_hasattr() -> None:
    for file in sorted(Path(nearfar.__file__).parent.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if not re.search(rf"\bos\.({'|'.join(MISSING)})\b|^import ({'|'.join(MODULES)})\b", text, re.MULTILINE):
            continue
        tree = ast.parse(text)
        nodes = list(ast.walk(tree))
        used = {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os"}
        guarded = {
            node.args[1].value
            for node in nodes
            if isinstance(node, ast.Call)
            and ast.unparse(node.func) == "hasattr"
            and isinstance(node.args[1], ast.Constant)
        }
        assert used & MISSING <= guarded & GUARDED, file
        imported = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
        assert not imported & MODULES, file
