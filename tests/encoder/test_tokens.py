"""The token store gives the tokenizer's ids, in memory and in a shared temporary file; texts of random words."""

import io
import mmap
import platform
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from rich.console import Console
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from nearfar import Encoder, NearfarError
from nearfar.encoder import tokens as tokens_module
from nearfar.encoder.frozen import Guide
from nearfar.encoder.ragged import RaggedBatch
from nearfar.encoder.tokens import TokenRows, TokenStore, vocabulary_texts, whole_words
from nearfar.encoder.training_encoder import TrainingEncoder
from tests.tiny import WORDS, save_tiny, sentences

TEXTS = list(dict.fromkeys(sentences(40, longest=20)))
IN_FILE = pytest.mark.parametrize("in_file", [False, True], ids=["memory", "file"])
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="files are shared through /proc")


def single_process(compute: Callable[[], Any]) -> Any:
    return compute()


def character_codes(texts: Sequence[str], *, longest: int = 10) -> tuple[list[list[int]], int]:
    """A tokenizer whose token ids are the letters' code points."""
    return [list(map(ord, text[:longest])) for text in texts], sum(len(text) > longest for text in texts)


def fail(texts: Sequence[str]) -> tuple[list[list[int]], int]:
    raise AssertionError(f"tokenises {texts}")


def ids_of(store: TokenStore, texts: Sequence[str]) -> list[list[int]]:
    return list(store.select(texts))


def small_blocks(monkeypatch: pytest.MonkeyPatch, *, in_file: bool = True) -> None:
    monkeypatch.setattr(tokens_module, "BLOCK", 7)
    if in_file:
        monkeypatch.setattr(tokens_module, "FILE_THRESHOLD", 1)


def is_mapped(array: np.ndarray) -> bool:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, mmap.mmap)


@pytest.mark.long
@IN_FILE
def test_batches_and_vectors_equal_those_without_a_store(
    in_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch, in_file=in_file)
    encoder = Encoder.from_pretrained(save_tiny(tmp_path, dropout=0.0))
    training = TrainingEncoder(encoder, max_length=12, bf16=False, broadcast_from_first=single_process)
    training.read([TEXTS[:20], TEXTS[10:30]])
    training.read([(text,) for text in TEXTS])
    assert is_mapped(training.tokens.flat) == in_file
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
    for keep in (False, True):
        guides = [Guide(encoder.backbone, encoder.route, keep=keep) for _ in range(2)]
        assert torch.equal(training.views(guides[0])(texts), guides[1].views(plain))
    expected = encoder.tokenize(TEXTS, max_length=12)
    assert 0 < training.tokens.truncated == expected.truncated < len(TEXTS) == len(training.tokens)
    assert len(training.tokens.flat) == sum(map(len, expected.ids))


@IN_FILE
def test_each_text_is_tokenised_and_counted_once(in_file: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch, in_file=in_file)
    tokenised: list[str] = []

    def tokenize(texts: Sequence[str]) -> tuple[list[list[int]], int]:
        assert len(texts) <= 7
        tokenised.extend(texts)
        return character_codes(texts)

    store = TokenStore(tokenize, vocabulary=256, broadcast_from_first=single_process)
    long = "rather a long text"
    store.read([long, "short", long])
    store.read(["short", *TEXTS, long])
    store.read([])
    assert tokenised == [long, "short", *TEXTS]
    assert store.truncated == 1 + sum(len(text) > 10 for text in TEXTS)
    assert ids_of(store, [long, "short"]) == character_codes([long, "short"])[0]
    with pytest.raises(KeyError):
        store.select(["unread"])


def test_ids_in_memory_are_moved_to_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    store = TokenStore(character_codes, vocabulary=256, broadcast_from_first=single_process)
    store.read(["few", "words"])
    before = store.select(["words"])
    assert not is_mapped(store.flat)
    small_blocks(monkeypatch)
    store.read(TEXTS)
    assert is_mapped(store.flat)
    assert ids_of(store, ["words", TEXTS[-1], "few"]) == character_codes(["words", TEXTS[-1], "few"])[0]
    assert list(before) == character_codes(["words"])[0]


@pytest.mark.parametrize(("vocabulary", "dtype"), [(2**16, np.uint16), (2**16 + 1, np.int32)])
def test_dtype_of_ids_by_vocabulary_size(vocabulary: int, dtype: type) -> None:
    top = vocabulary - 1
    store = TokenStore(
        lambda texts: ([[0, top] for _ in texts], 0), vocabulary=vocabulary, broadcast_from_first=single_process
    )
    store.read(["a"])
    assert store.flat.dtype == dtype
    assert ids_of(store, ["a"]) == [[0, top]]
    assert RaggedBatch.pack(store.select(["a"])).ids.tolist() == [0, top]


