"""Runs of training that continue from block to block: nearfar's, and sentence-transformers' in each of its forms."""

import importlib.util
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, TypeVar

import torch
from datasets import Dataset
from gpu_models import Shape, tokens_of
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from torch._dynamo.utils import counters
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from training_run import Rows, Run, write_rows
from training_systems import peer_trainer, synchronize
from transformers import TrainerCallback

from nearfar import InfoNceConfig
from nearfar.encoder.tiles import TiledBatch

FORWARD_AND_BACKWARD = 3
"""Operations of forward and backward together, relative to the forward pass."""
COLUMNS = ("anchor", "positive", "negative")
EPOCHS = 4
"""Whose batches have the shapes that nearfar records before its first block."""
WORKERS, PREFETCHED = 4, 2
"""Processes of the peer's loader, and the batches that each of them has ready."""
FORMS: dict[str, dict[str, Any]] = {
    "bf16": {"bf16": True},
    "workers": {"dataloader_num_workers": WORKERS, "dataloader_persistent_workers": True},
    "compile": {"torch_compile": True},
    "flash": {},
    "tf32": {"tf32": True},
}
"""What a form of the peer may have -> the arguments of its trainer, whose default is pinned memory."""
OPTIONS = tuple(option for option in FORMS if option != "bf16")
"""What is tried with bf16, alone and together."""
FLASH: Mapping[str, Any] = {"attn_implementation": "flash_attention_2"}
"""sentence-transformers then pads neither in training nor in encoding."""
Returned = TypeVar("Returned")


class Block(NamedTuple):
    """Steps of one side, one after the other."""

    rows: int
    seconds: float
    operations: float
    """Operations for the texts without padding."""
    recorded: int
    """CUDA graphs that were recorded, or compiled, meanwhile."""


@contextmanager
def environment(variable: str, value: str) -> Iterator[None]:
    """Inside the block, the variable has this value; no other one is touched, as libraries set theirs meanwhile."""
    before = os.environ.get(variable)
    os.environ[variable] = value
    try:
        yield
    finally:
        os.environ.pop(variable)
        if before is not None:
            os.environ[variable] = before


def parallel_tokenizers(*, allowed: bool = True) -> AbstractContextManager[None]:
    """Inside the block, tokenisers use all cores, as by default; they may not in a process that forks workers."""
    return environment("TOKENIZERS_PARALLELISM", str(allowed).lower())


def operations_of(shape: Shape, rows: Rows) -> float:
    """Operations of a row in training, on average."""
    lengths = [tokens_of(text) for row in rows for text in row]
    return FORWARD_AND_BACKWARD * shape.operations(lengths) / len(rows)


class NearfarRun:
    """A run of the library's training loop. Its CUDA graphs are recorded first; the time of tokenisation is added.

    ``without`` is an environment variable that is 0 while it is prepared.
    """

    lead = 0
    """Steps of a block before the timed ones."""

    def __init__(self, config: InfoNceConfig, rows: Rows, operations: float, *, without: str | None = None) -> None:
        switch = environment(without, "0") if without else nullcontext()
        with tempfile.TemporaryDirectory() as folder, parallel_tokenizers(), switch:
            file = write_rows(Path(folder) / "rows.tsv", COLUMNS, rows)
            self._run = run = Run(replace(config, data=(str(file),)))
            texts = list(dict.fromkeys(text for row in rows for text in row))
            self._tokenization = run.tokenization_seconds(texts) / len(rows)
        self._size, self._device, self._operations = config.batch_size, config.device or "cpu", operations
        run.advance(1)  # after this the encoder is in the mode of training
        self._graphs = run.prepared.texts.graphs
        if self._graphs is not None:
            batches = chain.from_iterable(run.prepared.mixture.epoch(number) for number in range(EPOCHS))
            tokens = (run.prepared.texts.ids(parts[0][1].sentences) for parts in batches)
            for batch in {TiledBatch.layout(batch, padding=0)[1]: batch for batch in tokens}.values():
                self._graphs.run(batch)

    def __call__(self, steps: int) -> Block:
        """Train a block of steps."""
        recorded, rows = self._recorded(), steps * self._size
        synchronize(self._device)
        started = time.perf_counter()
        self._run.advance(steps)
        synchronize(self._device)
        seconds = time.perf_counter() - started + rows * self._tokenization
        return Block(rows, seconds, rows * self._operations, self._recorded() - recorded)

    def _recorded(self) -> int:
        return len(self._graphs.recordings) if self._graphs is not None else 0

    def close(self) -> float:
        """The mean loss of all steps; the loop has checked that each is finite."""
        return sum(self._run.losses) / len(self._run.losses)


