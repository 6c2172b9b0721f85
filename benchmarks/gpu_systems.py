"""Interleaved blocks of training steps on a GPU, by nearfar and by sentence-transformers."""

import copy
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from gpu_models import Shape, tokens_of
from sentence_transformers import SentenceTransformer
from torch import nn
from training_run import Rows, Run, write_rows
from training_systems import synchronize, train_peer

from nearfar import TrainConfig
from nearfar.encoder.cuda_graphs import VARIABLE
from nearfar.types import LABEL_NAMES

FORWARD_AND_BACKWARD = 3
"""Operations of forward and backward together, relative to the forward pass."""


class Block(NamedTuple):
    """A block of steps of one side."""

    rows: int
    seconds: float
    operations: float
    """Operations for the texts without padding: for nearfar a batch's distinct texts, for the peer all texts."""
    loss: float


@contextmanager
def without_graphs(*, disabled: bool) -> Iterator[None]:
    """Train without CUDA graphs inside the block, if ``disabled``."""
    before = os.environ.get(VARIABLE)
    if disabled:
        os.environ[VARIABLE] = "0"
    try:
        yield
    finally:
        if disabled:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before


class NearfarRun:
    """A run of the library's training loop that continues from block to block. The time of tokenisation is added."""

    def __init__(
        self,
        config: TrainConfig,
        columns: Sequence[str],
        rows: Rows,
        *,
        shape: Shape,
        steps: int,
        graphs: bool = True,
    ) -> None:
        with tempfile.TemporaryDirectory() as folder, without_graphs(disabled=not graphs):
            file = write_rows(Path(folder) / "rows.tsv", columns, rows)
            self._run = Run(replace(config, data=(str(file),)))  # type: ignore[call-arg]
        self._batches = [parts[0][1] for parts in self._run.prepared.mixture.epoch(0)]
        self._shape, self._steps, self._device = shape, steps, config.device or "cpu"

    def __call__(self, number: int) -> Block:
        """Run the block with this number."""
        batches = self._batches[number * self._steps : (number + 1) * self._steps]
        if len(batches) < self._steps:
            raise SystemExit(f"block {number} has {len(batches)} batches, not {self._steps}: there are too few rows.")
        synchronize(self._device)
        seconds = self._run.advance(self._steps)
        started = time.perf_counter()
        synchronize(self._device)  # the last step's optimiser
        seconds += time.perf_counter() - started
        texts = [text for batch in batches for text in batch.sentences]
        seconds += self._run.tokenization_seconds(list(dict.fromkeys(texts)))
        operations = FORWARD_AND_BACKWARD * self._shape.operations([tokens_of(text) for text in texts])
        losses = self._run.losses[-self._steps :]
        return Block(sum(len(batch.rows) for batch in batches), seconds, operations, sum(losses) / len(losses))


class SentenceTransformersRun:
    """sentence-transformers' trainer with its defaults. Each block is a run, whose first step is not timed."""

    def __init__(
        self,
        loss: Callable[[SentenceTransformer], nn.Module],
        columns: Sequence[str],
        rows: Rows,
        *,
        model: SentenceTransformer,
        shape: Shape,
        steps: int,
        bf16: bool,
        batch_size: int,
        device: str,
    ) -> None:
        self._loss, self._columns, self._rows, self._model = loss, columns, rows, model
        self._shape, self._steps, self._bf16, self._device = shape, steps, bf16, device
        self._batch_size = batch_size

    def __call__(self, number: int) -> Block:
        """Run the block with this number."""
        size, steps = self._batch_size, self._steps + 1
        start = number * self._steps * size
        rows = self._rows[start : start + steps * size]
        model, given = copy.deepcopy(self._model), {"batch_size": size, "bf16": self._bf16, "device": self._device}
        seconds, loss = train_peer(model, self._loss, self._columns, rows, **given)
        texts = [text for row in rows[size:] for text in row if text not in LABEL_NAMES]
        operations = FORWARD_AND_BACKWARD * self._shape.operations([tokens_of(text) for text in texts])
        return Block(len(rows) - size, seconds, operations, loss)


def check(measured: Mapping[str, Sequence[Block]]) -> None:
    """Check that all losses are finite."""
    for side, blocks in measured.items():
        if not all(math.isfinite(block.loss) for block in blocks):
            raise SystemExit(f"{side}: a loss is not finite")
