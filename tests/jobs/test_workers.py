"""Worker processes: the surroundings of a job, deaths of workers; runs that are killed, stopped or two at once."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nearfar.jobs import Job, JobEvent, JobsFailedError, JobStore, run_jobs
from tests.child_programs import children, environment, running, wait_until
from tests.jobs.functions import HERE, contents, diamonds

pytestmark = pytest.mark.long
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


# --- workers ---


def test_workers_live_for_many_jobs(tmp_path: Path) -> None:
    local = {"pids": str(tmp_path / "pids")}
    jobs = [Job(f"{HERE}:combine", {"name": str(number)}, local=local) for number in range(20)]
    run_jobs(jobs, JobStore(tmp_path / "cells"), workers=2)
    pids = (tmp_path / "pids").read_text(encoding="utf-8").split()
    assert len(pids) == 20
    assert 1 <= len(set(pids)) <= 2
    assert str(os.getpid()) not in pids
    assert not running().keys() & set(map(int, pids))


def test_the_surroundings_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store, made = JobStore(tmp_path / "cells"), Job(f"{HERE}:prints")
    run_jobs([made], store, workers=1, threads=1)
    folder = store.folder(made)
    lines = (folder / "log.txt").read_text(encoding="utf-8").splitlines()
    assert sorted(lines) == ["from a child", "to descriptor 1", "to stderr", "to stdout"]
    assert (folder / "threads.txt").read_text(encoding="utf-8") == "1"
    assert (folder / "folder.txt").read_text(encoding="utf-8") == str(tmp_path)


def test_a_worker_that_dies_is_replaced_and_its_job_retried(tmp_path: Path) -> None:
    child = tmp_path / "child"
    bad = Job(f"{HERE}:dies", {"name": "bad", "times": 2}, local={"child": str(child)})
    last = Job(f"{HERE}:combine", {"name": "last"}, {"bad": bad})
    events: list[JobEvent] = []
    store = JobStore(tmp_path / "cells")
    run_jobs([*diamonds(2), last], store, workers=2, retries=2, on_event=events.append)
    assert [event.kind for event in events if event.job == bad] == ["started", "retried", "retried", "finished"]
    assert (store.folder(last) / "result.txt").read_text(encoding="utf-8") == "last(bad=bad())"
    assert sum(event.kind == "finished" for event in events) == 10
    assert not list(store.root.glob("*.part"))
    wait_until(lambda: int(child.read_text(encoding="utf-8")) not in running())  # what the worker had started


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (
            Job(f"{HERE}:dies", {"name": "bad", "times": 9}),
            "its worker was killed by SIGKILL; the system may have run out of memory, 2 times",
        ),
        (
            Job(f"{HERE}:dies", {"name": "bad", "times": 9, "signal": int(signal.SIGABRT)}),
            "its worker was killed by SIGABRT, 2 times",
        ),
        (Job(f"{HERE}:exits"), "SystemExit: enough"),
    ],
)
def test_a_job_that_always_fails_fails_alone(job: Job, message: str, tmp_path: Path) -> None:
    (good,) = diamonds(1)
    store = JobStore(tmp_path / "cells")
    with pytest.raises(JobsFailedError) as caught:
        run_jobs([job, good], store, retries=1)
    assert [*caught.value.failures] == [(job, message, store.part(job))]
    assert store.is_finished(good)


# --- runs that are killed or stopped ---

PROGRAM = """
import json, sys
from nearfar.jobs import Job, JobStore, run_jobs
from tests.jobs.functions import HERE, diamonds
settings = json.loads(sys.argv[1])
jobs = [Job(f"{HERE}:sleeps", local={"pid": settings["pids"], "mended": settings["mended"]})]
if not settings["sleeps"]:
    jobs = diamonds(3, local={"ran": settings["ran"]}, pause=0.01, steps=3)
