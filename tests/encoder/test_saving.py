"""Saved files have the permissions of the umask; saving prints nothing and keeps display settings of transformers."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import AutoModel
from transformers.utils import logging

from nearfar import Encoder
from nearfar.disk import apply_umask
from nearfar.encoder.classifier import Classifier
from tests.encoder.tiny_pairs import save_tiny_for_pairs
from tests.tiny import save_tiny


@pytest.fixture(params=[0o027, 0o002])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {str(file.relative_to(folder)): stat.S_IMODE(file.stat().st_mode) for file in [folder, *folder.rglob("*")]}


def assert_by_umask(folder: Path, umask: int, *files: str) -> None:
    found = modes(folder)
    assert found.keys() >= set(files)
    assert found == {name: (0o777 if (folder / name).is_dir() else 0o666) & ~umask for name in found}


def test_an_encoder(umask: int, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(save_tiny(tmp_path / "tiny"), pooling="first_last")
    encoder.add_dense()
    encoder.save_pretrained(tmp_path / "saved")
    weights = ("model.safetensors", "1_WeightedLayerPooling/model.safetensors", "3_Dense/model.safetensors")
    assert_by_umask(tmp_path / "saved", umask, *weights)


def test_a_classifier(umask: int, tmp_path: Path) -> None:
    classifier = Classifier.from_pretrained(save_tiny(tmp_path / "tiny"), label_names=("no", "yes"))
    classifier.save_pretrained(tmp_path / "saved")
    assert_by_umask(tmp_path / "saved", umask, "model.safetensors")


def test_other_files_of_the_folder_keep_their_permissions(tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "secret.txt").touch(0o600)
    Encoder.from_pretrained(save_tiny(tmp_path / "tiny")).save_pretrained(tmp_path / "saved")
    assert modes(tmp_path / "saved")["secret.txt"] == 0o600


def test_a_folder_and_all_in_it(umask: int, tmp_path: Path) -> None:
    (tmp_path / "one" / "two").mkdir(parents=True, mode=0o700)
    (tmp_path / "one" / "two" / "file").touch(0o600)
    (tmp_path / "beside").touch(0o600)
    (tmp_path / "one" / "link").symlink_to(tmp_path / "beside")
    apply_umask(tmp_path / "one")
    (tmp_path / "one" / "link").unlink()
    assert_by_umask(tmp_path / "one", umask, "two/file")
    assert stat.S_IMODE((tmp_path / "beside").stat().st_mode) == 0o600
    assert os.umask(umask) == umask


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
