"""The undisturbed run of a scenario, traced: its calls, its results, and each whole version that a result file had."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path

from tests.campaign.replay import Disk
from tests.campaign.scenario_runs import comparable, difference, prepared, results, run, start_state
from tests.campaign.scenarios import Scenario
from tests.campaign.server import Server
from tests.campaign.trace import Call, read_log, settings

COMMITS = ("sync", "rename", "unlink")
CHANGES = ("create", "write", "truncate", "mkdir", "link")


@dataclass(frozen=True)
class Undisturbed:
    """A run without faults.

    ``start``: the folder before. ``calls``: what it did. ``content``: the bytes of its writes. ``results``: see
    ``scenarios.results``. ``paths``: every file and folder that it left. ``versions``: name of a result file -> its
    whole versions: that of the start, and each that a rename made visible.
    """

    start: Path
    calls: Sequence[Call]
    content: Path
    results: Mapping[str, bytes]
    paths: frozenset[str]
    versions: Mapping[str, frozenset[bytes]]

    def draw(self, draw: random.Random) -> Call:
        """A call that changes files: two thirds flushes, renames, deletions, one third writes and new files."""
        kinds = COMMITS if draw.random() < 2 / 3 else CHANGES
        return draw.choice([call for call in self.calls if call.kind in kinds])


def undisturbed_run(scenario: Scenario, server: Server, shared: Path) -> Undisturbed:
    """The undisturbed run, traced once in the folder of the part.

    Raises:
        RuntimeError: it fails.
    """

    def make(place: Path) -> None:
        for name in ("start", "work", "bytes"):
            (place / name).mkdir()
        start_state(scenario, server, shared, place / "start")
        start_state(scenario, server, shared, place / "work")
        variables = settings(place / "work", log=place / "log", content=place / "bytes")
        done = run(scenario.arguments, server, place / "work", variables)
        if done.status != 0:
            raise RuntimeError(f"nearfar {scenario.arguments}: {done.status}: {done.output}")

    return _read(scenario, prepared(shared / "traced" / scenario.name, make))


@lru_cache(maxsize=64)
def _read(scenario: Scenario, place: Path) -> Undisturbed:
    calls = read_log(place / "log")
    found = results(scenario, place / "work")
    versions = _versions(scenario, calls, place, found)
    return Undisturbed(place / "start", calls, place / "bytes", found, paths_of(place / "work"), versions)


def _versions(
    scenario: Scenario, calls: Sequence[Call], place: Path, names: Mapping[str, bytes]
) -> dict[str, frozenset[bytes]]:
    disk = Disk(place / "start", ordered=False)
    found = {name: {content} for name, content in names.items()}
    seen: dict[str, object] = {}
    for call in (None, *calls):
        if call is not None:
            disk.apply(call, place / "bytes")
        if call is not None and call.kind not in ("rename", "close"):
            continue
        for name in names:
            node = disk.file_at(name)
            if node is not None and node is not seen.get(name) and (call is None or call.kind == "rename"):
                found[name].add(comparable(name, node.content()))
            seen[name] = node
    return {name: frozenset(contents) for name, contents in found.items()}


def paths_of(folder: Path) -> frozenset[str]:
    """All files and folders, relative."""
    return frozenset(str(path.relative_to(folder)) for path in folder.rglob("*"))


def damaged_results(scenario: Scenario, whole: Undisturbed, folder: Path) -> Iterator[str]:
    """The result files in ``folder`` that are no whole version of themselves, unless they grow under their names."""
    for name, content in results(scenario, folder).items():
        grows = any(fnmatch(name, pattern.replace("**", "*")) for pattern in scenario.growing.split())
        if name in whole.versions and not grows and content not in whole.versions[name]:
            yield name


def continue_and_compare(scenario: Scenario, whole: Undisturbed, server: Server, folder: Path) -> str:
    """Run the command again, as its user would, until it is done; say how the folder differs from the undisturbed one.

    A command with ``--resume`` is run with it, then without it if there was nothing to continue. A command that refuses
    both is right only if all results are there already.
    """
    done = run(scenario.continued, server, folder)
    if done.status != 0 and scenario.continued != scenario.arguments:
        again = run(scenario.arguments, server, folder)
        done = again if again.status == 0 else done
    if "Traceback" in done.output:
        return f"it was continued with a traceback: {done.last_line}"
    found = results(scenario, folder)
    if done.status != 0 and found != whole.results:
        return f"it cannot be continued (status {done.status}): {done.last_line}"
    if found != whole.results:
        return f"results differ from the undisturbed run: {difference(found, whole.results)}"
    if paths_of(folder) != whole.paths:
        extra, missing = paths_of(folder) - whole.paths, whole.paths - paths_of(folder)
        return f"files are left: {', '.join(sorted(extra))}" if extra else f"missing: {', '.join(sorted(missing))}"
    return ""
