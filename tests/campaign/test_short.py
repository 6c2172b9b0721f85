"""A few cases of each part of the campaign; `make campaign` runs them all."""

import os
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from tests.campaign import kills, shim
from tests.campaign.case import Case, SkipPartError, cases_of, run_case
from tests.campaign.scenarios import SCENARIOS, start_state, undisturbed
from tests.campaign.server import Server

pytestmark = [pytest.mark.long, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")]
SEED = 1
BY_DAY = {"kills": 3, "faults": 3, "inputs": 12}
"""Part -> number of cases."""
GROUPS = ("train scl", "encode npy", "encode shards")
"""The groups of kills and faults by day."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(preload=shim.library()) as started:
        yield started


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


def some_cases(part: str) -> list[Case]:
    try:
        every = cases_of(part, SEED)
        return list(islice((one for one in every if part == "inputs" or one.group in GROUPS), BY_DAY[part]))
    except SkipPartError as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("part", BY_DAY)
def test_first_cases(part: str, server: Server, shared: Path) -> None:
    found = {case.name: run_case(case, server, shared) for case in some_cases(part)}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    assert len(found) == BY_DAY[part]


@pytest.mark.skipif(shim.library() is None, reason="needs Linux and a C compiler")
def test_a_checkpoint_stands_whenever_a_run_is_killed(server: Server, shared: Path, tmp_path: Path) -> None:
    """The old one is deleted only when the new one has its name."""
    scenario = SCENARIOS["train scl"]
    whole = undisturbed(scenario, server, shared)
    first, second, *_ = [call for call in whole.calls if call.kind == "rename" and call.path2 == scenario.kept]
    between = [call for call in whole.calls[first.number : second.number] if call.kind in ("rename", "unlink")]
    assert between[-1] == second
    for call in between[-4:]:
        folder = tmp_path / str(call.number)
        start_state(scenario, server, shared, folder)
        assert kills.kill(scenario, whole, call, "after", server, folder) == "", call


def test_a_server_reports_how_a_fork_ended(server: Server, tmp_path: Path) -> None:
    call = partial(server.function, arguments={}, cwd=tmp_path)
    assert server.command(["no-such-verb"], cwd=tmp_path).status == 2
    assert call("os:getcwd").result == str(tmp_path.resolve())
    assert call("os:abort").status == -6
    assert "ModuleNotFoundError" in call("nowhere:nothing").output
