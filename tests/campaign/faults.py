"""Part "faults": one system call of a command fails, or transfers half, or all later writes fail; then it runs again.

A case fails a call that the undisturbed run made, with an error that this call can have. The command must end well with
the right results, or end with the status 1, 2 or 130 and one sentence that names a file, without a traceback; nothing
half-written has the name of a result, and earlier results and inputs are whole. Then the command, or its ``--resume``,
runs without a fault: it ends with the results of the undisturbed run and leaves nothing else.
"""

import random
import re
import shlex
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

from tests.campaign import shim
from tests.campaign.case import Case, SkipPartError
from tests.campaign.scenario_runs import contents, difference, half_written, prepared, run, start_state, undisturbed
from tests.campaign.scenarios import SCENARIOS, Scenario
from tests.campaign.server import Done, Server
from tests.campaign.trace import Call, read_log, settings

ERRORS = {
    "open": ("EACCES", "EINTR", "EIO", "EMFILE", "ENFILE"),
    "create": ("EACCES", "EIO", "EMFILE", "ENOSPC", "EROFS"),
    "read": ("EIO", "EINTR", "short"),
    "write": ("EIO", "EINTR", "ENOSPC", "EDQUOT", "short", "ENOSPC:always"),
    "sync": ("EIO", "ENOSPC", "EDQUOT"),
    "rename": ("EACCES", "EIO", "ENOSPC", "EROFS"),
    "link": ("EACCES", "ENOSPC"),
    "unlink": ("EACCES", "EIO", "EROFS"),
    "mkdir": ("EACCES", "EIO", "ENOSPC", "EROFS"),
    "truncate": ("EIO", "ENOSPC"),
    "map": ("ENOMEM", "EACCES"),
    "close": ("EIO", "ENOSPC"),
}
"""Kind of a call, as the shim names it -> the errors that it gets."""
HARMLESS = ("EINTR", "short")
"""What POSIX allows at any time: the command must end as if nothing had happened."""
COUNTS = {"train": 25, "export": 15}
"""First word of a scenario -> number of its cases."""
OTHERS = 60
STATUSES = (1, 2, 130)


def cases(seed: int) -> Iterator[Case]:
    """The cases of each scenario, in an order of which the first ones are a sample of all commands."""
    if shim.library() is None:
        raise SkipPartError("needs Linux and a C compiler")
    for scenario in sorted(SCENARIOS.values(), key=lambda one: random.Random(one.name).random()):
        for number in range(1, COUNTS.get(scenario.name.split()[0], OTHERS)):
            name = f"{scenario.name} {number}"
            yield Case(scenario.name, name, partial(check_call, scenario, f"{seed} {name}", number))
        yield Case(scenario.name, f"{scenario.name}: few descriptors", partial(check_descriptors, scenario))


def traced(scenario: Scenario, server: Server, shared: Path) -> list[Call]:
    """The calls of an undisturbed run, recorded once."""

    def make(place: Path) -> None:
        (place / "case").mkdir()
        start_state(scenario, server, shared, place / "case")
        done = run(scenario.arguments, server, place / "case", settings(place / "case", log=place / "log"))
        if done.status != 0:
            raise RuntimeError(f"nearfar {scenario.arguments}: {done.status}: {done.output}")

    return _calls(prepared(shared / "traced" / scenario.name, make) / "log")


@cache
def _calls(log: Path) -> list[Call]:
    return read_log(log)


def chosen(scenario: Scenario, calls: list[Call], draw: random.Random, number: int) -> tuple[Call, str]:
    """The call that fails in case ``number``, and its error: each kind of call and of error has its turn."""
    written = {call.path for call in calls if call.kind in ("create", "write")}
    calls = [call for call in calls if call.kind != "close" or call.path in written]  # others cannot fail
    pairs = [(kind, error) for kind in ERRORS for error in ERRORS[kind]]
    random.Random(scenario.name).shuffle(pairs)
    for turn in range(len(pairs)):
        kind, error = pairs[(number + turn) % len(pairs)]
        able = [call for call in calls if call.kind == kind and _can(call, error)]
        if able:
            return draw.choice(_spread(able)), error
    raise ValueError("the command makes no calls that can fail")


def _can(call: Call, error: str) -> bool:
    """Whether the call can get the error: stdio itself repeats a write that was interrupted or short."""
    return call.result >= 0 and (error not in HARMLESS or (call.call not in ("fread", "fwrite") and call.size > 1))


