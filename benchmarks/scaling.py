"""Speed of nearfar by batch size, sentence length, corpus size, threads and processes.

    python benchmarks/scaling.py run       writes benchmarks/results/scaling.json
    python benchmarks/scaling.py report    writes docs/scaling.md and docs/scaling.png from that file alone

Each point is measured in a process of its own, so that its peak memory can be measured. Texts are from SNLI if
NEARFAR_DATA is set, else from microworld. Everything is computed in bf16, and sentence length also in fp32. It takes
about 15 minutes on two cores. With `--quick` or `--only`, results are printed, and written only with `--into`.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import common
from common import MODEL
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scaling_points import source, write_lines, write_pairs

PAGE = common.Page("scaling", "scaling", "Scaling")
KINDS = ("batch", "length", "corpus", "shares")
MICRO_BATCH = 128
"""Micro-batch size in training, in texts (64 pairs)."""
SIZES: dict[str, Sequence[int]] = {
    "batch": (64, 256, 1024, 4096),
    "length": (8, 16, 32, 64, 128, 256, 512),
    "corpus": (10**4, 10**5),
}
QUICK: dict[str, Sequence[int]] = {"batch": (64, 256, 1024), "length": (8, 32, 128), "corpus": (10**3, 10**4)}
SHARES = ((1, 1), (2, 1), (2, 2))
"""Total number of threads, and number of processes."""


def main() -> None:
    """Run or report."""
    parser = common.argument_parser(__doc__, rounds="3, or with --quick 1")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, metavar="NAME", help=", ".join(KINDS))
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the work of each point, for a trial")
    options = parser.parse_args()
    rounds, sizes = options.rounds or (1 if options.quick else 3), QUICK if options.quick else SIZES
    some = len(options.only) < len(KINDS)
    if common.finish(options, PAGE, lambda: run(options.only, rounds, sizes, options.scale), body, trial=some):
        result, page = PAGE.files(options.into)
        plot(common.load(result), page.with_suffix(".png"))


def run(only: Sequence[str], rounds: int, sizes: dict[str, Sequence[int]], scale: float) -> dict[str, Any]:
    """Measure these kinds."""
    record = common.record(model=MODEL, rounds=rounds, data=source(), micro_batch=MICRO_BATCH)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "batch" in only:
            record["batch"] = _batches(folder, sizes["batch"], rounds, scale)
        if "length" in only:
            tokens = max(int(2**15 * scale), *sizes["length"])
            record["length"] = _point("length", lengths=list(sizes["length"]), tokens=tokens, rounds=rounds)
        if "corpus" in only:
            record["corpus"] = []
            for lines in sizes["corpus"]:
                write_lines(folder / "lines.txt", max(int(lines * scale), 2))
                times = max(1, min(rounds, 10**5 // lines))  # large corpora need fewer rounds for a stable time
                point = _point("corpus", file=str(folder / "lines.txt"), processes=1, rounds=times)
                record["corpus"].append({"lines": max(int(lines * scale), 2), **point})
        if "shares" in only:
            record["shares"] = [_share(folder, *share, rounds=rounds, scale=scale) for share in SHARES]
    return record


def _batches(folder: Path, sizes: Sequence[int], rounds: int, scale: float) -> list[dict[str, Any]]:
    """Points for each batch size: at least 1,024 pairs per round, on a number of pairs that fills all batches."""
    points = []
    for size in sizes:
        file = folder / "pairs.tsv"
        pairs = write_pairs(file, multiple_of=size)
        if not pairs:
            print(f"batch {size}: skipped, there are too few pairs", flush=True)
            continue
        steps = max(1, int(1024 * scale) // size)
        # A large batch has many micro-batches, so that a separate warm-up makes little difference.
        point = _point(
            "batch",
            file=str(file),
            size=size,
            micro_batch=MICRO_BATCH,
            steps=steps,
            rounds=rounds,
            warm_up=size <= 1024,
        )
        points.append({"size": size, **point})
    return points


def _point(kind: str, threads: int | None = None, **setting: object) -> dict[str, Any]:
    """Measure one point in a new process, with ``threads`` threads or the default number."""
    script = str(Path(__file__).with_name("scaling_points.py"))
    point: dict[str, Any] = common.in_process(script, kind, json.dumps(setting), environment=_environment(threads))
    print(kind, setting, point, flush=True)
    return point


def _environment(threads: int | None) -> dict[str, str]:
    return {**os.environ, **({} if threads is None else {"OMP_NUM_THREADS": str(threads)})}


def _share(folder: Path, threads: int, processes: int, *, rounds: int, scale: float) -> dict[str, Any]:
    """Training and encoding with this total number of threads, divided between the processes."""
    lines = max(int(2**15 * scale), 2)  # two blocks, enough to keep all processes busy and for a stable time
    write_lines(folder / "lines.txt", lines)
    encoding = _point("corpus", threads, file=str(folder / "lines.txt"), processes=processes, rounds=1)
    training = [_train(folder, threads, processes, max(int(20 * scale), 2)) for _ in range(rounds)]
    return {"threads": threads, "processes": processes, "lines": lines, "encoding": encoding, "training": training}


def _train(folder: Path, threads: int, processes: int, steps: int) -> dict[str, float]:
    """Run `nearfar train`, by torchrun for several processes: number of pairs, and seconds from its run.json."""
    write_pairs(folder / "pairs.tsv")
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    with tempfile.TemporaryDirectory(dir=folder) as place:
        output = Path(place) / "run"
        setting = {"data": folder / "pairs.tsv", "output": output, "model": MODEL, "precision": "bf16"}
        setting |= {"batch-size": 64 // processes, "max-steps": steps, "evaluate-on": "microworld:dev"}
        flags = [word for name, value in setting.items() for word in (f"--{name}", str(value))]
        command = [sys.executable, *launcher, "-m", "nearfar", "train", "info-nce", *flags]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=_environment(threads // processes)
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout[-500:]}\n{done.stderr[-2000:]}")
        run_info = common.load(output / "run.json")
    return {"rows": 64 * run_info["step"], "seconds": run_info["seconds"]}


def body(record: dict[str, Any]) -> list[str]:
    """The text of the page, without title and provenance."""
    lines = [
        f"{record['model']} in bf16, {common.machine(record)}; texts from {record['data']}. Values are medians of "
        f"{record['rounds']} rounds; large corpora have fewer.",
        "",
    ]
    if "batch" in record:
        rows = [(f"{p['size']:,}", f"{_speed(p['rows'], p):,.0f}", f"{p['peak_mib']:,.0f}") for p in record["batch"]]
        lines += ["## Batch size", ""]
        lines += [
            f"InfoNCE on pairs, micro-batches of {record['micro_batch']} texts (`--micro-batch`). A batch of several "
            "micro-batches is encoded twice: without gradients for the loss over all of it, then with gradients.",
            "",
        ]
        lines += [*common.table(("pairs per batch", "pairs/s", "peak MiB"), rows, words=0), ""]
    if "length" in record:
        lines += ["## Sentence length", "", "Encoding without tokenisation; all texts have the same length.", ""]
        header = ("tokens", "fp32, texts/s", "fp32, tokens/s", "bf16, texts/s", "bf16, tokens/s")
        cells = []
        for size in record["length"]["tokens"]:
            speeds = [_tokens_per_second(record, size, precision) for precision in ("fp32", "bf16")]
            cells.append((size, *(f"{number:,.0f}" for speed in speeds for number in (speed / int(size), speed))))
        lines += [*common.table(header, cells, words=0), ""]
    if "corpus" in record:
        rows = [(f"{p['lines']:,}", f"{_speed(p['lines'], p):,.0f}", f"{p['peak_mib']:,.0f}") for p in record["corpus"]]
        lines += ["## Corpus size", "", "`nearfar encode`, including opening the model; all lines are distinct.", ""]
        lines += [*common.table(("lines", "lines/s", "peak MiB"), rows, words=0), ""]
    if "shares" in record:
        lines += ["## Threads and processes", ""]
        lines += [
            "`nearfar encode --processes`, and `nearfar train info-nce` by torchrun, with batches of 64 in total.",
            "",
        ]
        shares = [
            (
                share["threads"],
                share["processes"],
                f"{_speed(share['lines'], share['encoding']):,.0f}",
                f"{median(one['rows'] / one['seconds'] for one in share['training']):,.0f}",
            )
            for share in record["shares"]
        ]
        lines += common.table(("total threads", "processes", "lines encoded/s", "pairs trained/s"), shares, words=0)
        lines += ["", _processes(record["shares"]), ""]
    return [*lines, f"![Speed by batch size, sentence length and corpus size]({PAGE.name}.png)"]


def _processes(shares: list[dict[str, Any]]) -> str:
    """Two threads and two processes, compared with half the work for each."""
    speeds = {
        (share["threads"], share["processes"]): [one["rows"] / one["seconds"] for one in share["training"]]
        for share in shares
    }
    one, threads, processes = (speeds[share] for share in SHARES)
    return (
        f"In training, a second thread gives {common.spread(common.ratios(threads, one))} times the speed of one; two "
        f"processes of one thread have {common.spread(common.ratios(processes, threads))} times the speed of one "
        "process with two threads (median [minimum, maximum]). Each of the processes computes half of the batch, but "
        "updates all weights, and their gradients are summed through the memory that both use."
    )


def _speed(rows: int, point: dict[str, Any]) -> float:
    return rows / median(point["seconds"])


def _tokens_per_second(record: dict[str, Any], size: str, precision: str) -> float:
    return record["length"]["tokens"][size] / median(record["length"]["seconds"][f"{size} {precision}"])


def plot(record: dict[str, Any], file: Path) -> None:
    """Speed by batch size, sentence length and corpus size, as a PNG file."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 3)
    style: dict[str, Any] = {"marker": "o", "markersize": 4}
    batches, corpora = record.get("batch", ()), record.get("corpus", ())
    panels[0].plot([p["size"] for p in batches], [_speed(p["rows"], p) for p in batches], **style)
    panels[0].set(xlabel="pairs per batch", ylabel="pairs trained per second")
    for precision in ("fp32", "bf16") if "length" in record else ():
        sizes = list(record["length"]["tokens"])
        speeds = [_tokens_per_second(record, size, precision) for size in sizes]
        panels[1].plot([int(size) for size in sizes], speeds, label=precision, **style)
        panels[1].legend()
    panels[1].set(xlabel="tokens per text", ylabel="tokens encoded per second")
    panels[2].plot([p["lines"] for p in corpora], [_speed(p["lines"], p) for p in corpora], **style)
    panels[2].set(xlabel="lines per file", ylabel="lines encoded per second")
    for axes in panels:
        axes.set(xscale="log", ylim=(0, 1.1 * axes.dataLim.y1))
        axes.grid(alpha=0.3)
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
