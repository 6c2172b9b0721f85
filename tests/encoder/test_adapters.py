"""LoRA adapters of peft: folders of sentence-transformers are opened; what is kept is opened there; what is refused."""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules

from nearfar import Classifier, Encoder, NearfarError, TrainConfig, push
from nearfar.commands.train.prepare import prepare
from nearfar.encoder.adapters import WEIGHTS
from nearfar.encoder.folder_checks import ADAPTER
from nearfar.methods.simcse import InfoNceConfig
from nearfar.runs.fingerprints import fingerprint_model
from tests.encoder.test_architectures import save_random
from tests.invalid_input.model_folders import edit
from tests.tiny import save_tiny, sentences, write_queries

pytestmark = pytest.mark.long
TEXTS = sentences(9, longest=14)


def save_adapted(folder: Path, base: Path, **settings: Any) -> Path:
    """A folder that sentence-transformers saves of a model with an adapter whose weights are random."""
    transformer = modules.Transformer(str(base), max_seq_length=30)
    torch.manual_seed(2)
    with warnings.catch_warnings(action="ignore"):  # peft asks transformers for an attribute by its old name
        transformer.model = peft.get_peft_model(transformer.model, peft.LoraConfig(r=3, lora_alpha=7, **settings))
    with torch.no_grad():
        for name, weight in transformer.model.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, 0.3)
    SentenceTransformer(modules=[transformer, modules.Pooling(32, "lasttoken")], device="cpu").save(str(folder))
    return folder


@pytest.fixture
def adapted(tmp_path: Path) -> Path:
    return save_adapted(tmp_path / "adapted", save_tiny(tmp_path / "base", "qwen3"), target_modules=["q_proj"])


@pytest.mark.parametrize(
    ("architecture", "settings"),
    [
        ("Qwen3", {"target_modules": "all-linear", "use_rslora": True, "rank_pattern": {"v_proj": 5}}),
        ("BERT", {"target_modules": ["query", "output.dense"], "task_type": "FEATURE_EXTRACTION"}),
        ("GPT-2", {"target_modules": ["c_attn"], "fan_in_fan_out": True}),
    ],
)
def test_an_adapter_is_opened_without_peft(
    architecture: str, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = save_random(tmp_path / "base", architecture)
    folder = save_adapted(tmp_path / "adapted", base, **settings)
    expected = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    monkeypatch.setitem(sys.modules, "peft", None)
    encoder = Encoder.from_pretrained(folder, device="cpu")
    np.testing.assert_allclose(encoder.encode(TEXTS, precision="fp32"), expected, atol=1e-5)
    plain = Encoder.from_pretrained(base, device="cpu", pooling="lasttoken").encode(TEXTS, precision="fp32")
    assert np.abs(plain - expected).max() > 0.1
    encoder.save_pretrained(tmp_path / "merged")
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "merged")).encode(TEXTS), expected, atol=1e-5)


def test_names_of_a_language_model_and_the_tokenizer_of_the_base(adapted: Path) -> None:
    """An adapter that was trained inside of a causal language model, in a folder without a tokenizer."""
    expected = Encoder.from_pretrained(adapted, device="cpu").encode(TEXTS, precision="fp32")
    named = {name.replace("model.layers", "model.model.layers"): w for name, w in load_file(adapted / WEIGHTS).items()}
    save_file(named, adapted / WEIGHTS)
    for file in adapted.glob("tokenizer*"):
        file.unlink()
    np.testing.assert_array_equal(
        Encoder.from_pretrained(adapted, device="cpu").encode(TEXTS, precision="fp32"), expected
    )


def test_the_fingerprint_is_of_the_base_too(adapted: Path, tmp_path: Path) -> None:
    before = fingerprint_model(adapted)
    save_tiny(tmp_path / "base", "qwen3", seed=1)
    assert fingerprint_model(adapted) != before
    save_tiny(tmp_path / "base", "qwen3")
    assert fingerprint_model(adapted) == before


