"""nearfar can be imported and trains without the functions that only POSIX has, as on Windows."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nearfar

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]
SOURCE = Path(nearfar.__file__).parent
GUARDED = {"getgid", "getuid", "killpg", "sched_getaffinity"}
"""Functions of ``os`` that Windows lacks; nearfar uses them only behind ``hasattr(os, ...)``."""
MISSING_OS_FUNCTIONS = GUARDED | {
    "O_DIRECTORY",
    "O_NOFOLLOW",
    "chown",
    "fchmod",
    "fork",
    "getpgid",
    "posix_fadvise",
    "pread",
    "pwrite",
    "setsid",
    "statvfs",
    "sync_file_range",
    "uname",
}


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="open files are read from /proc")
def test_imports_and_trains_without_posix_functions(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE.parent}{os.pathsep}{ROOT}", "HF_HUB_OFFLINE": "1"}
    completed = subprocess.run(
        [sys.executable, "-m", "tests.simulated_windows", str(tmp_path)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.stdout.endswith("done\n"), completed.stdout[-2000:] + completed.stderr[-4000:]


def test_posix_functions_are_behind_hasattr() -> None:
    for file in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        used = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
        }
        guarded = {
            node.args[1].value
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and ast.unparse(node.func) == "hasattr"
            and isinstance(node.args[1], ast.Constant)
        }
        assert used & MISSING_OS_FUNCTIONS <= guarded & GUARDED, file
