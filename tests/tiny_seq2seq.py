"""Tiny translation models with random weights, over the vocabulary of ``tests.tiny``."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from tests.tiny import WORDS

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
_SIZES = {"layers": 2, "attention_heads": 2, "ffn_dim": 48}
HALVES = {f"{half}_{name}": size for half in ("encoder", "decoder") for name, size in _SIZES.items()}


def _scale(model: torch.nn.Module, factor: float) -> None:
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.mul_(factor)


def save_tiny_seq2seq(folder: Path, *, seed: int = 0, architecture: str = "t5", scale: float = 8.0) -> Path:
    """Write a two-layer encoder-decoder of width 32 and its tokenizer to ``folder``.

    ``scale`` multiplies the weight matrices; with the default, the output depends on the input.
    """
    vocabulary = {word: index for index, word in enumerate([*SPECIAL, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", vocabulary["<s>"]), ("</s>", vocabulary["</s>"])]
    )
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), SPECIAL, strict=True))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=62, **names).save_pretrained(
        folder
    )
    tokens = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    torch.manual_seed(seed)
    if architecture == "t5":
        sizes = {"d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 2}
        config = transformers.T5Config(vocab_size=len(vocabulary), **sizes, **tokens)
        model = transformers.T5ForConditionalGeneration(config)
    else:
        sizes = {"vocab_size": len(vocabulary), "d_model": 32, "max_position_embeddings": 64}
        config = transformers.MarianConfig(forced_eos_token_id=2, **sizes, **HALVES, **tokens)
        model = transformers.MarianMTModel(config)
    _scale(model, scale)
    # As in hub models: beam search settings, a maximum length, and forbidden tokens.
    model.generation_config.update(num_beams=3, max_length=40, bad_words_ids=[[1]])
    model.save_pretrained(folder)
    return folder


def save_tiny_fsmt(folder: Path, *, seed: int = 0, languages: tuple[str, str] = ("en", "de")) -> Path:
    """Write a tiny model in the format of the hub's WMT19 models, with a vocabulary of letters; needs sacremoses."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = [*SPECIAL, *letters, *(f"{letter}</w>" for letter in letters)]
    vocabulary = json.dumps({token: index for index, token in enumerate(tokens)})
    for name in ("vocab-src.json", "vocab-tgt.json"):
        (folder / name).write_text(vocabulary)
    (folder / "merges.txt").write_text("a n 1\n")
    settings = {"langs": list(languages), "model_max_length": 64}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    torch.manual_seed(seed)
    sizes = {"src_vocab_size": len(tokens), "tgt_vocab_size": len(tokens), "d_model": 32, "max_position_embeddings": 64}
    config = transformers.FSMTConfig(langs=list(languages), tie_word_embeddings=False, **sizes, **HALVES)
    model = transformers.FSMTForConditionalGeneration(config)
    _scale(model, 8.0)
    model.save_pretrained(folder)
    return folder


def use_sacremoses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the tokenizer of :func:`save_tiny_fsmt` work without sacremoses, for texts of lower-case words."""
    if find_spec("sacremoses"):
        return

    class Moses:
        def __init__(self, lang: str) -> None:
            self.lang = lang

        def normalize(self, text: str) -> str:
            return text

        def tokenize(self, text: str, **_: object) -> list[str]:
            return text.split()

        def detokenize(self, tokens: list[str]) -> str:
            return " ".join(tokens)

    names = ("MosesPunctNormalizer", "MosesTokenizer", "MosesDetokenizer")
    monkeypatch.setitem(sys.modules, "sacremoses", SimpleNamespace(**dict.fromkeys(names, Moses)))
