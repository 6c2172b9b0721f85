"""Architectures of transformers, tiny and random: each does what docs/architectures.json says, as does its page."""

import json
import tomllib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from nearfar import Encoder, NearfarError
from nearfar.encoder.adapters import add_lora
from nearfar.encoder.backbone import recompute_layers
from tests.scripts import load_script
from tests.tiny import WORDS, sentences

DOCS = Path(__file__).resolve().parents[2] / "docs"
EXPECTED: dict[str, dict[str, Any]] = json.loads((DOCS / "architectures.json").read_text(encoding="utf-8"))
LONG = ("BERT", "ConvBERT", "DeBERTa", "GPT-2", "T5", "XLNet")
"""One architecture of each kind: by day."""
LENGTH = 32
"""Number of positions; one of the texts has more words."""
TEXTS = [*sentences(6, longest=12), "a dog " * LENGTH]

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
CONFIGS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("architectures.toml").read_text(encoding="utf-8")
)


def save_random(folder: Path, name: str) -> Path:
    """A model of the architecture with random weights, and a tokenizer with the special tokens that it usually has."""
    sizes = dict(CONFIGS[name])
    kind = sizes.pop("class")
    sizes |= SIZES if sizes.pop("sizes", False) else {}
    special = ["<pad>", "<unk>", "<s>", "</s>"]
    vocabulary = {word: number for number, word in enumerate([*special, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"}
    if "T5" in kind:
        tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 3)])
    elif "GPT" not in kind:
        names |= {"cls_token": "<s>", "sep_token": "</s>"}
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
        )
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    fast.save_pretrained(folder)
    config_class = getattr(transformers, f"{kind}Config")
    config = config_class(vocab_size=len(vocabulary), pad_token_id=0, bos_token_id=2, eos_token_id=3, **sizes)
    if getattr(config, "max_position_embeddings", -1) != -1:
        config.max_position_embeddings = LENGTH + 1  # RoBERTa and its like reserve a position for padding
    config.architectures = config.architectures or []  # transformers expects a list for Funnel
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config)
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.15)
    model.save_pretrained(folder)
    return folder


def batches_of(encoder: Encoder) -> str:
    route = encoder.route
    return "ragged" if route.ragged else "equal lengths" if route.equal_lengths else "padded"


def computes_bf16(encoder: Encoder, expected: np.ndarray) -> bool:
    """Whether bfloat16 gives the vectors to two digits; false if they are computed in float32, with a warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        vectors = encoder.encode(TEXTS, precision="bf16", normalize=True)
    assert (vectors * expected).sum(1).min() > 0.99
    fallen_back = any("does not run in bfloat16" in str(one.message) for one in caught)
    assert (np.abs(vectors - expected).max() < 1e-5) == fallen_back
    return not fallen_back


def takes_lora(encoder: Encoder, expected: np.ndarray) -> bool:
    """Whether adapters change the vectors and are merged without a change; false if they are refused by a sentence."""
    try:
        merge = add_lora(encoder.backbone, rank=2, alpha=2)
    except NearfarError:
        return False
    with torch.no_grad():
        for name, weight in encoder.backbone.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, 0.1)
    adapted = encoder.encode(TEXTS, precision="fp32", normalize=True)
    assert np.abs(adapted - expected).max() > 1e-3
    merge()
    np.testing.assert_allclose(encoder.encode(TEXTS, precision="fp32", normalize=True), adapted, atol=1e-5)
    return True


def attention_of(encoder: Encoder) -> str:
    """Whether the states of a text's first tokens change with the tokens after them."""
    ids = encoder.tokenize([TEXTS[-1]]).ids[0]
    with torch.no_grad():
        short, long = (encoder.hidden([ids[:count]])[:4] for count in (8, len(ids)))
    return "causal" if (short - long).abs().max() < 1e-4 * short.abs().max() else "both ways"


def gradients_of(encoder: Encoder) -> tuple[dict[str, torch.Tensor], int]:
    """The gradients of a training step, and how often modules were called in both passes."""
    calls: list[str] = []
    encoder.train()
    torch.manual_seed(0)
    with torch.nn.modules.module.register_module_forward_pre_hook(lambda *_: calls.append("")):
        encoder(encoder.tokenize(TEXTS).ids).square().sum().backward()
    gradients = {name: weight.grad for name, weight in encoder.named_parameters() if weight.grad is not None}
    encoder.zero_grad()
    encoder.eval()
    return gradients, len(calls)


def recomputes(encoder: Encoder) -> bool:
    """Whether gradient checkpointing gives the same gradients, dropout included; false if it is refused."""
    expected, calls = gradients_of(encoder)
    try:
        recompute_layers(encoder.backbone)
    except NearfarError:
        return False
    found, more_calls = gradients_of(encoder)
    assert more_calls > 1.5 * calls
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-6)
    return True


def train_one_step(encoder: Encoder) -> None:
    encoder.train()
    encoder(encoder.tokenize(TEXTS).ids).square().sum().backward()
    gradients = [weight.grad for weight in encoder.parameters() if weight.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)
    torch.optim.SGD(encoder.parameters(), lr=1e-3).step()
    encoder.eval()


def record_of(name: str, tmp_path: Path) -> dict[str, Any]:
    """What an architecture does; texts are compared alone, in a batch, after saving, and with sentence-transformers."""
    folder = save_random(tmp_path / "plain", name)
    try:
        encoder = Encoder.from_pretrained(folder, pooling="mean", device="cpu")
    except NearfarError as error:
        return {"refused": str(error).split(": ", 1)[1]}
    vectors = encoder.encode(TEXTS, precision="fp32", normalize=True)
    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_allclose(encoder.encode([text], precision="fp32", normalize=True)[0], vector, atol=1e-5)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3
    record = {"attention": attention_of(encoder), "batches": batches_of(encoder)}
    record |= {"bf16": computes_bf16(encoder, vectors), "checkpointing": recomputes(encoder)}
    train_one_step(encoder)
    trained = encoder.encode(TEXTS, precision="fp32", normalize=True)
    assert np.abs(trained - vectors).max() > 1e-5
    encoder.save_pretrained(tmp_path / "saved")
    reopened = Encoder.from_pretrained(tmp_path / "saved", device="cpu")
    np.testing.assert_allclose(reopened.encode(TEXTS, precision="fp32", normalize=True), trained, atol=1e-5)
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    alone = [theirs.encode([text], normalize_embeddings=True)[0] for text in TEXTS]  # short ones first, as for BigBird
    np.testing.assert_allclose(alone, trained, atol=1e-5)
    return record | {"lora": takes_lora(encoder, trained)}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in LONG else pytest.mark.nightly) for name in CONFIGS]
)
@pytest.mark.filterwarnings("ignore")  # what libraries warn of here, and that texts are truncated
def test_an_architecture(name: str, tmp_path: Path) -> None:
    assert record_of(name, tmp_path) == EXPECTED[name]


def test_the_page_lists_every_architecture() -> None:
    script = load_script("docs/architectures.py")
    assert EXPECTED.keys() == CONFIGS.keys()
    assert script.page(EXPECTED) == (DOCS / "architectures.md").read_text(encoding="utf-8")
