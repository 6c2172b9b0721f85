"""Fixtures of several test folders; one thread per worker, because tiny tensors gain nothing from more."""

import os
import signal
from pathlib import Path

import pytest

# Before torch is imported, here and in the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["NEARFAR_PRECISION"] = "fp32"  # what auto resolves to in tests, the same on every machine
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell script; programs inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def nearfar_data() -> Path:
    """The folder NEARFAR_DATA with real data; tests that need it are skipped, with a reason, without it."""
    folder = os.environ.get("NEARFAR_DATA")
    if not folder:
        pytest.skip("NEARFAR_DATA is not set")
    return Path(folder)
