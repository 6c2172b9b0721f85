"""The garbage collector is paused during imports and skipped at exit; free memory goes back to the system."""

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.child_programs import report_of


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    threshold = gc.get_threshold()
    gc.set_threshold(10, 2, 2)
    yield
    gc.enable()
    gc.unfreeze()
    gc.set_threshold(*threshold)


def test_the_collector_is_paused_inside_and_restored_afterwards() -> None:
    """Runs in its own process, because ``gc.collect`` does nothing while another thread collects."""
    code = """if True:
        import gc, weakref
        from nearfar.runtime import memory

        class Cycle:
            def __init__(self):
                self.myself = self

        def collections():
            return sum(generation["collections"] for generation in gc.get_stats())

        gc.set_threshold(10, 2, 2)
        with memory.paused():
            before = collections()
            kept = [[number] for number in range(1000)]
            cycle = weakref.ref(Cycle())
            assert collections() == before
            assert cycle() is not None
        assert gc.isenabled()
        assert gc.get_freeze_count() == 0
        assert gc.get_threshold() == (10, 2, 2)
        assert any(one is kept[0] for one in gc.get_objects(generation=2))
        gc.collect()
        assert cycle() is None
    """
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr


FRAGMENTED = """if True:
    import json, os
    from pathlib import Path
    from nearfar.runtime import memory

    def private_bytes():
        fields = Path("/proc/self/statm").read_text().split()
        return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")

    before = private_bytes()
    blocks = [b"x" * 100_000 for _ in range(6_000)]  # small enough for the heap
    kept = blocks[::50]
    del blocks
    grown = private_bytes()
    memory.release()
    print("REPORT", json.dumps([grown - before, private_bytes() - before]))
"""


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_free_blocks_between_kept_ones_are_returned(tmp_path: Path) -> None:
    grown, after = report_of(FRAGMENTED, folder=tmp_path)
    assert grown > 300e6
    assert after < 100e6
