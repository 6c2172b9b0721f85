"""Texts of random words from a model's vocabulary."""

from pathlib import Path

import pytest
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from nearfar.encoder.tokens import vocabulary_texts, whole_words
from nearfar.types import NearfarError
from tests.tiny import ARCHITECTURES, WORDS, save_tiny

TOKENS = {
    "wordpiece": ["[UNK]", "cat", "##ing", "été", "x", "9a", "cat's", "dog"],
    "byte-level": ["[UNK]", "\u0120cat", "ing", "\u0120\u00c3\u00a9t\u00c3\u00a9", "\u0120x", "\u01209a", "\u0120dog"],
    "chinese": ["[UNK]", "猫", "狗", "##猫", "cat", "x", "。", "鱼"],
    "sentencepiece": ["[UNK]", "\u2581cat", "ing", "\u2581été", "\u2581x", "\u25819a", "\u2581dog", "\u2581"],
}


def tokenizer(kind: str) -> transformers.PreTrainedTokenizerFast:
    vocabulary = {token: number for number, token in enumerate(TOKENS[kind])}
    if kind in ("wordpiece", "chinese"):
        made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        made.decoder = decoders.WordPiece()
    elif kind == "byte-level":
        made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        made.decoder = decoders.ByteLevel()
    else:
        made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]")


@pytest.mark.parametrize("kind", ["wordpiece", "byte-level", "sentencepiece"])
def test_whole_words(kind: str) -> None:
    """Not parts of words, single letters, numbers, punctuation and special tokens."""
    assert whole_words(tokenizer(kind)) == ["cat", "été", "dog"]


def test_characters_are_words_of_a_script_without_spaces() -> None:
    assert whole_words(tokenizer("chinese")) == ["猫", "狗", "鱼", "cat"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_texts_have_four_to_twelve_words_of_the_vocabulary(architecture: str, tmp_path: Path) -> None:
    texts = vocabulary_texts(str(save_tiny(tmp_path / "tiny", architecture)))
    lengths = {len(text.split()) for text in texts}
    assert lengths == set(range(4, 13))
    assert {word for text in texts for word in text.split()} == {word for word in WORDS if len(word) > 1}
    assert len(texts) == 10_000
    assert len(set(texts)) > 9_900
    assert texts == vocabulary_texts(str(tmp_path / "tiny"))


def test_a_small_vocabulary_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearfar.encoder.tokens.MIN_WORDS", len(WORDS))
    with pytest.raises(NearfarError, match="its vocabulary has 35 whole words, too few"):
        vocabulary_texts(str(save_tiny(tmp_path / "tiny")))
