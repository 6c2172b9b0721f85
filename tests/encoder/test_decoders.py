"""Tiny Qwen3, Gemma 3 and Mistral, saved by sentence-transformers: vectors, gradients, training and export."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from torch import Tensor, nn
from torch.nn import functional

from nearfar import Encoder, NearfarError, train
from nearfar.encoder.ragged import attends_causally
from tests.interrupted_runs import assert_same_run, interrupt_at_step, lines_of
from tests.invalid_input.model_folders import edit
from tests.same_gradients import assert_same_gradients, gradients_of
from tests.tiny import save_tiny, sentences, write_queries

pytestmark = pytest.mark.long
INSTRUCTION = "a man sees : who "
PROMPTS = {"query": INSTRUCTION, "document": "", "other": "not "}
TEXTS = [*sentences(9, longest=14), "dog", "big dog " * 30]
"""The last is truncated."""
CASES = {
    "qwen3": ("lasttoken", True, []),
    "gemma3": ("mean", False, [modules.Dense(32, 24, activation_function=nn.Identity())]),
    "mistral": ("weightedmean", False, []),
}
"""Architecture -> pooling, whether it includes the prompt, and the modules after it but for Normalize."""
SHORT = {"batch_size": 6, "max_steps": 6, "epochs": 9, "evaluate_every": 3, "checkpoint_every": 2, "keep": "last"}


@pytest.fixture(params=CASES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder that sentence-transformers saved."""
    pooling, include_prompt, tail = CASES[request.param]
    torch.manual_seed(1)
    transformer = modules.Transformer(str(save_tiny(tmp_path / "plain", request.param, dropout=0)), max_seq_length=40)
    pooled = modules.Pooling(32, pooling, include_prompt=include_prompt)
    parts = [transformer, pooled, *tail, modules.Normalize()]
    SentenceTransformer(modules=parts, prompts=PROMPTS, device="cpu").save(str(tmp_path / request.param))
    return tmp_path / request.param


@pytest.mark.filterwarnings("ignore:.*were truncated")
def test_vectors_are_those_of_sentence_transformers(folder: Path) -> None:
    """Of single texts, and of texts of several lengths, which are padded there on the side that the tokenizer says."""
    encoder, theirs = Encoder.from_pretrained(folder, device="cpu"), SentenceTransformer(str(folder), device="cpu")
    assert encoder.route.ragged
    assert attends_causally(encoder.backbone) == (folder.name != "gemma3")
    assert all(ids[-1] == encoder.tokenizer.eos_token_id for ids in encoder.tokenize(TEXTS).ids)
    ways: list[tuple[str, dict[str, Any]]] = [("encode", {}), ("encode", {"prompt_name": "other"})]
    for name, how in [*ways, ("encode_query", {}), ("encode_document", {})]:
        ours = getattr(encoder, name)(TEXTS, precision="fp32", **how)
        together = getattr(theirs, name)(TEXTS, batch_size=4, **how)
        alone = np.stack([getattr(theirs, name)(text, **how) for text in TEXTS])
        np.testing.assert_allclose(ours, together, atol=1e-5)
        np.testing.assert_allclose(ours, alone, atol=1e-5)
    assert np.abs(encoder.encode(TEXTS) - encoder.encode_query(TEXTS)).max() > 0.01


def contrast(vectors: Tensor) -> Tensor:
    """Cross-entropy of cosines of the first half of the texts with the second."""
    anchors, positives = functional.normalize(vectors, dim=-1).chunk(2)
    return functional.cross_entropy(anchors @ positives.T / 0.05, torch.arange(len(anchors)))


def test_gradients_of_a_step_are_those_of_sentence_transformers(folder: Path) -> None:
    texts = TEXTS[:10]
    encoder, theirs = Encoder.from_pretrained(folder, device="cpu"), SentenceTransformer(str(folder), device="cpu")
    loss = contrast(encoder.train().embed(texts))
    loss.backward()
    expected = contrast(theirs.train()(theirs.preprocess(texts))["sentence_embedding"])
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    right = {name.replace("0.model.", "backbone.").replace("2.linear", "tail.0.linear"): gradient
             for name, gradient in gradients_of(theirs).items()}  # fmt: skip
    assert_same_gradients(gradients_of(encoder), right, tolerance=1e-4)


