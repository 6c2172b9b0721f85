"""Architectures of transformers, tiny and random: each does what docs/architectures.json says, as does its page."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from nearfar import Encoder, NearfarError
from nearfar.encoder.backbone import add_lora
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
GROUPED = SIZES | {"num_key_value_heads": 1, "head_dim": 16}
LOCAL = SIZES | {"local_attention": 8, "global_attn_every_n_layers": 2}
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": LENGTH}
XLM = {"emb_dim": 32, "n_layers": 2, "n_heads": 2}
T5 = {"d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
BART = {"d_model": 32, "decoder_start_token_id": 2, "encoder_layers": 2, "decoder_layers": 2}
BART |= {f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("attention_heads", "ffn_dim")}
DEBERTA = SIZES | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 0}
NARROW = SIZES | {"embedding_size": 16}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "ALBERT": ("Albert", NARROW),
    "BART": ("Bart", BART),
    "BERT": ("Bert", SIZES),
    "BERT generation": ("BertGeneration", SIZES),
    "BigBird": ("BigBird", SIZES | {"block_size": 4, "num_random_blocks": 1}),
    "Bloom": ("Bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 2}),
    "CamemBERT": ("Camembert", SIZES),
    "ConvBERT": ("ConvBert", NARROW),
    "Data2VecText": ("Data2VecText", SIZES),
    "DeBERTa": ("Deberta", DEBERTA),
    "DeBERTa v2, v3": ("DebertaV2", DEBERTA | {"position_buckets": 8, "share_att_key": True}),
    "DistilBERT": ("DistilBert", {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48}),
    "ELECTRA": ("Electra", NARROW),
    "EmbeddingGemma": ("Gemma3Text", GROUPED | {"sliding_window": 8, "use_bidirectional_attention": True}),
    "ERNIE": ("Ernie", SIZES),
    "ESM": ("Esm", SIZES),
    "EuroBERT": ("EuroBert", GROUPED),
    "Falcon": ("Falcon", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}),
    "Flaubert": ("Flaubert", XLM),
    "FNet": ("FNet", {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48}),
    "Funnel": ("Funnel", {"d_model": 32, "block_sizes": [1, 1], "block_repeats": [1, 1], "n_head": 2, "d_head": 16}),
    "Gemma 2": ("Gemma2", GROUPED | {"sliding_window": 8}),
    "Gemma 3": ("Gemma3Text", GROUPED | {"sliding_window": 8}),
    "GPT-2": ("GPT2", GPT),
    "GPT-J": ("GPTJ", GPT | {"rotary_dim": 8}),
    "GPT-Neo": (
        "GPTNeo",
        {"hidden_size": 32, "num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]]},
    ),
    "GPT-NeoX": ("GPTNeoX", SIZES),
    "GTE": ("Gte", SIZES),
    "I-BERT": ("IBert", SIZES),
    "Jina v3": ("JinaEmbeddingsV3", SIZES),
    "LayoutLM": ("LayoutLM", SIZES),
    "Llama": ("Llama", GROUPED),
    "Longformer": ("Longformer", SIZES | {"attention_window": 8}),
    "LUKE": ("Luke", SIZES | {"entity_emb_size": 16, "entity_vocab_size": 10}),
    "Mamba": ("Mamba", {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}),
    "MarkupLM": ("MarkupLM", SIZES),
    "MegatronBERT": ("MegatronBert", SIZES),
    "Mistral": ("Mistral", GROUPED),
    "MobileBERT": (
        "MobileBert",
        SIZES | {"embedding_size": 32, "intra_bottleneck_size": 32, "num_feedforward_networks": 2},
    ),
    "ModernBERT": ("ModernBert", LOCAL),
    "ModernBERT decoder": ("ModernBertDecoder", LOCAL),
    "MPNet": ("MPNet", SIZES),
    "MRA": ("Mra", SIZES),
    "MT5": ("MT5", T5),
    "NomicBERT": ("NomicBert", SIZES),
    "Nystromformer": ("Nystromformer", SIZES | {"num_landmarks": 8, "segment_means_seq_len": 8}),
    "OPT": (
        "OPT",
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 48, "word_embed_proj_dim": 32},
    ),
    "Phi-3": ("Phi3", SIZES),
    "Qwen3": ("Qwen3", GROUPED),
    "Reformer": (
        "Reformer",
        {"hidden_size": 32, "num_attention_heads": 2, "attention_head_size": 16, "attn_layers": ["local", "lsh"]}
        | {"axial_pos_embds": False, "num_buckets": 4, "lsh_attn_chunk_length": 8, "local_attn_chunk_length": 8},
    ),
    "RemBERT": ("RemBert", SIZES | {"input_embedding_size": 16, "output_embedding_size": 16}),
    "RoBERTa": ("Roberta", SIZES),
    "RoBERTa pre-norm": ("RobertaPreLayerNorm", SIZES),
    "RoCBert": (
        "RoCBert",
        SIZES | {f"{side}_{name}": 8 for side in ("shape", "pronunciation") for name in ("vocab_size", "embed_dim")},
    ),
    "RoFormer": ("RoFormer", NARROW),
    "Splinter": ("Splinter", SIZES),
    "SqueezeBERT": ("SqueezeBert", SIZES | {"embedding_size": 32}),
    "T5": ("T5", T5),
    "UMT5": ("UMT5", T5),
    "X-MOD": ("Xmod", SIZES | {"default_language": "en_XX", "languages": ["en_XX"]}),
    "XLM": ("XLM", XLM),
    "XLM-RoBERTa": ("XLMRoberta", SIZES),
    "XLM-RoBERTa-XL": ("XLMRobertaXL", SIZES),
    "XLNet": ("XLNet", {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 48}),
    "YOSO": ("Yoso", SIZES),
}
"""Name -> transformers' config class, and the sizes of a small model."""


def save_random(folder: Path, name: str) -> Path:
    """A model of the architecture with random weights, and a tokenizer with the special tokens that it usually has."""
    kind, sizes = CONFIGS[name]
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


@contextmanager
def only_known_warnings() -> Iterator[None]:
    """Ignore what libraries warn of here, and that texts are truncated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


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
    record = {"batches": batches_of(encoder), "bf16": computes_bf16(encoder, vectors)}
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
def test_an_architecture(name: str, tmp_path: Path) -> None:
    with only_known_warnings():
        record = record_of(name, tmp_path)
    assert record == EXPECTED[name]


def test_the_page_lists_every_architecture() -> None:
    script = load_script("docs/architectures.py")
    assert EXPECTED.keys() == CONFIGS.keys()
    assert script.page(EXPECTED) == (DOCS / "architectures.md").read_text(encoding="utf-8")
