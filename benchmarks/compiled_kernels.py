"""What each compiled kernel saves of a training step: attention, dropout, and the sum with LayerNorm, on and off.

    python benchmarks/compiled_kernels.py run       writes benchmarks/results/compiled_kernels.json
    python benchmarks/compiled_kernels.py report    writes docs/kernels.md from that file alone

One run of sbert on the generated world takes the same batches with the same draws of dropout again and again: with all
kernels, with none, with all but one, and with one alone. Within a round all have their turn. In fp32, and in bf16 where
the processor computes it natively. On a processor with AVX-512 all is measured again, in a process of its own, without
what AVX2 has not. ``--quick`` prints, and writes with ``--into`` alone.

(A script of the name kernels would be taken for the hub's package of that name by transformers.)
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

TITLE = "What the compiled kernels save"
BAR = 10
"""Percent of a step that a kernel is to save, in one precision at least, to be kept."""
NAMES = {"attention": "attention", "dropout": "dropout"}
ALL, NONE = "all", "none"


REDUCED = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "NEARFAR_KERNELS_MARCH": "x86-64-v3",
}
"""What keeps torch, its libraries and the kernels to AVX2."""


def main() -> None:
    """Run or report; ``measure`` is what a run asks of other processes."""
    parser = common.argument_parser(__doc__, rounds="9, or with --quick 2")
    next(action for action in parser._actions if action.dest == "command").choices = ("run", "report", "measure")
    parser.add_argument("--steps", type=int, help="of a turn; 6, or with --quick 2")
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
    """Measure the processor as it is and, where that has more, kept to AVX2."""
    settings = {"model": model, "rounds": rounds, "steps": steps, "batch_size": batch_size}
    flags = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    kinds: dict[str, dict[str, str]] = {"as it is": {}}
    if "avx512f" in machine.instruction_sets():
        kinds["kept to AVX2"] = REDUCED
    record = common.record(**settings, kinds={})
    for kind, variables in kinds.items():
        print(kind, flush=True)
        command = [sys.executable, __file__, "measure", *flags]
        environment = {**os.environ, **threads.settings(os.environ), **variables}  # as nearfar train has it
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        record["kinds"][kind] = json.loads(done.stdout.splitlines()[-1])
    return record


def sides() -> dict[str, tuple[str, ...]]:
    """The kernels that are on, by the name of the side."""
    without = {f"all but {part}": tuple(other for other in KERNEL_NAMES if other != part) for part in KERNEL_NAMES}
    return {ALL: KERNEL_NAMES, NONE: (), **without, **{f"{part} alone": (part,) for part in KERNEL_NAMES}}


def switch(parts: Sequence[str]) -> None:
    """Use these kernels and no others from now on."""
    os.environ[VARIABLE] = ",".join(parts) or "0"
    kernels.cache_clear()


def measure(model: str, rounds: int, steps: int, batch_size: int) -> dict[str, Any]:
    """Measure all sides in each precision."""
    switch(KERNEL_NAMES)
    if kernels() is None:
        raise SystemExit(f"there are no kernels to measure: {kernels_status()['why_not']}")
    told = kernels_status()
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
    built = {"compiler": told["compiler"], "flags": told["flags"]}
    return {**built, "instruction_sets": machine.instruction_sets(), "seconds": seconds, "losses": losses}


def _turn(name: str, run: Run, parts: Sequence[str], steps: int, losses: dict[str, float]) -> Callable[[int], float]:
    """Seconds of a step, on the batches of the round."""
    batches = sum(1 for _ in run.prepared.mixture.epoch(0))

    def turn(number: int) -> float:
        switch(parts)
        run.progress.epoch, run.progress.batch = 0, number * steps % max(1, batches - steps)
        run.progress.step = number * steps  # which dropout is drawn from
        spent = run.advance(steps) / steps
        losses[name] = run.losses[-1]
        return spent

    return turn


def body(record: dict[str, Any]) -> list[str]:
    """The page between its title and its origin."""
    lines = [
        f"{record['model']}, sbert on the generated world, batches of {record['batch_size']}; "
        f"{common.machine(record)}; torch {record['versions']['torch']}.",
        "",
        f"A step is forward, backward and AdamW. {record['rounds']} rounds of {record['steps']} steps, "
        "after one to warm",
        "up; within a round each side has its turn on the same batches with the same dropout. Percent of a step: the",
        "median over rounds, with least and greatest.",
    ]
    for kind, measured in record["kinds"].items():
        for precision, seconds in measured["seconds"].items():
            lines += ["", f"## The processor {kind}, {precision}", "", *_tables(seconds)]
        sets = ", ".join(measured["instruction_sets"])
        lines += ["", f"Instruction sets: {sets}. Built by {measured['compiler']}, `{measured['flags']}`."]
        if "bf16" not in measured["seconds"]:
            lines += ["There is no native bfloat16, so bf16 was not measured."]
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
        *common.table(("kernel", "saves beside the others, %", "saves alone, %", "at least"), rows),
        "",
        *common.table(("kernels", "seconds of a step"), times),
    ]


def _saved(with_it: Sequence[float], without: Sequence[float]) -> list[float]:
    """Percent of the step without, round by round."""
    return [100 * (1 - ratio) for ratio in common.ratios(with_it, without)]


if __name__ == "__main__":
    main()
