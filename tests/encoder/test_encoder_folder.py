"""Model folders: opening, missing weights, the offline wheel and digests; permissions and silence of saving."""

import hashlib
import os
import stat
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoModel
from transformers.utils import logging

from nearfar import Encoder, NearfarError
from nearfar.disk import apply_umask
from nearfar.encoder import weights
from nearfar.encoder.classifier import Classifier
from tests.encoder.tiny_pairs import save_tiny_for_pairs
from tests.tiny import save_tiny


@pytest.mark.long
def test_a_missing_pooler_is_not_initialised(folder: Path, tmp_path: Path) -> None:
    tensors = {name: t for name, t in load_file(folder / "model.safetensors").items() if not name.startswith("pooler")}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    encoder = Encoder.from_pretrained(folder)
    assert encoder.backbone.pooler is None
    encoder.save_pretrained(tmp_path / "saved")
    assert not any(name.startswith("pooler") for name in load_file(tmp_path / "saved" / "model.safetensors"))


def test_missing_weights_name_each_location_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(NearfarError, match=r"(?s)someone/some-encoder.*folder.*local hub cache.*hub:.*\[offline\]"):
        Encoder.from_pretrained("someone/some-encoder")
    with pytest.raises(NearfarError, match="no such model folder"):
        Encoder.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(NearfarError, match="no such model folder"):
        Encoder.from_pretrained("./nowhere")


def test_the_offline_wheel_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    name = "sentence-transformers/all-MiniLM-L6-v2"
    assert weights.locate(name) == weights.locate("all-MiniLM-L6-v2")
    monkeypatch.setattr(weights, "WHEEL_SHA256", "0" * 64)
    with pytest.raises(NearfarError, match=r"SHA-256 is 53aa5117.*published weights have 0000"):
        weights.locate(name)
    monkeypatch.setattr(weights, "WHEEL_MODULE", "no_such_package")
    with pytest.raises(NearfarError, match=r"(?s)no weights for .*nearfar\[offline\]"):
        weights.locate(name)


@pytest.mark.long
def test_the_saved_tokenizer_does_not_depend_on_the_last_texts(tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(save_tiny(tmp_path / "tiny"))
    saved = []
    for length in (None, 5):
        encoder.tokenize(["a dog"], max_length=length)
        encoder.save_pretrained(tmp_path / f"saved-{length}")
        saved.append({file.name: file.read_bytes() for file in (tmp_path / f"saved-{length}").glob("tokenizer*")})
    assert saved[0] == saved[1]
    assert len(saved[0]) == 2


@pytest.mark.long
@pytest.mark.parametrize("umask", [0o027, 0o002])
def test_permissions_of_a_saved_encoder(umask: int, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(save_tiny(tmp_path / "tiny"), pooling="first_last")
    encoder.add_dense()
    before = os.umask(umask)
    encoder.save_pretrained(tmp_path / "saved")
    os.umask(before)
    assert len(list((tmp_path / "saved").rglob("model.safetensors"))) == 3
    for file in (tmp_path / "saved").rglob("*"):
        assert stat.S_IMODE(file.stat().st_mode) == (0o777 if file.is_dir() else 0o666) & ~umask, file


def test_permissions_of_linked_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "beside").touch(0o600)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "beside")
    apply_umask(tmp_path / "folder")
    assert stat.S_IMODE((tmp_path / "beside").stat().st_mode) == 0o600


@pytest.mark.long
def test_a_model_is_saved_without_a_progress_bar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_tiny_for_pairs(tmp_path / "tiny")
    shown = logging.is_progress_bar_enabled()
    logging.enable_progress_bar()
    try:
        AutoModel.from_pretrained(folder).save_pretrained(tmp_path / "theirs")
        assert "Writing model shards" in capsys.readouterr().err
        Encoder.from_pretrained(folder, pooling="mean").save_pretrained(tmp_path / "encoder")
        Classifier.from_pretrained(folder, label_names=("no", "yes")).save_pretrained(tmp_path / "classifier")
        assert capsys.readouterr() == ("", "")
        assert logging.is_progress_bar_enabled()
    finally:
        (logging.enable_progress_bar if shown else logging.disable_progress_bar)()


def test_the_digest_of_a_file_is_kept_until_it_changes(tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    for content in (b"zeros", b"ones!"):
        file.write_bytes(content)
        os.utime(file, ns=(0, len(content) if content == b"zeros" else 1))
        assert [weights.sha256_of(file) for _ in range(2)] == [hashlib.sha256(content).hexdigest()] * 2
    other.write_bytes(b"other")
    other.replace(file)
    assert weights.sha256_of(file) == hashlib.sha256(b"other").hexdigest()
