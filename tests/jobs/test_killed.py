"""Runs that are killed or stopped at any moment, and two runs at once: the same files as if nothing had happened."""

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

from tests.jobs.functions import contents
from tests.jobs.programs import children, finish, is_alive, start, wait_until

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc"),
]
JOBS = 12
MOMENTS = 20
"""All at night, two by day."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(start(folder, engine="inline", pause=0.01))
    assert len(list((folder / "cells").iterdir())) == JOBS
    return contents(folder / "cells")


def count_files(folder: Path) -> int:
    """Number of files that the jobs have written so far."""
    return sum(len(files) for _, _, files in os.walk(folder / "cells"))


@pytest.mark.parametrize(
    "moment", [pytest.param(one, marks=pytest.mark.nightly if one % 10 else []) for one in range(MOMENTS)]
)
def test_a_run_killed_at_a_random_moment_is_continued(
    moment: int, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    at = random.Random(moment).randint(0, len(undisturbed) - 1)
    program = start(tmp_path, pause=0.01)
    wait_until(lambda: count_files(tmp_path) >= at or program.poll() is not None)
    workers = children(program.pid)
    program.kill()
    assert program.wait() == -signal.SIGKILL
    wait_until(lambda: not any(is_alive(worker) for worker in workers))  # they read that their pipe has ended
    finished = [path for path in (tmp_path / "cells").glob("*") if not path.name.endswith(".part")]
    assert len(finished) < JOBS
    for folder in finished:  # what is finished is complete
        assert {name: undisturbed[f"{folder.name}/{name}"] for name in contents(folder)} == contents(folder)
        assert len(contents(folder)) == len([name for name in undisturbed if name.startswith(folder.name)])
    finish(start(tmp_path, pause=0.01))
    assert contents(tmp_path / "cells") == undisturbed
    assert not list((tmp_path / "cells").glob("*.part"))


@pytest.mark.parametrize(
    ("engine", "number", "ignored"),
    [
        ("process", signal.SIGINT, False),
        ("process", signal.SIGTERM, True),
        ("inline", signal.SIGTERM, False),
    ],
)
def test_a_run_that_is_stopped_lets_its_jobs_clean_up(engine: str, number: int, ignored: bool, tmp_path: Path) -> None:
    program = start(tmp_path, jobs="sleeps", engine=engine, ignore_sigint=ignored)
    wait_until((tmp_path / "pids").exists)
    worker, child = map(int, (tmp_path / "pids").read_text(encoding="utf-8").split())
    assert (worker == program.pid) == (engine == "inline")
    program.send_signal(number)
    assert program.wait() in (-signal.SIGINT, 128 + signal.SIGINT)
    assert not is_alive(worker)
    assert not is_alive(child)
    (part,) = (tmp_path / "cells").iterdir()
    assert part.name.endswith(".part")
    assert (part / "cleaned.txt").read_text(encoding="utf-8") == "cleaned"
    (tmp_path / "mended").write_text("", encoding="utf-8")
    finish(start(tmp_path, jobs="sleeps", engine=engine))
    assert not list((tmp_path / "cells").glob("*.part"))


def test_a_sleeping_worker_ends_when_the_run_is_killed(tmp_path: Path) -> None:
    program = start(tmp_path, jobs="sleeps")
    wait_until((tmp_path / "pids").exists)
    processes = [int(pid) for pid in (tmp_path / "pids").read_text(encoding="utf-8").split()]
    assert len(processes) == 2  # the worker, and what its job has started
    assert all(map(is_alive, processes))
    program.kill()
    program.wait()
    wait_until(lambda: not any(map(is_alive, processes)))


def test_two_runs_at_once_share_the_work(undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    programs: list[subprocess.Popen[bytes]] = [start(tmp_path, pause=0.01) for _ in range(2)]
    for program in programs:
        finish(program)
    assert contents(tmp_path / "cells") == undisturbed
    ran = (tmp_path / "ran").read_text(encoding="utf-8").splitlines()
    assert len(ran) == len(set(ran)) == JOBS
