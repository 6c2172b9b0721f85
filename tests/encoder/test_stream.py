"""Blocks of texts -> blocks of vectors: equal to encode, with one block of prefetch, in this process and in workers."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from nearfar import Encoder, NearfarError
from nearfar.encoder import stream
from nearfar.encoder.stream import (
    WorkerConfig,
    encode_blocks,
    encode_in_processes,
    prefetch,
    tokenize_blocks,
)
from nearfar.encoder.token_batches import NotFiniteError, Tokenized
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


@pytest.mark.nightly
def test_a_worker_gives_the_vectors_of_encode_and_its_crash_is_reported(tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(save_tiny(tmp_path / "tiny"), pooling="cls", max_length=7)
    texts = sentences(180, longest=20)
    blocks = tokenize_blocks(encoder, ((start, texts[start : start + 6]) for start in range(0, 180, 6)))
    truncated_counts: list[int] = []
    others = multiprocessing.active_children()  # of earlier tests
    stream = encode_in_processes(
        blocks,
        WorkerConfig(tmp_path / "tiny", {"pooling": "cls", "max_length": 7}, {"normalize": True}),
        ["cpu"],
        on_batch=truncated_counts.append,
    )
    with pytest.warns(UserWarning, match="longer than 7 tokens"):
        expected = encoder.encode(texts, normalize=True)
    assert np.ptp(expected, axis=0).max() > 0.1
    starts = []
    for _ in range(4):
        block, vectors = next(stream)
        starts.append(block.start)
        rows = block.expand_distinct(vectors)
        assert np.abs(rows - expected[block.start : block.start + len(rows)]).max() <= 1e-6
    assert starts == [0, 6, 12, 18]
    assert sum(truncated_counts) >= 24
    (child,) = (process for process in multiprocessing.active_children() if process not in others)
    assert child.pid
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(NearfarError, match=r"One of the --processes died \(exit status -9\)\. It may have run out"):
        list(stream)
    assert set(multiprocessing.active_children()) <= set(others)


def test_errors_of_a_worker_are_reported(tmp_path: Path) -> None:
    """Runs the worker's function in this process, because starting two processes takes seconds."""
    folder = save_tiny(tmp_path / "tiny")
    encoder = Encoder.from_pretrained(folder)
    tokens = encoder.tokenize(["a dog", "the apple"])
    with torch.no_grad():
        encoder.backbone.get_input_embeddings().weight[tokens.ids[1][2]] = torch.nan
    encoder.save_pretrained(tmp_path / "saved")
    ready, error = answers(WorkerConfig(tmp_path / "saved", {}, {}), tokens)
    assert ready is None
    assert isinstance(error, NotFiniteError)
    assert (error.number, error.content) == (1, "the apple")


def answers(config: WorkerConfig, *tokens: Tokenized) -> list[object]:
    """What a worker sends that is given these tokens, until it ends."""
    ours, theirs = multiprocessing.Pipe()
    before, threads = signal.getsignal(signal.SIGINT), torch.get_num_threads()
    for batch in tokens:
        ours.send(batch)
    try:
        stream._worker_main(theirs, config, "cpu", threads)
    finally:
        signal.signal(signal.SIGINT, before)
    theirs.close()
    found = []
    with suppress(EOFError):
        while True:
            found.append(ours.recv())
    return found
