"""Jobs as tasks on a Ray of this machine, and what is said where Ray is missing or the cluster cannot be used."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from nearfar.jobs import Job, JobStore, Task, run_jobs
from nearfar.jobs.ray_cluster import perform_remotely
from nearfar.types import NearfarError
from tests.child_programs import output_of, report_of
from tests.jobs.functions import HERE, contents, diamonds, job

INSTALLED = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray")
PROGRAM = """if True:
    import json, os, sys
    import ray
    from nearfar.jobs import Job, JobStore, run_jobs
    from nearfar.types import NearfarError
    from tests.jobs.functions import HERE, diamonds, job

    report = {}
    def run(jobs, cells, **settings):
        kinds = []
        try:
            on_event = lambda event: kinds.append([event.kind, event.job.key])
            run_jobs(jobs, JobStore(cells), engine="ray", on_event=on_event, **settings)
        except NearfarError as error:
            return {"error": f"{type(error).__name__}: {error}", "kinds": kinds}
        return {"kinds": kinds}

    always = Job(f"{HERE}:dies", {"name": "always", "times": 9})
    bad = Job(f"{HERE}:raises", {"name": "bad"})
    once = Job(f"{HERE}:dies", {"name": "once", "times": 1})
    prints = Job(f"{HERE}:prints")
    report["owned"] = run([*diamonds(2), once, prints], "ray", workers=2)
    report["left running"] = ray.is_initialized()
    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False,
             object_store_memory=100 * 2**20)
    pids = [Job(f"{HERE}:pid_of", {"number": number}, local={"to": os.getcwd()}) for number in range(6)]
    run_jobs(pids, None, engine="ray", workers=2)
    report["again"] = run(diamonds(3), "ray", workers=2)
    report["failing"] = run([always, bad, job("after", {"bad": bad}), job("good")], "failing", workers=2, retries=1)
    report["gpu"] = run([Job(f"{HERE}:nothing", uses="gpu")], "gpu")
    report["cpus"] = run([job("good")], "cpus", threads=1000)
    report["kept running"] = ray.is_initialized()
    ray.shutdown()
    print("REPORT", json.dumps(report))
"""


@pytest.mark.long
@INSTALLED
def test_a_local_ray(tmp_path: Path) -> None:
    report = report_of(PROGRAM, folder=tmp_path)
    # One of two workers is killed by SIGKILL in a job: the same files as in this process.
    once = Job(f"{HERE}:dies", {"name": "once", "times": 1})
    assert [kind for kind, key in report["owned"]["kinds"] if key == once.key] == ["started", "retried", "finished"]
    assert "error" not in report["owned"]
    inline = JobStore(tmp_path / "inline")
    run_jobs(diamonds(3), inline, engine="inline")
    found = contents(tmp_path / "ray")
    prints = Job(f"{HERE}:prints")
    alone = [name for name in found if name.startswith((once.key, prints.key))]
    assert found[f"{once.key}/result.txt"] == b"once()"
    assert {name: found[name] for name in found if name not in alone} == contents(inline.root)
    assert found[f"{prints.key}/folder.txt"].decode() == str(tmp_path)
    assert found[f"{prints.key}/threads.txt"] == b"1"
    log = (tmp_path / "ray" / prints.key / "log.txt").read_text(encoding="utf-8")
    assert sorted(log.splitlines()) == ["from a child", "to descriptor 1", "to stderr", "to stdout"]
    assert not [name for name in os.listdir(tmp_path / "ray") if name.startswith(".") or name.endswith(".part")]
    # A Ray that the engine has started is stopped; another one is left alone.
    assert (report["left running"], report["kept running"]) == (False, True)
    assert [kind for kind, _ in report["again"]["kinds"]].count("found") == 2
    # Processes stay: what a function keeps in its module is there for the next job.
    pids = [(tmp_path / f"pid-{number}").read_text(encoding="utf-8").split() for number in range(6)]
    assert max(int(before) for _, before in pids) > 0
    # Failures stay with their jobs.
    kinds = [kind for kind, _ in report["failing"]["kinds"]]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "started": 3,
        "retried": 1,
        "failed": 2,
        "skipped": 1,
        "finished": 1,
    }
    assert report["failing"]["error"].startswith("JobsFailedError: 2 jobs failed; 1 that need them were skipped:")
    assert "its worker died" in report["failing"]["error"]
    assert "ValueError: bad is no good" in report["failing"]["error"]
    # Clusters that cannot be used.
    assert "uses a GPU, but no machine of the cluster has one" in report["gpu"]["error"]
    assert "no machine of the cluster has 1000 CPUs; lower --threads" in report["cpus"]["error"]
    assert not any((tmp_path / name).is_dir() and os.listdir(tmp_path / name) for name in ("gpu", "cpus"))


def test_a_machine_that_does_not_see_the_folder_fails_its_jobs(tmp_path: Path) -> None:
    task = Task.of(job("first"), JobStore(tmp_path / "missing" / "cells"), str(tmp_path))
    outcome = perform_remotely(task, {}, [])
    assert (outcome.key, outcome.kind) == (task.key, "failed")
    assert f"does not see the folder {task.root} of the one that leads" in outcome.message


def test_without_ray_the_message_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(NearfarError, match=r"--engine ray: needs the package ray.*pip install 'nearfar\[scale\]'"):
        run_jobs([job("first")], JobStore(tmp_path), engine="ray")


@pytest.mark.long
@INSTALLED
def test_an_address_where_nothing_answers_is_named(tmp_path: Path) -> None:
    address = "ray://127.0.0.1:1"
    script = """if True:
        import sys
        from nearfar.jobs import JobStore, run_jobs
        from nearfar.types import NearfarError
        from tests.jobs.functions import job
        try:
            run_jobs([job("first")], JobStore("cells"), engine="ray", ray_address=sys.argv[1])
        except NearfarError as error:
            print(error)
    """
    printed = output_of(script, address, folder=tmp_path)
    assert printed.startswith(f"--ray-address {address}: no Ray cluster can be reached (")
