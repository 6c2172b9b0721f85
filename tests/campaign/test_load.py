"""The checks of the part "load" find what is wrong, and pass where all is well."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest

from tests.campaign import load, load_growth, load_processes

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_names_are_unique_and_what_measures_is_left_out_of_the_short_form() -> None:
    cases = list(load.cases(0))
    assert len({case.name for case in cases}) == len(cases) >= 50
    measured = [case for case in cases if case.group.startswith(("memory", "long run"))]
    assert len(measured) > 8
    assert all(case.campaign_only for case in measured)


def ends(status: int, message: str) -> Callable[[Sequence[str]], int]:
    """A command that writes something else than nearfar to its last argument."""

    def main(arguments: Sequence[str]) -> int:
        Path(arguments[-1]).write_text("other")
        os.write(1, message.encode())  # pytest has replaced sys.stdout
        return status

    return main


@pytest.mark.parametrize(
    ("main", "words"),
    [
        (load_processes.nearfar, ""),
        (ends(0, ""), "the bytes differ"),
        (ends(3, "sorry"), "encode, beside others, ended with status 3: sorry"),
    ],
)
def test_an_output_that_is_not_as_alone_is_found(
    main: Callable[[Sequence[str]], int], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = load_processes.run_together

    def beside_others(commands: Sequence[tuple[Sequence[str], Path]], **_: object) -> object:
        return alone(commands, main=main if len(commands) > 1 else load_processes.nearfar)

    monkeypatch.setattr(load_processes, "run_together", beside_others)
    found = load_processes.four_at_once(["encode", "encode"], one_folder=True, seed=1)
    assert words in found
    assert bool(found) == bool(words)


@pytest.mark.parametrize(
    ("status", "words"), [(2, "says only: cannot"), (1, "ended with status 1"), (0, "the bytes differ")]
)
def test_a_second_writer_without_reason_is_found(
    status: int, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    alone = load_processes.run_together

    def wrong(commands: Sequence[tuple[Sequence[str], Path]], **_: object) -> object:
        return alone(commands, main=ends(status, "cannot") if len(commands) > 1 else load_processes.nearfar)

    monkeypatch.setattr(load_processes, "run_together", wrong)
    assert words in load_processes.same_output("encode", 2, 1)


def test_a_command_that_hangs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(_: Sequence[str]) -> int:
        time.sleep(600)
        return 0

    monkeypatch.setattr(load_processes, "POLLS", 40)
    (ended,) = load_processes.run_together([([], Path.cwd())], main=hangs)
    assert ended.status is None


def test_growth_is_found() -> None:
    flat = [(step, 400.0, 10, 2, 9) for step in range(1, 21)]
    times = [0.01 * step for step in range(1000)]
    assert load_growth.growth(flat, times) == ""
    for late, words in (
        ((20, 500.0, 10, 2, 9), "memory grew from 400 MiB"),
        ((20, 400.0, 11, 2, 9), "open files"),
        ((20, 400.0, 10, 3, 9), "threads"),
        ((20, 400.0, 10, 2, 30), "files on disk"),
    ):
        assert words in load_growth.growth([*flat[:-1], late], times)
    assert "a step took" in load_growth.growth(flat, [0.001 * step**2 for step in range(1000)])


def test_memory_that_grows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter([100.0, 100.0 + load_growth.SLACK_MIB + 1, 100.0, 100.0 + load_growth.SLACK_MIB - 1])
    monkeypatch.setattr(load_growth, "anonymous_mib", lambda process: 0.0)
    assert load_growth.memory_flat("encode", 10, main=lambda _: 0) == ""
    assert "ended with status 5" in load_growth.memory_flat("encode", 10, main=lambda _: 5)
    monkeypatch.setattr(load_growth, "memory_of", lambda *_: (0, next(peaks), ""))
    assert load_growth.memory_flat("encode", 10).startswith("encode takes 100 MiB for 10 lines and 125 MiB for 80")
    assert load_growth.memory_flat("encode", 10) == ""


def test_a_metrics_file_that_is_cut_off_is_found() -> None:
    def write(*parts: bytes) -> int:
        Path("run").mkdir(exist_ok=True)
        with Path("run/metrics.jsonl").open("wb", buffering=0) as stream:
            for step in count():  # until the process is killed
                for part in parts:
                    stream.write(part.replace(b"N", str(step).encode()))
                    time.sleep(0.001)
        return 0

    assert load_growth.metrics_while_written(1, 50, main=lambda _: write(b'{"step": N}\n')) == ""
    Path("run/metrics.jsonl").unlink()
    wrong = load_growth.metrics_while_written(1, 500, main=lambda _: write(b'{"step": ', b"N}\n"))
    assert "in the middle of a line" in wrong
    Path("run/metrics.jsonl").unlink()
    assert "ended with status 4" in load_growth.metrics_while_written(1, 50, main=lambda _: 4)


def test_an_index_that_grows_and_cells_whose_workers_are_killed() -> None:
    assert load_growth.growing_index(4, 1) == ""
    assert load_growth.many_cells(4, 1, 1) == ""
