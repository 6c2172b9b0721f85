"""Tiny encoders whose tokenizers format pairs as their architectures do."""

from pathlib import Path

import torch
import transformers
from tokenizers import processors

from tests.tiny import save_tiny, sentences

TYPED = ("bert", "electra")
"""The architectures whose tokenizers give token types."""


def save_tiny_for_pairs(folder: Path, architecture: str = "bert", *, dropout: float = 0.1) -> Path:
    """As :func:`tests.tiny.save_tiny`; RoBERTa has two separators between the texts, the others one; BERT has types."""
    save_tiny(folder, "bert" if architecture == "deberta-v2" else architecture, dropout=dropout)
    names = ["input_ids", *(["token_type_ids"] if architecture in TYPED else []), "attention_mask"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, model_input_names=names)
    cls, sep = tokenizer.cls_token, tokenizer.sep_token
    between, second = (f"{sep} {sep}", 0) if cls == "<s>" else (sep, 1)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {between} $B:{second} {sep}:{second}",
        special_tokens=[(token, tokenizer.convert_tokens_to_ids(token)) for token in (cls, sep)],
    )
    tokenizer.save_pretrained(folder)
    if architecture == "deberta-v2":
        config = transformers.DebertaV2Config(
            vocab_size=len(tokenizer),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=48,
            max_position_embeddings=64,
            relative_attention=True,
            pos_att_type=["p2c", "c2p"],
        )
        model = transformers.AutoModel.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(8 if parameter.ndim > 1 else 1)
        model.save_pretrained(folder)
    return folder


def items(count: int, *, longest: int = 12) -> list[tuple[str, ...]]:
    """Synthetic items; every other one is a pair."""
    texts = sentences(2 * count, seed=3, longest=longest)
    return [tuple(texts[2 * number : 2 * number + 1 + number % 2]) for number in range(count)]
