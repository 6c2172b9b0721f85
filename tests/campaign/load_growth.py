"""What must not grow: memory with the number of lines; memory, files, threads and time with the number of steps."""

import json
import os
import random
import shutil
import signal
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nearfar import search
from nearfar.jobs import Job, JobStore, run_jobs
from nearfar.neighbours.index import FILES
from nearfar.training.display import MetricsFile
from tests.campaign.load_processes import fork, nearfar
from tests.tiny import WORDS, save_tiny, sentences, write_pairs

SLACK_MIB = 24.0
"""How much more memory the long input may take beside the bytes for each line: allocators keep what they free."""
BYTES_PER_LINE = {"encode": 0, "search": 200, "mine": 700, "dedup": 700, "evaluate": 1200}
"""Verb -> bytes of memory that a further line may take.

The guides promise that the memory of `encode` does not depend on the number of lines, and that `search` does not hold
all texts: it holds a few numbers of 8 bytes each for a line, such as hashes and their order. `mine` and `dedup` hold
the texts; `evaluate` holds both texts of a pair and their vectors, of 128 bytes each.
"""
STEP_TIME = 1.5
"""The last steps may take this times the processor time of early ones."""


def write_lines(file: Path, count: int) -> Path:
    """Short lines that are all different, of about as many vectors as lines."""
    draw = random.Random(0)
    with file.open("w") as stream:
        stream.writelines(f"{' '.join(draw.choices(WORDS, k=5))} {number}\n" for number in range(count))
    return file


def write_tables(lines: int) -> None:
    """Write the inputs of :func:`memory_of` for a number of lines."""
    write_lines(Path("corpus.txt"), lines)
    anchors = "".join(f"dog {number}\tcat {number}\n" for number in range(64))
    Path("anchors.tsv").write_text(f"anchor\tpositive\n{anchors}")
    with Path("pairs.tsv").open("w") as stream:
        stream.write("score\tsentence1\tsentence2\n")
        stream.writelines(f"{number % 5}\tdog {number}\tcat {number}\n" for number in range(lines))


MEMORY = {
    "encode": "encode tiny --input corpus.txt --output vectors.npy",
    "search": "search dog --model tiny --input corpus.txt --index corpus.index --output hits.tsv",
    "mine": "mine --model tiny --data anchors.tsv --corpus corpus.txt --relative-margin none --output negatives.tsv",
    "dedup": "dedup --model tiny --input corpus.txt --threshold 0.999 --output distinct.txt",
    "evaluate": "evaluate tiny --tasks pairs.tsv --resamples 0 --output scores.json",
}


def memory_flat(verb: str, lines: int, *, main: Callable[[Sequence[str]], int] = nearfar) -> str:
    """Compare the peak memory of a command on ``lines`` and on 8 times as many."""
    save_tiny(Path("tiny"))
    peaks = []
    for count in (lines, 8 * lines):
        write_tables(count)
        status, peak, output = memory_of(MEMORY[verb].split(), main)
        if status:
            return f"{verb} on {count:,} lines ended with status {status}: {output}"
        peaks.append(peak)
        for file in Path.cwd().iterdir():
            if file.name != "tiny":
                shutil.rmtree(file) if file.is_dir() else file.unlink()
    allowed = SLACK_MIB + 7 * lines * BYTES_PER_LINE[verb] / 2**20
    if peaks[1] - peaks[0] > allowed:
        return (
            f"{verb} takes {peaks[0]:.0f} MiB for {lines:,} lines and {peaks[1]:.0f} MiB for {8 * lines:,}, "
            f"{peaks[1] - peaks[0]:.0f} MiB more; at most {allowed:.0f} MiB are allowed"
        )
    return ""


def memory_of(arguments: Sequence[str], main: Callable[[Sequence[str]], int] = nearfar) -> tuple[int, float, str]:
    """Exit status, largest anonymous memory in MiB and last line of a command in a fork.

    Memory-mapped files are not counted: the system can drop them.
    """
    file = Path("output.log")
    child = fork(arguments, Path(), file, main=main)
    peak = 0.0
    while not (found := os.waitpid(child, os.WNOHANG))[0]:
        peak = max(peak, anonymous_mib(child))
        time.sleep(0.003)
    return os.waitstatus_to_exitcode(found[1]), peak, file.read_text().strip()[-200:]


