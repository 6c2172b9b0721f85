"""SBERT-WK matches its authors' loops and numbers for each text, in any batch."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from nearfar import Encoder, NearfarError
from nearfar.baselines import sbert_wk
from nearfar.baselines.sbert_wk import SbertWk, layer_cosines, sentence_vectors, unify_layers
from nearfar.encoder import token_batches
from nearfar.encoder.ragged import RaggedBatch, hidden_states
from nearfar.encoder.tokens import LengthGroup
from tests.baselines import reference_sbert_wk
from tests.tiny import save_tiny, sentences

TEXTS = [*sentences(7, longest=5), "a dog", "a dog", "", *sentences(2, seed=1, longest=40)]


def walk(layers, tokens, dim, *, step, seed=0):
    """Return hidden states [layers, tokens, dim] that drift from layer to layer; a small step makes them parallel."""
    draw = np.random.default_rng(seed)
    return np.cumsum(np.concatenate([np.ones((1, tokens, dim)), step * draw.normal(size=(layers, tokens, dim))]), 0)[1:]


def vector(states, window):
    """Return the vector of one text from the selected layers [layers, tokens, dim]."""
    packed = torch.tensor(np.asarray(states)).transpose(0, 1).contiguous()
    return sentence_vectors(packed, [LengthGroup(0, 1, len(packed))], window=window)[0].numpy()


@pytest.mark.realdata
def test_golden(nearfar_data: Path) -> None:
    path = nearfar_data.resolve().parent / "golden" / "objectives.json"
    if not path.exists():
        pytest.skip(f"no golden values at {path}")
    cases = json.loads(path.read_text())["sbert_wk"]
    assert len(cases) >= 2
    for case in cases:
        used = np.array(case["hidden_states"])[case["layer_start"] :]
        np.testing.assert_allclose(vector(used, case["window"]), case["official"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("layers", [4, 9])
@pytest.mark.parametrize(("step", "tolerance"), [(1.0, 1e-10), (0.05, 1e-10), (1e-4, 1e-6)])
def test_matches_the_reference(layers: int, window: int, step: float, tolerance: float) -> None:
    states = walk(layers, tokens=6, dim=16, step=step, seed=layers)
    cosines = layer_cosines(torch.tensor(states).transpose(0, 1))
    weights = unify_layers(cosines, window=window).numpy()
    expected = np.stack([reference_sbert_wk.layer_weights(states[:, token], window) for token in range(6)])
    assert np.abs(expected - 1 / layers).max() > 0.01
    np.testing.assert_allclose(weights, expected, rtol=0, atol=tolerance)
    sentence = reference_sbert_wk.sentence_vector(states, layer_start=0, window=window)
    assert np.abs(sentence - states[:, :-1].mean((0, 1))).max() > 1e-3 * step
    np.testing.assert_allclose(vector(states, window), sentence, rtol=0, atol=tolerance)


@pytest.mark.long
@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_an_encoder_text_by_text(architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder.from_pretrained(save_tiny(tmp_path, architecture)).train()
    monkeypatch.setattr(token_batches, "TOKENS_PER_BATCH", 31)
    monkeypatch.setattr(sbert_wk, "TOKENS_AT_ONCE", 7)
    vectors = SbertWk(encoder, layer_start=0)(TEXTS)
    assert encoder.training
    assert vectors.shape == (len(TEXTS), 32)
    assert vectors.dtype == np.float32
    encoder.eval()
    for text, found in zip(TEXTS, vectors, strict=True):
        with torch.no_grad():
            batch = RaggedBatch.pack(encoder.tokenize([text]).ids)
            states = torch.stack(hidden_states(encoder.backbone, batch, encoder.route, all_layers=True)).numpy()
        expected = reference_sbert_wk.sentence_vector(states, layer_start=0, window=2)
        assert np.abs(expected).max() > 0.1
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("layer_start", [1 / 3, 1, -1])
def test_too_few_layers(layer_start: float, tmp_path: Path) -> None:
    with pytest.raises(NearfarError, match=r"layer_start -?1: SBERT-WK needs three layers .* to 2"):
        SbertWk(Encoder.from_pretrained(save_tiny(tmp_path)), layer_start=layer_start)
