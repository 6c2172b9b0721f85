"""Worker processes that encode blocks in parallel: devices, vectors, errors and crashes."""

import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from nearfar import Encoder, NearfarError
from nearfar.encoder import workers
from nearfar.encoder.stream import tokenize_blocks
from nearfar.encoder.workers import WorkerConfig, assign_devices, encode_in_processes
from tests.tiny import save_tiny, sentences

pytestmark = pytest.mark.long


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert assign_devices(None, 3) == ["cpu"] * 3
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert assign_devices(None, 3) == assign_devices("cuda", 3) == ["cuda:0", "cuda:1", "cuda:0"]
    assert assign_devices("cuda:1", 2) == ["cuda:1"] * 2
    assert assign_devices("cpu", 2) == ["cpu"] * 2


def test_a_worker_gives_the_vectors_of_encode_and_its_crash_is_reported(tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(save_tiny(tmp_path / "tiny"), pooling="cls", max_length=7)
    texts = sentences(180, longest=20)
    blocks = tokenize_blocks(encoder, ((start, texts[start : start + 6]) for start in range(0, 180, 6)))
    truncated_counts: list[int] = []
    others = multiprocessing.active_children()  # of earlier tests
    stream = encode_in_processes(
        blocks, WorkerConfig(tmp_path / "tiny", "cls", 7, True, False), ["cpu"], on_batch=truncated_counts.append
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
    with pytest.raises(NearfarError, match=r"One of the --processes died \(killed by signal 9\)\. It may have run out"):
        list(stream)
    assert set(multiprocessing.active_children()) <= set(others)


def test_errors_of_a_worker_are_reported(tmp_path: Path) -> None:
    save_tiny(tmp_path / "tiny")
    with pytest.raises(NearfarError, match=r"One of the --processes failed: unknown pooling 'meen'"):
        list(_serve(tmp_path / "tiny", "meen"))


def _serve(folder: Path, pooling: str) -> list[tuple[str, object]]:
    """The first message of a worker, run in this process."""
    ours, theirs = multiprocessing.Pipe()
    before, threads = signal.getsignal(signal.SIGINT), torch.get_num_threads()
    try:
        workers._worker_main(theirs, WorkerConfig(folder, pooling, 7, False, False), "cpu", threads)
    finally:
        signal.signal(signal.SIGINT, before)
    return [workers._receive(ours, None)]  # type: ignore[arg-type]