def test_more_tokens_than_32_bits_can_index(tmp_path: Path) -> None:
    store = TokenStore(character_codes, vocabulary=256, broadcast_from_first=single_process)
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


class BroadcastLog:
    """Records the broadcasts of the first process and replays them to another."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def record(self, compute: Callable[[], Any]) -> Any:
        self.messages.append(compute())
        return self.messages[-1]

    def replay(self) -> Callable[[Callable[[], Any]], Any]:
        messages = iter(self.messages)
        return lambda _: next(messages)


@LINUX
@pytest.mark.parametrize("other_machine", [False, True])
def test_other_processes_map_the_first_ones_file_unless_on_another_machine(
    other_machine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch)
    log = BroadcastLog()
    first = TokenStore(character_codes, vocabulary=256, broadcast_from_first=log.record)
    first.read(TEXTS[:20])
    first.read(TEXTS)
    assert len(log.messages) == 1 + 3 + -(-(len(TEXTS) - 20) // 7)  # the path of the file, and each block
    if other_machine:
        monkeypatch.setattr(platform, "node", lambda: "elsewhere")
    second = TokenStore(character_codes if other_machine else fail, vocabulary=256, broadcast_from_first=log.replay())
    second.read(TEXTS[:20])
    second.read(TEXTS)
    assert ids_of(second, TEXTS) == ids_of(first, TEXTS) == character_codes(TEXTS)[0]
    assert second.truncated == first.truncated > 0
    assert np.array_equal(second.offsets, first.offsets)


@LINUX
def test_another_file_at_the_same_path_is_not_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch)
    log = BroadcastLog()
    first = TokenStore(character_codes, vocabulary=256, broadcast_from_first=log.record)
    first.read(TEXTS)
    with tempfile.TemporaryFile() as other:
        (path, identity), *rest = log.messages
        log.messages = [(f"{path.rpartition('/')[0]}/{other.fileno()}", identity), *rest]
        second = TokenStore(character_codes, vocabulary=256, broadcast_from_first=log.replay())
        second.read(TEXTS)
    assert ids_of(second, TEXTS) == character_codes(TEXTS)[0]


@IN_FILE
def test_ctrl_c_leaves_nothing(in_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch, in_file=in_file)
    monkeypatch.setattr(tokens_module, "PROGRESS_THRESHOLD", 3)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    blocks: list[int] = []

    def tokenize(texts: Sequence[str]) -> tuple[list[list[int]], int]:
        blocks.append(len(texts))
        if len(blocks) == 3:
            raise KeyboardInterrupt
        return character_codes(texts)

    written = io.StringIO()
    console = Console(file=written, force_terminal=True)
    store = TokenStore(tokenize, vocabulary=256, broadcast_from_first=single_process, console=console)
    with pytest.raises(KeyboardInterrupt):
        store.read(TEXTS)
    assert len(store) == store.truncated == 0
    assert blocks == [7, 7, 7]
    assert not list(tmp_path.iterdir())
    assert written.getvalue().count("\x1b[?25h") == written.getvalue().count("\x1b[?25l") == 1  # the cursor is back


@LINUX
def test_a_full_disk_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch)
    monkeypatch.setattr(tempfile, "TemporaryFile", partial(open, "/dev/full", "wb"))
    with pytest.raises(NearfarError, match=r"cannot be written .*No space left.*TMPDIR"):
        TokenStore(character_codes, vocabulary=256, broadcast_from_first=single_process).read(TEXTS)


VOCABULARIES = {
    "wordpiece": ["[UNK]", "cat", "##ing", "été", "x", "9a", "cat's", "dog"],
    "byte-level": ["[UNK]", "\u0120cat", "ing", "\u0120\u00c3\u00a9t\u00c3\u00a9", "\u0120x", "\u01209a", "\u0120dog"],
    "chinese": ["[UNK]", "猫", "狗", "##猫", "cat", "x", "。", "鱼"],
    "sentencepiece": ["[UNK]", "\u2581cat", "ing", "\u2581été", "\u2581x", "\u25819a", "\u2581dog", "\u2581"],
}


def tokenizer_of(kind: str) -> transformers.PreTrainedTokenizerFast:
    vocabulary = {token: number for number, token in enumerate(VOCABULARIES[kind])}
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
    assert whole_words(tokenizer_of(kind)) == ["cat", "été", "dog"]


def test_characters_are_words_of_a_script_without_spaces() -> None:
    assert whole_words(tokenizer_of("chinese")) == ["猫", "狗", "鱼", "cat"]


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
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