class PeerRun(TrainerCallback):
    """A run of sentence-transformers' trainer, in a thread that waits between blocks: nothing starts or compiles again.

    A block begins with untimed steps, which use up the batches that loaders prepared while the run waited.

    Args:
        form: names in :data:`FORMS`; none is the peer's default.
        model: the folder of the model to start from.
        rows: as many as all blocks together have.
        operations: of a row.
        batch_size: rows of a batch.
        device: cuda or cpu.
    """

    def __init__(
        self, form: Sequence[str], model: Path, rows: Dataset, operations: float, *, batch_size: int, device: str
    ) -> None:
        self._form, self._model, self._rows, self._size, self._device = form, model, rows, batch_size, device
        self._given = {name: value for option in form for name, value in FORMS[option].items()}
        self._given |= {"per_device_train_batch_size": batch_size, "max_steps": len(rows) // batch_size}
        self.lead = WORKERS * PREFETCHED if "workers" in form else 1
        self._operations = operations
        self._asked: SimpleQueue[int | None] = SimpleQueue()
        self._answers: SimpleQueue[float | BaseException] = SimpleQueue()
        self._begin = self._end = 0
        self._started = 0.0
        self._thread = Thread(target=self._train, daemon=True)

    def __call__(self, steps: int) -> Block:
        """Train a block of steps.

        Raises:
            Exception: what the peer raises.
        """
        before = counters["stats"]["unique_graphs"]
        if not self._thread.is_alive():
            self._thread.start()
        # torch's older setting decides over the one that the peer's trainer sets, and compiling reads both
        torch.set_float32_matmul_precision("high" if {"tf32", "compile"} & set(self._form) else "highest")
        try:
            with parallel_tokenizers(allowed="workers" not in self._form):
                seconds = self._ask(steps)
        finally:
            torch.set_float32_matmul_precision("highest")
        rows = steps * self._size
        return Block(rows, seconds, rows * self._operations, counters["stats"]["unique_graphs"] - before)

    def close(self) -> float:
        """End the run; the mean loss of its steps.

        Raises:
            SystemExit: the loss is not finite.
        """
        loss = self._ask(None)
        if not math.isfinite(loss):
            raise SystemExit("the loss is not finite")
        return loss

    def _ask(self, steps: int | None) -> float:
        self._asked.put(steps)
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _train(self) -> None:
        try:
            if "flash" in self._form and importlib.util.find_spec("flash_attn") is None:
                raise ModuleNotFoundError("flash_attn is not installed")
            more = FLASH if "flash" in self._form else {}
            model = SentenceTransformer(str(self._model), device=self._device, model_kwargs=dict(more))
            if more and not model[0].can_flatten_inputs:
                raise RuntimeError("the peer pads in spite of flash attention")
            loss = losses.MultipleNegativesRankingLoss(model)  # its scale of 20 is info-nce's temperature of 0.05
            with tempfile.TemporaryDirectory() as folder:
                given = {**self._given, "output_dir": folder, "device": self._device}
                outcome = peer_trainer(model, loss, self._rows, self, **given).train()
            self._answers.put(outcome.training_loss)
        except BaseException as error:  # for the thread that waits for an answer
            self._answers.put(error)

    def _wait(self, step: int, control: Any) -> None:
        steps = self._asked.get()
        control.should_training_stop = steps is None
        self._begin = step + self.lead
        self._end = self._begin + (steps or 0)

    def on_train_begin(self, _: Any, __: Any, control: Any, **___: Any) -> None:
        """Wait for the first block."""
        self._wait(0, control)

    def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:
        """Start the clock after the untimed steps; after the last one, answer and wait for the next block."""
        if state.global_step == self._begin:
            synchronize(self._device)
            self._started = time.perf_counter()
        if state.global_step == self._end:
            synchronize(self._device)
            self._answers.put(time.perf_counter() - self._started)
            self._wait(state.global_step, control)


def busy_seconds(side: "NearfarRun | PeerRun", steps: int) -> float:
    """Seconds of a step in which the GPU runs a kernel: the union of their intervals, by torch's profiler."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        side(steps)
    busy = end = 0.0
    for event in sorted(profiled.events(), key=lambda event: event.time_range.start):
        copies = event.name.startswith(("Memcpy", "Memset"))
        if event.device_type == DeviceType.CUDA and not getattr(event, "is_user_annotation", False) and not copies:
            busy += max(0.0, event.time_range.end - max(end, event.time_range.start))
            end = max(end, event.time_range.end)
    return busy / 1e6 / (steps + side.lead)


def attempt(failed: dict[str, str], name: str, work: Callable[[], Returned]) -> Returned | None:
    """What ``work`` returns. If it raises, the error's first line is kept under ``name``."""
    try:
        return work()
    except (Exception, SystemExit) as error:
        failed[name] = f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"[:200]
        print(f"{name}: {failed[name]}", flush=True)
        return None
