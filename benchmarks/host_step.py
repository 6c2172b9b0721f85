"""What a training step costs the host of a GPU, by part, measured without one.

    python benchmarks/host_step.py run       writes benchmarks/results/host_step.json
    python benchmarks/host_step.py report    fills its place in docs/training-speed.md from that file alone

A GPU that computes a small model waits for this. The encoder's passes, the loss and the optimiser are CUDA graphs,
which the host only starts: here they compute nothing after the first time. All else is computed as on a GPU, by one
thread; rows are random words. Times are those of the processor, but also these are several times as long on a machine
that does other work. With `--quick`, results are printed, and written only with `--into`.
"""

import argparse
import os
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import common
import torch
from rich.console import Console
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from training_run import Run, write_rows
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from nearfar import InfoNceConfig, training
from nearfar.encoder import cuda_graphs, training_encoder
from nearfar.encoder.tiles import TiledBatch
from nearfar.encoder.training_encoder import TrainingEncoder
from nearfar.methods.mixture import Mixture
from nearfar.runtime import gpu
from nearfar.training import Trainer, gradients
from nearfar.training.callbacks import Display, MetricsFile
from nearfar.training.recordings import Recordings

PAGE = common.Page("host_step", "training-speed")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = [f"w{number}" for number in range(500)]
WIDTH, LAYERS, HEADS = 32, 1, 2
STEPS_OF_AN_EPOCH = 50
WARM_UP = 20
OF_METHOD = {"extract_items": "batch", "represent": "forward"}
"""Function of a method -> the part that it is."""
PARTS = {
    "batch": "its rows, and their distinct texts",
    "tokens": "select token ids, lay them out in tiles",
    "seeds": "of dropout and other random numbers",
    "forward": "of the encoder: start the graph",
    "loss": "its tensors; with its gradient: start the graph",
    "backward": "of the encoder: start the graph",
    "gradient": "what joins forward, loss and backward",
    "optimiser": "learning rate; clipping and AdamW: start the graph",
    "metrics": "copy of the loss and its terms",
    "log": "progress and metrics.jsonl",
    "loop": "all else",
}


