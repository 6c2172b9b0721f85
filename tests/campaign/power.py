"""Part "power": power loss after each write, then the command again.

A case replays the first calls of an undisturbed run on a disk that forgets what was not flushed (see ``replay.py``),
writes what is left to a folder, and continues the command there: results and list of files must be those of the
undisturbed run. Every fifth case loses power after the command ended: all results must be there. One case of each
scenario asks the disk what is not flushed then: nothing.
"""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.campaign import shim
from tests.campaign.case import Case, SkipPartError
from tests.campaign.replay import Disk
from tests.campaign.scenario_runs import difference, results
from tests.campaign.scenarios import SCENARIOS, Scenario
from tests.campaign.server import Server
from tests.campaign.undisturbed import continue_and_compare, undisturbed_run

EACH = {"train": 6, "encode": 12, "study": 30, "search": 30, "mine": 30}
"""First word of the scenarios -> cases of each."""
OTHERS = 10


def cases(seed: int) -> Iterator[Case]:
    """Cases of each scenario, on an ordered and an unordered disk in turn."""
    if shim.library() is None:
        raise SkipPartError("needs Linux and a C compiler")
    for scenario in sorted(SCENARIOS.values(), key=lambda one: random.Random(one.name).random()):  # a sample first
        yield Case(scenario.name, f"{scenario.name}, what is not flushed at the end", partial(check_end, scenario))
        for number in range(1, EACH.get(scenario.name.split()[0], OTHERS) + 1):
            name = f"{scenario.name} {number}, {'ordered' if number % 2 else 'unordered'}"
            if number % 5 == 0:
                name += ", after its end"
            yield Case(
                scenario.name,
                name,
                partial(check_loss, scenario, f"{seed} {name}", bool(number % 2), ended=number % 5 == 0),
            )


def check_end(scenario: Scenario, server: Server, shared: Path, folder: Path) -> str:
    """Nothing waits for a flush when the command has ended."""
    whole = undisturbed_run(scenario, server, shared)
    disk = Disk(whole.start, ordered=False)
    for one in whole.calls:
        disk.apply(one, whole.content)
    waiting = disk.not_flushed()
    return f"not flushed at the end: {', '.join(waiting[:9])}" if waiting else ""


def check_loss(
    scenario: Scenario, seed: str, ordered: bool, server: Server, shared: Path, folder: Path, *, ended: bool
) -> str:
    """Lose power at a drawn call or, if ``ended``, after the last one."""
    whole = undisturbed_run(scenario, server, shared)
    draw = random.Random(seed)
    call, after = whole.draw(draw), draw.choice((True, False))
    count = len(whole.calls) if ended else call.number - 1 + after
    disk = Disk(whole.start, ordered=ordered)
    for one in whole.calls[:count]:
        disk.apply(one, whole.content)
    disk.after_power_loss(draw).write_to(folder)
    if ended:
        wrong = difference(results(scenario, folder), whole.results)
        return f"power loss after the end: {wrong}" if wrong else ""
    where = f"power loss {'after' if after else 'before'} call {call.number}, {call.call} {call.path}"
    wrong = continue_and_compare(scenario, whole, server, folder)
    return f"{where}: {wrong}" if wrong else ""
