"""The token store gives the tokenizer's ids; texts of random words."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from nearfar import Encoder
from nearfar.encoder import tokens as tokens_module
from nearfar.encoder.frozen import Guide
from nearfar.encoder.ragged import RaggedBatch
from nearfar.encoder.tokens import TokenRows, TokenStore, vocabulary_texts, whole_words
from nearfar.encoder.training_encoder import TrainingEncoder
from tests.tiny import WORDS, save_tiny, sentences

TEXTS = list(dict.fromkeys(sentences(40, longest=20)))


def single_process(compute: Callable[[], Any]) -> Any:
    return compute()


def character_codes(texts: Sequence[str], *, longest: int = 10) -> tuple[list[list[int]], int]:
    """A tokenizer whose token ids are the letters' code points."""
    return [list(map(ord, text[:longest])) for text in texts], sum(len(text) > longest for text in texts)


@pytest.mark.long
def test_batches_and_vectors_equal_those_without_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "BLOCK", 7)
    encoder = Encoder.from_pretrained(save_tiny(tmp_path, dropout=0.0))
    training = TrainingEncoder(encoder, max_length=12, bf16=False, broadcast_from_first=single_process, console=None)
    training.read([TEXTS[:20], TEXTS[10:30]])
    training.read([(text,) for text in TEXTS])
    texts = [*TEXTS[35:], *TEXTS[:9], TEXTS[2]]
    plain = encoder.tokenize(texts, max_length=12).ids
    assert len({len(ids) for ids in plain}) > 3
    assert list(training.ids(texts)) == plain
    ours, theirs = RaggedBatch.pack(training.ids(texts)), RaggedBatch.pack(plain)
    assert ours.lengths == theirs.lengths
    for one, other in ((ours.ids, theirs.ids), (ours.order, theirs.order)):
        assert one.dtype == other.dtype == torch.long
        assert torch.equal(one, other)
    assert torch.equal(training.embed(texts), encoder(plain))
    assert torch.equal(training.hidden(training.ids(texts)), encoder.hidden(plain))
    guide = Guide(encoder.backbone, encoder.route)
    assert torch.equal(training.views(guide)(texts), guide.views(plain))
    expected = encoder.tokenize(TEXTS, max_length=12)
    assert 0 < training.tokens.truncated == expected.truncated < len(TEXTS) == len(training.tokens)
    assert len(training.tokens.flat) == sum(map(len, expected.ids))


def test_each_text_is_tokenised_and_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "BLOCK", 7)
    tokenised: list[str] = []

    def tokenize(texts: Sequence[str]) -> tuple[list[list[int]], int]:
        assert len(texts) <= 7
        tokenised.extend(texts)
        return character_codes(texts)

    store = TokenStore(tokenize, vocabulary=256, broadcast_from_first=single_process, console=None)
    long = "rather a long text"
    store.read([long, "short", long])
    before = store.select(["short"])
    store.read(["short", *TEXTS, long])
    store.read([])
    assert list(before) == character_codes(["short"])[0]
    assert tokenised == [long, "short", *TEXTS]
    assert store.truncated == 1 + sum(len(text) > 10 for text in TEXTS)
    assert list(store.select([long, "short"])) == character_codes([long, "short"])[0]
    with pytest.raises(KeyError):
        store.select(["unread"])


def test_more_tokens_than_32_bits_can_index(tmp_path: Path) -> None:
    store = TokenStore(character_codes, vocabulary=256, broadcast_from_first=single_process, console=None)
    store.read(["a"])
    assert store.offsets.dtype == np.int64
    start = 2**31 + 5
    file = tmp_path / "sparse"  # a sparse file, which takes no disk space
    with file.open("wb") as stream:
        stream.seek(2 * start)
        stream.write(np.array([7, 8, 9], dtype=np.uint16).data)
    flat = np.asarray(np.memmap(file, dtype=np.uint16, mode="r"))
    batch = RaggedBatch.pack(TokenRows(flat, starts=np.array([start, 3, start + 2]), lengths=np.array([2, 1, 1])))
    assert batch.ids.tolist() == [0, 9, 7, 8]


VOCABULARIES = {
    "wordpiece": ["[UNK]", "cat", "##ing", "été", "x", "9a", "cat's", "dog"],
    "sentencepiece": ["[UNK]", "\u2581cat", "ing", "\u2581été", "\u2581x", "\u25819a", "\u2581dog", "\u2581"],
    "chinese": ["[UNK]", "猫", "狗", "##猫", "cat", "x", "。", "鱼"],
}


@pytest.mark.parametrize("kind", VOCABULARIES)
def test_whole_words(kind: str) -> None:
    """Not parts of words, single letters, numbers, punctuation and special tokens; but Chinese characters."""
    vocabulary = {token: number for number, token in enumerate(VOCABULARIES[kind])}
    if kind == "sentencepiece":
        made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    else:
        made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        made.decoder = decoders.WordPiece()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]")
    expected = ["猫", "狗", "鱼", "cat"] if kind == "chinese" else ["cat", "été", "dog"]
    assert whole_words(tokenizer) == expected


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_texts_have_four_to_twelve_words_of_the_vocabulary(architecture: str, tmp_path: Path) -> None:
    texts = vocabulary_texts(str(save_tiny(tmp_path / "tiny", architecture)))
    lengths = {len(text.split()) for text in texts}
    assert lengths == set(range(4, 13))
    assert {word for text in texts for word in text.split()} == {word for word in WORDS if len(word) > 1}
    assert len(texts) == 10_000
    assert len(set(texts)) > 9_900
    assert texts == vocabulary_texts(str(tmp_path / "tiny"))
