"""Fixtures that several test folders share, and one thread for each worker: tiny tensors gain nothing from more."""

import os
from pathlib import Path

import pytest

# Before torch is imported, here and in the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["NEARFAR_PRECISION"] = "fp32"  # what auto is to tests: on every machine the same


@pytest.fixture(scope="session")
def nearfar_data() -> Path:
    """The folder of real data that NEARFAR_DATA names; tests that need it are skipped, visibly, without it."""
    folder = os.environ.get("NEARFAR_DATA")
    if not folder:
        pytest.skip("NEARFAR_DATA is not set")
    return Path(folder)
