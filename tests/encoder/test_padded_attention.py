"""Batches of a fixed shape equal ragged batches, in values and gradients, and have few shapes and no data in Python."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nearfar import Encoder
from nearfar.encoder.frozen import Guide
from nearfar.encoder.padded_attention import BatchShape, FixedShapeBatch
from nearfar.encoder.tokens import TokenRows
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


def fixed(encoder: Encoder, rows: TokenRows, shape: BatchShape | None = None) -> FixedShapeBatch:
    shape = shape or BatchShape.of(rows.lengths)
    return FixedShapeBatch(torch.from_numpy(FixedShapeBatch.layout(rows, shape, padding=1)), shape)


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
    architecture: str, pooling: str, tmp_path: Path
) -> None:
    """Also for a shape with more padding than needed, and for texts within and over the local attention window."""
    encoder = Encoder.from_pretrained(save_tiny(tmp_path, architecture), pooling=pooling)
    encoder.add_dense()
    rows = rows_of(encoder, TEXTS)
    expected = encoder(rows)
    right = gradients(encoder, expected)
    smallest = BatchShape.of(rows.lengths)
    for shape in (smallest, BatchShape(smallest.tokens + 64, smallest.texts + 8, smallest.length + 16)):
        batch = fixed(encoder, rows, shape)
        with _NoReadingBack():
            output = encoder.embed_batch(batch)
            torch.autograd.grad(output.sum(), encoder.backbone.get_input_embeddings().weight, retain_graph=True)
        assert output.shape == (shape.texts, encoder.dim)
        torch.testing.assert_close(output[: len(TEXTS)], expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(output[len(TEXTS) :], output[:1].expand(shape.texts - len(TEXTS), -1))
        assert_same_gradients(gradients(encoder, output[: len(TEXTS)]), right, tolerance=1e-4)
    with pytest.raises(AssertionError, match="_local_scalar_dense"), _NoReadingBack():
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
    with _NoReadingBack():
        output = guide.batch_views(fixed(encoder, rows))
    torch.testing.assert_close(output[: len(TEXTS)], guide.views(rows), atol=1e-5, rtol=0)


class _NoReadingBack(TorchDispatchMode):
    """Refuses operations whose result Python reads or whose shape depends on values; a CUDA graph cannot have them."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert name not in ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "equal"), name
        return func(*args, **(kwargs or {}))


def test_shapes_have_room_for_the_batch_and_one_text_more() -> None:
    generator = np.random.default_rng(0)
    shapes = set()
    for _ in range(500):
        lengths = generator.poisson(12, size=generator.integers(1, 300)) + 2
        shape = BatchShape.of(lengths)
        shapes.add(shape)
        assert lengths.sum() <= shape.tokens < max(1.125 * lengths.sum(), lengths.sum() + 64)
        assert len(lengths) < shape.texts <= max(1.25 * (len(lengths) + 1), len(lengths) + 8)
        assert lengths.max() <= shape.length <= max(1.5 * lengths.max(), lengths.max() + 15)
    assert len(shapes) < 80
    typical = {BatchShape.of(generator.poisson(12, size=128) + 2) for _ in range(500)}
    assert len(typical) <= 6
