"""Workers on a Ray of this machine: they stay between jobs, are replaced when they die, and give up if none starts."""

import importlib.util
from pathlib import Path

import pytest

from tests.child_programs import report_of

INSTALLED = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray")
PROGRAM = """if True:
    import json, os
    from pathlib import Path
    import ray
    from nearfar.jobs import Job, ScratchStore, ray_machines, ray_workers, run_jobs
    from nearfar.types import NearfarError
    from tests.jobs.functions import HERE

    here, report = Path.cwd(), {}
    def run(jobs, store, workers=2, **settings):
        kinds = []
        try:
            engine = ray_workers.RayWorkers(store, workers=workers, **settings)
            run_jobs(jobs, store, engine=engine, on_event=lambda event: kinds.append(event.kind))
        except NearfarError as error:
            return {"error": f"{type(error).__name__}: {error}", "kinds": kinds}
        return {"kinds": kinds}

    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False,
             object_store_memory=100 * 2**20)
    pids = [Job(f"{HERE}:pid_of", {"number": number}, local={"to": str(here)}) for number in range(6)]
    report["stay"] = run(pids, ScratchStore(here / "shared"))
    report["left"] = os.listdir(here / "shared")
    once = Job(f"{HERE}:dies_outside", {"name": "once", "times": 1}, local={"to": str(here)})
    bad = Job(f"{HERE}:raises", {"name": "bad"})
    report["dies"] = run([once, *pids], ScratchStore(), workers=1)
    report["fails"] = run([bad, *pids], ScratchStore())
    report["more workers than CPUs"] = run(pids, ScratchStore(), workers=5)
    report["gpu"] = run(pids, ScratchStore(), gpus=1)
    sees_token, ray_machines.sees_token = ray_machines.sees_token, lambda token: False
    report["apart"] = run(pids, ScratchStore(here / "shared"))
    ray_machines.sees_token = sees_token
    class Dies(ray_workers._Worker):
        def __init__(self):
            raise ValueError("no worker here")
    ray_workers._Worker = Dies
    report["start"] = run(pids, ScratchStore())
    report["still there"] = ray.is_initialized()
    ray.shutdown()
    print("REPORT", json.dumps(report))
"""


@pytest.mark.long
@INSTALLED
def test_workers_on_a_local_ray(tmp_path: Path) -> None:
    report = report_of(PROGRAM, folder=tmp_path)
    found = [(tmp_path / f"pid-{number}").read_text(encoding="utf-8").split() for number in range(6)]
    assert len({pid for pid, _ in found}) <= 2  # of the last run without errors, by two workers
    assert report["stay"]["kinds"].count("finished") == 6
    assert report["left"] == []
    assert report["dies"]["kinds"].count("retried") == 1
    assert report["dies"]["kinds"].count("finished") == 7
    assert (tmp_path / "once").read_text(encoding="utf-8") == "2"
    assert report["fails"]["kinds"].count("finished") == 6
    assert report["fails"]["error"].startswith("JobsFailedError: 1 job failed:\n")
    assert report["more workers than CPUs"]["kinds"].count("finished") == 6
    assert report["gpu"]["error"] == (
        "NearfarError: --device cuda with --engine ray: no machine of the cluster has a GPU."
    )
    assert "does not see the folder" in report["apart"]["error"]
    assert "--engine ray: workers die when they start (" in report["start"]["error"]
    assert report["still there"]
