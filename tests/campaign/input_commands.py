"""Cases of whole commands on changed data files, and of `encode`, whose vectors show what was read."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.campaign import verdicts
from tests.campaign.case import Case
from tests.campaign.input_files import CHANGES, LIMITS, copied
from tests.campaign.input_workspace import workspace
from tests.campaign.no_files import KINDS_OF_FILE, replace_by
from tests.campaign.server import Server
from tests.invalid_input.tables import COMMANDS, argv_of

FORMATS = ("tsv", "jsonl", "csv", "tsv.gz", "jsonl.gz")
CASES_OF_READER, CASES_OF_ENCODE = 25, 120


def cases(seed: int) -> Iterator[Case]:
    """Cases of commands."""
    for reader in COMMANDS:
        for number in range(CASES_OF_READER):
            yield _of_reader(seed, reader, number)
        for kind in KINDS_OF_FILE:
            yield _of_kind(reader, kind)
    for number in range(CASES_OF_ENCODE):
        yield _of_encode(seed, number)


def _of_reader(seed: int, reader: str, number: int) -> Case:
    extension = FORMATS[number % len(FORMATS)]
    changes = CHANGES[extension]
    change = Random(f"{seed} {reader} {number}").choice(list(changes))
    group = f"data of {COMMANDS[reader][1].partition(' ')[0]}"
    name = f"{group}: {reader} {extension} {number}: {change}"

    def check(server: Server, shared: Path, folder: Path) -> str:
        path = copied(workspace(server, shared), f"tables/{COMMANDS[reader][0]}.{extension}", None, folder, linked=True)
        path.write_bytes(changes[change](path.read_bytes(), Random(f"{seed} {name}")))
        done = server.command(argv_of(reader, path.name), cwd=folder, **LIMITS)
        return verdicts.of_command(done, [path.name, "nowhere"])

    return Case(group, name, check)


def _of_kind(reader: str, kind: str) -> Case:
    name = f"{reader}: {kind} in place of its file"

    def check(server: Server, shared: Path, folder: Path) -> str:
        path = copied(workspace(server, shared), f"tables/{COMMANDS[reader][0]}.tsv", None, folder, linked=True)
        replace_by(kind, path)
        done = server.command(argv_of(reader, path.name), cwd=folder, **LIMITS)
        return verdicts.of_command(done, [path.name], statuses=[2])

    return Case(f"{kind} in place of a file", name, check)


def _of_encode(seed: int, number: int) -> Case:
    extension = "txt" if number % 2 else "txt.gz"
    change = list(CHANGES[extension])[number // 2 % len(CHANGES[extension])]
    name = f"encode {extension} {number}: {change}"

    def check(server: Server, shared: Path, folder: Path) -> str:
        path = copied(workspace(server, shared), f"tables/texts.{extension}", None, folder, linked=True)
        path.write_bytes(CHANGES[extension][change](path.read_bytes(), Random(f"{seed} {name}")))
        argv = ["encode", "tiny", "--input", path.name, "--output", "new.npy"]
        done = server.command(argv, cwd=folder, **LIMITS)
        problem = verdicts.of_command(done, [path.name])
        if problem or done.status:
            return problem
        arguments = {"texts": path.name, "vectors": "new.npy"}
        done = server.function("tests.campaign.doors:encoded", arguments, cwd=folder, **LIMITS)
        shutil.rmtree(folder / "new.npy.partial", ignore_errors=True)
        return verdicts.how_it_ended(done) or str(done.result)

    return Case("vectors of encode", name, check)
