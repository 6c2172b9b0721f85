"""Part "kills": SIGKILL before and after a call that changes files, then the command again.

A case kills the command at a drawn call, or three times in a row. No file may be half-written under its name, and what
a scenario keeps must stand; after the command was continued, all files are those of the undisturbed run.
"""

import os
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.campaign import shim
from tests.campaign.case import Case, SkipPartError
from tests.campaign.scenarios import (
    SCENARIOS,
    Scenario,
    Undisturbed,
    contents,
    difference,
    half_written,
    run,
    run_again,
    start_state,
    undisturbed,
)
from tests.campaign.server import Server
from tests.campaign.shim import Call, settings
from tests.campaign.verdicts import error_of

COMMITS, CHANGES = ("sync", "rename", "unlink"), ("create", "write", "truncate", "mkdir", "link")
EACH = {"encode": 50, "study": 50, "finetune": 50}
"""First word of a scenario -> its cases."""
OTHERS = 15


def cases(seed: int) -> Iterator[Case]:
    """Cases of each scenario; every tenth kills three times."""
    if shim.library() is None:
        raise SkipPartError("needs Linux and a C compiler")
    for scenario in SCENARIOS.values():
        for number in range(1, EACH.get(scenario.name.split()[0], OTHERS) + 1):
            times = 3 if number % 10 == 0 else 1
            name = f"{scenario.name} {number}" + ", three kills" * (times == 3)
            yield Case(scenario.name, name, partial(check, scenario, f"{seed} {name}", times))


def drawn(calls: list[Call], draw: random.Random) -> Call:
    """A call that changes files: two thirds flushes, renames, deletions, one third writes and new files."""
    kinds = COMMITS if draw.random() < 2 / 3 else CHANGES
    return draw.choice([call for call in calls if call.kind in kinds])


def check(scenario: Scenario, seed: str, times: int, server: Server, shared: Path, folder: Path) -> str:
    """Kill a number of times, the first time at a call that the undisturbed run made too; then continue."""
    whole, draw = undisturbed(scenario, server, shared), random.Random(seed)
    call, moment = drawn(whole.calls, draw), draw.choice(("before", "after"))
    start_state(scenario, server, shared, folder)
    if wrong := kill(scenario, whole, call, moment, server, folder):
        return f"killed {moment} {call}: {wrong}"
    for _ in range(times - 1):  # a run that was continued may end before its kill
        later = max(1, draw.choice(whole.calls).number // draw.choice((1, 2)))
        done = run(scenario.continued, server, folder, settings(folder, kill=f"before:{later}"))
        if done.status not in (-9, 0, 2):
            return f"killed {moment} {call}, then at call {later}: status {done.status}: {done.last_line}"
    wrong = continue_and_compare(scenario, whole, server, folder)
    return f"killed {moment} {call}: {wrong}" if wrong else ""


def kill(scenario: Scenario, whole: Undisturbed, call: Call, moment: str, server: Server, folder: Path) -> str:
    """What is wrong after a kill: it was not killed, a file is half-written, or what must stand is gone."""
    done = run(scenario.arguments, server, folder, settings(folder, kill=f"{moment}:{call.number}"))
    if done.status != -9:
        return f"it ended with status {done.status}: {done.last_line}"
    if wrong := half_written(scenario, contents(folder), whole):
        return wrong
    versions = [one.number for one in whole.calls if one.kind == "rename" and one.path2 == scenario.kept]
    if versions and versions[0] < call.number <= versions[-1] and not is_kept(folder / scenario.kept, whole):
        return f"no version of {scenario.kept} is left"
    return ""


def is_kept(kept: Path, whole: Undisturbed) -> bool:
    """Whether a folder, or what a kill between two renames leaves of it, has all files that the run deletes from it."""
    places = [kept, kept.with_name(f".{kept.name}.old")]
    gone = [Path(one.path) for one in whole.calls if one.kind == "unlink"]
    names = {path.name for path in gone if path.parent.name in (place.name for place in places)}
    return any(place.is_dir() and names <= set(os.listdir(place)) for place in places)


def continue_and_compare(scenario: Scenario, whole: Undisturbed, server: Server, folder: Path) -> str:
    """Run the command again, until it is done; how the folder then differs from that of the undisturbed run.

    A command that refuses to run is right only if all results are there already.
    """
    done = run_again(scenario, server, folder)
    if "Traceback" in done.output:
        return f"it was continued with a traceback: {done.last_line}"
    if wrong := difference(contents(folder), whole.files):
        refused = f"it cannot be continued (status {done.status}): {error_of(done)}; " if done.status else ""
        return f"{refused}{wrong}"
    return ""