@pytest.mark.parametrize(
    ("settings", "mentions"),
    [
        ({"peft_type": "IA3"}, ("peft_type is 'IA3'", "plain LoRA adapters alone; merge the adapter")),
        ({"use_dora": True}, ("use_dora is true",)),
        ({"alpha_pattern": {"q_proj": 3}}, ("alpha_pattern",)),
        ({"megatron_config": {"a": 1}}, ("megatron_config",)),
        ({"init_lora_weights": "pissa"}, ("init_lora_weights is 'pissa'",)),
        ({"bias": "all"}, ("bias is 'all'",)),
        ({"newer": [1]}, ("newer is [1]",)),
        ({"lora_alpha": "x"}, ("lora_alpha",)),
        ({"base_model_name_or_path": None}, ("base_model_name_or_path",)),
        ({"base_model_name_or_path": "./gone"}, ("the model that the adapter belongs to is missing: ./gone",)),
    ],
)
def test_settings_that_are_refused(adapted: Path, settings: dict[str, Any], mentions: tuple[str, ...]) -> None:
    edit(adapted / ADAPTER, settings)
    with pytest.raises(NearfarError) as caught:
        Encoder.from_pretrained(adapted)
    assert str(caught.value).startswith(str(adapted / ADAPTER))
    assert all(mention in str(caught.value) for mention in mentions), caught.value


def test_weights_that_are_refused(adapted: Path, tmp_path: Path) -> None:
    weights = load_file(adapted / WEIGHTS)
    first = next(name for name in weights if "lora_A" in name)
    other = first.replace("q_proj.lora_A", "q_proj.lora_embedding_A")
    for changed, mention in (
        ({first: weights[first][:, :5].contiguous()}, "has the sizes [3, 5, 32, 3], which do not fit"),
        ({first.replace("q_proj", "gone"): weights[first].clone()}, "belongs to no linear layer of"),
        ({other: weights[first].clone()}, "belongs to no linear layer of"),
    ):
        save_file({**weights, **changed}, adapted / WEIGHTS)
        with pytest.raises(NearfarError, match=r"adapter_model\.safetensors") as caught:
            Encoder.from_pretrained(adapted)
        assert mention in str(caught.value)
    (adapted / WEIGHTS).write_bytes(b"x")
    with pytest.raises(NearfarError, match="truncated or damaged"):
        Encoder.from_pretrained(adapted)
    (adapted / WEIGHTS).unlink()
    with pytest.raises(NearfarError, match=r"holds adapter_config\.json but no adapter_model\.safetensors"):
        Encoder.from_pretrained(adapted)
    edit(adapted / ADAPTER, {"base_model_name_or_path": str(adapted)})
    (adapted / WEIGHTS).write_bytes((tmp_path / "base" / "model.safetensors").read_bytes())
    with pytest.raises(NearfarError, match="opens an adapter as a sentence encoder alone"):
        Encoder.from_pretrained(adapted)


def test_what_an_adapter_cannot_keep_is_refused(adapted: Path, tmp_path: Path) -> None:
    def config(**settings: Any) -> TrainConfig:
        rows = str(write_queries(tmp_path / "rows.tsv"))
        kept = {"output": str(tmp_path / "run"), "data": (rows,), "adapter": "keep", "model": str(tmp_path / "base")}
        return InfoNceConfig(**{"lora_rank": 2, **kept, **settings})

    for settings, mention in (
        ({"lora_rank": None}, "--adapter keep: needs --lora-rank"),
        ({"keep_layers": "1"}, "--adapter keep and --keep-layers"),
        ({"guard": ("stsb:dev",)}, "--adapter keep and --guard"),
        ({"model": str(adapted)}, "is itself an adapter of another model; use --adapter merge"),
        ({"pooling": "first_last"}, "the pooling first_last is a setting of the base"),
        ({"gradient_checkpointing": True, "model": str(save_tiny(tmp_path / "mpnet", "mpnet"))}, "MPNetModel cannot"),
    ):
        with pytest.raises(NearfarError, match=mention):
            prepare(config(**settings))
    with pytest.raises(NearfarError, match="opens an adapter as a sentence encoder alone"):
        Classifier.from_pretrained(adapted, label_names=("a", "b"), device="cpu")


def test_an_adapter_of_a_local_folder_is_not_pushed(adapted: Path) -> None:
    with pytest.raises(NearfarError, match=r"belongs to the folder .*base, which nobody else has; push that first"):
        push(adapted, "me/mine", dry_run=True)
    edit(adapted / ADAPTER, {"base_model_name_or_path": "owner/name"})
    assert ADAPTER in push(adapted, "me/mine", dry_run=True).files
    assert json.loads((adapted / ADAPTER).read_text())["base_model_name_or_path"] == "owner/name"
