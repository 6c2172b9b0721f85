"""Saving prints nothing and keeps the user's display settings of transformers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import AutoModel
from transformers.utils import logging

from nearfar.encoder.classifier import Classifier
from nearfar.encoder.encoder import Encoder
from tests.encoder.tiny_pairs import save_tiny_for_pairs


@pytest.fixture(params=[True, False], ids=["with bars", "without"])
def bars(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether transformers shows progress bars."""
    before = logging.is_progress_bar_enabled()
    (logging.enable_progress_bar if request.param else logging.disable_progress_bar)()
    yield request.param
    (logging.enable_progress_bar if before else logging.disable_progress_bar)()


@pytest.mark.long
def test_a_model_is_saved_without_a_progress_bar(
    bars: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_tiny_for_pairs(tmp_path / "tiny")
    AutoModel.from_pretrained(folder).save_pretrained(tmp_path / "theirs")
    assert ("Writing model shards" in capsys.readouterr().err) == bars
    verbosity = logging.get_verbosity()
    encoder = Encoder.from_pretrained(folder, pooling="mean")
    classifier = Classifier.from_pretrained(folder, label_names=("no", "yes"))
    encoder.prompts["silent"], encoder.default_prompt_name = "a ", "silent"  # reported once by sentence-transformers
    encoder.save_pretrained(tmp_path / "encoder")
    classifier.save_pretrained(tmp_path / "classifier")
    assert capsys.readouterr() == ("", "")
    assert (logging.is_progress_bar_enabled(), logging.get_verbosity()) == (bars, verbosity)
