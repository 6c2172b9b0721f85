"""The checks of the parts "kills" and "power" fail for commands that write in the wrong way."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaign import kills, power, shim, undisturbed
from tests.campaign.case import cases_of
from tests.campaign.scenario_runs import prepared
from tests.campaign.scenarios import Scenario
from tests.campaign.server import Done, Server
from tests.campaign.trace import settings
from tests.campaign.wrong_writers import HEAD, WRITERS

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(shim.library() is None, reason="needs Linux and a C compiler")]
EXECUTE = "tests.campaign.wrong_writers:execute"
SCENARIO = Scenario("toy", "", "", "out*")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(preload=shim.library()) as started:
        yield started


def check(writer: str, part: str, server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the cases of a part say of a command that is a small program."""

    def run(arguments: str, server: Server, cwd: Path, shim: dict[str, str] | None = None) -> Done:
        return server.function(EXECUTE, {"program": HEAD + WRITERS[writer]}, cwd=cwd, shim=shim)

    def start(scenario: Scenario, server: Server, shared: Path, place: Path) -> None:
        place.mkdir(exist_ok=True)

    for module in (kills, undisturbed):
        monkeypatch.setattr(module, "run", run)
        monkeypatch.setattr(module, "start_state", start)
    found, ended = [], part == "power at the end"
    for number in range(14):
        place = folder / f"case-{number}"
        place.mkdir()
        found.append(
            kills.check_one(SCENARIO, f"{number}", server, folder / "shared", place)
            if part == "kills"
            else power.check_loss(
                SCENARIO,
                f"{number}",
                bool(number % 2),
                server,
                folder / "shared",
                place,
                ended=ended,
            )
        )
    return [wrong for wrong in found if wrong]


@pytest.mark.parametrize(
    ("writer", "part", "sentence"),
    [
        ("right", "kills", ""),
        ("right", "power", ""),
        ("right", "power at the end", ""),
        ("without rename", "kills", "half-written: out"),
        ("random name", "kills", "files are left: tmp"),
        ("other content", "kills", "results differ from the undisturbed run: different: out"),
        ("without flush", "power", "it cannot be continued (status 2)"),
        ("without flush", "power at the end", "different: out"),
        ("name not flushed", "power at the end", "missing: out"),
    ],
)
def test_a_wrong_writer_is_found(
    writer: str, part: str, sentence: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = check(writer, part, server, tmp_path, monkeypatch)
    if sentence:
        assert [wrong for wrong in found if sentence in wrong], found
    else:
        assert found == []


def test_the_list_of_cases() -> None:
    listed = list(cases_of("kills", 1))
    assert len({case.name for case in listed}) == len(listed)
    verbs = [case.group.split()[0] for case in listed]
    assert min(verbs.count("train"), verbs.count("encode")) >= 200
    assert all(verbs.count(verb) >= 50 for verb in ("finetune", "study", "mine", "search", "back-translate", "dedup"))
    listed = list(cases_of("power", 1))
    assert len({case.name for case in listed}) == len(listed)
    assert sum(case.group.split()[0] in power.EACH for case in listed) >= 150


def test_two_thirds_of_the_kills_are_at_flushes_renames_and_deletions(tmp_path: Path, server: Server) -> None:
    def make(place: Path) -> None:
        variables = settings(place / "work", log=place / "log")
        (place / "work").mkdir()
        done = server.function(EXECUTE, {"program": HEAD + WRITERS["right"]}, cwd=place / "work", shim=variables)
        assert done.status == 0

    calls = undisturbed.read_log(prepared(tmp_path / "traced", make) / "log")
    whole = undisturbed.Undisturbed(tmp_path, calls, tmp_path, {}, frozenset(), {})
    draw = random.Random(0)
    drawn = [whole.draw(draw).kind for _ in range(600)]
    assert 370 < sum(kind in undisturbed.COMMITS for kind in drawn) < 430
    assert set(drawn) == {"sync", "rename", "create", "write"}
