"""The learning rate of each parameter by its layer, for every architecture."""

from pathlib import Path

import pytest
import transformers
from torch import nn

from nearfar import Encoder, NearfarError
from nearfar.encoder.layer_decay import learning_rate_factors
from nearfar.encoder.lora import add_lora
from tests.tiny import ARCHITECTURES, save_tiny

ABOVE = ("pooler.", "final_norm.")
"""Names of the modules above the layers."""


def expected_factor(name: str, layers: int, decay: float) -> float:
    """The factor by the name of a parameter in the backbone: layer numbers are in the names, from 0."""
    if name.startswith(ABOVE):
        return 1.0
    numbers = [int(part) for part in name.split(".") if part.isdigit()]
    return decay ** (layers - 1 - numbers[0]) if numbers else decay**layers


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_factors_fall_from_the_top_layer_to_the_embeddings(architecture: str, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(save_tiny(tmp_path, architecture))
    encoder.add_dense()
    factors = learning_rate_factors(encoder, 0.5)
    layers = encoder.backbone.config.num_hidden_layers
    found = {name: factors[parameter] for name, parameter in encoder.backbone.named_parameters()}
    assert found == {name: expected_factor(name, layers, 0.5) for name in found}
    assert set(found.values()) == {0.5**power for power in range(layers + 1)}
    assert len(factors) == len(found)  # the Dense module after the pooling has the full rate
    if architecture == "mpnet":
        assert found["encoder.relative_attention_bias.weight"] == 0.25


def test_a_decay_of_1_has_no_factors() -> None:
    assert learning_rate_factors(nn.Linear(1, 1), 1.0) == {}  # type: ignore[arg-type]


def test_adapters_have_the_rate_of_their_layer(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    encoder = Encoder.from_pretrained(save_tiny(tmp_path))
    add_lora(encoder, rank=2, alpha=4)
    factors = learning_rate_factors(encoder, 0.5)
    trained = {name: factors[p] for name, p in encoder.backbone.named_parameters() if p.requires_grad}
    assert all("lora_" in name for name in trained)
    assert {name.split("layer.")[1][0]: factor for name, factor in trained.items()} == {"0": 0.5, "1": 1.0}


def test_shared_layers_are_refused() -> None:
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48, "num_hidden_layers": 2}
    albert = transformers.AlbertModel(transformers.AlbertConfig(**sizes, vocab_size=40, embedding_size=16))
    with pytest.raises(NearfarError, match=r"--layer-decay 0\.9: AlbertModel has no list of its 2 layers.*Leave the"):
        learning_rate_factors(albert, 0.9)
