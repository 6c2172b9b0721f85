"""What one check of the campaign is: a part yields cases, which say what is wrong."""

import shutil
import tempfile
import traceback
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

    ``group``: with which it is counted, such as ``train scl``. ``name``: unique in its part, and the same in each run
    with the same seed.
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


def run_case(case: Case, server: Server, shared: Path) -> str:
    """Run a case in an empty folder, which is deleted if all is well; returns what is wrong."""
    shared.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=shared))
    try:
        wrong = case.check(server, shared, folder)
    except Exception as error:  # a defect of the check itself must not stop the campaign
        wrong = f"the check failed: {error!r} at {traceback.format_tb(error.__traceback__)[-1].strip()}"
    if not wrong:
        shutil.rmtree(folder, ignore_errors=True)
    return wrong
