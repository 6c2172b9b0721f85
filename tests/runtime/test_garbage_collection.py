"""The garbage collector: paused during imports, restored afterwards, and skipped at exit."""

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from nearfar.runtime import garbage_collection


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
        from nearfar.runtime import garbage_collection

        class Cycle:
            def __init__(self):
                self.myself = self

        def collections():
            return sum(generation["collections"] for generation in gc.get_stats())

        gc.set_threshold(10, 2, 2)
        with garbage_collection.paused():
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


def test_an_error_inside_leaves_the_collector_on() -> None:
    with pytest.raises(KeyError), garbage_collection.paused():
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    with garbage_collection.paused():
        pass
    assert not gc.isenabled()


def test_objects_frozen_by_the_program_stay_frozen() -> None:
    kept: list[object] = [[]]
    gc.freeze()
    with garbage_collection.paused():
        pass
    assert gc.isenabled()
    assert not any(one is kept for one in gc.get_objects())  # without frozen objects


def exit_states(call: str) -> list[str]:
    """Return the state seen by exit handlers, which run last to first: the first one runs after that of nearfar."""
    code = f"""if True:
        import atexit, gc, sys
        from nearfar import cli
        atexit.register(lambda: print("last", gc.get_freeze_count() > 0))
        {call}
        atexit.register(lambda: print("first", gc.get_freeze_count() > 0))
    """
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return completed.stdout.splitlines()[1:]


def test_the_program_freezes_its_objects_after_others_have_cleaned_up() -> None:
    assert exit_states('sys.argv = ["nearfar", "--version"]; cli.main()') == ["first False", "last True"]


def test_a_call_within_another_program_freezes_nothing() -> None:
    assert exit_states('cli.main(["--version"])') == ["first False", "last False"]
