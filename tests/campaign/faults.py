"""Part "faults": one system call of a command fails, or transfers half, or all later writes fail; then it runs again.

A case fails a call that the undisturbed run made, with an error that this call can have. The command must end well with
the right results, or end with the status 1, 2 or 130 and one sentence that names a file, without a traceback; nothing
half-written has the name of a result, and earlier results and inputs are whole. Then the command, or its ``--resume``,
runs without a fault: it ends with the files of the undisturbed run.
"""

import random
import re
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.campaign import shim
from tests.campaign.case import Case, SkipPartError
from tests.campaign.scenarios import (
    SCENARIOS,
    Scenario,
    contents,
    difference,
    half_written,
    run,
    run_again,
    start_state,
    undisturbed,
)
from tests.campaign.server import Done, Server
from tests.campaign.shim import Call, settings
from tests.campaign.verdicts import error_of

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
EACH = {"encode": 60, "study": 60, "finetune": 60}
"""First word of a scenario -> number of its cases."""
OTHERS = 25
STATUSES = (1, 2, 130)


def cases(seed: int) -> Iterator[Case]:
    """The cases of each scenario."""
    if shim.library() is None:
        raise SkipPartError("needs Linux and a C compiler")
    for scenario in SCENARIOS.values():
        for number in range(1, EACH.get(scenario.name.split()[0], OTHERS)):
            name = f"{scenario.name} {number}"
            yield Case(scenario.name, name, partial(check, scenario, f"{seed} {name}", number))
        yield Case(scenario.name, f"{scenario.name}: few descriptors", partial(check, scenario, "", 0))


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


def check(scenario: Scenario, seed: str, number: int, server: Server, shared: Path, folder: Path) -> str:
    """One call fails; or, in case 0, the process cannot open more than three files at a time."""
    whole = undisturbed(scenario, server, shared)
    start_state(scenario, server, shared, folder)
    if number == 0:
        where, kept, harmless = "three descriptors", None, False
        done = run(scenario.arguments, server, folder, descriptors=3)
    else:
        call, error = chosen(scenario, whole.calls, random.Random(seed), number)
        where, harmless = f"{call}, {error}", error in HARMLESS
        kept = call.path if call.kind in ("open", "unlink") else None  # deleting a folder opens it
        done = run(scenario.arguments, server, folder, settings(folder, fail=f"{call.number}:{error}"))
    wrong = f"status {done.status}" if harmless and done.status else ""
    found = without(contents(folder), kept, whole.files)
    wrong = wrong or wrong_message(scenario, done, {*found, *whole.start, *whole.files})
    if not wrong and done.status == 0:
        wrong = difference(found, whole.files)
    elif not wrong and not (wrong := half_written(scenario, found, whole)):
        again = run_again(scenario, server, folder)
        wrong = difference(without(contents(folder), kept, whole.files), whole.files)
        wrong = wrong and f"then, without a fault, status {again.status}, {error_of(again)}: {wrong}"
    return f"{where}: {wrong}; it printed: {last_lines(done)}" if wrong else ""


def without(found: dict[str, bytes], kept: str | None, expected: dict[str, bytes]) -> dict[str, bytes]:
    """The files but those that are left because ``kept`` could not be deleted."""
    if not kept:
        return found
    left = f"{kept.rstrip('/')}/"
    return {name: text for name, text in found.items() if name in expected or not f"{name}/".startswith(left)}


def wrong_message(scenario: Scenario, done: Done, names: set[str]) -> str:
    """What is wrong with how a command ended: its status, or a message without the name of a file."""
    if "Traceback" in done.output or "this is a bug in nearfar" in done.output:
        return f"status {done.status} with a traceback"
    if done.status == 0:
        return ""
    if done.status not in STATUSES:
        return f"status {done.status}"
    command = f"nearfar {shlex.join(scenario.arguments.split())}"  # which names all files
    message = last_lines(done).replace(command, "")
    others = ("out of memory", "too many open files")  # no fault of a file
    explained = any(other in message.lower() for other in others) or names_a_file(message, names)
    return "" if explained else "the message names no file"


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
