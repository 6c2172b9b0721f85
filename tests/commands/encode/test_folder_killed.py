"""Parts on a Ray cluster whose workers, or the process that leads them, are killed: no row lost, none twice.

Kills of runs in workers of this machine are tested with the jobs (``tests/jobs``).
"""

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.child_programs import environment
from tests.corpora import ROWS, contents, encoded, part_files, read_parts, start, write_corpus
from tests.jobs.programs import children, wait_until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray"),
]
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
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, int]]:
    """A corpus with its parts in ``expected``; the address of a Ray cluster; the process above its workers."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        encoded("expected")
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
        yield folder, program.stdout.readline().strip(), program.pid
    program.wait()


def count_records(output: Path) -> int:
    return len(list((output / "_nearfar" / "parts").glob("*.json")))


def workers_of(pid: int) -> list[int]:
    """The descendants of a process in which Ray performs a task of nearfar."""
    found = []
    for child in children(pid):
        with suppress(OSError):
            if b"perform_remotely" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
        found += workers_of(child)
    return found


@pytest.mark.parametrize("killed", ["worker", "leading process"])
def test_a_run_with_a_killed_process_ends_with_all_rows(
    killed: str, cluster: tuple[Path, str, int], tmp_path: Path
) -> None:
    corpus, address, pid = cluster
    flags, output = ("--engine", "ray", "--ray-address", address, "--workers", "2"), tmp_path / "out"
    program = start(corpus, *flags, output=str(output))
    wait_until(lambda: count_records(output) >= 2 or program.poll() is not None)
    if killed == "worker":
        running: list[int] = []
        wait_until(lambda: bool(running.extend(workers_of(pid)) or running) or program.poll() is not None)
        with suppress(ProcessLookupError):
            os.kill(running[0], signal.SIGKILL)
        assert program.wait() == 0
    else:
        program.kill()
        program.wait()
        for file in part_files(output):  # parts that have their name are complete
            assert file.read_bytes() == (corpus / "expected" / file.name).read_bytes()
        assert start(corpus, *flags, "--resume", output=str(output)).wait() == 0
    assert read_parts(output)["row"].to_pylist() == list(range(ROWS))
    assert contents(output) == contents(corpus / "expected")
    wait_until(lambda: not workers_of(pid))  # they end with the runs
