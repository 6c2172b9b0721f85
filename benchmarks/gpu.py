"""Speed on a GPU against sentence-transformers at its best: training, encoding, and attention by backend.

    make bench-gpu                          runs everything but the epoch, in at most nine minutes; generates the page
    python benchmarks/gpu.py run            writes benchmarks/results/gpu.json
    python benchmarks/gpu.py epoch          one epoch of SNLI's size, whole; writes benchmarks/results/gpu_epoch.json
    python benchmarks/gpu.py attention      attention only; prints, and writes only with `--into`
    python benchmarks/gpu.py report         fills its places in docs/gpu-speed.md from those files alone

Encoders have random weights and a synthetic vocabulary; rows are synthetic sentences as long as SNLI's. Nothing is
loaded from the hub or a data folder. Each form of the peer's trainer is tried in blocks of steps; its fastest one and
nearfar are then interleaved in longer blocks, in one process, where all shapes were recorded or compiled before.
Without a GPU, the script prints a message and measures nothing; `--device cpu --small` runs on any machine, as a test,
and writes only with `--into`.
"""

import os

os.environ["TOKENIZERS_PARALLELISM"] = (
    "false"  # otherwise the peer's loaders, forked from this process, may wait forever
)

import argparse
import gc
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import common
import gpu_attention
import gpu_page
import numpy as np
import torch
from gpu_models import SHAPES, SMALL, Shape, SyntheticTexts, tokens_of, write_model
from gpu_page import MNRL, OURS
from gpu_systems import (
    COLUMNS,
    OPTIONS,
    Block,
    NearfarRun,
    PeerRun,
    attempt,
    busy_seconds,
    operations_of,
    parallel_tokenizers,
)
from sentence_transformers import SentenceTransformer
from training_run import Rows, Run, write_rows
from training_systems import dataset, peak, synchronize
from transformers.utils.logging import disable_progress_bar

from nearfar import Encoder, InfoNceConfig
from nearfar.encoder import cuda_graphs
from nearfar.runtime import gpu

NO_GPU = "There is no GPU: torch sees no CUDA device, so nothing was measured."
PRECISIONS: tuple[Literal["fp32", "bf16"], ...] = ("fp32", "bf16")
EPOCH = ("BERT-medium, 8 x 512", 314_315)
"""The encoder of the whole epoch, and the number of triplets that SNLI gives."""
ATTENTION = 0.1
"""Fraction of the total time after which attention starts no further round; the shapes share the rest evenly."""
ENDS = {"training": 0.5, "large": 0.8, "encoding": 0.9, "long": 1.0}
"""Fraction of a shape's time after which a part of it starts nothing further."""
FACTS = ("failed", "busy", "loss")
"""What is known of a part of a shape beside its blocks, by the name of the side."""
TRIES = 2
"""Blocks by which the fastest form is chosen."""
PROFILED = 20
"""Steps in which the profiler looks at the kernels."""
BATCH_SIZES = (32, 128, 512)
"""Of the peer's encoding; the first is its default."""


class Steps(NamedTuple):
    """Amounts of training with one batch size."""

    batch_size: int
    warm_up: int
    tried: int
    """Of a block of each form."""
    steps: int
    """At most, of a block of the two sides that are compared."""


class Plan(NamedTuple):
    """The amount of measurement, and the device."""

    device: str
    rounds: int
    rows: int
    training: Steps
    large: Steps
    encoding: int
    """Texts per round."""
    long: int


FULL = Plan("cuda", 5, 16_384, Steps(64, 10, 15, 300), Steps(1024, 3, 3, 40), 4096, 512)
QUICK = Plan("cpu", 3, 48, Steps(6, 1, 2, 3), Steps(12, 1, 1, 2), 24, 4)


