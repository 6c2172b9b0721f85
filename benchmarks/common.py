"""What the benchmarks share: sides that take turns, ratios, result files, and pages made of them.

A result is a JSON file in ``benchmarks/results`` that says where it comes from; its page in ``docs`` is made from it
alone. ``--into FOLDER`` puts both elsewhere, for a trial.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeVar

import torch

from nearfar.disk import write_text
from nearfar.evaluation.results import provenance

ROOT = Path(__file__).parents[1]
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
PEER = "sentence-transformers"
Measured = TypeVar("Measured")


class Files(NamedTuple):
    """Where a benchmark writes."""

    result: Path
    page: Path


def files(script: str, page: str, into: Path | None = None) -> Files:
    """The result file of a script and its page in docs; with ``into``, both in that folder."""
    results, docs = (into, into) if into else (ROOT / "benchmarks" / "results", ROOT / "docs")
    return Files(results / f"{script}.json", docs / f"{page}.md")


def argument_parser(description: str | None, *, rounds: str) -> argparse.ArgumentParser:
    """What each benchmark can be asked: ``run`` or ``report``, and how much of it."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument(
        "command", choices=("run", "report"), help="measure, then report; or make the page from the file"
    )
    parser.add_argument("--rounds", type=int, help=f"that count, after one to warm up; {rounds}")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="write there, and not to results and docs")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller; prints, and writes only --into")
    return parser


def run_interleaved(
    sides: Mapping[str, Callable[[int], Measured]], rounds: int, *, warm_up: int = 1
) -> dict[str, list[Measured]]:
    """What each side finds in each round that counts: within a round all have their turn, every other time reversed.

    A side is given the number of the round, from 0, the first of the warm-up.
    """
    measured: dict[str, list[Measured]] = {name: [] for name in sides}
    for number in range(warm_up + rounds):
        for name in list(sides) if number % 2 == 0 else list(sides)[::-1]:
            found = sides[name](number)
            if number >= warm_up:
                measured[name].append(found)
    return measured


def timed(work: Callable[[int], object]) -> Callable[[int], float]:
    """The seconds that each round of ``work`` takes."""

    def seconds(number: int) -> float:
        started = time.perf_counter()
        work(number)
        return time.perf_counter() - started

    return seconds


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Round by round."""
    return [a / b for a, b in zip(above, below, strict=True)]


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median, least and greatest."""
    middle, least, greatest = (f"{value:.{digits}f}" for value in (median(values), min(values), max(values)))
    return f"{middle} [{least}, {greatest}]"


def verdict(value: float, bar: float | None, *, at_most: bool = False) -> str:
    """The bar, and whether ``value`` is over it (or, with ``at_most``, under it)."""
    if bar is None:
        return ""
    return f"{bar:g}: {'met' if (value < bar if at_most else value >= bar) else 'missed'}"


def peak_mib() -> float:
    """Peak memory of this process."""
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage says of a child starts at its parent's memory
        kept = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
        return int(kept["VmHWM"].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)


def record(**settings: object) -> dict[str, Any]:
    """Date, command, commit, versions and hardware, the number of threads, and how the benchmark was set."""
    return {**provenance().to_dict(), "threads": torch.get_num_threads(), **settings}


def save(file: Path, content: Mapping[str, Any]) -> None:
    """Write a result file; one that is to be committed only from a clean checkout, else into a scratch folder.

    Raises:
        SystemExit: the checkout has uncommitted changes; says where the result is instead.
    """
    scratch = ROOT / "runs" / "uncommitted" / file.name
    unclean = file.is_relative_to(ROOT / "benchmarks") and str(content["commit"] or "-dirty").endswith("-dirty")
    place = scratch if unclean else file
    place.parent.mkdir(parents=True, exist_ok=True)
    write_text(place, json.dumps(content, indent=1) + "\n")
    if unclean:
        raise SystemExit(f"The checkout has uncommitted changes: the result is in {place}, and {file} is as it was.")


def load(file: Path) -> dict[str, Any]:
    """Read a result file."""
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def table(header: Sequence[str], rows: Sequence[Sequence[object]], *, words: int = 1) -> list[str]:
    """A Markdown table; all columns but the first so many ``words`` are numbers, to the right."""
    rule = ["---"] * words + ["---:"] * (len(header) - words)
    return [f"| {' | '.join(map(str, cells))} |" for cells in (header, rule, *rows)]


def machine(content: Mapping[str, Any]) -> str:
    """Threads and processor, as a page tells them."""
    return f"{content['threads']} threads on {content['hardware']['processor']}"


def setting(content: Mapping[str, Any]) -> str:
    """Model, machine and the versions of both sides."""
    versions = ", ".join(f"{name} {content['versions'][name]}" for name in ("torch", "transformers", PEER))
    return f"{content['model']}, {machine(content)}; {versions}."


def write_page(file: Path, title: str, script: str, content: Mapping[str, Any], lines: Sequence[str]) -> None:
    """Write a page: its title, what made it, ``lines``, and where the numbers come from."""
    made = f"Generated by `python benchmarks/{script}.py report` from `benchmarks/results/{script}.json`."
    origin = f"`{content['command']}`, {content['date']}, commit {content['commit']}."
    write_text(file, "\n".join([f"# {title}", "", made, "", *lines, "", origin]) + "\n")
