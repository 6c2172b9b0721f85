"""The checks of the campaign find what is wrong on purpose, and pass where all is well."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nearfar.types import NearfarError
from tests.campaign import faults, kills, readers, scenarios, shim, verdicts
from tests.campaign.case import Case, run_case
from tests.campaign.scenarios import SCENARIOS, Scenario
from tests.campaign.server import Done, Server
from tests.campaign.shim import Call, read_log, settings

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(shim.library() is None or not hasattr(os, "fork"), reason="needs Linux and a C compiler"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(preload=shim.library()) as started:
        yield started


# --- the shim ---


def run_python(program: str, folder: Path, **shim_settings: str) -> tuple[int, str, list[Call]]:
    """Run a Python program in ``folder/work``: its exit status, its output and the log."""
    work, log = folder / "work", folder / "log"
    work.mkdir(exist_ok=True)
    environment = {**os.environ, "LD_PRELOAD": str(shim.library()), **settings(work, log=log, **shim_settings)}
    done = subprocess.run([sys.executable, "-c", program], cwd=work, env=environment, check=False, stdout=-1, text=True)
    return done.returncode, done.stdout, read_log(log) if log.exists() else []


STEPS = "import os; open('x', 'w').close(); os.rename('x', 'y'); os.unlink('y')"  # create, close, rename, unlink


@pytest.mark.parametrize(
    ("moment", "left"), [("before:3", ["x"]), ("after:3", ["y"]), ("after:4", []), ("before:5", [])]
)
def test_a_process_is_killed_before_or_after_a_call(moment: str, left: list[str], tmp_path: Path) -> None:
    status, _, calls = run_python(STEPS, tmp_path, kill=moment)
    number = int(moment.partition(":")[2])
    assert (status, len(calls)) == ((-9, number) if number < 5 else (0, 4))
    assert os.listdir(tmp_path / "work") == left


FAILURES = """if True:
    import errno, os
    def attempt(action):
        try:
            print(action())
        except OSError as error:
            print(errno.errorcode[error.errno])
    f = os.open('x', os.O_CREAT | os.O_RDWR)                # 1
    for _ in range(3):
        attempt(lambda: os.write(f, b'four'))               # 2 3 4
    attempt(lambda: os.pread(f, 4, 0))                      # 5
    attempt(lambda: os.open('y', os.O_CREAT | os.O_RDWR))   # 6
    attempt(lambda: os.ftruncate(f, 100))                   # 7
    attempt(lambda: os.rename('x', 'z'))                    # 8
"""


@pytest.mark.parametrize(
    ("fail", "expected"),
    [
        ("3:ENOSPC", "4 ENOSPC 4 b'four' 4 None None"),
        ("3:short", "4 2 4 b'four' 4 None None"),
        ("5:short", "4 4 4 b'fo' 4 None None"),
        ("3:ENOSPC:always", "4 ENOSPC ENOSPC b'four' ENOSPC ENOSPC None"),
        ("8:EACCES", "4 4 4 b'four' 4 None EACCES"),
    ],
)
def test_a_call_fails(fail: str, expected: str, tmp_path: Path) -> None:
    status, output, calls = run_python(FAILURES, tmp_path, fail=fail)
    assert (status, output.split()) == (0, expected.split())
    assert len([call for call in calls if call.result < 0]) == sum(word[0] == "E" for word in expected.split())


# --- kills and faults ---

HEAD = """if True:
    import json, os, sys
    def flush(name):
        file = os.open(name, os.O_RDONLY)
        os.fsync(file)
        os.close(file)
    if os.path.exists('out'):
        sys.exit(2)
