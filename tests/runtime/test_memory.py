"""The garbage collector is paused during imports and skipped at exit; free memory goes back to the system."""

import os
import subprocess
import sys

import pytest

from nearfar.encoder.precision import resolve
from nearfar.runtime.memory import SHAPES_VARIABLE
from tests.precision_mocks import machine


def test_bfloat16_keeps_the_code_of_few_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """So training with a new shape at each step does not grow by a gigabyte."""
    machine(monkeypatch, native=True)
    for given, kernels, kept in ((None, "1", "32"), (None, "0", "256"), ("7", "1", "7")):
        monkeypatch.delenv(SHAPES_VARIABLE, raising=False)
        if given:
            monkeypatch.setenv(SHAPES_VARIABLE, given)
        monkeypatch.setenv("NEARFAR_KERNELS", kernels)
        resolve("auto", "cpu")
        assert os.environ[SHAPES_VARIABLE] == kept


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
