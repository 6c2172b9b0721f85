"""The cost of SCL in fine-tuning: updates per second of cross-entropy alone against cross-entropy + SCL.

    python benchmarks/finetune.py run       needs NEARFAR_DATA; writes benchmarks/results/finetune.json
    python benchmarks/finetune.py report    fills its place in docs/costs.md from that file alone

Gunel et al. 2021 report updates per second by batch size for both losses. Here the two losses are interleaved by step
in one process, on the same batches and weights. A step is gradient, clipping and AdamW, as in training. The first steps
are a warm-up.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median, quantiles
from typing import Any

import common
import torch

from nearfar import FinetuneConfig
from nearfar.commands.finetune import load_task, open_classifier, prepare
from nearfar.runs.run import Prepared
from nearfar.training.gradients import Gradients
from nearfar.training.optimiser import OptimiserSettings, adamw
from nearfar.training.processes import Processes

PAGE = common.Page("finetune", "costs")
TASKS = ("sst2", "cola")
BATCH_SIZES = {16: 60, 64: 30, 256: 12}
"""Batch size -> number of timed steps of each loss."""
WARM_UP = 3
LOSSES = {"CE": 0.0, "CE+SCL": 0.9}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all tasks; ``--quick`` with the smallest batch size."""
    sizes = list(BATCH_SIZES)[: 1 if options.quick else None]
    return common.record(precision="bf16", rows=[_measure(task, size) for task in TASKS for size in sizes])


def _measure(task: str, batch_size: int) -> dict[str, Any]:
    """Seconds of each step, with the two losses interleaved."""
    config = FinetuneConfig(output="unused", task=task, batch_size=batch_size, precision="bf16")
    rows = load_task(config)
    classifier = open_classifier(config, rows, device="cpu")
    runs = {name: prepare(replace(config, scl_weight=weight), rows, classifier) for name, weight in LOSSES.items()}
    seconds: dict[str, list[float]] = {name: [] for name in LOSSES}
    gradients = Gradients(1, Processes(), None, bf16=True)
    modules = (runs["CE"].encoder, *runs["CE"].mixture.heads)
    optimiser = adamw(modules[0], modules[1:], OptimiserSettings(learning_rate=1e-5))
    parameters = [parameter for module in modules for parameter in module.parameters()]
    for number in range(WARM_UP + BATCH_SIZES[batch_size]):
        order = list(LOSSES) if number % 2 else list(LOSSES)[::-1]
        for name in order:
            group = [_batch(runs[name], number)]
            started = time.perf_counter()
            gradients.accumulate_mean(group, step=number)
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            optimiser.zero_grad()
            if number >= WARM_UP:
                seconds[name].append(time.perf_counter() - started)
    print(task, batch_size, {name: round(median(times), 4) for name, times in seconds.items()}, flush=True)
    return {"task": task, "batch_size": batch_size, "seconds": seconds}


def _batch(run: Prepared, number: int) -> Any:
    """One step's batch, the same for both losses."""
    steps = run.mixture.losses[0].batches.steps(0)
    parts = next(iter(run.mixture.epoch(number // steps, number % steps)))
    for module in (run.encoder, *run.mixture.heads):
        module.train()
    return parts


def body(record: dict[str, Any]) -> list[str]:
    """Updates per second of both losses."""
    rows = []
    for row in record["rows"]:
        ce, scl = (row["seconds"][name] for name in LOSSES)
        lost = [1 - a / b for a, b in zip(ce, scl, strict=True)]
        speeds = [f"{1 / median(seconds):.2f}" for seconds in (ce, scl)]
        rows.append((row["task"], row["batch_size"], *speeds, _percent(lost)))
    header = ("task", "batch", "CE, updates/s", "CE+SCL, updates/s", "slowdown by SCL [quartiles]")
    return common.table(header, rows)


def _percent(values: Sequence[float]) -> str:
    low, middle, high = quantiles(values, n=4)
    return f"{100 * middle:+.1f}% [{100 * low:+.1f}, {100 * high:+.1f}]"


if __name__ == "__main__":
    common.main(PAGE, __doc__, run, body)
