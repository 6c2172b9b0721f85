"""Shared fixtures of the tests of fine-tuning studies."""

from pathlib import Path

import pytest

from nearfar.commands.finetune import study as finetune_study
from nearfar.config import FinetuneStudyConfig
from tests.encoder.tiny_pairs import save_tiny_for_pairs
from tests.finetune_study_helpers import Runs, study_config


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny encoder; tests do not write to it."""
    return str(save_tiny_for_pairs(tmp_path_factory.mktemp("encoder") / "tiny"))


@pytest.fixture
def config(tmp_path: Path, tiny: str) -> FinetuneStudyConfig:
    """Two settings by two variants by two samples."""
    return study_config(tmp_path, tiny)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """A mock that replaces the training."""
    fake = Runs()
    monkeypatch.setattr(finetune_study, "finetune_in_memory", fake)
    return fake
