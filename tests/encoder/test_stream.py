"""Blocks of texts -> blocks of vectors: equal to encode, without repeated texts, with one block of prefetch."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from nearfar import Encoder
from nearfar.encoder.stream import TokenBlock, encode_blocks, prefetch, tokenize_blocks
from tests.tiny import save_tiny, sentences


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder.from_pretrained(save_tiny(tmp_path_factory.mktemp("tiny")))


def test_block_vectors_equal_encode(encoder: Encoder) -> None:
    texts = [*sentences(11, longest=20), "", "dog 🐶", *sentences(3)]
    for settings in ({}, {"normalize": True}, {"bf16": True}):
        blocks = [(start, texts[start : start + 7]) for start in range(0, len(texts), 7)]
        found = list(encode_blocks(encoder, tokenize_blocks(encoder, blocks), **settings))
        assert [block.start for block, _ in found] == [0, 7, 14]
        normalize, precision = "normalize" in settings, "bf16" if "bf16" in settings else "fp32"
        expected = encoder.encode(texts, normalize=normalize, precision=precision)
        together = np.concatenate([block.expand_distinct(vectors) for block, vectors in found])
        assert together.dtype == np.float32
        assert np.ptp(expected, axis=0).max() > 0.1
        assert np.abs(together - expected).max() <= (0.1 if "bf16" in settings else 1e-5)


def test_each_distinct_text_of_a_block_is_encoded_once(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    forward = Encoder.forward
    monkeypatch.setattr(Encoder, "forward", lambda self, ids, **_: seen.append(len(ids)) or forward(self, ids))
    truncated_counts: list[int] = []
    blocks = [(0, ["a dog", "a cat", "a dog", "a dog"]), (4, ["a dog", "a dog"])]
    found = list(encode_blocks(encoder, tokenize_blocks(encoder, blocks), on_batch=truncated_counts.append))
    assert seen == truncated_counts == [2, 1]
    (first, vectors), _ = found
    assert first.rows.tolist() == [0, 1, 0, 0]
    np.testing.assert_array_equal(first.expand_distinct(vectors), vectors[[0, 1, 0, 0]])
    assert (vectors[0] != vectors[1]).any()


def test_truncated_texts_are_counted(encoder: Encoder) -> None:
    short = Encoder.from_pretrained(encoder.tokenizer.name_or_path, max_length=5)
    blocks = [(0, ["a dog", "a dog runs by the river", "a dog runs by the river"]), (3, ["the dog runs by a river"])]
    assert [block.tokenized.truncated for block in tokenize_blocks(short, blocks)] == [1, 1]


def test_prefetch_computes_one_item_ahead_in_a_thread() -> None:
    computed: list[tuple[int, int]] = []
    requested = threading.Semaphore(0)

    def items() -> Iterator[int]:
        for number in range(5):
            computed.append((number, threading.get_ident()))
            requested.release()
            yield number

    used = []
    for item in prefetch(items()):
        for _ in range(2 if item == 0 else item < 4):  # the following item is computed without a request
            assert requested.acquire(timeout=10)
        used.append(item)
        assert len(computed) == min(item + 2, 5)
    assert used == [0, 1, 2, 3, 4]
    assert threading.get_ident() not in {thread for _, thread in computed}


def test_an_error_in_prefetch_is_raised_at_its_item() -> None:
    def items() -> Iterator[str]:
        yield "good"
        raise ValueError("bad")

    stream = prefetch(items())
    assert next(stream) == "good"
    with pytest.raises(ValueError, match="bad"):
        next(stream)
    assert list(prefetch(iter([]))) == []
    stream = prefetch(iter(range(10)))
    assert next(stream) == 0
    stream.close()  # type: ignore[attr-defined]  # ends its thread
    assert threading.active_count() < 10


def test_vectors_of_distinct_texts_are_not_copied() -> None:
    vectors = np.ones((2, 3), dtype=np.float32)
    block = TokenBlock(0, np.arange(2), None)  # type: ignore[arg-type]
    assert block.expand_distinct(vectors) is vectors