class NothingRecorded:
    """Stands in for the recorder of CUDA graphs: what is recorded is computed once, and nothing when it is started."""

    def __init__(self, device: torch.device) -> None:
        pass

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Nothing has to be prepared."""
        yield

    def record(self, compute: Callable[[], None]) -> Callable[[], None]:
        """Compute it now; the result does nothing."""
        compute()
        return lambda: None

    def upload(self, values: torch.Tensor, into: torch.Tensor) -> None:
        """Copy."""
        into.copy_(values)


class PartTimer:
    """Processor time by part: that of a function without the wrapped functions inside it, which have their own."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._parts: list[str] = []
        self._since = 0.0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What is computed inside the block belongs to this part."""
        self._charge()
        self._parts.append(name)
        try:
            yield
        finally:
            self._charge()
            self._parts.pop()

    def wrap(self, name: str, compute: Callable[..., Any]) -> Callable[..., Any]:
        """The function, as a part."""

        def timed(*arguments: Any, **settings: Any) -> Any:
            with self.part(name):
                return compute(*arguments, **settings)

        return timed

    def _charge(self) -> None:
        now = time.process_time()
        if self._parts:
            self.seconds[self._parts[-1]] += now - self._since
        self._since = now


def save_model(folder: Path) -> Path:
    """A BERT with random weights that knows :data:`WORDS`."""
    vocabulary = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **names).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    config = BertConfig(vocab_size=len(vocabulary), intermediate_size=2 * WIDTH, max_position_embeddings=64, **sizes)
    BertModel(config).save_pretrained(folder)
    return folder


def open_run(folder: Path, batch_size: int) -> Run:
    """A run of info-nce on pairs of 5 to 25 random words, with its progress and metrics.jsonl."""
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(5, 25))) for _ in range(2 * STEPS_OF_AN_EPOCH * batch_size)]
    rows = list(zip(texts[::2], texts[1::2], strict=True))
    file = write_rows(folder / "rows.tsv", ("anchor", "positive"), rows)
    shared: dict[str, Any] = {"precision": "fp32", "device": "cpu", "epochs": 1000, "max_grad_norm": 1.0}
    run = Run(
        InfoNceConfig(
            output="unused", model=str(save_model(folder)), data=(str(file),), batch_size=batch_size, **shared
        )
    )
    console = Console(file=(folder / "printed").open("w"), width=120)
    display = Display(console, total_steps=10**6, start=0, metric="mrr@10", evaluated_on="nothing")
    run.callbacks += [display, MetricsFile(folder / "metrics.jsonl", resume_at=0)]
    return run


@contextmanager
def timing(run: Run, timer: PartTimer) -> Iterator[None]:
    """Inside the block, the parts of the run's steps are timed."""
    wrapped = (
        ("tokens", TrainingEncoder, "ids"),
        ("tokens", TiledBatch, "layout"),
        ("seeds", gradients, "seed_rng"),
        ("backward", torch.Tensor, "backward"),
        ("loss", Recordings, "loss"),
        ("optimiser", Trainer, "_close"),
        ("optimiser", training, "set_learning_rate"),
        ("gradient", gradients.Gradients, "accumulate_mean"),
        ("metrics", training, "read_later"),
        ("log", Display, "on_step"),
        ("log", MetricsFile, "on_step"),
    )
    losses = tuple(
        (replace(method, **{name: timer.wrap(part, getattr(method, name)) for name, part in OF_METHOD.items()}), weight)
        for method, weight in run.prepared.mixture.sets[0]
    )
    run.stream = Mixture((losses,))
    with ExitStack() as stack:
        for part, owner, name in wrapped:
            timed = timer.wrap(part, getattr(owner, name))
            stack.enter_context(patch.object(owner, name, staticmethod(timed) if name == "layout" else timed))
        batches = run._remaining_batches()
        fetch = timer.wrap("batch", partial(next, batches))
        stack.enter_context(patch.object(run, "_remaining_batches", lambda: iter(fetch, None)))
        yield


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of a step in each round, by part."""
    torch.set_num_threads(1)
    milliseconds: dict[str, list[float]] = {part: [] for part in PARTS}
    timer = PartTimer()
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(gpu, "Recorder", NothingRecorded),
        patch.object(training_encoder, "uses_graphs", lambda _: True),
        patch.object(training_encoder, "add_gradients_in_place", lambda _: None),
        patch.dict(os.environ, {cuda_graphs.COMPILE_VARIABLE: "0"}),
    ):
        measured = open_run(Path(folder), options.batch_size)
        measured.advance(WARM_UP)
        with timing(measured, timer):
            for _ in range(options.rounds):
                timer.seconds.clear()
                with timer.part("loop"):
                    measured.advance(options.steps)
                for part, each in milliseconds.items():
                    each.append(1000 * timer.seconds[part] / options.steps)
    sizes = {"width": WIDTH, "batch_size": options.batch_size, "steps": options.steps}
    return common.record(**sizes, milliseconds=milliseconds)


def body(found: dict[str, Any]) -> list[str]:
    """The milliseconds of each part, and of the whole step."""
    each = found["milliseconds"]
    whole = [sum(parts) for parts in zip(*each.values(), strict=True)]
    rows = [(part, PARTS[part], common.spread(values, 3)) for part, values in each.items()]
    lines = [
        f"A step of `info-nce` by one thread, in batches of {found['batch_size']} pairs; encoder, loss and optimiser "
        f"are recordings that are only started; {len(whole)} rounds of {found['steps']} steps."
    ]
    header = ("part", "what", "ms of the processor a step")
    return [*lines, "", *common.table(header, [*rows, ("step", "", common.spread(whole, 3))], words=2)]


if __name__ == "__main__":
    common.main(
        PAGE,
        __doc__,
        run,
        body,
        common.Sizes("rounds", "measured rounds after a few steps", 9, 3),
        common.Sizes("steps", "steps per round", 200, 30),
        common.Sizes("batch-size", "rows in a batch", 64, 64),
    )
