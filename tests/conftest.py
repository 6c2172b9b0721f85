"""Fixtures of several test folders; one thread per worker, because tiny tensors gain nothing from more."""

import gc
import os
import signal
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

pytest_plugins = ["tests.processor_time"]

# Before torch is imported, here and in the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["NEARFAR_PRECISION"] = "fp32"  # what auto resolves to in tests, the same on every machine
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell script; programs inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run; make test-all draws others by --hypothesis-profile free.
with suppress(ImportError):  # the tests on a GPU do without hypothesis
    from hypothesis import settings

    settings.register_profile("free", derandomize=False, deadline=None)
    settings.register_profile("seeded", derandomize=True, deadline=None)
    settings.load_profile("seeded")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among modules and tests, which are there to stay, neither while they are made nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def nearfar_data() -> Path:
    """The folder NEARFAR_DATA with real data; tests that need it are skipped, with a reason, without it."""
    folder = os.environ.get("NEARFAR_DATA")
    if not folder:
        pytest.skip("NEARFAR_DATA is not set")
    return Path(folder)