@pytest.mark.parametrize(
    ("folder", "adapter"),
    [
        ("qwen3", "keep"),
        ("gemma3", "merge"),
        *(pytest.param(name, "keep", marks=pytest.mark.nightly) for name in ("gemma3", "mistral")),
    ],
    indirect=["folder"],
)
def test_training_can_be_resumed_and_opens_in_sentence_transformers(
    folder: Path, adapter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With adapters in micro-batches whose layers are computed again: that changes no bit of the losses."""
    settings = {**SHORT, "data": str(write_queries(tmp_path / "rows.tsv")), "model": str(folder), "hold_out": 0}
    settings |= {"dropout": 0.1, "precision": "fp32", "lora_rank": 2, "learning_rate": 1e-2, "adapter": adapter}
    less = {"gradient_checkpointing": True, "micro_batch": 2}

    def run(name: str, **how: Any) -> Path:
        train("info-nce", output=str(tmp_path / name), **settings, **how)
        return tmp_path / name

    whole = run("whole", **less)
    interrupt_at_step(5, monkeypatch, lambda: run("cut", **less))
    assert_same_run(run("cut", resume=True, **less), whole)
    assert lines_of(run("stored", micro_batch=2)) == lines_of(whole)
    assert all(np.isfinite(line["loss"]) for line in lines_of(whole) if "loss" in line)
    files = {file.name for file in (whole / "model").glob("*.safetensors")}
    assert ("adapter_model.safetensors" in files) == (adapter == "keep") != ("model.safetensors" in files)
    vectors = Encoder.from_pretrained(whole, device="cpu").encode_query(TEXTS[:10], precision="fp32")
    theirs = SentenceTransformer(str(whole / "model"), device="cpu").encode_query(TEXTS[:10])
    np.testing.assert_allclose(vectors, theirs, atol=1e-5)
    start = Encoder.from_pretrained(folder, device="cpu").encode_query(TEXTS[:10], precision="fp32")
    assert np.abs(vectors - start).max() > 0.01


def test_a_config_that_says_so_makes_a_decoder_attend_both_ways(tmp_path: Path) -> None:
    edit(save_tiny(tmp_path / "tiny", "qwen3") / "config.json", {"is_causal": False})
    encoder = Encoder.from_pretrained(tmp_path / "tiny", device="cpu")
    assert encoder.route.ragged
    assert not attends_causally(encoder.backbone)
    encoder.save_pretrained(tmp_path / "saved")
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(encoder.encode(TEXTS[:10], precision="fp32"), theirs.encode(TEXTS[:10]), atol=1e-5)


def test_the_first_token_of_a_causal_model_is_refused_as_pooling(tmp_path: Path) -> None:
    save_tiny(tmp_path / "tiny", "mistral")
    with pytest.raises(
        NearfarError, match=r"pooling cls takes the first token, .* MistralModel is causal; .*lasttoken"
    ):
        Encoder.from_pretrained(tmp_path / "tiny", pooling="cls")


def test_capped_scores_take_padded_batches(tmp_path: Path) -> None:
    """Small scores are hardly changed by the cap, so that the values of a random model would not show it."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(save_tiny(tmp_path / "tokens", "mistral"))
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    heads = {"num_key_value_heads": 1, "head_dim": 16, "initializer_range": 1e-3, "attn_logit_softcapping": 50.0}
    config = transformers.Gemma2Config(vocab_size=len(tokenizer), pad_token_id=0, **sizes, **heads)
    cast(Any, transformers.AutoModel.from_config(config)).save_pretrained(tmp_path / "tiny")
    tokenizer.save_pretrained(tmp_path / "tiny")
    assert not Encoder.from_pretrained(tmp_path / "tiny", device="cpu").route.ragged
