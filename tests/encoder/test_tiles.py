"""Batches in tiles equal ragged batches, in values and gradients, and have few shapes and no data in Python."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from nearfar import Encoder
from nearfar.encoder import tiles
from nearfar.encoder.frozen import Guide
from nearfar.encoder.tiles import LENGTHS, TiledBatch, attend_in_tiles, choose_tiles, tile_mask, tile_starts
from nearfar.encoder.tokens import TokenRows, token_positions
from tests.gpu.devices import NoReadingBack
from tests.same_gradients import assert_same_gradients, gradients_of
from tests.tiny import ARCHITECTURES, DECODERS, PADDED, save_tiny, sentences

RAGGED = [architecture for architecture in ARCHITECTURES if architecture not in PADDED]
TEXTS = [*sentences(9, longest=5), *sentences(4, seed=1, longest=40), *sentences(6, seed=2, longest=12)]


def rows_of(encoder: Encoder, texts: list[str]) -> TokenRows:
    """Rows of a store in which they are not in order: the last text comes first."""
    ids = encoder.tokenize(texts).ids
    lengths = np.array([len(row) for row in ids])
    flat = np.concatenate([np.array(row, dtype=np.uint16) for row in reversed(ids)])
    return TokenRows(flat, lengths[::-1].cumsum()[::-1] - lengths, lengths)


def tiled(rows: TokenRows) -> TiledBatch:
    layout, shape = TiledBatch.layout(rows, padding=1)
    return TiledBatch(torch.from_numpy(layout), shape)


def gradients(encoder: Encoder, output: torch.Tensor) -> dict[str, torch.Tensor]:
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(0))
    encoder.zero_grad()
    (output * weights).sum().backward()
    return gradients_of(encoder)


@pytest.mark.long
@pytest.mark.parametrize(
    ("architecture", "pooling"),
    [
        *((name, "mean") for name in RAGGED),
        *((name, "lasttoken") for name in DECODERS),
        *(("bert", name) for name in ("cls", "mean_without_cls", "max", "first_last", "layer:1:max", "weightedmean")),
    ],
)
def test_embeddings_and_gradients_equal_those_of_a_ragged_batch(
    architecture: str, pooling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in longer tiles than needed, and for texts within and over the local attention window."""
    encoder = Encoder.from_pretrained(save_tiny(tmp_path, architecture), pooling=pooling)
    encoder.add_dense()
    rows = rows_of(encoder, TEXTS)
    expected = encoder(rows)
    right = gradients(encoder, expected)
    for sizes in (LENGTHS, (256,)):
        monkeypatch.setattr(tiles, "LENGTHS", sizes)
        batch = tiled(rows)
        shape = batch.shape
        assert shape.size == sizes[0]
        with NoReadingBack():
            output = encoder.embed_batch(batch)
            torch.autograd.grad(output.sum(), encoder.backbone.get_input_embeddings().weight, retain_graph=True)
        assert output.shape == (shape.texts, encoder.dim)
        torch.testing.assert_close(output[: len(TEXTS)], expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(output[len(TEXTS) :], output[:1].expand(shape.texts - len(TEXTS), -1))
        assert_same_gradients(gradients(encoder, output[: len(TEXTS)]), right, tolerance=1e-4)
    with pytest.raises(AssertionError, match="_local_scalar_dense"), NoReadingBack():
        float(output.sum())


@pytest.mark.long
@pytest.mark.parametrize(
    ("architecture", "layers", "pooling"),
    [*((name, None, "max") for name in RAGGED), ("bert", (0, 0), "mean"), ("modernbert", (1, 1), "mean")],
)
def test_views_of_a_guide_equal_those_of_a_ragged_batch(
    architecture: str, layers: tuple[int, int] | None, pooling: Literal["max", "mean"], tmp_path: Path
) -> None:
    encoder = Encoder.from_pretrained(save_tiny(tmp_path, architecture))
    guide = Guide(encoder.backbone, encoder.route, pooling=pooling, layers=layers)
    rows = rows_of(encoder, TEXTS)
    with NoReadingBack():
        output = guide.batch_views(tiled(rows))
    torch.testing.assert_close(output[: len(TEXTS)], guide.views(rows), atol=1e-5, rtol=0)


def test_each_text_has_its_own_places_of_one_tile() -> None:
    generator = np.random.default_rng(0)
    for size in (8, 64, 72, 512):
        for count in (1, 3, 200):
            lengths = np.minimum(generator.poisson(size // 5, size=count), size)
            starts = tile_starts(lengths, size)
            places = np.repeat(starts, lengths) + token_positions(lengths)
            assert len(set(places.tolist())) == lengths.sum()
            real = lengths > 0
            assert (starts[real] // size == (starts + lengths - 1)[real] // size).all()


def test_tiles_are_full_where_texts_are_short_or_of_one_length() -> None:
    """And a batch that stands alone has tiles of the longest text's length where others would be half empty."""
    generator = np.random.default_rng(0)
    mixed = np.concatenate([generator.poisson(14, size=64) + 2, generator.poisson(8, size=128) + 2])
    for lengths, expected in ((mixed, 64), (np.full(100, 12), 64), (np.full(100, 72), 72), (np.full(100, 300), 304)):
        size, number, starts = choose_tiles(lengths, [*LENGTHS, expected])
        assert size == expected
        assert number == (starts + lengths - 1).max() // size + 1
        assert lengths.sum() > 0.9 * number * size


def test_shapes_have_room_for_the_batch_and_one_text_more() -> None:
    generator = np.random.default_rng(0)
    shapes = set()
    for _ in range(500):
        lengths = generator.poisson(12, size=generator.integers(1, 300)) + 2
        inputs, shape = TiledBatch.layout(TokenRows.of([[7] * length for length in lengths]), padding=0)
        shapes.add(shape)
        assert len(inputs) == 3 * shape.places + 2 * shape.texts
        assert lengths.sum() <= shape.places < max(1.25 * lengths.sum(), lengths.sum() + 128)
        assert len(lengths) < shape.texts <= max(1.25 * (len(lengths) + 1), len(lengths) + 8)
        assert shape.size == 64
        assert shape.places % shape.size == 0
    assert len(shapes) < 80


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_dropout_by_its_formula(window: int | None, causal: bool) -> None:
    """Values are unit vectors, so that the output is the attention weights, which show what was dropped."""
    size, head_dim, dropped = 64, 64, 0.25
    lengths = np.array([20, 30, 40, 10])
    places = np.repeat(tile_starts(lengths, size), lengths) + token_positions(lengths)
    texts, positions = torch.full((2 * size,), -1), torch.zeros(2 * size, dtype=torch.long)
    texts[places] = torch.from_numpy(np.repeat(np.arange(4), lengths))
    positions[places] = torch.from_numpy(token_positions(lengths))
    mask = tile_mask(texts, positions, size, window, causal)
    torch.manual_seed(0)
    query, key = torch.randn(2, 2 * size, 1, head_dim).requires_grad_().unbind()
    value = torch.eye(size).repeat(2, 1)[:, None]
    out = attend_in_tiles(query, key, value, mask, scaling=0.1, dropout=dropped)
    for own, length in zip(torch.from_numpy(places).split(lengths.tolist()), lengths.tolist(), strict=True):
        before = positions[own][:, None] - positions[own]
        near = (before.abs() < (window or length)) & ((before >= 0) | (not causal))
        scores = 0.1 * query[own, 0] @ key[own, 0].T
        right = scores.masked_fill(~near, -torch.inf).softmax(1)
        found = out[own, 0][:, own % size]
        assert found.count_nonzero() == out[own].count_nonzero()  # nothing of another text
        kept = found != 0
        torch.testing.assert_close(found[kept], right[kept] / (1 - dropped))
        assert not kept[~near].any()
        share = float(kept[near].float().mean())
        assert abs(1 - share - dropped) < 5 * (dropped * (1 - dropped) / int(near.sum())) ** 0.5
    assert torch.isfinite(out).all()  # also where no text is
