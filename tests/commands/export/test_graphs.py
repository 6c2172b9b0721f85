"""The modules that are exported: padded token ids and a mask give the vectors and logits of ragged batches."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nearfar.commands.export.graphs import EncoderGraph, open_source, pool_masked
from nearfar.encoder import encoder_folder
from nearfar.encoder.classifier import Classifier
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.pooling import TOKEN_POOLINGS
from tests.encoder.architectures import VARIED
from tests.encoder.tiny_pairs import save_tiny_for_pairs
from tests.tiny import save_tiny, sentences

TEXTS = [*sentences(5, seed=1), "dog"]
POOLINGS = (
    "cls",
    "mean_without_cls",
    "max",
    "lasttoken",
    "weightedmean",
    "first_last",
    "embeddings_last",
    "last_two",
    "layer:1",
    "layer:1:max",
)


def padded(rows: list[list[int]], padding: int) -> torch.Tensor:
    length = max(map(len, rows)) + 2
    return torch.tensor([[*row, *[padding] * (length - len(row))] for row in rows])


def embeddings(folder: Path, pooling: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """What nearfar encodes, and what the graph returns."""
    encoder = Encoder.from_pretrained(folder, pooling=pooling)
    graph = EncoderGraph(encoder_folder.read(folder, pooling=pooling))
    ids = encoder.tokenize(TEXTS).ids
    mask = padded([[1] * len(row) for row in ids], 0)
    with torch.no_grad():
        found = graph(padded(ids, encoder.tokenizer.pad_token_id), mask)
    return encoder.encode(TEXTS, precision="fp32"), found.numpy()


@pytest.mark.long
@pytest.mark.parametrize("architecture", [*VARIED, "qwen3"])
def test_every_architecture(tmp_path: Path, architecture: str) -> None:
    expected, found = embeddings(save_tiny(tmp_path, architecture))
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_pooling(tmp_path: Path, pooling: str) -> None:
    expected, found = embeddings(save_tiny(tmp_path), pooling)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.long
def test_logits_of_pairs(tmp_path: Path) -> None:
    save_tiny_for_pairs(tmp_path / "tiny")
    Classifier.from_pretrained(tmp_path / "tiny", label_names=["no", "yes"]).save_pretrained(tmp_path / "model")
    classifier = Classifier.from_pretrained(tmp_path / "model")
    items = [("the dog runs", "a cat"), ("a bird", "the big dog runs in the park"), ("red", "blue")]
    tokens = classifier.tokenize(items)
    source = open_source(tmp_path / "model")
    assert tokens.types is not None
    mask = padded([[1] * len(row) for row in tokens.ids], 0)
    with torch.no_grad():
        found = source.graph(padded(tokens.ids, 0), mask, padded(tokens.types, 0)).logits
    np.testing.assert_allclose(found.numpy(), classifier.predict(items, precision="fp32"), atol=1e-6)


@pytest.mark.parametrize("tokens", TOKEN_POOLINGS)
def test_padding_does_not_count(tokens: str) -> None:
    states = torch.tensor([[[1.0, -2.0], [3.0, -4.0], [100.0, 100.0]], [[5.0, 6.0], [7.0, 8.0], [9.0, 1.0]]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    expected = {
        "cls": [[1, -2], [5, 6]],
        "mean": [[2, -3], [7, 5]],
        "mean_without_cls": [[3, -4], [8, 4.5]],
        "max": [[3, -2], [9, 8]],
        "lasttoken": [[3, -4], [9, 1]],
        "weightedmean": [[7 / 3, -10 / 3], [23 / 3, 25 / 6]],
    }
    torch.testing.assert_close(pool_masked(states, mask, tokens), torch.tensor(expected[tokens]).float())
