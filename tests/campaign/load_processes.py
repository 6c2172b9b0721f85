"""Several commands at once, in forks of a fork: each must end as it does alone."""

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from nearfar.neighbours.index import MANIFEST
from tests.campaign.equality_runs import folder_difference
from tests.tiny import make_workspace, sentences, write_anchors

POLLS = 360_000
"""So often the commands are looked at, every 5 ms, until one that still runs counts as hanging."""
VERBS: dict[str, str] = {
    "train": "train simcse-unsup --model tiny --data corpus.txt --evaluate-on pairs.tsv --max-steps 5 --batch-size 8"
    " --evaluate-every 2 --checkpoint-every 2 --output OUT.run",
    "encode": "encode tiny --input corpus.txt --output OUT.npy",
    "mine": "mine --model tiny --data anchors.tsv --corpus corpus.txt --relative-margin none --output OUT.tsv",
    "search": "search dog --model tiny --input corpus.txt --index OUT.index --output OUT.hits.tsv",
    "dedup": "dedup --model tiny --input corpus.txt --threshold 0.9 --output OUT.txt --groups OUT.groups.tsv",
    "evaluate": "evaluate tiny --tasks pairs.tsv --resamples 10 --output OUT.json",
}
"""Verb -> a command whose outputs begin with OUT."""
ENDINGS: dict[str, tuple[str, ...]] = {
    "train": (".run",),
    "encode": (".npy",),
    "mine": (".tsv",),
    "search": (".index", ".hits.tsv"),
    "dedup": (".txt", ".groups.tsv"),
    "evaluate": (".json",),
}
"""Verb -> how the names of its outputs end."""
REFUSALS = ("another process", "exists", "already holds", "holds an interrupted run", "is finished")
"""Parts of the messages for a second writer."""


class Ended(NamedTuple):
    """How a command ended."""

    status: int | None
    """Exit status, minus a signal, or None if it had to be killed because it hung."""
    output: str

    @property
    def last_line(self) -> str:
        """The last line of the output that has letters."""
        lines = (line.strip(" │|") for line in reversed(self.output.splitlines()))
        return next((line for line in lines if any(map(str.isalpha, line))), "")


def prepare(folder: Path, texts: int = 60) -> Path:
    """Write the inputs of the commands."""
    folder.mkdir(exist_ok=True)
    make_workspace(folder)
    write_anchors(folder / "anchors.tsv", 20)
    corpus = dict.fromkeys(sentences(texts, seed=3, longest=9))
    (folder / "corpus.txt").write_text("".join(f"{text}\n" for text in corpus))
    return folder


def nearfar(arguments: Sequence[str]) -> int:
    """A nearfar command in this process."""
    from nearfar.cli import main

    return main(list(arguments))


def run_together(
    commands: Sequence[tuple[Sequence[str], Path]],
    *,
    delays: Sequence[float] = (),
    main: Callable[[Sequence[str]], int] = nearfar,
) -> list[Ended]:
    """Run commands at once, each in its folder and in a fork; those that hang are killed."""
    children, files = [], []
    for number, (arguments, folder) in enumerate(commands):
        file = Path.cwd().resolve() / f"output-{time.monotonic_ns()}-{number}.txt"
        delay = delays[number] if number < len(delays) else 0.0
        files.append(file)
        children.append(fork(arguments, folder, file, delay=delay, main=main))
    ends: dict[int, int | None] = {}
    for poll in count(1):
        if len(ends) == len(children):
            break
        for child in children:
            if child not in ends and (found := os.waitpid(child, os.WNOHANG))[0]:
                ends[child] = os.waitstatus_to_exitcode(found[1])
        if poll > POLLS:
            for child in children:
                if child not in ends:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    ends[child] = None
        time.sleep(0.005)
    outputs = [file.read_text(errors="replace") for file in files]
    for file in files:
        file.unlink()
    return [Ended(ends[child], output) for child, output in zip(children, outputs, strict=True)]


