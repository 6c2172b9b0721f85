"""Functions shared by the benchmarks: interleaved rounds, ratios, result files, and the tables generated from them.

A result is a JSON file in ``benchmarks/results`` with its provenance; its tables, on a page in ``docs`` whose words are
written by hand, are generated from this file alone. ``--into FOLDER`` writes both to another folder, for a trial.
"""

import argparse
import json
import math
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.disk import write_text
from nearfar.evaluation.results import provenance

ROOT = Path(__file__).parents[1]
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
PEER = "sentence-transformers"
MIN_ROUNDS = 2
Measured = TypeVar("Measured")


class Page(NamedTuple):
    """A benchmark's script, and the page in docs that has a place for its tables, without endings."""

    script: str
    name: str

    def files(self, into: Path | None = None) -> tuple[Path, Path]:
        """The result file and the page; with ``into``, a page of its own, both in that folder."""
        if into:
            return into / f"{self.script}.json", into / f"{self.script}.md"
        return ROOT / "benchmarks" / "results" / f"{self.script}.json", ROOT / "docs" / f"{self.name}.md"


class Sizes(NamedTuple):
    """The amounts of measurement: a flag, what it counts, its value, and its value with --quick."""

    flag: str
    what: str
    value: int
    quick: int


def main(
    page: Page,
    description: str | None,
    measure: Callable[[argparse.Namespace], dict[str, Any]],
    body: Callable[[dict[str, Any]], list[str]],
    *sizes: Sizes,
    more: Callable[[argparse.ArgumentParser], object] | None = None,
    trial: Callable[[argparse.Namespace], bool] | None = None,
    one: Callable[..., Any] | None = None,
) -> None:
    """The command line of a benchmark: ``run`` measures and reports, ``report`` generates the tables from the file.

    ``--quick`` and a ``trial`` are only printed, unless ``--into`` names a folder for them.

    Args:
        page: the script and its page.
        description: the script's docstring; its first line is the help.
        measure: options -> the content of the result file, which begins with :func:`record`.
        body: that content -> the lines between the marks of its place on the page, without provenance.
        sizes: the amounts of measurement, such as ``Sizes("rounds", "measured rounds after one warm-up round", 5, 3)``.
        more: adds further flags.
        trial: whether the options make a trial.
        one: takes one measurement in a process of its own, which :func:`in_process` starts.
    """
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("command", choices=("run", "report", *(["one"] if one else [])), help="one: used by run")
    parser.add_argument("setting", nargs="?", help="of one, as JSON")
    for size in sizes:
        parser.add_argument(f"--{size.flag}", type=int, help=f"{size.what}; {size.value}, or with --quick {size.quick}")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="write to this folder, not to results and docs")
    parser.add_argument("--quick", action="store_true", help="measure less; print, and write only with --into")
    if more is not None:
        more(parser)
    options = parser.parse_args()
    if options.command == "one" and one is not None:
        print(json.dumps(one(**json.loads(options.setting))))
        return
    for size in sizes:
        if getattr(options, size.flag.replace("-", "_")) is None:
            setattr(options, size.flag.replace("-", "_"), size.quick if options.quick else size.value)
    finish(options, page, measure, body, trial=trial is not None and trial(options))


ROUNDS = Sizes("rounds", "measured rounds after one warm-up round", 5, 3)


def finish(
    options: argparse.Namespace,
    page: Page,
    measure: Callable[[argparse.Namespace], dict[str, Any]],
    body: Callable[[dict[str, Any]], list[str]],
    *,
    trial: bool,
) -> None:
    """Measure, unless the command is ``report``; write the result file, and the tables from it; print them."""
    result, text = page.files(options.into)
    content = load(result) if options.command == "report" else measure(options)
    if options.command == "report" or options.into is not None or not (options.quick or trial):
        if options.command != "report":
            save(result, content)
        fill_page(text, page, content, body(content))
    print("\n".join(body(content)))


