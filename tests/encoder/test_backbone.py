"""Changes of a backbone: some of its layers, learning rates by layer, LoRA adapters, frozen embeddings."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer

from nearfar import Encoder, NearfarError
from nearfar.encoder.adapters import add_lora
from nearfar.encoder.backbone import freeze_embeddings, learning_rate_factors, parse_layers
from nearfar.encoder.ragged import transformer_layers
from tests.encoder.architectures import VARIED
from tests.tiny import ARCHITECTURES, PADDED, save_tiny, sentences

TEXTS = sentences(12)


@pytest.mark.parametrize(
    ("given", "layers", "expected"),
    [
        ("3", 6, [2, 4, 6]),
        ("1", 6, [6]),
        ("6", 6, [1, 2, 3, 4, 5, 6]),
        ("5", 6, [1, 2, 4, 5, 6]),
        ("2, 6", 6, [2, 6]),
    ],
)
def test_a_number_is_evenly_spaced_and_a_list_is_taken_as_it_is(given: str, layers: int, expected: list[int]) -> None:
    assert parse_layers(given, layers=layers) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        *((given, f"--keep-layers {given}: this encoder has the layers 1 to 6") for given in ("0", "7", "1,7")),
        *((given, "must be a number of layers such as 3, or layers such as 2,4,6") for given in ("", "1-3", "3,", "²")),
        ("9" * 5000, "must be a number of layers such as 3"),
        *((given, "write each layer once, in ascending order") for given in ("2,2", "3,1")),
    ],
)
def test_layers_that_are_refused(given: str, message: str) -> None:
    with pytest.raises(NearfarError, match=message):
        parse_layers(given, layers=6)


@pytest.mark.long
@pytest.mark.parametrize("architecture", VARIED)
def test_some_layers_of_every_architecture_are_saved_and_read_again(architecture: str, tmp_path: Path) -> None:
    save_tiny(tmp_path / "whole", architecture)
    whole = Encoder.from_pretrained(tmp_path / "whole")
    kept = "1,2,4" if architecture == "modernbert" else "1"
    before = torch.get_rng_state()
    encoder = Encoder.from_pretrained(tmp_path / "whole", keep_layers=kept)
    assert torch.equal(torch.get_rng_state(), before)
    layers = transformer_layers(encoder.backbone)
    numbers = parse_layers(kept, layers=whole.backbone.config.num_hidden_layers)
    assert len(layers) == encoder.backbone.config.num_hidden_layers == len(numbers)
    for layer, number in zip(layers, numbers, strict=True):
        expected = transformer_layers(whole.backbone)[number - 1].state_dict()
        assert all(torch.equal(tensor, expected[name]) for name, tensor in layer.state_dict().items())
    vectors = encoder.encode(TEXTS)
    assert np.abs(vectors - whole.encode(TEXTS)).max() > 0.1
    encoder.save_pretrained(tmp_path / "fewer")
    assert np.array_equal(Encoder.from_pretrained(tmp_path / "fewer").encode(TEXTS), vectors)
    theirs = SentenceTransformer(str(tmp_path / "fewer"), device="cpu").encode(TEXTS)
    assert np.abs(theirs - vectors).max() <= 1e-5


@pytest.mark.long
def test_layers_that_cannot_be_saved_are_refused(tmp_path: Path) -> None:
    """ModernBERT's first layer has no norm before its attention."""
    save_tiny(tmp_path / "whole", "modernbert")
    with pytest.raises(NearfarError, match=r"--keep-layers 2,3: the layers of ModernBertModel differ by their place"):
        Encoder.from_pretrained(tmp_path / "whole", keep_layers="2,3")


ABOVE = ("pooler.", "final_norm.")
"""Names of the modules above the layers."""


def expected_factor(name: str, layers: int, decay: float) -> float:
    """The factor by the name of a parameter in the backbone: layer numbers are in the names, from 0."""
    if name.startswith(ABOVE):
        return 1.0
    numbers = [int(part) for part in name.split(".") if part.isdigit()]
    return decay ** (layers - 1 - numbers[0]) if numbers else decay**layers


@pytest.mark.long
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_factors_fall_from_the_top_layer_to_the_embeddings(architecture: str, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(save_tiny(tmp_path, architecture))
    encoder.add_dense()
    factors = learning_rate_factors(encoder.backbone, 0.5)
    layers = encoder.backbone.config.num_hidden_layers
    found = {name: factors[parameter] for name, parameter in encoder.backbone.named_parameters()}
    assert found == {name: expected_factor(name, layers, 0.5) for name in found}
    assert set(found.values()) == {0.5**power for power in range(layers + 1)}
    assert len(factors) == len(found)  # the Dense module after the pooling has the full rate
    if architecture == "mpnet":
        assert found["encoder.relative_attention_bias.weight"] == 0.25


def test_shared_layers_are_refused() -> None:
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48, "num_hidden_layers": 2}
    albert = transformers.AlbertModel(transformers.AlbertConfig(**sizes, vocab_size=40, embedding_size=16))
    with pytest.raises(NearfarError, match=r"--layer-decay 0\.9: AlbertModel has no list of its 2 layers.*Leave the"):
        learning_rate_factors(albert, 0.9)