def anonymous_mib(process: int | str = "self") -> float:
    """Anonymous resident memory of a process; 0 if it has ended."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


def long_run(steps: int) -> str:
    """Train for many steps, and compare the end of the run with its beginning."""
    save_tiny(Path("tiny"))
    write_lines(Path("corpus.txt"), 500)
    write_pairs(Path("pairs.tsv"), 20)
    moments: list[tuple[int, float, int, int, int]] = []
    times: list[float] = []
    on_step = MetricsFile.on_step

    def count(self: MetricsFile, report: Any) -> None:
        on_step(self, report)
        times.append(time.process_time())
        if report.step % (steps // 20) == 0:
            files = sum(len(names) for _, _, names in os.walk("."))
            moments.append(
                (report.step, anonymous_mib(), len(os.listdir("/proc/self/fd")), threading.active_count(), files)
            )

    MetricsFile.on_step = count  # type: ignore[method-assign]  # in a fork of its own
    command = (
        f"train simcse-unsup --model tiny --data corpus.txt --evaluate-on pairs.tsv --max-steps {steps} --epochs 10000"
        f" --batch-size 4 --evaluate-every {max(steps // 40, 1)} --checkpoint-every {max(steps // 50, 1)} --output run"
    )
    try:
        status = nearfar(command.split())
    finally:
        MetricsFile.on_step = on_step  # type: ignore[method-assign]
    if status:
        return f"the run ended with status {status}"
    return growth(moments, times)


def growth(moments: Sequence[tuple[int, float, int, int, int]], times: Sequence[float]) -> str:
    """What grew between the first fifth of a run and its end."""
    early, late = moments[len(moments) // 5 - 1], moments[-1]
    if late[1] - early[1] > SLACK_MIB:
        return f"memory grew from {early[1]:.0f} MiB in step {early[0]:,} to {late[1]:.0f} MiB in step {late[0]:,}"
    for number, what in ((2, "open files"), (3, "threads"), (4, "files on disk")):
        if late[number] > early[number] + (number == 4) * 2:  # a checkpoint that is being replaced
            return f"there are {late[number]} {what} in step {late[0]:,}, and {early[number]} in step {early[0]:,}"
    seconds = np.diff(times)
    tenth = len(seconds) // 10
    first, last = statistics.median(seconds[tenth : 2 * tenth]), statistics.median(seconds[-tenth:])
    if last > STEP_TIME * first:
        return f"a step took {1000 * first:.1f} ms of processor time at first and {1000 * last:.1f} ms at the end"
    return ""


def growing_index(additions: int, seed: int) -> str:
    """Search a file after each of many small additions; the index must end as one that is made at once."""
    draw = random.Random(seed)
    save_tiny(Path("tiny"))
    texts = iter(dict.fromkeys(sentences(5 * additions + 50, seed=seed, longest=30)))
    lines = [next(texts) for _ in range(5)]
    names: list[str] = []
    for number in range(additions):
        lines += [next(texts) if draw.random() < 0.8 else draw.choice(lines) for _ in range(draw.randint(1, 3))]
        Path("corpus.txt").write_text("".join(f"{line}\n" for line in lines))
        (hits,) = search(lines[-1], model="tiny", input="corpus.txt", index="grown", top=3)
        if lines[-1] not in [hit.text for hit in hits if hit.score >= hits[0].score - 1e-6]:
            return f"after {number + 1} additions, the text {lines[-1]!r} is not found: {hits[0].text!r}"
        names = sorted(file.name for file in Path("grown").iterdir())
        if not set(names) <= set(FILES):
            return f"the index holds {', '.join(names)} after {number + 1} additions"
    (expected,) = search("the bird sees", model="tiny", input="corpus.txt", index="whole", top=20)
    (found,) = search("the bird sees", model="tiny", input="corpus.txt", index="grown", top=20)
    if names != sorted(file.name for file in Path("whole").iterdir()):
        return f"the index that grew holds {', '.join(names)}, unlike one that is made at once"
    for name in ("texts.npy", "rows.npy"):
        if not np.array_equal(np.load(Path("grown") / name), np.load(Path("whole") / name)):
            return f"{name} is not that of an index that is made at once"
    if Path("grown/rows.jsonl").read_bytes() != Path("whole/rows.jsonl").read_bytes():
        return "rows.jsonl is not that of an index that is made at once"
    error = float(np.abs(np.load("grown/vectors.npy") - np.load("whole/vectors.npy")).max())
    if not error <= 1e-5:
        return f"the vectors differ by {error:.1e} from those of an index that is made at once"
    near = max(abs(one.score - other.score) for one, other in zip(found, expected, strict=True))
    return "" if near <= 1e-5 else f"the scores differ by {near:.1e} from those of an index that is made at once"


def metrics_while_written(steps: int, reads: int, *, main: Callable[[Sequence[str]], int] = nearfar) -> str:
    """Read metrics.jsonl again and again while a run writes it; each time it must hold whole lines."""
    save_tiny(Path("tiny"))
    write_lines(Path("corpus.txt"), 100)
    write_pairs(Path("pairs.tsv"), 10)
    command = (
        f"train simcse-unsup --model tiny --data corpus.txt --evaluate-on pairs.tsv --max-steps {steps} --epochs 10000"
        f" --batch-size 4 --evaluate-every 20 --checkpoint-every 50 --output run"
    )
    child = fork(command.split(), Path(), Path("output.log"), main=main)
    file, seen, read, ended = Path("run/metrics.jsonl"), 0, 0, 0
    try:
        while read < reads or not seen:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return f"the run ended with status {os.waitstatus_to_exitcode(status)} after {read} readings"
            time.sleep(0.002)
            if not file.exists():
                continue
            read += 1
            text = file.read_text()
            if text and not text.endswith("\n"):
                return f"metrics.jsonl ends in the middle of a line: {text[-60:]!r}"
            try:
                found = [json.loads(line)["step"] for line in text.splitlines()]
            except ValueError as error:
                return f"metrics.jsonl cannot be read while it is written: {error}"
            if found != sorted(found) or len(found) < seen:
                return f"metrics.jsonl has {len(found)} lines after {seen}, up to step {found[-1]}"
            seen = len(found)
    finally:
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return ""


def cell(settings: dict[str, Any], inputs: dict[str, Path], folder: Path) -> None:
    """A cell of a study that does nothing but write its number; it kills its worker in its first attempt if told so."""
    marker = Path(settings["marks"]) / str(settings["number"])
    if settings["dies"] and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    (folder / "number.txt").write_text(str(settings["number"]))


def many_cells(cells: int, deaths: int, seed: int) -> str:
    """Run many empty jobs in workers of which some are killed, and the jobs again."""
    draw = random.Random(seed)
    Path("marks").mkdir()
    dying = set(draw.sample(range(cells), deaths))
    jobs = [
        Job(
            "tests.campaign.load_growth:cell",
            {"number": number, "dies": number in dying, "marks": str(Path("marks").resolve())},
        )
        for number in range(cells)
    ]
    store = JobStore(Path("cells"))
    kinds: list[str] = []
    run_jobs(jobs, store, workers=2, on_event=lambda event: kinds.append(event.kind))
    if kinds.count("finished") != cells:
        return f"{kinds.count('finished')} of {cells} cells are reported as finished"
    folders = list(Path("cells").iterdir())
    numbers = sorted(int((folder / "number.txt").read_text()) for folder in folders)
    if numbers != list(range(cells)):
        return f"the folders hold {len(numbers)} cells, not {cells}"
    if len(list(Path("marks").iterdir())) != deaths:
        return "no worker died, so that this case compares nothing"
    kinds.clear()
    run_jobs(jobs, store, workers=2, on_event=lambda event: kinds.append(event.kind))
    return "finished cells are run again" if "finished" in kinds or "started" in kinds else ""
