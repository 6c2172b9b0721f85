"""A tiny model as a SentenceTransformer, without dropout, and the same weights as an Encoder."""

from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from nearfar import Encoder
from tests.tiny import save_tiny


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with the pooling cls; nearfar and sentence-transformers read it alike."""
    Encoder.from_pretrained(save_tiny(tmp_path / "plain", dropout=0.0), pooling="cls").save_pretrained(
        tmp_path / "tiny"
    )
    return tmp_path / "tiny"


@pytest.fixture
def model(folder: Path) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu")


@pytest.fixture
def encoder(folder: Path) -> Encoder:
    return Encoder.from_pretrained(folder, device="cpu")
