"""The checks of part faults find what is wrong, and the scenarios behind them compare what they should."""

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.campaign import shim
from tests.campaign.case import cases_of
from tests.campaign.faults import ERRORS, State, check_call, chosen, names_a_file, traced
from tests.campaign.scenario_runs import comparable, contents, difference, run, start_state, undisturbed
from tests.campaign.scenarios import SCENARIOS
from tests.campaign.server import Done, Server
from tests.campaign.trace import Call

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(shim.library() is None or not hasattr(os, "fork"), reason="needs Linux and a C compiler"),
]
SCENARIO = SCENARIOS["get-data"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(preload=shim.library()) as started:
        yield started


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


def ended(status: int, output: str) -> Done:
    return Done(status, output, 0, 0)


def test_a_command_that_failed_is_judged_by_its_files_status_and_message(
    server: Server, shared: Path, tmp_path: Path
) -> None:
    state = State(SCENARIO, server, shared, tmp_path)
    right = ended(2, "nearfar: out/senteval: cannot be written (No space left on device).")
    assert state.wrong_after(right) == ""
    assert "status 0, but missing: out/" in state.wrong_after(ended(0, "done"))
    assert "names no file" in state.wrong_after(ended(2, "nearfar: No space left on device."))
    command = f"nearfar {SCENARIO.arguments}"
    assert "names no file" in state.wrong_after(ended(2, f"nearfar: {command}: no space is left."))
    assert "status 70" in state.wrong_after(ended(70, "nearfar: out: OSError"))
    assert "status -9" in state.wrong_after(ended(-9, "nearfar: out: OSError"))
    assert "traceback" in state.wrong_after(ended(2, "Traceback (most recent call last)\nout: OSError"))

    half = tmp_path / "out" / "senteval"
    half.mkdir(parents=True)
    (half / "MR.tsv").write_text("label\ttext\n")  # as by a command that writes without renaming
    assert state.wrong_after(right).startswith("half-written or lost: out/senteval/MR.tsv")
    (half / "MR.tsv").unlink()
    (half / ".MR.tsv.new").write_text("label\ttext\n")
    assert state.wrong_after(right) == ""
    assert "left over: out/senteval/.MR.tsv.new" in state.wrong_again(right)
    assert state.wrong_again(right, kept="out/senteval/.MR.tsv.new") == ""

    source = next((tmp_path / "download").rglob("rt-polarity.pos"))
    source.write_bytes(source.read_bytes()[:-1])
    assert "half-written or lost: download/" in state.wrong_after(right)


def test_a_command_that_cannot_go_on_is_found(server: Server, shared: Path, tmp_path: Path) -> None:
    state = State(replace(SCENARIO, resume="get-data nowhere"), server, shared, tmp_path)
    assert state.wrong_again(ended(2, "out: cannot be written")) == ""  # the command itself does
    state = State(replace(SCENARIO, arguments="get-data nowhere"), server, shared, tmp_path / "other")
    assert "then, without a fault, status 2: nearfar: nowhere" in state.wrong_again(ended(2, "out: no"))


def test_a_call_fails_in_the_command(server: Server, shared: Path, tmp_path: Path) -> None:
    calls = traced(SCENARIO, server, shared)
    rename = next(call for call in calls if call.kind == "rename")
    start_state(SCENARIO, server, shared, tmp_path)
    done = run(SCENARIO.arguments, server, tmp_path, {"SHIM_ROOT": str(tmp_path), "SHIM_FAIL": f"{rename.number}:EIO"})
    assert done.status == 2
    assert "Input/output error" in done.output
    assert check_call(SCENARIO, "a seed", 3, server, shared, tmp_path / "case") == ""


def test_every_kind_of_error_has_its_turn(server: Server, shared: Path) -> None:
    calls = traced(SCENARIO, server, shared)
    pairs = [chosen(SCENARIO, calls, random.Random(number), number) for number in range(60)]
    kinds = {call.kind for call in calls if call.result >= 0} & ERRORS.keys()
    assert {call.kind for call, _ in pairs} == kinds
    expected = {(kind, error) for kind in kinds for error in ERRORS[kind]}
    assert {(call.kind, error) for call, error in pairs} == expected
    stdio = Call(1, "write", "fwrite", 1, "x", "", 1, 0, 100, 100)
    assert {chosen(SCENARIO, [stdio], random.Random(n), n)[1] for n in range(60)}.isdisjoint({"short", "EINTR"})


def test_names_of_files_in_messages() -> None:
    names = {"out/model/config.json", "data.tsv"}
    for message in ("out: no", "x 'data.tsv' x", "(folder/1/out/model)", ".out.abc/folder: no", "out.partial/1.npy: x"):
        assert names_a_file(message, names), message
    for message in ("nothing", "output: no", "without data", "about: x"):
        assert not names_a_file(message, names), message


def test_cases_have_names_of_their_own_and_cover_all_scenarios() -> None:
    cases = list(cases_of("faults", 0))
    assert len(cases) == len({case.name for case in cases}) >= 1500
    assert {case.group for case in cases} == set(SCENARIOS)
    assert [case.name for case in cases_of("faults", 0)] == [case.name for case in cases]


@pytest.mark.parametrize(("name", "flag", "other"), [("static", "--dim 8", "--dim 9"), ("train scl", "1e-3", "2e-3")])
def test_another_run_is_equal_and_another_setting_is_not(
    name: str, flag: str, other: str, server: Server, shared: Path, tmp_path: Path
) -> None:
    scenario = SCENARIOS[name]
    expected = undisturbed(scenario, server, shared)
    for folder, arguments in (("same", scenario.arguments), ("other", scenario.arguments.replace(flag, other))):
        start_state(scenario, server, shared, tmp_path / folder)
        assert run(arguments, server, tmp_path / folder).status == 0
    assert difference(contents(tmp_path / "same"), expected) == ""
    assert "different: out/" in difference(contents(tmp_path / "other"), expected)


def test_only_clocks_paths_and_the_commit_are_not_compared() -> None:
    one = b'{"seconds": 1.5, "items_per_second": 2, "loss": 1.0, "date": "2026-01-01T00:00:00+00:00", "commit": null}'
    other = b'{"seconds": 2.5, "items_per_second": 3, "loss": 1.0, "date": "2027-01-01T00:00:00+00:00", "commit": "a"}'
    assert comparable("x.json", one) == comparable("x.json", other)
    assert comparable("x.json", one) != comparable("x.json", other.replace(b"1.0", b"1.1"))
    assert comparable("x.tsv", one) == one
    assert comparable("x.toml", b'output = "/a/b/out/cells/1"') == comparable("x.toml", b'output = "/c/out/cells/1"')
    assert comparable("x.toml", b'output = "/a/b/out/cells/1"') != comparable("x.toml", b'output = "/a/b/out/cells/2"')
