"""A tiny model as a SentenceTransformer, without dropout, and the same weights as an Encoder."""

from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from nearfar import Encoder
from tests.tiny import save_tiny


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with the pooling cls, which tests leave as it is; nearfar and sentence-transformers read it."""
    folder = tmp_path_factory.mktemp("model")
    Encoder.from_pretrained(save_tiny(folder / "plain", dropout=0.0), pooling="cls").save_pretrained(folder / "tiny")
    return folder / "tiny"


@pytest.fixture
def model(folder: Path) -> SentenceTransformer:
    torch.manual_seed(0)
    return SentenceTransformer(str(folder), device="cpu")


@pytest.fixture
def encoder(folder: Path) -> Encoder:
    return Encoder.from_pretrained(folder, device="cpu")