run_jobs(jobs, JobStore(settings["cells"]), engine=settings["engine"], workers=2)
"""
"""Runs three graphs of four jobs, or one job that sleeps."""
JOBS, MOMENTS = 12, 20


def start(
    folder: Path, *, sleeps: bool = False, engine: str = "process", ignore_sigint: bool = False
) -> subprocess.Popen[bytes]:
    """Start the program with its files in ``folder``: ``cells``, ``ran`` (names of jobs), ``pids``, ``mended``.

    With ``ignore_sigint`` it inherits that SIGINT is ignored, as in the background of a shell script.
    """
    settings = {name: str(folder / name) for name in ("cells", "ran", "pids", "mended")}
    command = [sys.executable, "-c", PROGRAM, json.dumps({**settings, "sleeps": sleeps, "engine": engine})]
    if ignore_sigint:
        command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    return subprocess.Popen(command, env=environment(), cwd=folder)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert start(folder, engine="inline").wait() == 0
    assert len(list((folder / "cells").iterdir())) == JOBS
    return contents(folder / "cells")


@needs_proc
@pytest.mark.parametrize(
    "moment", [pytest.param(moment, marks=pytest.mark.nightly if moment % 10 else []) for moment in range(MOMENTS)]
)
def test_a_run_killed_at_a_random_moment_is_continued(
    moment: int, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    cells, at = tmp_path / "cells", random.Random(moment).randint(0, len(undisturbed) - 1)
    program = start(tmp_path)
    wait_until(lambda: sum(len(files) for *_, files in os.walk(cells)) >= at or program.poll() is not None)
    workers = set(children(program.pid))
    program.kill()
    assert program.wait() == -signal.SIGKILL
    wait_until(lambda: not running().keys() & workers)  # they read that their pipe has ended
    finished = [path for path in cells.glob("*") if not path.name.endswith(".part")]
    assert len(finished) < JOBS
    for folder in finished:  # what is finished is complete
        whole = {name: text for name, text in undisturbed.items() if name.startswith(folder.name)}
        assert {f"{folder.name}/{name}": text for name, text in contents(folder).items()} == whole
    assert start(tmp_path).wait() == 0
    assert contents(cells) == undisturbed
    assert not list(cells.glob("*.part"))


@needs_proc
@pytest.mark.parametrize(
    ("engine", "number", "ignored"),
    [("process", signal.SIGINT, False), ("process", signal.SIGTERM, True), ("inline", signal.SIGTERM, False)],
)
def test_a_run_that_is_stopped_lets_its_jobs_clean_up(engine: str, number: int, ignored: bool, tmp_path: Path) -> None:
    program = start(tmp_path, sleeps=True, engine=engine, ignore_sigint=ignored)
    wait_until((tmp_path / "pids").exists)
    worker, child = map(int, (tmp_path / "pids").read_text(encoding="utf-8").split())
    assert (worker == program.pid) == (engine == "inline")
    program.send_signal(number)
    assert program.wait() in (-signal.SIGINT, 128 + signal.SIGINT)
    assert not running().keys() & {worker, child}
    (part,) = (tmp_path / "cells").iterdir()
    assert part.name.endswith(".part")
    assert (part / "cleaned.txt").read_text(encoding="utf-8") == "cleaned"
    (tmp_path / "mended").touch()
    assert start(tmp_path, sleeps=True, engine=engine).wait() == 0
    assert not list((tmp_path / "cells").glob("*.part"))


@needs_proc
def test_a_sleeping_worker_ends_when_the_run_is_killed(tmp_path: Path) -> None:
    program = start(tmp_path, sleeps=True)
    wait_until((tmp_path / "pids").exists)
    processes = set(map(int, (tmp_path / "pids").read_text(encoding="utf-8").split()))
    assert len(processes & running().keys()) == 2  # the worker, and what its job has started
    program.kill()
    program.wait()
    wait_until(lambda: not running().keys() & processes)


def test_two_runs_at_once_share_the_work(undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    programs = [start(tmp_path) for _ in range(2)]
    assert [program.wait() for program in programs] == [0, 0]
    assert contents(tmp_path / "cells") == undisturbed
    ran = (tmp_path / "ran").read_text(encoding="utf-8").splitlines()
    assert len(ran) == len(set(ran)) == JOBS
