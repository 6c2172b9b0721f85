"""Time that the compiled kernels (attention, dropout) save in a training step.

    python benchmarks/compiled_kernels.py run       writes benchmarks/results/compiled_kernels.json
    python benchmarks/compiled_kernels.py report    writes docs/kernels.md from that file alone

One sbert run on microworld repeats the same batches with the same dropout masks: with all kernels, with none, with all
but one, and with only one, interleaved within a round. In fp32, and in bf16 if the processor computes it natively. On a
processor with AVX-512, everything is measured again in another process that is limited to AVX2. With ``--quick``,
results are printed, and written only with ``--into``.

(The script is not called kernels.py, because transformers would import it instead of the package ``kernels``.)
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import common
from common import MODEL
from training_run import Run

from nearfar.config import SbertConfig
from nearfar.encoder.bf16_support import native_bf16
from nearfar.encoder.kernels import KERNEL_NAMES, VARIABLE, kernels, kernels_status
from nearfar.runtime import machine, threads

TITLE = "Time saved by the compiled kernels"
BAR = 10
"""Percentage of a step that a kernel should save, in at least one precision."""
NAMES = {"attention": "attention", "dropout": "dropout"}
ALL, NONE = "all", "none"


REDUCED = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "NEARFAR_KERNELS_MARCH": "x86-64-v3",
}
"""Environment variables that limit torch, its libraries and the kernels to AVX2."""
HEADINGS = {"as it is": "All instruction sets", "kept to AVX2": "Limited to AVX2"}
"""Key in the result file -> heading on the page."""


def main() -> None:
    """Run or report; ``run`` starts processes with ``measure``."""
    parser = common.argument_parser(__doc__, rounds="9, or with --quick 2")
    next(action for action in parser._actions if action.dest == "command").choices = ("run", "report", "measure")
    parser.add_argument("--steps", type=int, help="steps per side and round; 6, or with --quick 2")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--model", default=MODEL, help="another encoder, for a trial")
    options = parser.parse_args()
    rounds, steps = options.rounds or (2 if options.quick else 9), options.steps or (2 if options.quick else 6)
    if options.command == "measure":
        print(json.dumps(measure(options.model, rounds, steps, options.batch_size)))
        return
    paths = common.files("compiled_kernels", "kernels", options.into)
    if options.command == "run":
        record = run(options.model, rounds, steps, options.batch_size)
        if options.into is None and options.quick:
            print("\n".join(body(record)))
            return
        common.save(paths.result, record)
    content = common.load(paths.result)
    common.write_page(paths.page, TITLE, "compiled_kernels", content, body(content))
    print("\n".join(body(content)))


def run(model: str, rounds: int, steps: int, batch_size: int) -> dict[str, Any]:
    """Measure with all instruction sets and, on a processor with AVX-512, limited to AVX2."""
    settings = {"model": model, "rounds": rounds, "steps": steps, "batch_size": batch_size}
    flags = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    kinds: dict[str, dict[str, str]] = {"as it is": {}}
    if "avx512f" in machine.instruction_sets():
        kinds["kept to AVX2"] = REDUCED
    record = common.record(**settings, kinds={})
    for kind, variables in kinds.items():
        print(kind, flush=True)
        command = [sys.executable, __file__, "measure", *flags]
        environment = {**os.environ, **threads.settings(os.environ), **variables}  # as in nearfar train
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        record["kinds"][kind] = json.loads(done.stdout.splitlines()[-1])
    return record


def sides() -> dict[str, tuple[str, ...]]:
    """The kernels in use, by the name of the side."""
    without = {f"all but {part}": tuple(other for other in KERNEL_NAMES if other != part) for part in KERNEL_NAMES}
    return {ALL: KERNEL_NAMES, NONE: (), **without, **{f"{part} alone": (part,) for part in KERNEL_NAMES}}


def switch(parts: Sequence[str]) -> None:
    """Use only these kernels from now on."""
    os.environ[VARIABLE] = ",".join(parts) or "0"
    kernels.cache_clear()


def measure(model: str, rounds: int, steps: int, batch_size: int) -> dict[str, Any]:
    """Measure all sides in each precision."""
    switch(KERNEL_NAMES)
    if kernels() is None:
        raise SystemExit(f"there are no kernels to measure: {kernels_status()['why_not']}")
    status = kernels_status()
    seconds: dict[str, dict[str, list[float]]] = {}
    losses: dict[str, dict[str, float]] = {}
    for precision in ("fp32", "bf16") if native_bf16("cpu") else ("fp32",):
        config = SbertConfig(
            output="unused", model=model, data=("microworld",), batch_size=batch_size, epochs=1000, precision=precision
        )
        trained = Run(config)
        last: dict[str, float] = {}
        turns = {name: _turn(name, trained, parts, steps, last) for name, parts in sides().items()}
        seconds[precision] = common.run_interleaved(turns, rounds)
        losses[precision] = last
        print(precision, {name: round(median(of), 4) for name, of in seconds[precision].items()}, file=sys.stderr)
    built = {"compiler": status["compiler"], "flags": status["flags"]}
    return {**built, "instruction_sets": machine.instruction_sets(), "seconds": seconds, "losses": losses}


def _turn(name: str, run: Run, parts: Sequence[str], steps: int, losses: dict[str, float]) -> Callable[[int], float]:
    """A function that measures the seconds of a step on the batches of a round."""
    batches = sum(1 for _ in run.prepared.mixture.epoch(0))

    def turn(number: int) -> float:
        switch(parts)
        run.progress.epoch, run.progress.batch = 0, number * steps % max(1, batches - steps)
        run.progress.step = number * steps  # determines the dropout masks
        spent = run.advance(steps) / steps
        losses[name] = run.losses[-1]
        return spent

    return turn


def body(record: dict[str, Any]) -> list[str]:
    """The text of the page, without title and provenance."""
    lines = [
        f"{record['model']}, sbert on microworld, batches of {record['batch_size']}; "
        f"{common.machine(record)}; torch {record['versions']['torch']}.",
        "",
        f"A step is forward, backward and AdamW. {record['rounds']} rounds of {record['steps']} steps after a warm-up "
        "round;",
        "the sides are interleaved within a round, on the same batches with the same dropout masks. Values are medians",
        "over rounds with their [minimum, maximum]. Savings are percentages of a step.",
    ]
    for kind, measured in record["kinds"].items():
        for precision, seconds in measured["seconds"].items():
            lines += ["", f"## {HEADINGS[kind]}, {precision}", "", *_tables(seconds)]
        sets = ", ".join(measured["instruction_sets"])
        lines += ["", f"Instruction sets: {sets}. Built by {measured['compiler']}, `{measured['flags']}`."]
        if "bf16" not in measured["seconds"]:
            lines += ["bf16 was not measured, because bfloat16 is not native here."]
    return lines


def _tables(seconds: dict[str, list[float]]) -> list[str]:
    rows = []
    for part in KERNEL_NAMES:
        last = _saved(seconds[ALL], seconds[f"all but {part}"])
        first = _saved(seconds[f"{part} alone"], seconds[NONE])
        bar = common.verdict(max(median(last), median(first)), BAR)
        rows.append((NAMES[part], common.spread(last, 1), common.spread(first, 1), bar))
    together = common.spread(_saved(seconds[ALL], seconds[NONE]), 1)
    rows.append(("all", together, together, ""))
    times = [(name, common.spread(of, 3)) for name, of in seconds.items()]
    return [
        *common.table(("kernel", "saving added to the other kernels, %", "saving alone, %", "target"), rows),
        "",
        *common.table(("kernels in use", "seconds per step"), times),
    ]


def _saved(with_it: Sequence[float], without: Sequence[float]) -> list[float]:
    """Percentage of time saved, by round."""
    return [100 * (1 - ratio) for ratio in common.ratios(with_it, without)]


if __name__ == "__main__":
    main()
