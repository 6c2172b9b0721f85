"""NaN and infinity stop encoding and prediction and name the text; an evaluation loses only the affected tasks."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from nearfar import Encoder, NearfarError
from nearfar.encoder.classifier import Classifier
from nearfar.types import Precision
from tests.encoder.tiny_pairs import save_tiny_for_pairs
from tests.tiny import save_tiny

TEXTS = ["a dog runs", "the cat", "a dog runs", "the apple in the park", "the cat", "apple"]
"""``apple`` is the only word with a damaged embedding; the first text with it is number 3."""
MESSAGE = r"text 3 \(counted from 0\), '.*apple in the park': the model's output is not finite"


def write_not_finite(folder: Path, value: float = math.nan, *, word: str = "apple") -> Path:
    """Set the embedding of one word to a value that is not finite; only texts with this word are affected."""
    weights = load_file(folder / "model.safetensors")
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    name = next(name for name in weights if name.endswith("word_embeddings.weight"))
    weights[name][vocabulary[word], 3] = value
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    ("value", "normalize", "precision"),
    [(math.nan, False, "fp32"), (math.inf, False, "fp32"), (math.inf, True, "fp32"), (math.nan, True, "bf16")],
)
def test_encode_names_the_text(tmp_path: Path, value: float, normalize: bool, precision: Precision) -> None:
    encoder = Encoder.from_pretrained(write_not_finite(save_tiny(tmp_path / "tiny"), value))
    encoder.train()
    with pytest.raises(NearfarError, match=MESSAGE):
        encoder.encode(TEXTS, normalize=normalize, precision=precision)
    assert encoder.training
    assert np.isfinite(encoder.encode(TEXTS[:3], normalize=normalize, precision=precision)).all()


def test_predict_names_the_row(tmp_path: Path) -> None:
    folder = write_not_finite(save_tiny_for_pairs(tmp_path / "tiny"), math.inf)
    classifier = Classifier.from_pretrained(folder, label_names=("no", "yes"))
    rows = [("a dog",), ("the cat", "an apple"), ("the cat",)]
    with pytest.raises(NearfarError, match=r"text 1 \(counted from 0\), 'the cat / an apple': the model's output"):
        classifier.predict(rows)
    assert np.isfinite(classifier.predict([rows[0], rows[2]])).all()
