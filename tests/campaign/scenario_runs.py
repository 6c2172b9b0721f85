"""Runs scenarios, and compares their results.

scenario = SCENARIOS["train scl"]
start_state(scenario, server, shared, folder)       # a copy of its inputs, prepared once in ``shared``
done = run(scenario.arguments, server, folder)      # nearfar, in blocks of a few rows
expected = undisturbed(scenario, server, shared)    # results of a run without faults, computed once
assert results(scenario, folder) == expected
"""

import importlib
import json
import os
import re
import shutil
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path, PurePosixPath

from tests.campaign import scenario_inputs
from tests.campaign.scenarios import Scenario
from tests.campaign.server import Done, Server

SMALL = {
    "nearfar.commands.back_translate.command:BLOCK": 2,
    "nearfar.commands.encode.vectors:PART_TEXTS": 12,
    "nearfar.commands.mine.search:CHUNK": 10,
}
"""``module:constant`` -> the value in :func:`run`, so that a command saves its work several times on a few rows."""
ENCODE_BLOCK = 12
_CLOCKS = (
    "date|first_date|last_date|seconds|items_per_second|updates_per_second|texts_per_second|generation|mtime_ns|inode|"
    "commit"
)
_VARYING = (
    (re.compile(rb',\s*"size": \d+,\s*"mtime_ns": \d+,\s*"inode": \d+'), b""),
    (re.compile(rf'"({_CLOCKS})": ?("[^"]*"|[-0-9.e]+|null)'.encode()), rb'"\1": VARIES'),
    (re.compile(rb"(?m)^(\| (?:nearfar|onnx|openvino) .*\|) [\d,]+ \|$"), rb"\1 SPEED |"),
    (re.compile(rb"(?m)^Results: commits [^;]*; "), b"Results: "),
    (re.compile(rb", commit (None|[0-9a-f]{40}(-dirty)?)"), b""),
    (re.compile(rb'"commits": \{[^}]*\}'), b'"commits": VARIES'),
    (re.compile(rb"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"), b"DATE"),
    (re.compile(rb"\b[\d.]+ updates per second|training took [\d.,]+ seconds"), b"SPEED"),
    (re.compile(rb'"/[^"]*/(?=out/cells/|parts/|table\.tsv")'), b'"FOLDER/'),
    (re.compile(rb'(?m)^  "resume": (true|false)'), b'  "resume": VARIES'),
    (re.compile(rb'"kernels": ?\{[^}]*\}'), b'"kernels": VARIES'),
)
"""What differs between two runs: clocks; absolute paths; the size, time and inode of an index's input, which are not
recorded of a file that was changed in the last seconds; an index's random name; ``--resume``; the commit, which is not
known if git cannot be started; and the kernels that the process used, since a process that only finishes a run needs
fewer."""


def nearfar(arguments: Sequence[str], descriptors: int | None = None) -> None:
    """Run a command in blocks of a few rows; called in a fork of the server.

    ``descriptors``: number of files that it can have open at a time, besides those that are open already.
    """
    import resource

    from nearfar.cli import main
    from nearfar.commands.encode import command

    for place, value in SMALL.items():
        module, _, name = place.partition(":")
        found = importlib.import_module(module)
        assert isinstance(getattr(found, name), int), place
        setattr(found, name, value)
    command.encode_parts = partial(command.encode_parts, block=ENCODE_BLOCK)
    if descriptors is not None:
        limit = max(map(int, os.listdir("/proc/self/fd"))) + 1 + descriptors
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    raise SystemExit(main(list(arguments)))


def run(
    arguments: str,
    server: Server,
    folder: Path,
    shim: Mapping[str, str] | None = None,
    *,
    descriptors: int | None = None,
) -> Done:
    """Run nearfar in ``folder`` in blocks of a few rows; see :func:`nearfar`."""
    options = {"arguments": arguments.split(), "descriptors": descriptors}
    return server.function(f"{__name__}:nearfar", options, cwd=folder, shim=shim)


_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def prepared(place: Path, make: Callable[[Path], None]) -> Path:
    """A folder that is made once, by the first thread that wants it."""
    with _locks[str(place)]:
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=".making-", dir=place.parent))
            make(temporary)
            temporary.rename(place)
    return place


def _succeed(arguments: str, server: Server, folder: Path) -> None:
    done = run(arguments, server, folder)
    if done.status != 0:
        raise RuntimeError(f"nearfar {arguments}: {done.status}: {done.output}")


