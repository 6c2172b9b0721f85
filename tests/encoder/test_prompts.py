"""Prompts: equal to sentence-transformers in every call; they survive saving; names, texts and bad values."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from nearfar import Encoder
from nearfar.encoder.encoder import layer_embeddings
from nearfar.encoder.pooling import parse_pooling, pool
from nearfar.encoder.ragged import RaggedBatch
from nearfar.encoder.stream import encode_blocks, tokenize_blocks
from tests.invalid_input.model_folders import edit
from tests.tiny import save_tiny, sentences

SETTINGS = "config_sentence_transformers.json"
QUERY, PASSAGE = "who sees the ", "a big house : "
PROMPTS = {"query": QUERY, "document": PASSAGE, "other": "not "}
TEXTS = [*sentences(12, longest=14), "", "dog"]


def save(folder: Path, architecture: str = "bert", *, include: bool = True, pooling: str = "mean", **settings: Any):
    """Save a tiny model with prompts; ``settings`` are entries of :data:`SETTINGS`."""
    encoder = Encoder.from_pretrained(save_tiny(folder.with_name("plain"), architecture), pooling=pooling, max_length=9)
    encoder.normalizes = settings.pop("normalize", False)
    encoder.save_pretrained(folder)
    edit(folder / SETTINGS, {"prompts": PROMPTS, **settings})
    edit(folder / "1_Pooling" / "config.json", {"include_prompt": include})
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(tmp_path / "model")


def assert_equal_to_sentence_transformers(folder: Path) -> None:
    ours, theirs = Encoder.from_pretrained(folder), SentenceTransformer(str(folder), device="cpu")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*were truncated")
        for name in ("encode", "encode_query", "encode_document"):
            for settings in ({}, {"prompt": "blue "}, {"prompt": ""}, {"prompt_name": "other"}):
                found = getattr(ours, name)(TEXTS, precision="fp32", **settings)
                expected = getattr(theirs, name)(TEXTS, **settings)
                assert np.abs(found - expected).max() <= 1e-6 * max(1, np.abs(expected).max()), (name, settings)


@pytest.mark.long
@pytest.mark.parametrize(
    ("architecture", "pooling", "include", "normalize", "default"),
    [
        ("bert", "mean", False, False, "other"),
        ("bert", "cls", False, False, "other"),
        pytest.param("roberta", "max", False, False, None, marks=pytest.mark.nightly),
        ("modernbert", "cls", True, True, None),
        ("qwen3", "lasttoken", False, True, None),
        ("gemma3", "mean", True, False, "other"),
        ("mistral", "weightedmean", False, False, "other"),
        pytest.param("mpnet", "mean", False, True, "other", marks=pytest.mark.nightly),
    ],
)
def test_equal_to_sentence_transformers(
    architecture: str, pooling: str, include: bool, normalize: bool, default: str | None, tmp_path: Path
) -> None:
    settings = {"default_prompt_name": default, "normalize": normalize}
    assert_equal_to_sentence_transformers(
        save(tmp_path / "model", architecture, pooling=pooling, include=include, **settings)
    )


@pytest.mark.long
@pytest.mark.parametrize("prompts", [{"passage": PASSAGE, "query": QUERY}, {"corpus": "x "}])
def test_roles_are_those_of_sentence_transformers(prompts: dict[str, str], tmp_path: Path) -> None:
    prompts = {**prompts, "other": "not "}
    assert_equal_to_sentence_transformers(save(tmp_path / "model", prompts=prompts, default_prompt_name="other"))


@pytest.mark.parametrize("tokens", ["cls", "mean", "max", "lasttoken", "weightedmean"])
def test_pooling_leaves_out_the_prompt_of_each_text(tokens: str) -> None:
    lengths, prompts = (5, 2, 5, 3), (1, 2, 3, 0)
    states = [torch.randn(length, 4, generator=torch.Generator().manual_seed(length)) for length in lengths]
    batch = RaggedBatch.pack([[7] * length for length in lengths])
    batch = RaggedBatch(batch.ids, batch.lengths, batch.order, None, torch.tensor(prompts)[batch.order])
    packed = torch.cat([states[text] for text in batch.order])
    found = batch.restore_order(pool([packed], batch, parse_pooling(tokens, layers=2)))
    for text, (state, prompt) in enumerate(zip(states, prompts, strict=True)):
        kept, places = state[prompt:], torch.arange(len(state))[prompt:, None] + 1
        if len(kept):
            expected = {"cls": kept[0], "mean": kept.mean(0), "max": kept.amax(0), "lasttoken": kept[-1]}
            expected["weightedmean"] = (places * kept).sum(0) / places.sum()
        else:
            expected = {"cls": state[0], "max": torch.full((4,), -torch.inf)}
        expected = expected.get(tokens, torch.zeros(4))
        torch.testing.assert_close(found[text], expected)


@pytest.mark.long
def test_everything_survives_saving(tmp_path: Path) -> None:
    folder = save(tmp_path / "model", include=False, default_prompt_name="other", similarity_fn_name="dot")
    Encoder.from_pretrained(folder).save_pretrained(tmp_path / "again")
    for file in (SETTINGS, "1_Pooling/config.json", "modules.json"):
        assert json.loads((tmp_path / "again" / file).read_text()) == json.loads((folder / file).read_text()), file
    assert_equal_to_sentence_transformers(tmp_path / "again")


@pytest.mark.long
def test_set_prompts_by_name_and_by_text(folder: Path) -> None:
    encoder = Encoder.from_pretrained(folder)
    encoder.set_prompts()
    assert (encoder.query_prompt, encoder.document_prompt, encoder.resolve_prompt()) == (QUERY, PASSAGE, "")
    encoder.set_prompts(query="other", document="", default="query")
    assert (encoder.query_prompt, encoder.document_prompt) == ("not ", "")
    assert (encoder.default_prompt_name, encoder.resolve_prompt()) == ("default", QUERY)  # as before this call
    encoder.set_prompts(default="text: ")
    assert (encoder.default_prompt_name, encoder.resolve_prompt()) == ("default", "text: ")
    encoder.set_prompts(default="")
    assert encoder.default_prompt_name is None


@pytest.mark.long
@pytest.mark.parametrize("include", [True, False])
def test_streams_and_layers_use_the_default_prompt(include: bool, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(save(tmp_path / "model", include=include, default_prompt_name="query"))
    texts = sentences(9, longest=4)
    expected = encoder.encode(texts, prompt=QUERY, precision="fp32")
    blocks = list(tokenize_blocks(encoder, [(0, texts[:5]), (5, texts[5:])]))
    found = np.concatenate([block.expand_distinct(vectors) for block, vectors in encode_blocks(encoder, blocks)])
    assert np.abs(found - expected).max() <= 1e-5
    assert np.abs(layer_embeddings(encoder, texts)[2, "mean"] - expected).max() <= 1e-5
    with torch.no_grad():
        assert np.abs(encoder.embed(texts).numpy() - expected).max() <= 1e-5
