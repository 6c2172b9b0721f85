"""A few cases of each part of the campaign; `make campaign` runs them all."""

import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path

import pytest

from nearfar.evaluation.results import provenance
from tests.campaign import page, shim
from tests.campaign.__main__ import Outcome, Records, run_case, sample
from tests.campaign.case import PARTS, Case, SkipPartError, cases_of
from tests.campaign.server import Server

pytestmark = [pytest.mark.long, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")]
SEED = 1
COUNTS = {"kills": 10, "power": 8, "faults": 10, "inputs": 150, "equality": 24, "load": 8}
"""Part -> number of cases."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(preload=shim.library(), measure=False) as started:
        yield started


@pytest.mark.parametrize("part", PARTS)
def test_first_cases(part: str, server: Server, tmp_path: Path) -> None:
    try:
        cases = list(islice((case for case in cases_of(part, SEED) if not case.campaign_only), COUNTS[part]))
    except SkipPartError as reason:
        pytest.skip(str(reason))
    outcomes = [run_case(part, case, server, tmp_path) for case in cases]
    assert [(one.name, one.wrong) for one in outcomes if one.wrong] == []
    assert len(outcomes) == COUNTS[part]


def test_a_case_that_fails_or_raises_is_recorded(tmp_path: Path, server: Server) -> None:
    def raises(server: Server, shared: Path, folder: Path) -> str:
        raise ValueError("no")

    def fails(server: Server, shared: Path, folder: Path) -> str:
        return server.command(["encode"], cwd=folder).last_line

    wrong = run_case("kills", Case("group", "raises", raises), server, tmp_path / "shared")
    assert "ValueError('no')" in wrong.wrong
    wrong = run_case("kills", Case("group", "fails", fails), server, tmp_path / "shared")
    assert wrong.wrong == "nearfar encode --help"
    records = Records(tmp_path / "outcomes.jsonl")
    records.add(wrong)
    with (tmp_path / "outcomes.jsonl").open("a") as stream:
        stream.write('{"part": "ki')
    assert Records(tmp_path / "outcomes.jsonl").outcomes == [wrong]


def test_a_sample_is_evenly_spread() -> None:
    cases = [Case("group", str(number), lambda *_: "") for number in range(10)]
    assert [case.name for case in sample(cases, 4)] == ["0", "2", "5", "7"]
    assert sample(cases, None) == sample(cases, 10) == sample(cases, 11) == cases


def test_the_last_outcome_of_a_case_counts(tmp_path: Path) -> None:
    records = Records(tmp_path / "outcomes.jsonl")
    failed = Outcome("kills", "encode", "encode 1", "no vectors", 1.0, "aaa")
    mended = replace(failed, wrong="", commit="bbb")
    for outcome in (failed, mended):
        records.add(outcome)
    assert records.outcomes == Records(tmp_path / "outcomes.jsonl").outcomes == [mended]


def test_the_page_counts_the_cases_of_each_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(page, "PAGE", tmp_path / "reliability.md")
    monkeypatch.setattr(page, "provenance", lambda: replace(provenance(), commit="bbb"))
    wrong = f"a | b in {tmp_path}/case-x/out; see {tmp_path}/nearfar-bug-x.log"
    outcomes = [
        asdict(Outcome("kills", "encode", f"encode {number}", what, 30.0, commit))
        for number, (what, commit) in enumerate([("", "aaa"), (wrong, "aaa"), ("", "bbb")])
    ]
    page.write_result("after", outcomes, {}, seed=3)
    page.write_page()
    text = (tmp_path / "reliability.md").read_text(encoding="utf-8")
    assert "3 cases, 1 failed; 2 minutes of cases, seed 3. Commits `aaa` (2 cases), `bbb` (1 cases)" in text
    assert "| kills | encode | 3 | 1 |" in text
    assert "a \\| b in out; see nearfar-bug-x.log" in text
    with pytest.raises(SystemExit, match="uncommitted"):
        page.write_result("after", [{**outcomes[0], "commit": "aaa-dirty"}], {}, seed=3)


def test_a_server_reports_how_a_fork_ended(server: Server, tmp_path: Path) -> None:
    done = server.command(["env"], cwd=tmp_path)
    assert done.status == 0
    assert "torch" in done.output
    assert server.command(["no-such-verb"], cwd=tmp_path).status == 2
    assert server.function("os:getcwd", {}, cwd=tmp_path).result == str(tmp_path.resolve())
    assert server.function("os:abort", {}, cwd=tmp_path).status == -6
    assert "ModuleNotFoundError" in server.function("nowhere:nothing", {}, cwd=tmp_path).output
