"""The checks of the part inputs fail on readers and commands that are wrong on purpose."""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nearfar.types import NearfarError
from tests.campaign import doors, input_flags, plain_loaders, plain_readers, verdicts
from tests.campaign.inputs import cases
from tests.campaign.mutations import BYTES, TEXT
from tests.campaign.mutations_json import JSON
from tests.campaign.mutations_toml import TOML
from tests.campaign.plain_readers import RefusedError, UnclearError
from tests.campaign.server import Done, Server

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")]


def wait_for_ever() -> None:
    """Open a pipe that nobody writes."""
    os.mkfifo("pipe")
    Path("pipe").read_bytes()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


def test_a_fork_that_waits_is_killed_and_reported(server: Server, tmp_path: Path) -> None:
    done = server.function("tests.campaign.test_inputs:wait_for_ever", {}, cwd=tmp_path, wall_seconds=1)
    assert done.timed_out
    assert "waited until it was killed" in verdicts.how_it_ended(done)
    done = server.function("os:getcwd", {}, cwd=tmp_path, wall_seconds=3600)
    assert (done.timed_out, done.status) == (False, 0)
    assert verdicts.how_it_ended(done) == ""


def _refuse() -> Any:
    raise NearfarError("a.tsv: refused.")


def _refused() -> Any:
    raise RefusedError("no")


def _unclear() -> Any:
    raise UnclearError("open", [1])


@pytest.mark.parametrize(
    ("reader", "plain", "difference"),
    [
        (lambda: [("a",)], lambda: [("a",)], ""),
        (lambda: [("a",)], lambda: [("a",), ("b",)], "1 rows, but the plain reader finds 2"),
        (lambda: [("a",)], lambda: [("b",)], "row 0 is"),
        (lambda: [(1,)], lambda: [(1.0,)], "row 0 is"),
        (lambda: [(True,)], lambda: [(1,)], "row 0 is"),
        (lambda: [(float("nan"),)], lambda: [(float("nan"),)], ""),
        (lambda: {"a": [1]}, lambda: {"a": [2]}, "a: row 0 is"),
        (lambda: {"a": 1}, lambda: {"b": 1}, "the keys are"),
        (lambda: [], _refused, "accepted, but the plain reader refuses it"),
        (_refuse, lambda: [], "refused, but the plain reader accepts it"),
        (_refuse, _refused, ""),
        (_refuse, _unclear, ""),
        (lambda: [2], _unclear, "row 0 is"),
    ],
)
def test_a_reader_that_differs_from_the_plain_one_is_found(reader: Any, plain: Any, difference: str) -> None:
    found = doors.compare(reader, plain)["difference"]
    assert found.startswith(difference)
    assert bool(found) == bool(difference)


def _done(status: int = 2, output: str = "nearfar: a.tsv: is empty.\n", **changes: Any) -> Done:
    return Done(**{"status": status, "output": output, "seconds": 1, "peak_mib": 500, **changes})


@pytest.mark.parametrize(
    ("done", "problem"),
    [
        (_done(), ""),
        (_done(0, ""), ""),
        (_done(1), "exit status 1"),
        (_done(70), "exit status 70"),
        (_done(-11), "signal 11"),
        (_done(seconds=25), "25 seconds"),
        (_done(peak_mib=3000), "3,000 MiB"),
        (_done(2, "Traceback (most recent call last):\nValueError: no"), "raised: ValueError: no"),
        (_done(2, ""), "without an error message"),
        (_done(2, "nearfar: it is empty."), "does not name a.tsv"),
        (_done(2, "nearfar: a.tsv: ValueError: no."), "the name of a class"),
        (_done(2, "nearfar: a.tsv: Error -3."), "the name of a class"),
        (_done(2, "nearfar: a.tsv: <object at 0x7f0011223344>."), "at 0x7f"),
        (_done(2, "nearfar: a.tsv: \x1b[31m."), "contains '\\x1b'"),
        (_done(2, "nearfar: a.tsv: " + "x" * 9999), "characters"),
        (_done(2, "nearfar: a.tsv: this is a bug in nearfar"), "reported as a bug"),
        (_done(2, "nearfar: a.tsv: no.\nmore\nmore\nmore"), "4 lines"),
        (_done(2, "nearfar: a.tsv: no. Tried:\none\ntwo\nthree\nfour"), ""),
        (_done(2, "╭─ Parsing error ─╮\n│ Argument a.tsv │\n╰──╯"), ""),
    ],
)
def test_verdicts_of_commands(done: Done, problem: str) -> None:
    found = verdicts.of_command(done, ["a.tsv"])
    assert problem in found
    assert bool(found) == bool(problem)