def _spread(calls: list[Call]) -> list[Call]:
    """At most four calls of each path, so that a file read in many parts does not hide the others."""
    paths: dict[str, list[Call]] = {}
    for call in calls:
        paths.setdefault(call.path, []).append(call)
    return [call for some in paths.values() for call in some[:: max(1, len(some) // 4)]]


def check_call(scenario: Scenario, seed: str, number: int, server: Server, shared: Path, folder: Path) -> str:
    """One call fails."""
    draw = random.Random(seed)
    call, error = chosen(scenario, traced(scenario, server, shared), draw, number)
    where = f"call {call.number}, {call.call} {call.path}{call.path2 and f' to {call.path2}'}, {error}"
    state = State(scenario, server, shared, folder)
    done = run(scenario.arguments, server, folder, settings(folder, fail=f"{call.number}:{error}"))
    kept = call.path if call.kind in ("open", "unlink") else None  # deleting a folder opens it
    if error in HARMLESS and done.status != 0:
        return f"{where}: status {done.status}: {last_lines(done)}"
    wrong = state.wrong_after(done, kept=kept) or state.wrong_again(done, kept=kept)
    return f"{where}: {wrong}" if wrong else ""


def check_descriptors(scenario: Scenario, server: Server, shared: Path, folder: Path) -> str:
    """The process cannot open more than three files at a time."""
    state = State(scenario, server, shared, folder)
    done = run(scenario.arguments, server, folder, descriptors=3)
    wrong = state.wrong_after(done) or state.wrong_again(done)
    return f"three descriptors: {wrong}" if wrong else ""


class State:
    """The folder of a case, and what its files may be."""

    def __init__(self, scenario: Scenario, server: Server, shared: Path, folder: Path) -> None:
        self._scenario, self._server, self._folder = scenario, server, folder
        start_state(scenario, server, shared, folder)
        self._before = contents(folder)
        self._expected = undisturbed(scenario, server, shared)

    def wrong_after(self, done: Done, *, kept: str | None = None) -> str:
        """What is wrong after a command whose call failed: its output, its status, or a file.

        ``kept``: what could not be deleted, so that it may be left.
        """
        found = self._without(contents(self._folder), kept)
        if "Traceback" in done.output or "this is a bug in nearfar" in done.output:
            return f"status {done.status} with a traceback: {last_lines(done)}"
        if done.status == 0:
            wrong = difference(found, self._expected)
            return wrong and f"status 0, but {wrong}; it printed: {last_lines(done)}"
        if done.status not in STATUSES:
            return f"status {done.status}: {last_lines(done)}"
        if not self._explains(last_lines(done), {*found, *self._before, *self._expected}):
            return f"the message names no file: {last_lines(done)}"
        wrong = half_written(self._scenario, found, self._before, self._expected)
        return wrong and f"{wrong}, after: {last_lines(done)}"

    def wrong_again(self, done: Done, *, kept: str | None = None) -> str:
        """What is wrong after the same command without a fault, with ``--resume`` if that is how it continues."""
        if done.status == 0:
            return ""
        first = again = run(self._scenario.continued, self._server, self._folder)
        if first.status == 2 and self._scenario.continued != self._scenario.arguments:  # nothing to continue
            again = run(self._scenario.arguments, self._server, self._folder)
        wrong = difference(self._without(contents(self._folder), kept), self._expected)
        if wrong and again.status != 0:
            return f"{last_lines(done)}; then, without a fault, status {first.status}: {last_lines(first)}"
        return wrong and f"{last_lines(done)}; then, without a fault, {wrong}"

    def _without(self, found: dict[str, bytes], kept: str | None) -> dict[str, bytes]:
        """The files but those that are left because ``kept`` could not be deleted."""
        return {
            name: content
            for name, content in found.items()
            if not kept or name in self._expected or not f"{name}/".startswith(f"{kept.rstrip('/')}/")
        }

    def _explains(self, message: str, names: set[str]) -> bool:
        message = message.replace(
            f"nearfar {shlex.join(self._scenario.arguments.split())}", ""
        )  # which names all files
        others = ("out of memory", "too many open files")  # no fault of a file
        return any(other in message.lower() for other in others) or names_a_file(message, names)


def last_lines(done: Done) -> str:
    """The end of the output."""
    lines = [line.strip(" │|╭─╮╰╯") for line in done.output.splitlines()]
    return " / ".join([line for line in lines if any(map(str.isalpha, line))][-2:])[-400:]


def names_a_file(message: str, names: set[str]) -> bool:
    """Whether a message has the path of a file or folder of the case, or of a temporary one, in it."""
    places = {part for name in names for part in (name.rstrip("/"), *map(str, Path(name).parents)) if part != "."}
    words = {word.strip("'\"(),:;.") for word in re.split(r"\s+", message)}
    return any(
        f"/{word}".endswith(f"/{place}") or re.search(rf"(^|/)\.?{re.escape(place)}[./]", word)
        for word in words
        for place in places
    )