"""
WHOLE = "    open('out.new', 'w').write('[1]'); flush('out.new'); os.rename('out.new', 'out'); flush('.')"
WRITERS = {
    "right": (WHOLE, ""),
    "without rename": ("    open('out', 'w').write('[1]'); flush('out'); flush('.')", "half-written or lost: out"),
    "random name": (
        "    import tempfile; name = tempfile.mkstemp(dir='.')[1]; open(name, 'w').write('[1]')\n"
        "    flush(name); os.rename(name, 'out'); flush('.')",
        "left over: tmp",
    ),
    "other content": (
        "    text = '[2]' if os.path.exists('out.new') else '[1]'\n" + WHOLE.replace("'[1]'", "text"),
        "different: out",
    ),
    "removed first": (
        "    os.mkdir('k1'); os.rename('k1', 'k'); os.mkdir('k2'); os.rmdir('k'); flush('.'); os.rename('k2', 'k')\n"
        + WHOLE,
        "no version of k is left",
    ),
}


def execute(program: str) -> None:
    """Run a program; called in a fork of the server."""
    exec(program, {})


@pytest.mark.parametrize("writer", WRITERS)
def test_a_wrong_writer_is_found(writer: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, sentence = WRITERS[writer]

    def run(arguments: str, server: Server, cwd: Path, shim: dict[str, str] | None = None) -> Done:
        return server.function("tests.campaign.test_campaign:execute", {"program": HEAD + program}, cwd=cwd, shim=shim)

    for module in (kills, scenarios):
        monkeypatch.setattr(module, "run", run)
        monkeypatch.setattr(module, "start_state", lambda scenario, server, shared, place: place.mkdir(exist_ok=True))
    found = []
    for number in range(16):
        (folder := tmp_path / f"case-{number}").mkdir()
        scenario = Scenario("toy", "", "", kept="k")
        found.append(kills.check(scenario, f"{number}", 1, server, tmp_path / "shared", folder))
    found = [one for one in found if one]
    assert found == [] if not sentence else any(sentence in one for one in found), found


@pytest.mark.parametrize(
    ("status", "output", "problem"),
    [
        (2, "nearfar: out/x: cannot be written (No space left on device).", ""),
        (0, "done", ""),
        (2, "nearfar: No space left on device.", "names no file"),
        (2, f"nearfar: nearfar {SCENARIOS['encode npy'].arguments}: no space is left.", "names no file"),
        (70, "nearfar: out/x: OSError", "status 70"),
        (-9, "nearfar: out/x: OSError", "status -9"),
        (2, "Traceback (most recent call last)\nout/x: OSError", "traceback"),
    ],
)
def test_how_a_command_that_failed_is_judged(status: int, output: str, problem: str) -> None:
    found = faults.wrong_message(SCENARIOS["encode npy"], Done(status, output), {"out/x", "out.npy"})
    assert problem in found
    assert bool(found) == bool(problem)


# --- inputs ---


def _raising(error: Exception) -> Any:
    def call() -> list[Any]:
        raise error

    return call


REFUSES, PLAIN_REFUSES = _raising(NearfarError("a.tsv: no.")), _raising(readers.RefusedError("no"))


@pytest.mark.parametrize(
    ("reader", "plain", "difference"),
    [
        (lambda: [("a",)], lambda: [("a",)], ""),
        (lambda: [("a",)], lambda: [("a",), ("b",)], "1 rows, but the plain reader finds 2"),
        (lambda: [(1,)], lambda: [(1.0,)], "row 0 is"),
        (lambda: [(float("nan"),)], lambda: [(float("nan"),)], ""),
        (lambda: [], PLAIN_REFUSES, "accepted, but the plain reader refuses it"),
        (REFUSES, lambda: [], "refused, but the plain reader accepts it"),
        (REFUSES, PLAIN_REFUSES, ""),
    ],
)
def test_a_reader_that_differs_from_the_plain_one_is_found(reader: Any, plain: Any, difference: str) -> None:
    found = readers.compare(reader, plain)["difference"]
    assert found.startswith(difference)
    assert bool(found) == bool(difference)


@pytest.mark.parametrize(
    ("status", "output", "problem"),
    [
        (2, "nearfar: a.tsv: is empty.\n", ""),
        (0, "", ""),
        (1, "nearfar: a.tsv: is empty.\n", "exit status 1"),
        (-11, "", "signal 11"),
        (2, "Traceback (most recent call last):\nValueError: no", "raised: ValueError: no"),
        (2, "", "without an error message"),
        (2, "nearfar: it is empty.", "does not name a.tsv"),
        (2, "nearfar: a.tsv: ValueError: no.", "the name of a class"),
        (2, "nearfar: a.tsv: <object at 0x7f0011223344>.", "at 0x7f"),
        (2, "nearfar: a.tsv: \x1b[31m.", "contains '\\x1b'"),
        (2, "nearfar: a.tsv: " + "x" * 9999, "characters"),
        (2, "nearfar: a.tsv: this is a bug in nearfar", "reported as a bug"),
        (2, "nearfar: a.tsv: no. Tried:\none\ntwo\nthree\nfour", ""),
    ],
)
def test_verdicts_of_commands(status: int, output: str, problem: str) -> None:
    found = verdicts.of_command(Done(status, output), ["a.tsv"])
    assert problem in found
    assert bool(found) == bool(problem)


def test_a_check_that_raises_is_a_failure(tmp_path: Path, server: Server) -> None:
    def raises(server: Server, shared: Path, folder: Path) -> str:
        raise ValueError("no")

    assert "ValueError('no')" in run_case(Case("group", "raises", raises), server, tmp_path / "shared")