def test_verdicts_of_readers() -> None:
    assert "lost" in verdicts.of_reader(_done(0, result={"error": None, "difference": "a row is lost"}), ["a"])
    assert "does not name" in verdicts.of_reader(_done(0, result={"error": "empty", "difference": ""}), ["a.tsv"])
    assert verdicts.of_reader(_done(0, result={"error": "a.tsv: empty", "difference": ""}), ["a.tsv"]) == ""


def test_plain_readers_read_what_the_documentation_promises(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_bytes(b'\xef\xbb\xbftext\tlabel\r\n\r\n"a\tb"\n')
    assert plain_readers.rows(file, ("label", "text")) == [('b"', '"a')]
    file = tmp_path / "a.csv"
    file.write_bytes(b'text,label\n"a\nb",c\n')
    assert plain_readers.rows(file, ("text",)) == [("a\nb",)]
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a", "text": "b"}\n')
    with pytest.raises(RefusedError, match="twice"):
        plain_readers.rows(file, ("text",))
    file = tmp_path / "a.txt"
    file.write_bytes(b"a\r\n\n b\x85\xe2\x80\xa8".replace(b"\x85", b"\xc2\x85"))
    assert plain_readers.lines(file) == ["a", "", " b\x85\u2028"]
    assert plain_loaders.normalized(" a\x00\u2028b ") == "a b"
    for value in ("nan", "1_0", "", True, None, "١", 10**400):
        with pytest.raises(RefusedError):
            plain_loaders.number(value)
    assert [plain_loaders.label(value) for value in (True, "FALSE", 1.0, "1.0", " a ")] == [
        "true",
        "false",
        "1",
        "1",
        "a",
    ]


TABLES = {"TEXT": TEXT, "BYTES": BYTES, "JSON": JSON, "TOML": TOML}
DOCUMENTS = {
    "TEXT": b"text\tlabel\n" + b"a dog\twarm\n" * 9,
    "BYTES": b"text\tlabel\n" + b"a dog\twarm\n" * 9,
    "JSON": b'{"a": {"b": [1, 2.5, "c"], "d": "e"}, "f": 3}',
    "TOML": b'method = "scl"\nseed = 1\n',
}


@pytest.mark.parametrize("table", DOCUMENTS)
def test_each_change_changes_the_file_and_is_repeatable(table: str) -> None:
    content = DOCUMENTS[table]
    for name, change in TABLES[table].items():
        found = [change(content, Random(seed)) for seed in range(9)]
        assert any(one != content for one in found), name
        assert found == [change(content, Random(seed)) for seed in range(9)], name


def test_values_of_a_wrong_type_must_be_refused() -> None:
    flags = {flag.name: flag for flag in input_flags._flags(input_flags._class_of("evaluate"))}
    for name, value, refused in (
        ("--seed", "x", True),
        ("--seed", "1.5", True),
        ("--seed", "1", False),
        ("--probe-learning-rate", "1e400", True),
        ("--probe-learning-rate", "nan", True),
        ("--probe-learning-rate", "0.1", False),
        ("--suite", "no-such", True),
        ("--suite", "none", False),
        ("--device", "a\0", True),
        ("--subsets", "true", True),
    ):
        assert input_flags.must_be_refused(flags[name], value) == refused, (name, value)


def test_cases_are_many_and_the_same_with_the_same_seed() -> None:
    names = [case.name for case in cases(3)]
    assert len(names) == len(set(names)) >= 10_000
    assert names == [case.name for case in cases(3)]
    assert len({case.group for case in cases(3)}) >= 60
