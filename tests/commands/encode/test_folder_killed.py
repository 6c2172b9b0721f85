"""Workers and the process that leads them, killed by SIGKILL at random moments: no row lost, none twice, order kept.

``NEARFAR_TEST_KILLS`` sets the number of moments of each test.
"""

import importlib.util
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.child_programs import environment
from tests.corpora import ROWS, SHARD_ROWS, contents, encoded, part_files, read_parts, start, write_corpus
from tests.jobs.programs import children, is_alive, wait_until

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc"),
]
MOMENTS = int(os.environ.get("NEARFAR_TEST_KILLS", "1"))
PARTS = -(-ROWS // SHARD_ROWS)
CLUSTER = """if True:
    import sys
    from ray.cluster_utils import Cluster
    settings = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**settings, "include_dashboard": False})
    cluster.add_node(**settings)
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    sys.stdin.read()
    cluster.shutdown()
"""
"""Two nodes in one machine, until stdin ends."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        encoded("expected")
    return folder


@contextmanager
def started_cluster(folder: Path) -> Iterator[tuple[str, int]]:
    """The address of a Ray cluster, and the process whose descendants its workers are."""
    program = subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        env={**environment(), "RAY_USAGE_STATS_ENABLED": "0"},
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert program.stdin
    assert program.stdout
    with suppress(BrokenPipeError), program.stdout, program.stdin:
        yield program.stdout.readline().strip(), program.pid
    program.wait()


@pytest.fixture(scope="module")
def cluster(corpus: Path) -> Iterator[tuple[str, int]]:
    with started_cluster(corpus) as started:
        yield started


def count_records(folder: Path) -> int:
    try:
        return len(os.listdir(folder / "_nearfar" / "parts"))
    except FileNotFoundError:
        return 0


def descendants(pid: int) -> list[int]:
    found = children(pid)
    return found + [one for child in found for one in descendants(child)]


def processes(pid: int, name: bytes) -> list[int]:
    """The processes of a cluster with this name in their command line."""
    found = []
    for one in descendants(pid):
        with suppress(OSError):
            if name in Path(f"/proc/{one}/cmdline").read_bytes():
                found.append(one)
    return found


def actors(pid: int) -> list[int]:
    """The workers of nearfar among the processes of a cluster."""
    return processes(pid, b"_Worker")


def wait_for_moment(draw: random.Random, program: subprocess.Popen[bytes], output: Path) -> None:
    """Wait until a random number of parts is finished, and then a random part of the time of one more."""
    at, more = draw.randint(0, PARTS - 2), draw.randint(0, 3)
    wait_until(lambda: count_records(output) >= at or program.poll() is not None)
    for _ in range(more):
        before = sorted(os.listdir(output / "_nearfar" / "writing")) if at else []
        wait_until(
            lambda: (
                program.poll() is not None
                or (at and sorted(os.listdir(output / "_nearfar" / "writing")) != before)  # noqa: B023
                or not at
            )
        )


def kill_one(workers: list[int], draw: random.Random, output: Path) -> None:
    """Kill one of the workers; what is printed is seen with ``pytest -rP``."""
    print(f"{len(workers)} workers, {count_records(output)} of {PARTS} parts at the kill")
    if workers:
        os.kill(draw.choice(workers), signal.SIGKILL)


def check(corpus: Path, output: Path) -> None:
    """Every row is there, once, in order; all files are those of an undisturbed run."""
    assert read_parts(output)["row"].to_pylist() == list(range(ROWS))
    assert contents(output) == contents(corpus / "expected")


def check_unfinished(corpus: Path, output: Path) -> None:
    """Parts that have their name are complete."""
    for file in part_files(output):
        assert file.read_bytes() == (corpus / "expected" / file.name).read_bytes()


@pytest.mark.nightly
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_a_killed_run_is_continued(corpus: Path, moment: int, tmp_path: Path) -> None:
    program = start(corpus, "--workers", "2", "--threads", "1", output=str(tmp_path / "out"))
    wait_for_moment(random.Random(100 + moment), program, tmp_path / "out")
    workers = children(program.pid)
    print(f"{count_records(tmp_path / 'out')} of {PARTS} parts at the kill")
    program.kill()
    program.wait()
    wait_until(lambda: not any(map(is_alive, workers)))  # they read that their pipe has ended
    check_unfinished(corpus, tmp_path / "out")
    assert start(corpus, "--workers", "2", "--threads", "1", "--resume", output=str(tmp_path / "out")).wait() == 0
    check(corpus, tmp_path / "out")


@pytest.mark.nightly
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray")
def test_ray_workers_and_the_leading_process_are_killed(corpus: Path, cluster: tuple[str, int], tmp_path: Path) -> None:
    address, pid = cluster
    flags = ("--engine", "ray", "--ray-address", address, "--workers", "2")
    for moment in range(MOMENTS):
        draw, output = random.Random(200 + moment), tmp_path / f"worker-{moment}"
        program = start(corpus, *flags, output=str(output))
        wait_until(lambda: count_records(output) >= 1 or program.poll() is not None)  # noqa: B023
        wait_for_moment(draw, program, output)
        kill_one(actors(pid), draw, output)
        assert program.wait() == 0
        check(corpus, output)
    for moment in range(MOMENTS):
        output = tmp_path / f"leading-{moment}"
        program = start(corpus, *flags, output=str(output))
        wait_for_moment(random.Random(300 + moment), program, output)
        print(f"{count_records(output)} of {PARTS} parts at the kill of the leading process")
        program.kill()
        program.wait()
        check_unfinished(corpus, output)
        assert start(corpus, *flags, "--resume", output=str(output)).wait() == 0
        check(corpus, output)
    wait_until(lambda: not actors(pid))  # they end with the runs


@pytest.mark.nightly
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray")
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_a_run_whose_head_node_died_is_continued_on_another_cluster(
    corpus: Path, moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "2")  # seconds; by default 60
    flags = ("--engine", "ray", "--workers", "2")
    output = tmp_path / "out"
    with started_cluster(corpus) as (address, pid):
        program = start(corpus, *flags, "--ray-address", address, output=str(output))
        wait_for_moment(random.Random(400 + moment), program, output)
        print(f"{count_records(output)} of {PARTS} parts at the kill of the head node")
        for one in processes(pid, b"gcs_server"):
            os.kill(one, signal.SIGKILL)
        status = program.wait()
    print(f"the run ended with status {status}")
    check_unfinished(corpus, output)
    with started_cluster(corpus) as (address, _):
        assert start(corpus, *flags, "--ray-address", address, "--resume", output=str(output)).wait() == 0
    check(corpus, output)
