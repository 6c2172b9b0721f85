"""An encoder for the tests of methods."""

import pytest

from nearfar.encoder.encoder import Encoder
from tests.tiny import save_tiny


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    """A tiny encoder without dropout; methods train copies of it."""
    return Encoder.from_pretrained(save_tiny(tmp_path_factory.mktemp("tiny"), dropout=0.0), pooling="cls", device="cpu")
