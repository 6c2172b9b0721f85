"""The public Encoder: opening, encoding, and saving folders that sentence-transformers opens."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st

from nearfar import Encoder, NearfarError
from nearfar.encoder import token_batches, weights
from tests.tiny import sentences

POOLINGS = ("mean", "mean_without_cls", "first_last", "layer:1:max")
"""One of each kind of module list."""
AT_NIGHT = ("cls", "max", "embeddings_last", "layer:0", "layer:1:cls", "layer:1:mean_without_cls")


@pytest.mark.long
@pytest.mark.parametrize("pooling", [*POOLINGS, *(pytest.param(name, marks=pytest.mark.nightly) for name in AT_NIGHT)])
def test_saved_folder_gives_the_same_vectors_in_sentence_transformers(
    folder: Path, pooling: str, tmp_path: Path
) -> None:
    encoder = Encoder.from_pretrained(folder, pooling=pooling)
    texts = [*sentences(11, longest=20), "", "dog 🐶 \x00 dog"]
    ours = encoder.encode(texts)
    encoder.save_pretrained(tmp_path / "saved")
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(texts)
    assert np.abs(theirs).max() > 0.1
    assert np.abs(ours - theirs).max() <= 1e-6
    again = Encoder.from_pretrained(tmp_path / "saved")
    assert (again.pooling, again.max_length) == (pooling, encoder.max_length)
    np.testing.assert_array_equal(again.encode(texts), ours)


@pytest.mark.long
def test_a_sentence_transformers_folder_with_dense_and_normalize(folder: Path, tmp_path: Path) -> None:
    modules = [
        st.Transformer(str(folder), max_seq_length=9),
        st.Pooling(32, pooling_mode="max"),
        st.Dense(32, 8),
        st.Normalize(),
    ]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(tmp_path / "theirs"))
    encoder = Encoder.from_pretrained(tmp_path / "theirs")
    assert (encoder.dim, encoder.pooling, encoder.max_length, encoder.normalizes) == (8, "max", 9, True)
    texts = sentences(6, longest=5)
    theirs = SentenceTransformer(str(tmp_path / "theirs"), device="cpu").encode(texts)
    assert np.abs(encoder.encode(texts) - theirs).max() <= 1e-6
    encoder.save_pretrained(tmp_path / "ours")
    theirs = SentenceTransformer(str(tmp_path / "ours"), device="cpu").encode(texts)
    assert np.abs(encoder.encode(texts) - theirs).max() <= 1e-6
    assert not np.allclose(encoder(encoder.tokenize(texts).ids).norm(dim=1).detach(), 1)  # training sees it unscaled


@pytest.mark.long
def test_an_added_dense_is_trained_and_saved(folder: Path, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(folder, pooling="first_last")
    texts = sentences(6)
    before = encoder.encode(texts)
    torch.manual_seed(3)
    encoder.add_dense()
    torch.manual_seed(3)
    linear = torch.nn.Linear(32, 32)
    with torch.no_grad():
        expected = linear(torch.from_numpy(before)).tanh().numpy()
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=1e-6)
    assert encoder.dim == 32
    encoder.embed(texts).square().sum().backward()
    gradients = [parameter.grad for parameter in encoder.tail.parameters()]
    assert len(gradients) == 2
    assert all(gradient.abs().max() > 0 for gradient in gradients)
    torch.optim.SGD(encoder.parameters(), lr=0.01).step()
    trained = encoder.encode(texts)
    assert np.abs(trained - expected).max() > 1e-3
    encoder.save_pretrained(tmp_path / "saved")
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(texts)
    assert np.abs(theirs - trained).max() <= 1e-6
    np.testing.assert_array_equal(Encoder.from_pretrained(tmp_path / "saved").encode(texts), trained)


def test_each_distinct_text_is_encoded_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder.from_pretrained(folder)
    seen: list[int] = []
    forward = Encoder.forward
    monkeypatch.setattr(Encoder, "forward", lambda self, ids, **_: seen.append(len(ids)) or forward(self, ids))
    encoder.train()
    vectors = encoder.encode(["a dog", "a cat", "a dog", "a dog"])
    assert encoder.backbone.training
    assert sum(seen) == 2
    np.testing.assert_array_equal(encoder.encode(["a dog"])[0], vectors[0])  # without dropout
    np.testing.assert_array_equal(vectors[0], vectors[2])
    assert (vectors[0] != vectors[1]).any()


@pytest.mark.long
def test_texts_are_tokenised_in_blocks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the token ids of a million texts are never in memory at once."""
    encoder = Encoder.from_pretrained(folder, max_length=6)
    texts = [*sentences(40, longest=9), *sentences(10)]
    with pytest.warns(UserWarning, match="were truncated") as whole:
        expected = encoder.encode(texts)
    monkeypatch.setattr(token_batches, "TEXTS_PER_BLOCK", 7)
    with pytest.warns(UserWarning, match="were truncated") as parts:
        found = encoder.encode(texts)
    assert np.abs(found - expected).max() <= 1e-5
    assert [str(one.message) for one in parts] == [str(one.message) for one in whole]
    with torch.no_grad():
        encoder.backbone.get_input_embeddings().weight[encoder.tokenize(["dog"]).ids[0][1]] = torch.nan
    with pytest.raises(NearfarError, match=r"^text 20 .*'dog'"):
        encoder.encode([*(f"the cat {'eats ' * number}" for number in range(20)), "dog"])


def test_normalize_an_empty_list_and_invalid_texts(folder: Path) -> None:
    encoder = Encoder.from_pretrained(folder)
    vectors = encoder.encode(sentences(5), normalize=True)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert encoder.encode([]).shape == (0, 32)
    with pytest.raises(NearfarError, match="text 1 is NoneType"):
        encoder.encode(["a dog", None])  # type: ignore[list-item]
    with pytest.raises(NearfarError, match="text 1 holds half a surrogate pair"):
        encoder.encode(["fine", "half \ud83d"])
    for texts in ("a dog", {"a": "b"}, {"a", "b"}, (text for text in "ab"), pd.DataFrame({"a": ["b"]})):
        with pytest.raises(NearfarError, match=r"a list of texts, not a (str|dict|set|generator|DataFrame): give"):
            encoder.encode(texts)  # type: ignore[arg-type]


@pytest.mark.long
def test_all_minilm_equals_sentence_transformers() -> None:
    name = "sentence-transformers/all-MiniLM-L6-v2"
    encoder = Encoder.from_pretrained(name)
    assert (encoder.dim, encoder.pooling, encoder.max_length, encoder.normalizes) == (384, "mean", 256, True)
    texts = ["A man is playing a guitar.", "Someone plays an instrument.", "", "naïve café 🎸 \t\n", "x" * 300]
    theirs = SentenceTransformer(str(weights.locate(name)), device="cpu").encode(texts)
    assert np.abs(encoder.encode(texts) - theirs).max() <= 1e-6
