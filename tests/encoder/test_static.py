"""Static encoders: the vectors of sentence-transformers, read and written; training; texts without tokens; refusals."""

import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st
from tokenizers import Tokenizer

from nearfar import Encoder, NearfarError
from nearfar.encoder.adapters import add_lora
from nearfar.encoder.classifier import Classifier
from nearfar.encoder.static import UNLIMITED, merge_square_layers
from tests.tiny import WORDS, save_tiny, sentences

TEXTS = [*sentences(20), "", "dog dog dog", "nothing known here"]


def save_static(folder: Path, *more: torch.nn.Module, dim: int = 12, truncate: int | None = None) -> Path:
    """Write a static encoder with random vectors by sentence-transformers."""
    tokenizer = Tokenizer.from_file(str(save_tiny(folder.with_name("with-tokenizer")) / "tokenizer.json"))
    tokenizer.no_truncation()
    if truncate:
        tokenizer.enable_truncation(truncate)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(tokenizer.get_vocab_size(), dim, generator=generator)
    SentenceTransformer(modules=[st.StaticEmbedding(tokenizer, embedding_weights=weights), *more]).save_pretrained(
        str(folder)
    )
    return folder


def theirs(folder: Path, texts: list[str] = TEXTS) -> np.ndarray:
    return np.asarray(SentenceTransformer(str(folder), device="cpu").encode(texts))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["plain", "truncated", "normalized", "dense"])
def test_vectors_equal_those_of_sentence_transformers_before_and_after_saving(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    more = {"normalized": [st.Normalize()], "dense": [st.Dense(12, 7), st.Normalize()]}.get(kind, [])
    folder = save_static(tmp_path / "static", *more, truncate=4 if kind == "truncated" else None)
    encoder = Encoder.from_pretrained(folder)
    assert encoder.pooling == "mean"
    assert encoder.max_length == (4 if kind == "truncated" else UNLIMITED)
    assert encoder.dim == (7 if kind == "dense" else 12)
    with pytest.warns(UserWarning, match="were truncated") if kind == "truncated" else nullcontext():
        vectors = encoder.encode(TEXTS)
    np.testing.assert_allclose(vectors, theirs(folder), atol=1e-6)
    assert (np.abs(vectors[TEXTS.index("")]).max() == 0) == (kind != "dense")
    encoder.save_pretrained(tmp_path / "again")
    np.testing.assert_allclose(theirs(tmp_path / "again"), vectors, atol=1e-6)
    again = Encoder.from_pretrained(tmp_path / "again")
    assert again.max_length == encoder.max_length
    assert torch.equal(again.backbone.word_embeddings.weight, encoder.backbone.word_embeddings.weight)  # type: ignore[arg-type,union-attr]


@pytest.mark.long
def test_square_linear_layers_are_merged_into_the_vectors(tmp_path: Path) -> None:
    torch.manual_seed(2)
    linear = [st.Dense(12, 12, activation_function=torch.nn.Identity(), bias=bias) for bias in (True, False)]
    encoder = Encoder.from_pretrained(save_static(tmp_path / "static", *linear, st.Dense(12, 12), st.Normalize()))
    before = encoder.encode(TEXTS, precision="fp32")
    merge_square_layers(encoder.backbone, encoder.tail)
    assert len(encoder.tail) == 1  # that with tanh
    after = encoder.encode(TEXTS, precision="fp32")
    empty = [index for index, text in enumerate(TEXTS) if not encoder.tokenize([text]).ids[0]]
    assert empty
    np.testing.assert_allclose(np.delete(after, empty, axis=0), np.delete(before, empty, axis=0), atol=1e-6)
    encoder.save_pretrained(tmp_path / "merged")
    np.testing.assert_allclose(theirs(tmp_path / "merged"), after, atol=1e-6)


@pytest.mark.long
def test_a_folder_of_model2vec_is_read(tmp_path: Path) -> None:
    """Its weights are called embeddings, and tokens may share vectors and have weights."""
    folder = save_static(tmp_path / "static")
    table = load_file(folder / "model.safetensors")["embedding.weight"]
    mapping = torch.arange(len(table)) // 2
    save_file(
        {
            "embeddings": table[: len(table) // 2 + 1].contiguous(),
            "mapping": mapping,
            "weights": torch.rand(len(table)),
        },
        folder / "model.safetensors",
    )
    np.testing.assert_allclose(Encoder.from_pretrained(folder).encode(TEXTS), theirs(folder), atol=1e-6)


@pytest.mark.long
def test_what_needs_a_transformer_is_refused(tmp_path: Path) -> None:
    folder = save_static(tmp_path / "static")
    with pytest.raises(NearfarError, match="its pooling cannot be changed; use --pooling mean"):
        Encoder.from_pretrained(folder, pooling="cls")
    with pytest.raises(NearfarError, match="--lora-rank: a static encoder has no linear layers"):
        add_lora(Encoder.from_pretrained(folder).backbone, rank=2, alpha=1.0)
    with pytest.raises(NearfarError, match="is a static encoder, which has no transformer"):
        Classifier.from_pretrained(folder, label_names=())


@pytest.mark.long
def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    whole = save_static(tmp_path / "static")

    def refuse(match: str, name: str) -> None:
        with pytest.raises(NearfarError, match=match):
            Encoder.from_pretrained(tmp_path / name)

    for file in ("tokenizer.json", "model.safetensors"):
        broken = shutil.copytree(whole, tmp_path / f"no {file}")
        (broken / file).unlink()
        refuse(f"{file}: (cannot be read|is not a regular file)", broken.name)
    other = shutil.copytree(whole, tmp_path / "other")
    for name, table, message in (
        ("weight", torch.ones(3, 2), r"holds no embedding\.weight"),
        ("embedding.weight", torch.ones(3, 2), rf"token ids up to {len(WORDS) + 4}, but there are 3 vectors"),
        ("embedding.weight", torch.ones(50, 2, dtype=torch.int64), "is quantized"),
        ("embedding.weight", torch.ones(50), r"the vectors have the shape \[50\]"),
    ):
        save_file({name: table}, other / "model.safetensors")
        refuse(message, "other")
