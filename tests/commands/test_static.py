"""``nearfar static``: the vectors by plain formulas, what other tools read, distillation of the result, refusals."""

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from nearfar import Encoder, NearfarError, static
from nearfar.disk.model_folder import SeenHashes, read_seen, write_seen
from tests.tiny import save_tiny, sentences

TEXTS = [*sentences(15), ""]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_tiny(tmp_path / "tiny")


def table(folder: Path) -> np.ndarray:
    weights = Encoder.from_pretrained(folder).backbone.get_input_embeddings().weight  # type: ignore[union-attr]
    return np.asarray(weights.detach().numpy())  # type: ignore[union-attr,operator]


def by_hand(model: Path, *, sif: float) -> dict[str, np.ndarray]:
    """The vector of each word: of the text of this word alone, without the mean, times its weight."""
    encoder = Encoder.from_pretrained(model)
    vocabulary = encoder.tokenizer.get_vocab()
    words = [word for word in vocabulary if not word.startswith("[")]
    vectors = encoder.encode(words, precision="fp32")
    mean = vectors.mean(axis=0)
    total = sum(1 / rank for rank in range(1, len(vocabulary) + 1))
    weights = [sif / (sif + 1 / (vocabulary[word] + 1) / total) if sif else 1.0 for word in words]
    return {word: weight * (vector - mean) for word, weight, vector in zip(words, weights, vectors, strict=True)}


@pytest.mark.long
@pytest.mark.parametrize("sif", [0.0, 1e-3])
def test_vectors_are_those_of_single_words(sif: float, model: Path, tmp_path: Path) -> None:
    made = static(model, output=tmp_path / "static", dim=None, sif=sif, precision="fp32", progress=False)
    expected = by_hand(model, sif=sif)
    encoder = Encoder.from_pretrained(tmp_path / "static")
    vocabulary = encoder.tokenizer.get_vocab()
    found = table(tmp_path / "static")
    assert (made.tokens, made.dim) == found.shape == (len(vocabulary), 32)
    for token, number in vocabulary.items():
        np.testing.assert_allclose(found[number], expected.get(token, np.zeros(32)), atol=1e-5)
    text = "the red dog sees the cat"
    mean = np.mean([expected[word] for word in text.split()], axis=0)
    np.testing.assert_allclose(encoder.encode([text])[0], mean, atol=1e-5)


@pytest.mark.long
def test_principal_components_keep_as_much_as_any_projection(model: Path, tmp_path: Path) -> None:
    static(model, output=tmp_path / "static", dim=5, sif=0, precision="fp32", progress=False)
    whole = np.stack(list(by_hand(model, sif=0).values())).astype(np.float64)
    found = table(tmp_path / "static")[-len(whole) :]
    best = np.linalg.svd(whole, compute_uv=False)[:5] ** 2
    np.testing.assert_allclose(np.square(found).sum(axis=0), best, rtol=1e-3)


@pytest.mark.long
def test_other_tools_open_it(model: Path, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(model)
    encoder.normalizes = True
    encoder.save_pretrained(tmp_path / "normalized")
    static(tmp_path / "normalized", output=tmp_path / "static", dim=7, progress=False)
    ours = Encoder.from_pretrained(tmp_path / "static").encode(TEXTS)
    theirs = SentenceTransformer(str(tmp_path / "static"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(ours[:-1], axis=1), 1, atol=1e-6)


@pytest.mark.long
def test_what_the_model_has_seen_counts(model: Path, tmp_path: Path) -> None:
    hashes, none = np.array([3, 5], dtype=np.uint64), np.empty(0, dtype=np.uint64)
    write_seen(model, SeenHashes(hashes, none, none, none))
    static(model, output=tmp_path / "static", progress=False)
    seen = read_seen(tmp_path / "static")
    assert seen is not None
    assert seen.trained_texts.tolist() == [3, 5]


@pytest.mark.long
def test_unusable_models_and_outputs_are_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(NearfarError, match=r"--output .*tiny: already exists; choose another folder"):
        static(model, output=model)
    static(model, output=tmp_path / "static", progress=False)
    with pytest.raises(NearfarError, match="static: is a static encoder already"):
        static(tmp_path / "static", output=tmp_path / "again")
