"""Kills and failing system calls: a command is disturbed at a call that changes files, and then runs again.

A killed command leaves no half-written file under its name, and what a scenario keeps stands. A command one of whose
calls fails must end well with the right results, or with one sentence that names a file. Then the command, or its
``--resume``, runs undisturbed and ends with the files of the undisturbed run.
"""

import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.campaign.forks import Done
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
from tests.campaign.shim import Call, settings
from tests.campaign.verdict import wrong_ending

COMMITS, CHANGES = ("sync", "rename", "unlink"), ("create", "write", "truncate", "mkdir", "link")
KILLS, FAULTS = 40, 60
"""Cases of each scenario."""
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
Check = Callable[[Path, Path], str]


def cases(seed: int) -> Iterator[tuple[str, Check]]:
    """Cases of each scenario in turn, of which every tenth kill is one of three in a row; before, of this module."""
    yield from ((f"itself: {writer}", partial(itself, writer)) for writer in WRITERS)
    for number in range(1, max(KILLS, FAULTS) + 1):
        for name, scenario in SCENARIOS.items():
            if number <= KILLS:
                times = 3 if number % 10 == 0 else 1
                yield f"kills: {name} {number}", partial(killed, scenario, f"{seed} kills {name} {number}", times)
            if number <= FAULTS:
                yield f"faults: {name} {number}", partial(failed, scenario, f"{seed} faults {name} {number}", number)


# --- kills ---


