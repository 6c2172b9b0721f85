"""Time of the jobs engine itself: 1,000 jobs that do nothing, in this process, by local workers, and by a local Ray.

    python benchmarks/jobs.py run       writes benchmarks/results/jobs.json
    python benchmarks/jobs.py report    writes docs/jobs-speed.md from that file alone

A measurement includes the start of the workers. Each job makes a folder, writes its description, waits until it is on
the disk, and renames the folder; so the time of the disk is measured too: that of 1,000 small files, each flushed.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common

from nearfar.disk import flush
from nearfar.jobs import Job, JobStore, run_jobs
from nearfar.runtime.versions import package_version

PAGE = common.Page("jobs", "jobs-speed", "Time of the jobs engine")
BAR = 20.0
"""Maximum seconds of the local workers."""
BARRED = "two local workers"
JOBS = 1000
WORKERS = 2
ENGINES = {"this process": "inline", BARRED: "process", "a local Ray, two workers": "ray"}
FOUND = "all finished already, two local workers"
DISK = "for comparison: small files, each flushed to the disk"


def main() -> None:
    """Run or report."""
    options = common.argument_parser(__doc__, rounds="5, or with --quick 1 with 100 jobs").parse_args()
    count, rounds = (100 if options.quick else JOBS), options.rounds or (1 if options.quick else 5)
    common.finish(options, PAGE, lambda: measure(count, rounds), body)


def measure(count: int, rounds: int) -> dict[str, Any]:
    """Seconds of each round by each engine."""
    sides = {name: _run(engine, count) for name, engine in ENGINES.items()}
    sides |= {FOUND: _found(count), DISK: _files(count)}
    seconds = common.run_interleaved(sides, rounds, warm_up=0)
    content = common.record(rounds=rounds, bar=BAR, jobs=count, workers=WORKERS, ray=package_version("ray"))
    return {**content, "seconds": seconds}


def _jobs(count: int) -> list[Job]:
    return [Job("empty_job:nothing", {"number": number}) for number in range(count)]


def _run(engine: str, count: int) -> Callable[[int], float]:
    """Run all jobs in a new folder."""

    def seconds(number: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            store = JobStore(folder)
            taken = common.timed(lambda _: run_jobs(_jobs(count), store, engine=engine, workers=WORKERS))(number)
            assert all(store.is_finished(job) for job in _jobs(count))
        return taken

    return seconds


def _found(count: int) -> Callable[[int], float]:
    """Run jobs that are all finished."""

    def seconds(number: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            run_jobs(_jobs(count), JobStore(folder), engine="inline")
            return common.timed(lambda _: run_jobs(_jobs(count), JobStore(folder), workers=WORKERS))(number)

    return seconds


def _files(count: int) -> Callable[[int], float]:
    """Write small files, each into a folder of its own, and flush file and folder."""

    def write(folder: Path) -> None:
        for number in range(count):
            file = folder / str(number) / "file"
            file.parent.mkdir()
            file.write_text("content", encoding="utf-8")
            flush(file)

    def seconds(number: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            return common.timed(lambda _: write(Path(folder)))(number)

    return seconds


def body(content: dict[str, Any]) -> list[str]:
    """The page without its title and its provenance."""
    times = content["seconds"][BARRED]
    rows = [(name, common.spread(values, 2)) for name, values in content["seconds"].items()]
    return [
        f"{content['jobs']:,} jobs that do nothing, {content['workers']} workers with one thread each, on "
        f"{content['hardware']['processor']}; Ray {content['ray']}. Seconds, with the start of the workers: median, "
        f"least, greatest of {content['rounds']} rounds.",
        "",
        *common.table(("jobs run by", "seconds"), rows),
        "",
        f"Seconds of {BARRED}, the greatest, at most: {common.verdict(max(times), content['bar'], at_most=True)}.",
        "",
        "The folder of a job gets its final name only when its files are on the disk, so a folder without `.part` is "
        "complete, even after a power failure. The last row is the time of the disk alone: for each of as many files, "
        "it flushes the file and its folder. The engine flushes two files and their folder for each job.",
    ]


if __name__ == "__main__":
    main()
