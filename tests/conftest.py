"""Fixtures that several test folders share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def nearfar_data() -> Path:
    """The folder of real data that NEARFAR_DATA names; tests that need it are skipped, visibly, without it."""
    folder = os.environ.get("NEARFAR_DATA")
    if not folder:
        pytest.skip("NEARFAR_DATA is not set")
    return Path(folder)
