"""Pooling of every layer: names, vectors by hand, and the same vectors in sentence-transformers."""

import pytest
import torch

from nearfar import NearfarError
from nearfar.encoder.pooling import POOLINGS, TOKEN_POOLINGS, Pooling, parse_pooling, pool
from nearfar.encoder.ragged import RaggedBatch

BY_HAND = {
    "cls": lambda rows: rows[0],
    "mean": lambda rows: [sum(column) / len(rows) for column in zip(*rows, strict=True)],
    "mean_without_cls": lambda rows: [sum(column) / (len(rows) - 1) for column in zip(*rows[1:], strict=True)],
    "lasttoken": lambda rows: rows[-1],
    "weightedmean": lambda rows: [
        sum(place * value for place, value in enumerate(column, 1)) / sum(range(1, len(rows) + 1))
        for column in zip(*rows, strict=True)
    ],
    "max": lambda rows: [max(column) for column in zip(*rows, strict=True)],
}


@pytest.mark.parametrize("tokens", TOKEN_POOLINGS)
def test_every_pooling_of_every_layer_by_hand(tokens: str) -> None:
    batch = RaggedBatch.pack([[1, 2, 3, 4], [5, 6], [7, 8]])
    torch.manual_seed(0)
    hidden = [torch.randn(8, 3) for _ in range(3)]
    for layer in range(3):
        states = hidden[layer].tolist()
        expected = [BY_HAND[tokens](states[start:end]) for start, end in ((0, 2), (2, 4), (4, 8))]  # shortest first
        found = pool(hidden, batch, parse_pooling(f"layer:{layer}:{tokens}", layers=2))
        torch.testing.assert_close(found, torch.tensor(expected))
    torch.testing.assert_close(found, pool(hidden, batch, parse_pooling(tokens, layers=2)))  # the last layer


@pytest.mark.parametrize("tokens", TOKEN_POOLINGS)
def test_pooling_on_padded_blocks_equals_pooling_by_length(tokens: str) -> None:
    """The way of a GPU, here on a CPU: values and gradients."""
    batch = RaggedBatch.pack([[1, 2, 3, 4], [5, 6], [7, 8], [9, 10, 11], list(range(40)), list(range(40))])
    states = torch.randn(91, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    pooling = parse_pooling(tokens, layers=2)
    found = pool([states], batch, pooling, padded=True)
    expected = pool([states], batch, pooling)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    (ours,), (right,) = (torch.autograd.grad(out, states, weights) for out in (found, expected))
    torch.testing.assert_close(ours, right)
    half = states.detach().bfloat16()
    assert pool([half], batch, pooling, padded=True).dtype == torch.bfloat16


def test_names() -> None:
    assert parse_pooling("layer:3:max", layers=6) == Pooling("layer:3:max", (3,), "max")
    assert parse_pooling("layer:0:cls", layers=6) == Pooling("layer:0:cls", (0,), "cls")
    assert parse_pooling("layer:6:mean_without_cls", layers=6).layers == (6,)
    for name in ("layer:4", "layer:4:mean", "layer:04:mean"):  # one name, so that a folder restores it
        assert parse_pooling(name, layers=6) == Pooling("layer:4", (4,), "mean")
    for pooling in POOLINGS:
        name = pooling.replace("K", "2")
        assert parse_pooling(name, layers=3).name == name


def test_means_of_two_layers() -> None:
    batch, hidden = RaggedBatch.pack([[1, 2, 3]]), [torch.randn(3, 4) for _ in range(13)]
    for name, layers in {"first_last": (1, 12), "embeddings_last": (0, 12), "last_two": (11, 12)}.items():
        expected = sum(hidden[layer].mean(0) for layer in layers) / 2
        torch.testing.assert_close(pool(hidden, batch, parse_pooling(name, layers=12))[0], expected)
    # equal poolings have one name, so that a folder restores it
    assert parse_pooling("last_two", layers=2) == parse_pooling("first_last", layers=2)
    assert parse_pooling("last_two", layers=1).name == "embeddings_last"


@pytest.mark.parametrize("name", ["layer:2:median", "layer:2:first_last", "layer::max", "layer:-1:max", "layer:2:max:"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(NearfarError, match=f"unknown pooling '{name}'; choose one of .*layer:K:max"):
        parse_pooling(name, layers=6)
