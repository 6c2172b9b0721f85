"""Shared fixtures of these tests."""

from pathlib import Path

import pytest

from nearfar import Encoder
from tests.tiny import save_tiny


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny BERT and its tokenizer."""
    return save_tiny(tmp_path / "tiny")


@pytest.fixture
def encoder(folder: Path) -> Encoder:
    """An encoder with that tiny BERT."""
    return Encoder.from_pretrained(folder)