def in_process(script: str, *, environment: Mapping[str, str] | None = None, **setting: object) -> Any:
    """What ``one`` of the script returns for a setting in a new process, whose peak memory is its own."""
    command = [sys.executable, script, "one", json.dumps(setting)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def run_interleaved(
    sides: Mapping[str, Callable[[int], Measured]], rounds: int, *, warm_up: int = 1, until: float = math.inf
) -> dict[str, list[Measured]]:
    """Results of each side in each measured round. Sides are interleaved; every other round reverses their order.

    Each side is called with the number of the round, from 0, including the warm-up rounds. After :data:`MIN_ROUNDS`,
    no round starts later than ``until`` on the monotonic clock.
    """
    measured: dict[str, list[Measured]] = {name: [] for name in sides}
    for number in range(warm_up + rounds):
        if number > MIN_ROUNDS and time.monotonic() > until:
            break
        for name in list(sides) if number % 2 == 0 else list(sides)[::-1]:
            result = sides[name](number)
            if number >= warm_up:
                measured[name].append(result)
    return measured


def timed(work: Callable[[int], object]) -> Callable[[int], float]:
    """A function that returns the seconds that ``work`` takes."""

    def seconds(number: int) -> float:
        started = time.perf_counter()
        work(number)
        return time.perf_counter() - started

    return seconds


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Ratios of paired rounds."""
    return [a / b for a, b in zip(above, below, strict=True)]


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median, minimum and maximum."""
    middle, least, greatest = (f"{value:.{digits}f}" for value in (median(values), min(values), max(values)))
    return f"{middle} [{least}, {greatest}]"


def peak_mib() -> float:
    """Peak memory of this process."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage of a child process starts at its parent's memory
        fields = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
        return int(fields["VmHWM"].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)


def record(**settings: object) -> dict[str, Any]:
    """Date, command, commit, versions and hardware, the number of threads, and the benchmark's settings.

    Absolute paths in the command are shown by their names.
    """
    known = provenance().to_dict()
    words = (Path(word).name if Path(word).is_absolute() else word for word in shlex.split(known["command"]))
    return {**known, "command": shlex.join(words), "threads": torch.get_num_threads(), **settings}


def save(file: Path, content: Mapping[str, Any]) -> None:
    """Write a result file. From a checkout with uncommitted changes, committed results go to a scratch folder instead.

    Raises:
        SystemExit: the checkout has uncommitted changes; the message names the scratch file.
    """
    scratch = ROOT / "runs" / "uncommitted" / file.name
    unclean = file.is_relative_to(ROOT / "benchmarks") and str(content["commit"] or "-dirty").endswith("-dirty")
    place = scratch if unclean else file
    place.parent.mkdir(parents=True, exist_ok=True)
    write_text(place, json.dumps(content, indent=1) + "\n")
    if unclean:
        raise SystemExit(f"The checkout has uncommitted changes: the result is in {place}, and {file} is unchanged.")


def load(file: Path) -> dict[str, Any]:
    """Read a result file."""
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def table(header: Sequence[str], rows: Sequence[Sequence[object]], *, words: int = 1) -> list[str]:
    """A Markdown table; the first ``words`` columns are text, the others are right-aligned numbers."""
    rule = ["---"] * words + ["---:"] * (len(header) - words)
    return [f"| {' | '.join(map(str, cells))} |" for cells in (header, rule, *rows)]


def machine(content: Mapping[str, Any]) -> str:
    """Threads and processor."""
    return f"{content['threads']} threads on {content['hardware']['processor']}"


def fill_page(file: Path, page: Page, content: Mapping[str, Any], lines: Sequence[str]) -> None:
    """Write ``lines``, and where their numbers come from, between ``<!-- SCRIPT -->`` and ``<!-- end of SCRIPT -->``.

    Raises:
        SystemExit: the page has no such place.
    """
    begin, end = f"<!-- {page.script} -->", f"<!-- end of {page.script} -->"
    text = file.read_text(encoding="utf-8") if file.exists() else f"{begin}\n{end}\n"
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{file} has no place {begin} ... {end} for the tables.")
    write_text(file, before + "\n".join([begin, "", *lines, "", origin(content), "", end]) + after)


def origin(content: Mapping[str, Any]) -> str:
    """Command, machine, versions, day and commit of a result file."""
    versions = ", ".join(f"{name} {content['versions'][name]}" for name in ("torch", PEER))
    day, commit = content["date"][:10], str(content["commit"])[:12]
    return f"`{content['command']}`: {machine(content)}; {versions}; {day}, commit {commit}."


def cosines(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    """The cosine of each row."""
    products: NDArray[np.float32] = (one * other).sum(1)
    return products / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
