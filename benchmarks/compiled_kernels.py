"""Time that the compiled kernels (attention, dropout) save in a training step.

    python benchmarks/compiled_kernels.py run       writes benchmarks/results/compiled_kernels.json
    python benchmarks/compiled_kernels.py report    fills its place in docs/costs.md from that file alone

One sbert run on microworld repeats the same batches with the same dropout masks, with the kernels and without,
interleaved within a round. In fp32, and in bf16 if the processor computes it natively. With ``--quick``, results are
printed, and written only with ``--into``.

(The script is not called kernels.py, because transformers would import it instead of the package ``kernels``.)
"""

import argparse
import os
import sys
from collections.abc import Callable
from statistics import median
from typing import Any

import common
from common import MODEL
from training_run import Run

from nearfar import SbertConfig
from nearfar.encoder.kernels import VARIABLE, kernels, kernels_status
from nearfar.encoder.kernels.build import FLAGS
from nearfar.encoder.precision import is_native
from nearfar.runtime import machine, threads

PAGE = common.Page("compiled_kernels", "costs")
"""Percentage of a step that the kernels should save."""
SIDES = {"on": True, "off": False}
HEADINGS = {"as it is": "All instruction sets", "kept to AVX2": "Limited to AVX2, where the kernels are off by default"}
"""Key in the result file -> heading on the page."""


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure in another process, with the threads of nearfar train."""
    settings: dict[str, Any] = {name: getattr(options, name) for name in ("model", "rounds", "steps", "batch_size")}
    environment = {**os.environ, **threads.settings(os.environ)}
    measured = common.in_process(__file__, environment=environment, **settings)
    return common.record(**settings, kinds={"as it is": measured})


def switch(on: bool) -> None:
    """Use the kernels or not, from now on."""
    os.environ[VARIABLE] = str(int(on))
    kernels.cache_clear()


def measure(model: str, rounds: int, steps: int, batch_size: int) -> dict[str, Any]:
    """Measure all sides in each precision."""
    switch(True)
    if kernels() is None:
        raise SystemExit(f"there are no kernels to measure: {kernels_status()['why_not']}")
    status = kernels_status()
    seconds: dict[str, dict[str, list[float]]] = {}
    losses: dict[str, dict[str, float]] = {}
    for precision in ("fp32", "bf16") if is_native("cpu") else ("fp32",):
        config = SbertConfig(
            output="unused", model=model, data=("microworld",), batch_size=batch_size, epochs=1000, precision=precision
        )
        trained = Run(config)
        last: dict[str, float] = {}
        turns = {name: _turn(name, trained, on, steps, last) for name, on in SIDES.items()}
        seconds[precision] = common.run_interleaved(turns, rounds)
        losses[precision] = last
        print(precision, {name: round(median(of), 4) for name, of in seconds[precision].items()}, file=sys.stderr)
    built = {"compiler": status["compiler"], "flags": " ".join(FLAGS)}
    return {**built, "instruction_sets": machine.instruction_sets(), "seconds": seconds, "losses": losses}


def _turn(name: str, run: Run, on: bool, steps: int, losses: dict[str, float]) -> Callable[[int], float]:
    """A function that measures the seconds of a step on the batches of a round."""
    batches = sum(1 for _ in run.prepared.mixture.epoch(0))

    def turn(number: int) -> float:
        switch(on)
        run.progress.epoch, run.progress.batch = 0, number * steps % max(1, batches - steps)
        run.progress.step = number * steps  # determines the dropout masks
        spent = run.advance(steps) / steps
        losses[name] = run.losses[-1]
        return spent

    return turn


def body(record: dict[str, Any]) -> list[str]:
    """Seconds of a step with and without the kernels."""
    rows = []
    for kind, measured in record["kinds"].items():
        for precision, seconds in measured["seconds"].items():
            saved = [100 * (1 - ratio) for ratio in common.ratios(seconds["on"], seconds["off"])]
            times = (common.spread(seconds[side], 3) for side in ("on", "off"))
            rows.append((HEADINGS[kind], precision, *times, f"{common.spread(saved, 1)} %"))
    return common.table(("instruction sets", "precision", "kernels on, s", "off, s", "saved"), rows, words=2)


if __name__ == "__main__":
    common.main(
        PAGE,
        __doc__,
        run,
        body,
        common.Sizes("rounds", "measured rounds after one warm-up round", 9, 2),
        common.Sizes("steps", "steps per side and round", 6, 2),
        common.Sizes("batch-size", "rows in a batch", 64, 64),
        more=lambda parser: parser.add_argument("--model", default=MODEL, help="another encoder, for a trial"),
        one=measure,
    )
