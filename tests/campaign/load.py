"""Load: several commands at once, memory that stays flat, long runs, and folders that grow in many small steps.

The cases are drawn here, from their names and the seed; the modules ``load_*`` run them in forks.
"""

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.campaign.case import Case, SkipPartError
from tests.campaign.server import HOUR, Server

VERBS = ("train", "encode", "mine", "search", "dedup", "evaluate")
MEMORY = {
    "encode": (32_768, 131_072),
    "search": (32_768, 131_072),
    "mine": (32_768, 131_072),
    "dedup": (16_384,),  # all pairs are compared
    "evaluate": (65_536,),
}
"""Verb -> numbers of lines; the memory is compared with that for 8 times as many."""


def cases(seed: int) -> Iterator[Case]:
    """About 60 cases; those that look at the memory and the clock are left out of the short form."""
    if not sys.platform.startswith("linux"):
        raise SkipPartError("reads /proc")
    for number in range(12):
        where = "one folder" if number % 2 == 0 else "folders of their own"
        name = f"four at once in {where} {number}"
        draw = _draw(name, seed)
        verbs = ["train", "encode", "mine", "search"] if number < 6 else draw.choices(VERBS, k=4)
        given = {"verbs": verbs, "one_folder": number % 2 == 0, "seed": draw.randrange(2**31)}
        yield _case(f"four commands in {where}", name, "processes:four_at_once", given)
    for verb in VERBS:
        for number in range(5):
            name = f"{verb} writes the output of another {number}"
            draw = _draw(name, seed)
            given = {"verb": verb, "writers": draw.choice((2, 2, 3, 4)), "seed": draw.randrange(2**31)}
            yield _case(f"same output {verb}", name, "processes:same_output", given)
    for number, additions in enumerate((10, 20, 200)):
        name = f"index that grows {additions} times"
        given = {"additions": additions, "seed": _draw(name, seed).randrange(2**31)}
        yield _case("index that grows", name, "growth:growing_index", given, campaign_only=number > 0)
    for reads in (100, 1000):  # then the run is killed
        name = f"metrics.jsonl read {reads} times"
        yield _case("metrics while written", name, "growth:metrics_while_written", {"steps": 10_000, "reads": reads})
    for cells, deaths in ((30, 1), (300, 12)):
        name = f"{cells} cells of which {deaths} kill their worker"
        given = {"cells": cells, "deaths": deaths, "seed": _draw(name, seed).randrange(2**31)}
        yield _case("cells", name, "growth:many_cells", given, campaign_only=cells > 30)
    for verb, sizes in MEMORY.items():
        for lines in sizes:
            name = f"memory of {verb} for {lines} lines and 8 times as many"
            yield _case(
                f"memory {verb}", name, "growth:memory_flat", {"verb": verb, "lines": lines}, campaign_only=True
            )
    for steps in (4_000, 20_000):
        yield _case("long run", f"run of {steps} steps", "growth:long_run", {"steps": steps}, campaign_only=True)


def _draw(name: str, seed: int) -> random.Random:
    return random.Random(f"{seed} {name}")


def _case(group: str, name: str, function: str, given: dict[str, Any], *, campaign_only: bool = False) -> Case:
    """A case that calls a function of the modules ``load_*`` in a fork."""

    def check(server: Server, shared: Path, folder: Path) -> str:
        done = server.function(f"tests.campaign.load_{function}", given, cwd=folder, processor_seconds=HOUR)
        if done.status:
            return f"the computation ended with status {done.status}: {done.last_line}"
        return str(done.result)

    return Case(group, name, check, campaign_only=campaign_only)