LONG_TEXTS = sentences(9, longest=20)


def adapters_of(encoder: Encoder) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in encoder.backbone.named_parameters() if "lora_" in name}


def train(encoder: Encoder, steps: int = 3) -> None:
    optimiser = torch.optim.SGD([p for p in encoder.parameters() if p.requires_grad], lr=0.01)
    ids = encoder.tokenize(LONG_TEXTS).ids
    for _ in range(steps):
        encoder(ids)[:, 0].sum().backward()
        optimiser.step()
        optimiser.zero_grad()


@pytest.mark.long
@pytest.mark.parametrize("architecture", VARIED)
def test_adapters_start_at_zero_are_trained_and_merged(architecture: str, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(save_tiny(tmp_path / "tiny", architecture))
    backbone, names = encoder.backbone, encoder.backbone.state_dict().keys()
    before, weights = encoder.encode(LONG_TEXTS), {name: t.clone() for name, t in encoder.backbone.state_dict().items()}
    merge = add_lora(encoder.backbone, rank=2, alpha=4)
    np.testing.assert_array_equal(encoder.encode(LONG_TEXTS), before)
    assert encoder.route.ragged == (architecture not in PADDED)
    learning = {name for name, p in encoder.named_parameters() if p.requires_grad}
    assert learning == {f"backbone.{name}" for name in adapters_of(encoder)}
    layers = backbone.config.num_hidden_layers
    assert len(learning) % (2 * layers) == 0
    assert len(learning) >= 2 * 4 * layers

    train(encoder)
    with_adapters = encoder.encode(LONG_TEXTS)
    assert np.abs(with_adapters - before).max() > 0.01
    merge()
    assert encoder.backbone is backbone
    assert backbone.state_dict().keys() == names
    np.testing.assert_allclose(encoder.encode(LONG_TEXTS), with_adapters, atol=1e-5)
    changed = {name for name, tensor in backbone.state_dict().items() if not torch.equal(tensor, weights[name])}
    assert len(changed) == len(learning) / 2
    assert all("layer" in name and name.endswith("weight") for name in changed)
    assert all(p.requires_grad for p in backbone.parameters())

    encoder.save_pretrained(tmp_path / "saved")
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(LONG_TEXTS)
    np.testing.assert_allclose(theirs, with_adapters, atol=1e-5)
    assert "peft" not in (tmp_path / "saved" / "config.json").read_text()
    np.testing.assert_allclose(Encoder.from_pretrained(tmp_path / "saved").encode(LONG_TEXTS), with_adapters, atol=1e-5)


def test_the_merged_weight_by_hand(encoder: Encoder) -> None:
    query = encoder.backbone.encoder.layer[0].attention.self.query
    before = query.weight.detach().clone()
    merge = add_lora(encoder.backbone, rank=3, alpha=6)
    train(encoder)
    adapters = adapters_of(encoder)
    name = "encoder.layer.0.attention.self.query.lora_{}.default.weight"
    down, up = adapters[name.format("A")].detach(), adapters[name.format("B")].detach()
    assert (down.shape, up.shape) == ((3, 32), (32, 3))
    assert up.abs().max() > 0
    merge()
    torch.testing.assert_close(encoder.backbone.encoder.layer[0].attention.self.query.weight, before + 2 * up @ down)


@pytest.mark.long
def test_invalid_uses_are_refused(encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merge = add_lora(encoder.backbone, rank=1, alpha=1)
    with pytest.raises(NearfarError, match="already"):
        add_lora(encoder.backbone, rank=1, alpha=1)
    with pytest.raises(NearfarError, match="merge the LoRA adapters"):
        encoder.save_pretrained(tmp_path / "saved")
    merge()
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(NearfarError, match=r"pip install nearfar\[lora\]"):
        add_lora(encoder.backbone, rank=1, alpha=1)


@pytest.mark.long
@pytest.mark.parametrize("architecture", VARIED)
def test_frozen_embeddings_do_not_change(architecture: str, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(save_tiny(tmp_path, architecture))
    freeze_embeddings(encoder.backbone)
    encoder(encoder.tokenize(TEXTS).ids).square().sum().backward()
    gradients = {name: p.grad for name, p in encoder.backbone.named_parameters() if p.grad is not None}
    learning = {name for name, gradient in gradients.items() if gradient.abs().max() > 0}
    assert any("layer" in name for name in learning)
    assert not any(name.startswith("embeddings.") for name in learning)
    assert not encoder.backbone.get_input_embeddings().weight.requires_grad
    del encoder.backbone.embeddings
    with pytest.raises(NearfarError, match="Model has no embedding layer"):
        freeze_embeddings(encoder.backbone)
