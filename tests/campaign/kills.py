"""Part "kills": SIGKILL before and after a call that changes files, then the command again.

A case kills the command at a drawn call, or three times in a row at random moments. No result file may be half-written
under its name; after the command was continued, results and the list of files are those of the undisturbed run.
"""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.campaign import shim
from tests.campaign.case import Case, SkipPartError
from tests.campaign.scenario_runs import run, start_state
from tests.campaign.scenarios import SCENARIOS, Scenario
from tests.campaign.server import Server
from tests.campaign.trace import settings
from tests.campaign.undisturbed import continue_and_compare, damaged_results, undisturbed_run

TOTALS = {"train": 200, "encode": 200}
"""First word of the scenarios -> cases, shared by all of them."""
EACH = dict.fromkeys(("finetune", "study", "mine", "search", "back-translate", "dedup"), 50)
"""Scenario -> cases."""
OTHERS = 10


def cases(seed: int) -> Iterator[Case]:
    """Cases of each scenario; every tenth kills three times."""
    if shim.library() is None:
        raise SkipPartError("needs Linux and a C compiler")
    for scenario in sorted(SCENARIOS.values(), key=lambda one: random.Random(one.name).random()):  # a sample first
        for number in range(1, count_of(scenario) + 1):
            check = check_three if number % 10 == 0 else check_one
            name = f"{scenario.name} {number}" + (", three kills" if number % 10 == 0 else "")
            yield Case(scenario.name, name, partial(check, scenario, f"{seed} {name}"))


def count_of(scenario: Scenario) -> int:
    """The number of cases of a scenario."""
    verb = scenario.name.split()[0]
    if verb in TOTALS:
        return -(-TOTALS[verb] // sum(one.split()[0] == verb for one in SCENARIOS))
    return EACH.get(scenario.name, OTHERS)


def check_one(scenario: Scenario, seed: str, server: Server, shared: Path, folder: Path) -> str:
    """Kill once, at a call that the undisturbed run made too."""
    whole = undisturbed_run(scenario, server, shared)
    draw = random.Random(seed)
    call, moment = whole.draw(draw), draw.choice(("before", "after"))
    where = f"killed {moment} call {call.number}, {call.call} {call.path}{call.path2 and ' ' + call.path2}"
    start_state(scenario, server, shared, folder)
    done = run(scenario.arguments, server, folder, settings(folder, kill=f"{moment}:{call.number}"))
    if done.status != -9:
        return f"{where}: it ended with status {done.status} and was not killed: {done.last_line}"
    if damaged := list(damaged_results(scenario, whole, folder)):
        return f"{where}: half-written: {', '.join(damaged)}"
    wrong = continue_and_compare(scenario, whole, server, folder)
    return f"{where}: {wrong}" if wrong else ""


def check_three(scenario: Scenario, seed: str, server: Server, shared: Path, folder: Path) -> str:
    """Kill three times; a run that was continued may end before its kill, and is refused if it is finished."""
    whole = undisturbed_run(scenario, server, shared)
    draw = random.Random(seed)
    start_state(scenario, server, shared, folder)
    ends: list[int] = []
    for _ in range(3):
        call = max(1, draw.choice(whole.calls).number // draw.choice((1, 2)))
        for arguments in (scenario.continued, scenario.arguments) if ends else (scenario.arguments,):
            done = run(arguments, server, folder, settings(folder, kill=f"before:{call}"))
            if done.status != 2:
                break
        ends.append(call)
        if done.status not in (-9, 0, 2):
            return f"killed at calls {ends}: status {done.status}: {done.last_line}"
    wrong = continue_and_compare(scenario, whole, server, folder)
    return f"killed at calls {ends}: {wrong}" if wrong else ""