def killed(scenario: Scenario, seed: str, times: int, shared: Path, folder: Path) -> str:
    """Kill a number of times, the first time at a call that the undisturbed run made too; then continue.

    Two thirds of the calls are flushes, renames and deletions, one third are writes and new files.
    """
    whole, draw = undisturbed(scenario, shared), random.Random(seed)
    kinds = COMMITS if draw.random() < 2 / 3 else CHANGES
    call = draw.choice([call for call in whole.calls if call.kind in kinds])
    moment = draw.choice(("before", "after"))
    start_state(scenario, shared, folder)
    if wrong := kill(scenario, whole, call, moment, folder):
        return f"killed {moment} {call}: {wrong}"
    for _ in range(times - 1):  # a run that was continued may end before its kill
        later = max(1, draw.choice(whole.calls).number // draw.choice((1, 2)))
        done = run(scenario.continued, folder, settings(folder, kill=f"before:{later}"))
        if done.status not in (-9, 0, 2):
            return f"killed {moment} {call}, then at call {later}: status {done.status}: {done.last_line}"
    wrong = continue_and_compare(scenario, whole, folder)
    return f"killed {moment} {call}: {wrong}" if wrong else ""


def kill(scenario: Scenario, whole: Undisturbed, call: Call, moment: str, folder: Path) -> str:
    """What is wrong after a kill: it was not killed, a file is half-written, or what must stand is gone."""
    done = run(scenario.arguments, folder, settings(folder, kill=f"{moment}:{call.number}"))
    if done.status != -9:
        return f"it ended with status {done.status}: {done.last_line}"
    if wrong := half_written(scenario, contents(folder), whole):
        return wrong
    versions = [other.number for other in whole.calls if other.kind == "rename" and other.path2 == scenario.kept]
    if versions and versions[0] < call.number <= versions[-1] and not is_kept(folder / scenario.kept, whole):
        return f"no version of {scenario.kept} is left"
    return ""


def is_kept(kept: Path, whole: Undisturbed) -> bool:
    """Whether a folder, or what a kill between two renames leaves of it, has all files that the run deletes from it."""
    versions = [kept, kept.with_name(f".{kept.name}.old")]
    gone = [Path(call.path) for call in whole.calls if call.kind == "unlink"]
    names = {path.name for path in gone if path.parent.name in (version.name for version in versions)}
    return any(version.is_dir() and names <= set(os.listdir(version)) for version in versions)


def continue_and_compare(scenario: Scenario, whole: Undisturbed, folder: Path) -> str:
    """Run the command again, until it is done; how the folder then differs from that of the undisturbed run.

    A command that refuses to run is right only if all results are there already.
    """
    done = run_again(scenario, folder)
    if "Traceback" in done.output:
        return f"it was continued with a traceback: {done.last_line}"
    if wrong := difference(contents(folder), whole.files):
        refused = f"it cannot be continued (status {done.status}): {done.last_line}; " if done.status else ""
        return f"{refused}{wrong}"
    return ""


# --- faults ---


def chosen(calls: list[Call], draw: random.Random, number: int) -> tuple[Call, str]:
    """The call that fails in case ``number``, and its error: each kind of call and of error has its turn.

    At most four calls of each path are drawn from, so that a file read in many parts does not hide the others.
    """
    written = {call.path for call in calls if call.kind in ("create", "write")}
    pairs = [(kind, error) for kind in ERRORS for error in ERRORS[kind]]
    random.Random(0).shuffle(pairs)
    for turn in range(len(pairs)):
        kind, error = pairs[(number + turn) % len(pairs)]
        paths: dict[str, list[Call]] = {}
        for call in calls:
            able = kind != "close" or call.path in written  # closing another file cannot fail
            if error in HARMLESS:  # stdio itself repeats a write that was interrupted or short
                able = able and call.call not in ("fread", "fwrite") and call.size > 1
            if call.kind == kind and call.result >= 0 and able:
                paths.setdefault(call.path, []).append(call)
        if paths:
            return draw.choice([call for some in paths.values() for call in some[:: max(1, len(some) // 4)]]), error
    raise ValueError("the command makes no calls that can fail")


def failed(scenario: Scenario, seed: str, number: int, shared: Path, folder: Path) -> str:
    """One call fails, or transfers half, or all later writes fail."""
    whole = undisturbed(scenario, shared)
    start_state(scenario, shared, folder)
    call, error = chosen(whole.calls, random.Random(seed), number)
    left = call.path if call.kind in ("open", "unlink") else None  # deleting a folder opens it
    done = run(scenario.arguments, folder, settings(folder, fail=f"{call.number}:{error}"))
    after = without(contents(folder), left, whole.files)
    wrong = f"status {done.status}" if error in HARMLESS and done.status else wrong_message(scenario, done, whole)
    if not wrong and done.status == 0:
        wrong = difference(after, whole.files)
    elif not wrong and not (wrong := half_written(scenario, after, whole)):
        again = run_again(scenario, folder)
        wrong = difference(without(contents(folder), left, whole.files), whole.files)
        wrong = wrong and f"then, without a fault, status {again.status}, {again.last_line}: {wrong}"
    return f"{call}, {error}: {wrong}; it printed: {done.last_line}" if wrong else ""


def without(files: dict[str, bytes], left: str | None, expected: dict[str, bytes]) -> dict[str, bytes]:
    """The files but those that are there because ``left`` could not be deleted."""
    if not left:
        return files
    inside = f"{left.rstrip('/')}/"
    return {name: text for name, text in files.items() if name in expected or not f"{name}/".startswith(inside)}


def wrong_message(scenario: Scenario, done: Done, whole: Undisturbed) -> str:
    """What is wrong with how a command ended; the words of the command itself name all files."""
    words = {part for name in (*whole.start, *whole.files) for part in Path(name).parts}
    named = Done(done.status, done.output.replace(f"nearfar {scenario.arguments}", ""))
    return wrong_ending(named, {*words, "memory", "Too many open files"}, statuses=(0, 1, 2, 130))


# --- this module ---

WHOLE = "open('out.new', 'w').write('[1]'); os.rename('out.new', 'out')"
WRITERS = {
    "right": (WHOLE, ""),
    "without rename": ("open('out', 'w').write('[2]'); open('out', 'w').write('[1]'); os.mkdir('z')", "half-written"),
    "random name": (f"import tempfile; tempfile.mkstemp(dir='.'); {WHOLE}", "left over: tmp"),
    "removed first": (
        f"os.mkdir('k1'); os.rename('k1', 'k'); os.mkdir('k2'); os.rmdir('k'); os.rename('k2', 'k'); {WHOLE}",
        "no version of k is left",
    ),
}
"""Programs that write ``out``, and what is wrong with them."""


def itself(writer: str, shared: Path, folder: Path) -> str:
    """Kill a program before each of its calls: what is wrong with it must be found, and nothing else."""
    program, sentence = WRITERS[writer]
    program = f"exec import os\nif not os.path.exists('out'): {program}"
    scenario = Scenario(f"itself {writer}", "", program, resumes=False, kept="k")
    whole, problems = undisturbed(scenario, shared), []
    for call in whole.calls:
        (place := folder / str(call.number)).mkdir()
        problems.append(kill(scenario, whole, call, "before", place) or continue_and_compare(scenario, whole, place))
    problems = [problem for problem in problems if problem]
    well = any(sentence in problem for problem in problems) if sentence else not problems
    return "" if well else f"found {problems}"
