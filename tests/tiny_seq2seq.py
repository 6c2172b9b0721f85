"""Tiny translation models with random weights, over the vocabulary of ``tests.tiny``."""

from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from tests.tiny import WORDS

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")


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
        kind, settings = {
            "bart": (transformers.BartConfig, transformers.BartForConditionalGeneration),
            "marian": (transformers.MarianConfig, transformers.MarianMTModel),
        }[architecture]
        halves = {
            f"{half}_{name}": value
            for half in ("encoder", "decoder")
            for name, value in {"layers": 2, "attention_heads": 2, "ffn_dim": 48}.items()
        }
        config = kind(
            vocab_size=len(vocabulary),
            d_model=32,
            max_position_embeddings=64,
            forced_eos_token_id=2,
            **halves,
            **tokens,
        )
        model = settings(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(scale)
    # As in hub models: beam search settings, a maximum length, and forbidden tokens.
    model.generation_config.update(num_beams=3, max_length=40, bad_words_ids=[[1]])
    model.save_pretrained(folder)
    return folder