def main() -> None:
    """Run or report."""
    options = arguments()
    if options.command != "report":
        if options.device == "cuda" and not torch.cuda.is_available():
            print(NO_GPU)
            return
        if options.device == "cuda" and torch.cuda.device_count() > 1:
            raise SystemExit("Several GPUs are visible; the peer's trainer would use all. Set CUDA_VISIBLE_DEVICES=0.")
        disable_progress_bar()
        logging.getLogger("torch.fx").setLevel(logging.ERROR)
        torch._dynamo.config.recompile_limit = 64  # beyond it the peer would silently not be compiled
    finish = partial(common.finish, options, trial=options.command == "attention")
    if options.command != "epoch":
        finish(gpu_page.PAGE, run, gpu_page.body)
    if options.command == "epoch" or (
        options.command == "report" and gpu_page.EPOCH_PAGE.files(options.into)[0].exists()
    ):
        finish(gpu_page.EPOCH_PAGE, epoch, gpu_page.epoch_body)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("run", "epoch", "attention", "report"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", dest="quick", action="store_true", help="a tiny encoder and a step or two")
    parser.add_argument("--minutes", type=float, default=8.0, help="of run: start nothing further after this time; 8")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="write to this folder, not to results and docs")
    return parser.parse_args()


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all but the epoch."""
    started = time.monotonic()
    small, device = options.quick, options.device
    shapes, plan = (SMALL, QUICK) if small else (SHAPES, FULL._replace(device=device))
    found = common.record(small=small, device=device, rounds=plan.rounds, peak={}, shapes={})
    found["batch_sizes"] = {part: getattr(plan, part).batch_size for part in gpu_page.TRAINING}

    def until(fraction: float) -> float:
        return started + 60 * options.minutes * fraction

    size = 128 if small else 8192
    found["peak"] = {name: peak(gpu_attention.DTYPES[name], device, size, repeats=10) for name in PRECISIONS}
    sizes = {"texts": 8 if small else 2 * plan.training.batch_size, "rounds": plan.rounds, "calls": 1 if small else 20}
    found["attention"] = gpu_attention.measure(shapes, device=device, until=until(ATTENTION), **sizes)
    for number, (name, shape) in enumerate(shapes.items() if options.command == "run" else ()):
        ends = {part: until(ATTENTION + (1 - ATTENTION) * (number + end) / len(shapes)) for part, end in ENDS.items()}
        print(name, flush=True)
        found["shapes"][name] = {**shape._asdict(), **measure_shape(shape, plan, ends, until(1.0))}
    found["minutes"] = (time.monotonic() - started) / 60
    return found


def measure_shape(shape: Shape, plan: Plan, ends: Mapping[str, float], until: float) -> dict[str, Any]:
    """Measure the parts of a shape, each of which starts nothing further after its end; none starts after ``until``."""
    found: dict[str, Any] = {fact: {part: {} for part in ends} for fact in FACTS}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the peer's dependencies
        model, rows = write_model(Path(folder), shape), SyntheticTexts(shape).triplets(plan.rows)
        for part, end in ends.items():
            if time.monotonic() > until:
                found["failed"][part] = {part: "not measured, because no time was left"}
            elif part in gpu_page.TRAINING:
                work = partial(train, part, model, shape, rows, plan=plan, until=end, found=found)
                found[part] = attempt(found["failed"][part], part, work)
            else:
                found[part] = attempt(found["failed"][part], part, partial(encode, part, model, shape, plan, end))
            gc.collect()  # the sides, with their memory on the GPU
    torch._dynamo.reset()
    if plan.device == "cuda":
        torch.cuda.empty_cache()
    return found


def settings(model: Path, device: str, batch_size: int) -> InfoNceConfig:
    """Settings of nearfar that are the peer's where they decide about the work."""
    given: dict[str, Any] = {"output": "unused", "model": str(model), "device": device, "batch_size": batch_size}
    return InfoNceConfig(**given, train_max_length=None, negative_column="negative", precision="bf16", epochs=10_000)


