"""All layers and poolings in one pass equal separate encoders."""

from pathlib import Path

import numpy as np
import pytest

from nearfar import Encoder
from nearfar.encoder.encoder import layer_embeddings
from tests.tiny import save_tiny, sentences

TEXTS = [*sentences(9, longest=5), "a dog", "", "a dog", *sentences(3, seed=1, longest=40)]


@pytest.mark.long
@pytest.mark.parametrize("architecture", ["bert", pytest.param("modernbert", marks=pytest.mark.nightly)])
def test_each_entry_equals_an_encoder_with_that_pooling(architecture: str, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "tiny", architecture)
    encoder = Encoder.from_pretrained(folder, pooling="first_last")
    found = layer_embeddings(encoder, TEXTS)
    count = encoder.backbone.config.num_hidden_layers
    assert list(found) == [(layer, pooling) for layer in range(count + 1) for pooling in ("cls", "mean", "max")]
    for (layer, pooling), vectors in found.items():
        expected = Encoder.from_pretrained(folder, pooling=f"layer:{layer}:{pooling}").encode(TEXTS)
        assert (vectors.dtype, vectors.shape) == (np.float32, (len(TEXTS), 32))
        assert np.abs(expected).max() > 0.1
        np.testing.assert_allclose(vectors, expected, atol=1e-5, rtol=0)
