"""Encoders of some of the layers of another: which layers, the same numbers as by hand, saving, refusals."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from nearfar import Encoder, NearfarError
from nearfar.encoder.keep_layers import parse_layers
from nearfar.encoder.ragged import transformer_layers
from tests.tiny import ARCHITECTURES, save_tiny, sentences

TEXTS = sentences(12)


@pytest.mark.parametrize(
    ("given", "layers", "expected"),
    [
        ("3", 6, [2, 4, 6]),
        ("3", 12, [4, 8, 12]),
        ("1", 6, [6]),
        ("6", 6, [1, 2, 3, 4, 5, 6]),
        ("5", 6, [1, 2, 4, 5, 6]),
        ("1,2,3", 6, [1, 2, 3]),
        ("2, 6", 6, [2, 6]),
    ],
)
def test_a_number_is_evenly_spaced_and_a_list_is_taken_as_it_is(given: str, layers: int, expected: list[int]) -> None:
    assert parse_layers(given, layers=layers) == expected


@pytest.mark.parametrize("given", ["0", "7", "1,7", "0,1"])
def test_layers_that_the_encoder_does_not_have_are_refused(given: str) -> None:
    with pytest.raises(NearfarError, match=f"--keep-layers {given}: this encoder has the layers 1 to 6"):
        parse_layers(given, layers=6)


@pytest.mark.parametrize("given", ["all", "", "1-3", "-1", "1.5", "1,,2", "3,", "9" * 5000, "²"])
def test_other_texts_are_refused(given: str) -> None:
    with pytest.raises(NearfarError, match="must be a number of layers such as 3, or layers such as 2,4,6"):
        parse_layers(given, layers=6)


@pytest.mark.parametrize("given", ["2,2", "3,1"])
def test_layers_must_ascend(given: str) -> None:
    with pytest.raises(NearfarError, match="write each layer once, in ascending order"):
        parse_layers(given, layers=6)


@pytest.mark.long
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_some_layers_of_every_architecture_are_saved_and_read_again(architecture: str, tmp_path: Path) -> None:
    save_tiny(tmp_path / "whole", architecture)
    whole = Encoder.from_pretrained(tmp_path / "whole")
    kept = "1,2,4" if architecture == "modernbert" else "1"
    before = torch.get_rng_state()
    encoder = Encoder.from_pretrained(tmp_path / "whole", keep_layers=kept)
    assert torch.equal(torch.get_rng_state(), before)
    assert len(transformer_layers(encoder.backbone)) == encoder.backbone.config.num_hidden_layers == kept.count(",") + 1
    vectors = encoder.encode(TEXTS)
    assert np.abs(vectors - whole.encode(TEXTS)).max() > 0.1
    encoder.save_pretrained(tmp_path / "fewer")
    assert np.array_equal(Encoder.from_pretrained(tmp_path / "fewer").encode(TEXTS), vectors)
    theirs = SentenceTransformer(str(tmp_path / "fewer"), device="cpu").encode(TEXTS)
    assert np.abs(theirs - vectors).max() <= 1e-5


@pytest.mark.long
@pytest.mark.parametrize("architecture", ["bert", "mpnet"])
def test_without_the_last_layer_the_output_is_the_layer_before_it(architecture: str, tmp_path: Path) -> None:
    save_tiny(tmp_path / "whole", architecture)
    backbone = Encoder.from_pretrained(tmp_path / "whole").backbone
    layers = [layer.state_dict() for layer in transformer_layers(backbone)]
    encoder = Encoder.from_pretrained(tmp_path / "whole", keep_layers="1")  # the last of two
    (last,) = transformer_layers(encoder.backbone)
    assert all(torch.equal(last.state_dict()[name], layers[-1][name]) for name in layers[-1])
    with torch.no_grad():  # the first layer in its place gives the hidden states after the first layer
        last.load_state_dict(layers[0])
    expected = Encoder.from_pretrained(tmp_path / "whole", pooling="layer:1").encode(TEXTS)
    assert np.abs(encoder.encode(TEXTS) - expected).max() <= 1e-6


def test_all_layers_are_the_encoder_itself(tmp_path: Path) -> None:
    save_tiny(tmp_path / "whole")
    whole, same = (Encoder.from_pretrained(tmp_path / "whole", keep_layers=kept) for kept in (None, "2"))
    assert np.array_equal(whole.encode(TEXTS), same.encode(TEXTS))


def test_layers_that_cannot_be_saved_are_refused(tmp_path: Path) -> None:
    """ModernBERT's first layer has no norm before its attention."""
    save_tiny(tmp_path / "whole", "modernbert")
    with pytest.raises(NearfarError, match=r"--keep-layers 2,3: the layers of ModernBertModel differ by their place"):
        Encoder.from_pretrained(tmp_path / "whole", keep_layers="2,3")


def test_a_pooling_of_a_removed_layer_is_refused(tmp_path: Path) -> None:
    save_tiny(tmp_path / "whole")
    with pytest.raises(NearfarError, match=r"pooling 'layer:2': this encoder's layers are 0 \(embeddings\) to 1"):
        Encoder.from_pretrained(tmp_path / "whole", pooling="layer:2", keep_layers="1")
