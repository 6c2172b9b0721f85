"""What one check of the campaign is: a part yields cases, the campaign runs them and records what they return."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, zip_longest
from pathlib import Path

from tests.campaign.server import Server

PARTS = {
    "kills": "SIGKILL at random moments, then the command again",
    "faults": "one system call fails, then the command again",
    "inputs": "malformed files and folders",
}
"""Name of a part -> what it does to the commands. The part is the module of this name in this package."""


@dataclass(frozen=True)
class Case:
    """One check.

    ``group``: the line of the page that counts it, such as ``train scl``. ``name``: unique in its part, and the same in
    each run with the same seed; a campaign that continues skips the names that it has recorded.
    ``check(server, shared, folder)`` returns "" if all is well, otherwise one sentence that says what is wrong.
    ``shared`` is a folder of the part, for what is expensive to prepare and used by many of its cases (several threads
    may want it at once); ``folder`` is empty and belongs to this case.
    """

    group: str
    name: str
    check: Callable[[Server, Path, Path], str]


class SkipPartError(Exception):
    """Raised by ``cases`` if this machine cannot run the part, with the reason."""


def cases_of(part: str, seed: int) -> Iterator[Case]:
    """The cases of a part, one of each group in turn, so that the first ones are a sample of all."""
    groups: dict[str, list[Case]] = {}
    for case in import_module(f"tests.campaign.{part}").cases(seed):
        groups.setdefault(case.group, []).append(case)
    return (case for case in chain.from_iterable(zip_longest(*groups.values())) if case is not None)