def start_state(scenario: Scenario, server: Server, shared: Path, folder: Path) -> None:
    """Copy the start state into the folder of a case."""

    def make_inputs(place: Path) -> None:
        done = server.function(f"{scenario_inputs.__name__}:write_inputs", {"folder": str(place)}, cwd=place)
        if done.status != 0:
            raise RuntimeError(done.output)

    def make_start(place: Path) -> None:
        inputs = prepared(shared / "inputs", make_inputs)
        for name in scenario.inputs.split():
            source = inputs / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, place / name)
        for arguments in scenario.first:
            _succeed(arguments, server, place)

    shutil.copytree(prepared(shared / "start" / scenario.name, make_start), folder, dirs_exist_ok=True)


_whole: dict[tuple[Path, str], dict[str, bytes]] = {}


def undisturbed(scenario: Scenario, server: Server, shared: Path) -> dict[str, bytes]:
    """All files of a run without faults; see :func:`contents`."""
    key = (shared, scenario.name)
    with _locks[f"whole {key}"]:
        if key not in _whole:
            (shared / "whole").mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="whole-", dir=shared) as name:
                start_state(scenario, server, shared, Path(name))
                _succeed(scenario.arguments, server, Path(name))
                _whole[key] = contents(Path(name))
    return _whole[key]


def results(scenario: Scenario, folder: Path) -> dict[str, bytes]:
    """The files that the scenario writes, by their names, without what :func:`comparable` removes."""
    patterns = scenario.written.split()
    return {
        name: content
        for name, content in contents(folder).items()
        if any(fnmatch(name, pattern) or fnmatch(name, f"{pattern}/*") for pattern in patterns)
    }


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a case, by their names, as :func:`comparable`; empty folders end with a slash."""
    found = {}
    for parent, folders, names in os.walk(folder):
        for name in names:
            file = Path(parent, name)
            found[file.relative_to(folder).as_posix()] = comparable(name, file.read_bytes())
        if not folders and not names:
            found[f"{Path(parent).relative_to(folder).as_posix()}/"] = b""
    return dict(sorted(found.items()))


def comparable(name: str, content: bytes) -> bytes:
    """The content of a text file without what :data:`_VARYING` lists; other files as they are."""
    if not name.endswith((".json", ".jsonl", ".toml", ".md", ".html")):
        return content
    for pattern, replacement in _VARYING:
        content = pattern.sub(replacement, content)
    return content


def difference(found: Mapping[str, bytes], expected: Mapping[str, bytes]) -> str:
    """What differs between two results, in words; empty if they are equal."""
    words = []
    for what, names in (
        ("missing", expected.keys() - found.keys()),
        ("left over", found.keys() - expected.keys()),
        ("different", {name for name in found.keys() & expected.keys() if found[name] != expected[name]}),
    ):
        if names:
            words.append(f"{what}: {', '.join(sorted(names)[:3])}{' ...' if len(names) > 3 else ''}")
    return "; ".join(words)


def half_written(
    scenario: Scenario, found: Mapping[str, bytes], start: Mapping[str, bytes], expected: Mapping[str, bytes]
) -> str:
    """The files that have the name of an input or a result, but are neither the earlier nor the new version.

    ``found``: :func:`contents` after a command failed or was killed. ``start``: before it. ``expected``: undisturbed.
    """
    wrong = [name for name in start.keys() - found.keys() if name not in expected or start[name] == expected[name]]
    for name, content in found.items():
        versions = [one[name] for one in (start, expected) if name in one]
        if not versions or content in versions:
            continue
        if not any(PurePosixPath(name).match(pattern) for pattern in scenario.growing.split()) or not _is_part(
            name, content, versions[-1]
        ):
            wrong.append(name)
    return f"half-written or lost: {', '.join(sorted(wrong))}" if wrong else ""


def _is_part(name: str, content: bytes, whole: bytes) -> bool:
    """Whether a growing file is in a valid state: complete lines of the whole file, a JSON object, or another page."""
    if name.endswith((".tsv", ".jsonl")):
        return whole.startswith(content[: content.rfind(b"\n") + 1])
    if name.endswith(".json"):
        try:
            return isinstance(json.loads(content.replace(b": VARIES", b": 0")), dict)
        except json.JSONDecodeError:
            return False
    return bool(content)