def train(
    part: str, model: Path, shape: Shape, rows: Rows, *, plan: Plan, until: float, found: dict[str, Any]
) -> dict[str, list[Any]]:
    """Blocks of each form, by its name: more and longer ones of nearfar's and the peer's fastest, interleaved."""
    amounts: Steps = getattr(plan, part)
    size, failed, operations = amounts.batch_size, found["failed"][part], operations_of(shape, rows)
    config, limit = settings(model, plan.device, size), size * ((plan.rounds + 1) * (amounts.steps + 8) + 100)
    peers_rows = dataset(COLUMNS, (limit // len(rows) + 1) * list(rows))  # more than it needs, so that no epoch ends
    sides: dict[str, NearfarRun | PeerRun] = {}
    blocks: dict[str, list[Block]] = {}

    def speed(name: str) -> float:
        return median(block.rows / block.seconds for block in blocks[name])

    def enter(name: str, make: Callable[[], NearfarRun | PeerRun]) -> None:
        def work() -> None:
            side = make()
            side(amounts.warm_up)
            blocks[name], sides[name] = [side(amounts.tried) for _ in range(TRIES)], side
            print(f"{name}: {speed(name):,.0f} rows/s", flush=True)

        attempt(failed, name, work)

    def enter_peer(*form: str) -> str:
        name = f"{MNRL} {' + '.join(form) or 'fp32'}"
        if name in blocks or name in failed:
            return name
        if len(form) > 1 and time.monotonic() > until:
            failed[name] = "not tried, because no time was left"
        else:
            enter(name, partial(PeerRun, form, model, peers_rows, operations, batch_size=size, device=plan.device))
        return name

    for precision in PRECISIONS:
        enter(f"{OURS} {precision}", partial(NearfarRun, replace(config, precision=precision), rows, operations))
    for what, variable in (("compiled layers", cuda_graphs.COMPILE_VARIABLE), ("graphs", gpu.VARIABLE)):
        enter(f"{OURS} bf16 without {what}", partial(NearfarRun, config, rows, operations, without=variable))
    enter_peer()
    plain, alone = enter_peer("bf16"), {option: enter_peer("bf16", option) for option in OPTIONS}
    working = [option for option, name in alone.items() if name in blocks]
    helpful = [option for option in working if plain not in blocks or speed(alone[option]) > speed(plain)]
    for options in (working, helpful, [option for option in helpful if option != "compile"]):
        enter_peer("bf16", *options)

    pair = [max((side for side in sides if side.startswith(library)), key=speed) for library in (OURS, MNRL)]
    left = (until - time.monotonic()) / plan.rounds / sum(size / speed(name) for name in pair)
    steps = min(max(int(left), amounts.tried), amounts.steps)
    compared = {name: lambda _, side=sides[name]: side(steps) for name in pair}
    blocks |= common.run_interleaved(compared, plan.rounds, warm_up=0, until=until)
    for name in pair:
        print(f"{name}: {common.spread([one.rows / one.seconds for one in blocks[name]], 0)} rows/s", flush=True)
        if plan.device == "cuda":
            busy = attempt(failed, f"profile of {name}", partial(busy_seconds, sides[name], PROFILED))
            found["busy"][part][name] = busy and busy / (size / speed(name))
    found["loss"][part] = {name: side.close() for name, side in sides.items()}
    return {name: [block._asdict() for block in of_side] for name, of_side in blocks.items()}


def encode(kind: str, model: Path, shape: Shape, plan: Plan, until: float) -> dict[str, Any]:
    """Seconds of each round of encoding new texts, and the lowest cosine to the peer's fp32 vectors."""
    drawn, count = SyntheticTexts(shape), getattr(plan, kind)
    words = "premise" if kind == "encoding" else kind
    texts = [[drawn.sentence(words) for _ in range(count)] for _ in range(1 + plan.rounds)]
    ours = Encoder.from_pretrained(model, device=plan.device)
    vectors: dict[str, Any] = {}

    def side(name: str, work: Callable[[list[str]], Any]) -> Callable[[int], float]:
        def encode_round(number: int) -> float:
            with parallel_tokenizers():
                started = time.perf_counter()
                vectors[name] = np.asarray(work(texts[number]), dtype=np.float32)  # on the CPU: this waits for the GPU
                return time.perf_counter() - started

        return encode_round

    sides = {}
    for precision, dtype in gpu_attention.DTYPES.items():
        name = f"nearfar {precision}"
        sides[name] = side(name, partial(ours.encode, precision=precision))
        peer = SentenceTransformer(str(model), device=plan.device, model_kwargs={"dtype": dtype})
        for size in BATCH_SIZES:
            name = f"{common.PEER} {precision}, {size}"
            sides[name] = side(name, partial(peer.encode, batch_size=size, show_progress_bar=False))
    seconds = common.run_interleaved(sides, plan.rounds, until=until)
    lowest = {
        name: float(common.cosines(found, vectors[f"{common.PEER} fp32, {BATCH_SIZES[0]}"]).min())
        for name, found in vectors.items()
    }
    print(kind, {name: f"{count / median(each):,.0f}/s" for name, each in seconds.items()}, flush=True)
    lengths = [tokens_of(text) for round_ in texts[1:] for text in round_]
    facts = {"texts": count, "mean_tokens": sum(lengths) / len(lengths)}
    return {**facts, "operations": shape.operations(lengths) / plan.rounds, "seconds": seconds, "lowest": lowest}


def epoch(options: argparse.Namespace) -> dict[str, Any]:
    """Train on all rows once: seconds with reading, tokenisation and recording, from the model's folder to the end."""
    name, count = (next(iter(SMALL)), 200) if options.quick else EPOCH
    shape = (SHAPES | SMALL)[name]
    found = common.record(small=options.quick, device=options.device, shape=name, rows=count, batch_size=64)
    rows = SyntheticTexts(shape).triplets(count)
    with tempfile.TemporaryDirectory() as folder, parallel_tokenizers():
        file = write_rows(Path(folder) / "rows.tsv", COLUMNS, rows)
        model = write_model(Path(folder), shape)
        started = time.perf_counter()
        config = replace(settings(model, options.device, found["batch_size"]), data=(str(file),), epochs=1)
        training = Run(config)
        found["preparing"], found["steps"] = time.perf_counter() - started, training.prepared.mixture.total_steps(1)
        training.advance(found["steps"])
        synchronize(options.device)
        found["seconds"] = time.perf_counter() - started
    return found


if __name__ == "__main__":
    main()