def fork(
    arguments: Sequence[str],
    folder: Path,
    file: Path,
    *,
    delay: float = 0.0,
    main: Callable[[Sequence[str]], int] = nearfar,
) -> int:
    """Run a command in a fork, in a folder, after a delay in seconds; its output goes to a file. Returns its number."""
    child = os.fork()
    if child:
        return child
    status = 98
    try:
        output = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        time.sleep(delay)
        status = main(arguments)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def output_difference(verb: str, name: str, found: Path, expected: Path, *, alone: str = "alone") -> str:
    """What differs between the outputs of a command in two folders; empty if nothing does."""
    for ending in ENDINGS[verb]:
        one, other = found / f"{name}{ending}", expected / f"{alone}{ending}"
        if not one.exists():
            return f"{one.name} is missing"
        if ending == ".run":
            wrong = folder_difference(one, other)
        elif ending == ".index":
            wrong = _index_difference(one, other)
        elif ending == ".json":
            wrong = "" if _scores(one) == _scores(other) else "the scores differ"
        else:
            wrong = "" if one.read_bytes() == other.read_bytes() else "the bytes differ"
        if wrong:
            return f"{one.name} is not as alone: {wrong}"
    return ""


def _index_difference(found: Path, expected: Path) -> str:
    names = [sorted(file.name for file in folder.iterdir()) for folder in (found, expected)]
    if names[0] != names[1]:
        return f"it holds {', '.join(names[0])}, not {', '.join(names[1])}"
    for name in names[0]:
        if name != MANIFEST and (found / name).read_bytes() != (expected / name).read_bytes():
            return f"{name} has other bytes"
    return ""


def _scores(file: Path) -> Any:
    content: dict[str, Any] = json.loads(file.read_text())
    return {key: value for key, value in content.items() if key not in ("provenance", "seconds")}


def four_at_once(verbs: Sequence[str], *, one_folder: bool, seed: int, **options: Any) -> str:
    """Run commands alone, then at once; the outputs must be the same bytes."""
    draw = random.Random(seed)
    alone = prepare(Path("alone"))
    folders = [prepare(Path("together"))] * len(verbs)
    if not one_folder:
        folders = [prepare(Path(f"together-{number}")) for number in range(len(verbs))]
    names = [f"{verb}-{number}" for number, verb in enumerate(verbs)]
    for verb in sorted(set(verbs)):
        (ended,) = run_together([(VERBS[verb].replace("OUT", f"alone-{verb}").split(), alone)])
        if ended.status != 0:
            return f"{verb} alone ended with status {ended.status}: {ended.last_line}"
    commands = [
        (VERBS[verb].replace("OUT", name).split(), folder)
        for verb, name, folder in zip(verbs, names, folders, strict=True)
    ]
    delays = [draw.uniform(0, 0.3) for _ in verbs]
    for verb, name, folder, ended in zip(
        verbs, names, folders, run_together(commands, delays=delays, **options), strict=True
    ):
        if ended.status != 0:
            how = "hung" if ended.status is None else f"ended with status {ended.status}"
            return f"{verb}, beside others, {how}: {ended.last_line}"
        if wrong := output_difference(verb, name, folder, alone, alone=f"alone-{verb}"):
            return wrong
    return ""


def same_output(verb: str, writers: int, seed: int, **options: Any) -> str:
    """Run the same command several times at once: one or more succeed, the others say why not, and the output is whole.

    For `search`, whose index can be shared by commands one after the other, all may succeed.
    """
    draw = random.Random(seed)
    folder = prepare(Path("together"), texts=draw.choice((60, 300)))
    (ended,) = run_together([(VERBS[verb].replace("OUT", "alone").split(), folder)])
    if ended.status != 0:
        return f"{verb} alone ended with status {ended.status}: {ended.last_line}"
    commands = [(VERBS[verb].replace("OUT", "same").split(), folder)] * writers
    found = run_together(commands, delays=[draw.choice((0.0, draw.uniform(0, 0.6))) for _ in commands], **options)
    for ended in found:
        if ended.status not in (0, 2):
            how = "hung" if ended.status is None else f"ended with status {ended.status}"
            return f"{verb}, with another that writes the same output, {how}: {ended.last_line}"
        message = " ".join(ended.output.replace("│", " ").split())
        if ended.status == 2 and not ("same" in message and any(words in message for words in REFUSALS)):
            return f"{verb}, with another that writes the same output, says only: {ended.last_line}"
    if not any(ended.status == 0 for ended in found):
        return f"no {verb} wrote the output: {found[0].last_line}"
    left, expected = ({file.name.removeprefix(name) for file in folder.glob(f"{name}*")} for name in ("same", "alone"))
    if left != expected:
        return f"the outputs of {verb} end in {', '.join(sorted(left))}, not in {', '.join(sorted(expected))}"
    return output_difference(verb, "same", folder, folder)
