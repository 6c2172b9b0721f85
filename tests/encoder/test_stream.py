"""Blocks of texts -> blocks of vectors: equal to encode, with one block of prefetch."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from nearfar import Encoder
from nearfar.encoder.stream import encode_blocks, prefetch, tokenize_blocks
from tests.tiny import save_tiny, sentences


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder.from_pretrained(save_tiny(tmp_path_factory.mktemp("tiny")))


@pytest.mark.long
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


def test_an_abandoned_prefetch_does_not_wait_for_its_thread() -> None:
    """The garbage collector may close it while another thread starts, which the join would wait for."""
    closed, computed = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        yield 0
        closed.wait(timeout=10)
        computed.set()
        yield 1

    stream = prefetch(items())
    assert next(stream) == 0
    stream.close()  # type: ignore[attr-defined]
    assert not computed.is_set()
    closed.set()
    assert computed.wait(timeout=10)  # its thread ends
