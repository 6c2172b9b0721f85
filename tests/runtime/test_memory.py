"""Free memory goes back to the system after a job that made the process grow."""

import sys
from pathlib import Path
from typing import Any

import pytest

from nearfar.jobs import Job, JobStore, run_jobs
from nearfar.runtime import memory
from tests.child_programs import report_of

FRAGMENTED = """if True:
    import json
    from nearfar.runtime import memory

    before = memory.private_bytes()
    blocks = [b"x" * 100_000 for _ in range(6_000)]  # small enough for the heap
    kept = blocks[::50]
    del blocks
    grown = memory.private_bytes()
    released = memory.release()
    print("REPORT", json.dumps([grown - before, memory.private_bytes() - before, released, memory.release()]))
"""


def nothing(settings: dict[str, Any], inputs: dict[str, Path], folder: Path) -> None:
    """A job."""


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_free_blocks_between_kept_ones_are_returned(tmp_path: Path) -> None:
    grown, after, released, again = report_of(FRAGMENTED, folder=tmp_path)
    if not released:
        pytest.skip("the C library is not glibc")
    assert grown > 300e6
    assert after < 100e6
    assert not again  # it has not grown since


@pytest.mark.long
def test_a_job_that_grew_ends_with_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([0, 2 * memory.GROWTH, memory.GROWTH, 2 * memory.GROWTH - 1])  # the third is after the release
    trimmed = []

    class Library:
        def __init__(self, name: None) -> None:
            self.malloc_trim = trimmed.append

    monkeypatch.setattr(memory, "private_bytes", lambda: next(sizes))
    monkeypatch.setattr(memory.ctypes, "CDLL", Library)
    monkeypatch.setattr(memory, "release", memory.Releaser().release)
    store = JobStore(tmp_path / "cells")
    for number, calls in ((1, 0), (2, 1), (3, 1)):
        run_jobs([Job("tests.runtime.test_memory:nothing", {"number": number})], store, engine="inline")
        assert len(trimmed) == calls
