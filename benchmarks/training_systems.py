"""One round of training by each side: nearfar, sentence-transformers' trainer, and a plain padded step.

Each round starts from the model's original weights. The first step of a round is a warm-up, in which memory and the
optimiser's state are allocated, and is not timed. Times of the other steps include batching, tokenisation, gradient,
clipping and AdamW.
"""

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from common import MODEL
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from torch import nn
from training_run import Rows, Run, tokens_of, write_rows
from transformers import AutoModel, AutoTokenizer, PrinterCallback, TrainerCallback
from transformers.utils.logging import disable_progress_bar

from nearfar import TrainConfig
from nearfar.encoder.weights import locate
from nearfar.types import LABEL_NAMES

disable_progress_bar()


class TimedRound(NamedTuple):
    """A round of one side, without its first step."""

    rows: int
    """Pairs, triplets or sentences trained on."""
    seconds: float
    loss: float
    """Mean over all steps of the round, including the first."""
    tokens: tuple[int, int] | None = None
    """Tokens of all texts, and of the distinct texts of each batch (only for nearfar)."""


def nearfar(config: TrainConfig, columns: Sequence[str]) -> Callable[[Rows], TimedRound]:
    """The library with ``config`` on a file of the rows. It tokenises before the first step; this time is added."""

    def train(rows: Rows) -> TimedRound:
        with tempfile.TemporaryDirectory() as folder:
            file = write_rows(Path(folder) / "rows.tsv", columns, rows)
            run = Run(replace(config, data=(str(file),)))  # type: ignore[call-arg]
        batches = [parts[0][1] for parts in run.prepared.mixture.epoch(0)]
        run.advance(1)
        seconds = run.advance(len(batches) - 1)
        texts = list(dict.fromkeys(text for batch in batches[1:] for text in batch.sentences))
        count = sum(len(batch.rows) for batch in batches[1:])
        loss = sum(run.losses) / len(run.losses)
        return TimedRound(count, seconds + run.tokenization_seconds(texts), loss, tokens_of(run, batches[1:]))

    return train


def synchronize(device: str) -> None:
    """Wait for the GPU."""
    if device == "cuda":
        torch.cuda.synchronize()


def peak(dtype: torch.dtype, device: str, size: int, *, repeats: int) -> float:
    """Operations per second of a large matrix product, the fastest of several."""
    one, other = torch.randn(2, size, size, device=device, dtype=dtype)
    fastest = math.inf
    for _ in range(repeats):
        synchronize(device)
        started = time.perf_counter()
        torch.mm(one, other)
        synchronize(device)
        fastest = min(fastest, time.perf_counter() - started)
    return 2 * size**3 / fastest


class StepTimer(TrainerCallback):
    """Records when the first and the last step of a trainer end; synchronises with the GPU at these two steps only."""

    def __init__(self, device: str) -> None:
        self.ends: list[float] = []
        self._device = device

    def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        """Called after each step."""
        if state.global_step in (1, state.max_steps):
            synchronize(self._device)
            self.ends.append(time.perf_counter())


def sentence_transformers(
    loss: Callable[[SentenceTransformer], nn.Module], columns: Sequence[str], *, bf16: bool, batch_size: int
) -> Callable[[Rows], TimedRound]:
    """sentence-transformers with its trainer, default collation, optimiser and schedule."""

    def train(rows: Rows) -> TimedRound:
        model = SentenceTransformer(str(locate(MODEL)), device="cpu")
        seconds, mean_loss = train_peer(model, loss, columns, rows, bf16=bf16, batch_size=batch_size, device="cpu")
        return TimedRound(len(rows) - batch_size, seconds, mean_loss)

    return train


def train_peer(
    model: SentenceTransformer,
    loss: Callable[[SentenceTransformer], nn.Module],
    columns: Sequence[str],
    rows: Rows,
    *,
    bf16: bool,
    batch_size: int,
    device: str,
) -> tuple[float, float]:
    """Train a model by sentence-transformers' trainer; seconds without the first step, and the mean loss of all."""
    clock = StepTimer(device)
    with tempfile.TemporaryDirectory() as folder:
        given: dict[str, Any] = {"output_dir": folder, "device": device, "bf16": bf16}
        given |= {"per_device_train_batch_size": batch_size, "max_steps": math.ceil(len(rows) / batch_size)}
        outcome = peer_trainer(model, loss(model), dataset(columns, rows), clock, **given).train()
    if len(clock.ends) != 2:
        raise SystemExit(f"the peer ran {outcome.global_step} steps, not {given['max_steps']}")
    return clock.ends[1] - clock.ends[0], outcome.training_loss


def dataset(columns: Sequence[str], rows: Rows) -> Dataset:
    """The rows as sentence-transformers wants them."""
    values: dict[str, list[Any]] = dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))
    if "label" in values:
        values["label"] = [LABEL_NAMES.index(label) for label in values["label"]]
    return Dataset.from_dict(values)


def peer_trainer(
    model: SentenceTransformer, loss: nn.Module, rows: Dataset, callback: TrainerCallback, *, device: str, **given: Any
) -> SentenceTransformerTrainer:
    """sentence-transformers' trainer, which saves, logs and shows nothing, with its defaults but for ``given``."""
    arguments = SentenceTransformerTrainingArguments(
        use_cpu=device == "cpu",
        save_strategy="no",
        logging_strategy="no",
        logging_nan_inf_filter=False,  # otherwise the mean would hide a loss that is not finite
        report_to="none",
        disable_tqdm=True,
        **given,
    )
    trainer = SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=rows, loss=loss, callbacks=[callback]
    )
    trainer.remove_callback(PrinterCallback)
    if trainer.accelerator.mixed_precision != ("bf16" if arguments.bf16 else "no"):
        raise SystemExit(f"the peer computes in {trainer.accelerator.mixed_precision}, not as requested")
    return trainer


def plain_simcse(*, bf16: bool, batch_size: int) -> Callable[[Rows], TimedRound]:
    """Unsupervised SimCSE as a padded step of plain transformers, following the authors' script.

    Each sentence is in the batch twice, padded to the longest, with at most 32 tokens. Then the tanh layer on [CLS],
    cosine similarities of first and second copies divided by 0.05, cross-entropy, clipping and AdamW.
    """

    def train(rows: Rows) -> TimedRound:
        folder = str(locate(MODEL))
        model, tokenizer = AutoModel.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)
        width = model.config.hidden_size
        head = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        parameters = [*model.parameters(), *head.parameters()]
        optimiser = torch.optim.AdamW(parameters, lr=3e-5, weight_decay=0.0)
        model.train()
        losses, ends = [], []
        for start in range(0, len(rows), batch_size):
            texts = [text for (text,) in rows[start : start + batch_size]]
            batch = tokenizer(texts * 2, padding=True, truncation=True, max_length=32, return_tensors="pt")
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
                first, second = head(model(**batch).last_hidden_state[:, 0]).chunk(2)
            cosines = nn.functional.normalize(first.float()) @ nn.functional.normalize(second.float()).T
            loss = nn.functional.cross_entropy(cosines / 0.05, torch.arange(len(texts)))
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            optimiser.zero_grad()
            losses.append(float(loss.detach()))
            ends.append(time.perf_counter())
        return TimedRound(len(rows) - batch_size, ends[-1] - ends[0], sum(losses) / len(losses))

    return train
