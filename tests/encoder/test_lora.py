"""LoRA: embeddings are unchanged at first, only adapters are trained, and merging keeps the vectors."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

from nearfar import Encoder, NearfarError
from nearfar.encoder.lora import add_lora
from tests.tiny import ARCHITECTURES, PADDED, save_tiny, sentences

TEXTS = sentences(9, longest=20)


def adapters_of(encoder: Encoder) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in encoder.backbone.named_parameters() if "lora_" in name}


def train(encoder: Encoder, steps: int = 3) -> None:
    optimiser = torch.optim.SGD([p for p in encoder.parameters() if p.requires_grad], lr=0.01)
    ids = encoder.tokenize(TEXTS).ids
    for _ in range(steps):
        encoder(ids)[:, 0].sum().backward()
        optimiser.step()
        optimiser.zero_grad()


@pytest.mark.long
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_adapters_start_at_zero_are_trained_and_merged(architecture: str, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(save_tiny(tmp_path / "tiny", architecture))
    backbone, names = encoder.backbone, encoder.backbone.state_dict().keys()
    before, weights = encoder.encode(TEXTS), {name: t.clone() for name, t in encoder.backbone.state_dict().items()}
    merge = add_lora(encoder, rank=2, alpha=4)
    np.testing.assert_array_equal(encoder.encode(TEXTS), before)
    assert encoder.route.ragged == (architecture not in PADDED)
    learning = {name for name, p in encoder.named_parameters() if p.requires_grad}
    assert learning == {f"backbone.{name}" for name in adapters_of(encoder)}
    layers = backbone.config.num_hidden_layers
    assert len(learning) % (2 * layers) == 0
    assert len(learning) >= 2 * 4 * layers

    train(encoder)
    with_adapters = encoder.encode(TEXTS)
    assert np.abs(with_adapters - before).max() > 0.01
    merge()
    assert encoder.backbone is backbone
    assert backbone.state_dict().keys() == names
    np.testing.assert_allclose(encoder.encode(TEXTS), with_adapters, atol=1e-5)
    changed = {name for name, tensor in backbone.state_dict().items() if not torch.equal(tensor, weights[name])}
    assert len(changed) == len(learning) / 2
    assert all("layer" in name and name.endswith("weight") for name in changed)
    assert all(p.requires_grad for p in backbone.parameters())

    encoder.save_pretrained(tmp_path / "saved")
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(theirs, with_adapters, atol=1e-5)
    assert "peft" not in (tmp_path / "saved" / "config.json").read_text()
    np.testing.assert_allclose(Encoder.from_pretrained(tmp_path / "saved").encode(TEXTS), with_adapters, atol=1e-5)


def test_the_merged_weight_by_hand(encoder: Encoder) -> None:
    query = encoder.backbone.encoder.layer[0].attention.self.query
    before = query.weight.detach().clone()
    merge = add_lora(encoder, rank=3, alpha=6)
    train(encoder)
    adapters = adapters_of(encoder)
    name = "encoder.layer.0.attention.self.query.lora_{}.default.weight"
    down, up = adapters[name.format("A")].detach(), adapters[name.format("B")].detach()
    assert (down.shape, up.shape) == ((3, 32), (32, 3))
    assert up.abs().max() > 0
    merge()
    torch.testing.assert_close(encoder.backbone.encoder.layer[0].attention.self.query.weight, before + 2 * up @ down)


@pytest.mark.long
def test_adapters_survive_a_checkpoint(encoder: Encoder, tmp_path: Path) -> None:
    add_lora(encoder, rank=2, alpha=4)
    train(encoder)
    save_file({name: t.contiguous() for name, t in encoder.state_dict().items()}, tmp_path / "weights.safetensors")
    again = Encoder.from_pretrained(tmp_path / "tiny")
    add_lora(again, rank=2, alpha=4)
    assert np.abs(again.encode(TEXTS) - encoder.encode(TEXTS)).max() > 0.01
    again.load_state_dict(load_file(tmp_path / "weights.safetensors"))
    np.testing.assert_array_equal(again.encode(TEXTS), encoder.encode(TEXTS))


@pytest.mark.long
def test_adapters_follow_the_encoders_mode(encoder: Encoder) -> None:
    for module in encoder.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    add_lora(encoder, rank=2, alpha=4, dropout=0.5)
    train(encoder)
    ids = encoder.tokenize(TEXTS).ids
    assert torch.equal(encoder(ids), encoder(ids))
    encoder.train()
    assert not torch.equal(encoder(ids), encoder(ids))


def test_frozen_parameters_stay_frozen_and_a_dense_is_trained(encoder: Encoder) -> None:
    encoder.add_dense()
    encoder.backbone.embeddings.requires_grad_(False)
    merge = add_lora(encoder, rank=2, alpha=4)
    assert all(p.requires_grad for p in encoder.tail.parameters())
    merge()
    for name, parameter in encoder.backbone.named_parameters():
        assert parameter.requires_grad != name.startswith("embeddings.")


def test_invalid_uses_are_refused(encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NearfarError, match="--lora-rank 0"):
        add_lora(encoder, rank=0, alpha=1)
    with pytest.raises(NearfarError, match=r"LoRA dropout 1\.0"):
        add_lora(encoder, rank=1, alpha=1, dropout=1.0)
    merge = add_lora(encoder, rank=1, alpha=1)
    with pytest.raises(NearfarError, match="already"):
        add_lora(encoder, rank=1, alpha=1)
    with pytest.raises(NearfarError, match="merge the LoRA adapters"):
        encoder.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
    merge()
    add_lora(encoder, rank=1, alpha=1)()
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(NearfarError, match=r"pip install nearfar\[lora\]"):
        add_lora(encoder, rank=1, alpha=1)
