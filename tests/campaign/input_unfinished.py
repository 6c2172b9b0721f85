"""Cases of the files that a command keeps until it is finished, or to continue: each is changed, and it runs again."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from tests.campaign import scenario_inputs, verdicts
from tests.campaign.case import Case
from tests.campaign.input_files import CHANGES, LIMITS, Call, changed_file, replaced_file
from tests.campaign.mutations import BYTES
from tests.campaign.mutations_json import JSON
from tests.campaign.no_files import KINDS_OF_FILE
from tests.campaign.scenario_runs import nearfar
from tests.campaign.server import Server

FOLDER = "unfinished"
ENCODE = "encode tiny --input sentences.txt --output vectors.npy"
SHARDS = "encode tiny --input parts/*.parquet --column text --shard-rows 23 --output shards"
TRANSLATE = (
    "back-translate --input sentences.txt --forward forward --backward backward --beams 2 --batch-size 4 "
    "--max-length 8 --output back.tsv"
)
CONVERT = "get-data mr cr trec --source download --output data"
FILES = (
    (ENCODE, "vectors.npy.partial/_nearfar/plan.json"),
    (ENCODE, "vectors.npy.partial/part-00000.parquet"),
    (SHARDS, "shards/_nearfar/plan.json"),
    (SHARDS, "shards/_nearfar/parts/part-00000.json"),
    (SHARDS, "shards/part-00000.parquet"),
    (TRANSLATE, "back.tsv.partial/_nearfar/plan.json"),
    (TRANSLATE, "back.tsv.partial/_nearfar/parts/block-000000.json"),
    (CONVERT, "data/sources.json"),
)
"""Command, and a file that it leaves: it is stopped at the first flush after it has written all of its files."""
COUNT = 40
_CHANGES = {"json": JSON, "jsonl": CHANGES["jsonl"], "tsv": CHANGES["tsv"], "npy": BYTES, "parquet": BYTES}


def cases(seed: int) -> Iterator[Case]:
    """Cases of each file."""
    for words, file in FILES:
        changes = _CHANGES[file.rpartition(".")[2]]
        group = f"unfinished {words.partition(' ')[0]}"
        for number in range(COUNT):
            yield changed_file(
                seed, group, number, f"{FOLDER}/{file}", changes, _again(words), inside=FOLDER, note=file
            )
        for kind in KINDS_OF_FILE:
            yield replaced_file(kind, f"{FOLDER}/{file}", _again(words), inside=FOLDER)


def build(folder: Path) -> None:
    """Write the inputs to ``folder``, and run each command until its stop; runs in a fork, in this folder."""
    scenario_inputs.write_inputs(str(folder))
    flush = os.fsync
    for words in dict.fromkeys(words for words, _ in FILES):
        files = [folder / file for command, file in FILES if command == words]

        def stopping(descriptor: int, files: Sequence[Path] = files) -> None:
            if all(file.exists() for file in files):
                raise _StoppedError
            flush(descriptor)

        os.fsync = stopping
        try:
            with contextlib.suppress(_StoppedError):
                nearfar(words.split())
        except SystemExit as end:
            raise RuntimeError(f"nearfar {words} was not stopped: {end.code}") from end
        finally:
            os.fsync = flush


class _StoppedError(BaseException):
    """Ends a command as if it were killed."""


def _again(words: str) -> Call:
    """Runs the command again, with --resume where it has one; then, if it is refused, says why."""
    resumed = words if words in (TRANSLATE, CONVERT) else f"{words} --resume"

    def call(server: Server, path: Path, draw: Random) -> str:
        folder = next(place for place in path.parents if place.name == FOLDER)
        options = {"arguments": resumed.split()}
        done = server.function("tests.campaign.scenario_runs:nearfar", options, cwd=folder, **LIMITS)
        names = {
            words.rsplit(maxsplit=1)[-1],
            "part-0000",
            *(part for part in path.relative_to(folder).parts if part != "_nearfar"),
        }
        return verdicts.of_command(done, sorted(names))

    return call
