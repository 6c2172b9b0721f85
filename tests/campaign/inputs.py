"""Part "inputs": malformed tables, settings, results, models, and folders of unfinished work.

A case changes a valid input (see ``mutations.py``) and gives it to nearfar, which must accept it or refuse it in one
sentence that names it, within limits of time and memory. What is read from tables must be what a plain reader finds.
"""

import contextlib
import gzip
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random

import pytest

from tests.campaign import verdicts
from tests.campaign.case import Case, SkipPartError
from tests.campaign.mutations import CHANGES, KINDS_OF_FILE, replace_by
from tests.campaign.readers import read
from tests.campaign.server import Server
from tests.invalid_input.runs import FINETUNE, STOPPED, STOPPED_FINETUNE, TRAIN, make_runs
from tests.invalid_input.tables import COMMANDS, ROWS, argv_of, rows_of, write_rows

__all__ = ["build", "cases", "read"]
ROOT = Path(__file__).parents[2]

TABLES = {"tsv": 450, "csv": 400, "jsonl": 450, "parquet": 250, "tsv.gz": 200, "jsonl.gz": 150}
TEXTS = {"txt": 300, "txt.gz": 120}
"""Format -> number of cases of its reader."""
COLUMNS = {
    "nli": ("premise", "hypothesis", "label"),
    "scored": ("sentence1", "sentence2", "score"),
    "labelled": ("text", "label"),
    "pairs": ("anchor", "positive"),
}
RESUME, FINISHED = " ".join([*STOPPED, "--resume"]), " ".join([*TRAIN, "--output run --resume"])
TUNING, TUNED = " ".join([*STOPPED_FINETUNE, "--resume"]), " ".join([*FINETUNE, "--output classifier --resume"])
SEARCH = "search dog --model tiny --input texts.txt --index index --top 3"
ENCODE = "encode tiny --input texts.txt --output cut.npy"
CUT = f"{ENCODE} --resume"
REPORT, COMPARE = "report {} --output new.html", "compare result.json {} --resamples 9"
OPEN = "encode {} --input texts.txt --output new.npy"
FILES: tuple[tuple[str, str, int], ...] = (
    (RESUME, "stopped/config.toml", 60),
    (RESUME, "stopped/inputs.json", 50),
    (RESUME, "stopped/metrics.jsonl", 60),
    (RESUME, "stopped/checkpoint/progress.json", 80),
    (RESUME, "stopped/checkpoint/weights.safetensors", 60),
    (RESUME, "stopped/checkpoint/optimiser.safetensors", 60),
    (RESUME, "stopped/best.safetensors", 40),
    (TUNING, "tuning/checkpoint/progress.json", 30),
    (FINISHED, "run/run.json", 40),
    (TUNED, "classifier/result.json", 30),
    (REPORT.format("run"), "run/run.json", 80),
    (REPORT.format("run"), "run/metrics.jsonl", 80),
    (REPORT.format("run"), "run/config.toml", 60),
    (REPORT.format("result.json"), "result.json", 100),
    (REPORT.format("two.json"), "two.json", 50),
    (COMPARE.format("other.json"), "other.json", 100),
    ("evaluate run --tasks pairs.tsv --resamples 0", "run/model/nearfar_seen.safetensors", 50),
    ("predict classifier --input texts.txt --output new.tsv", "classifier/run.json", 30),
    (SEARCH, "index/manifest.json", 100),
    (SEARCH, "index/rows.jsonl", 60),
    (SEARCH, "index/vectors.npy", 60),
    (CUT, "cut.npy.partial/_nearfar/plan.json", 60),
    (CUT, "cut.npy.partial/part-00000.parquet", 60),
    *(
        (OPEN.format("tiny"), f"tiny/{name}", 80)
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
    ),
    *((OPEN.format("run"), f"run/model/{name}", 60) for name in ("modules.json", "1_Pooling/config.json")),
    ("train run.toml --model nowhere --output new", "run.toml", 350),
    ("study study.toml --output new --dry-run", "study.toml", 200),
)
"""Command, a file that it reads, and the number of cases."""


def cases(seed: int) -> Iterator[Case]:
    """Cases of each format, reader and file."""
    if not hasattr(os, "fork"):
        raise SkipPartError("needs os.fork")
    for extension, count in TABLES.items():
        for number in range(count):
            kind = list(COLUMNS)[number % len(COLUMNS)]
            call = _reads(COLUMNS[kind])
            yield _changed(seed, f"rows of {extension}", number, f"tables/{kind}.{extension}", extension, call)
    for extension, count in TEXTS.items():
        for number in range(count):
            yield _changed(seed, f"lines of {extension}", number, f"tables/texts.{extension}", extension, _reads(()))
    for reader, (kind, _) in COMMANDS.items():
        for number, extension in enumerate([*TABLES] * 3):
            file = f"tables/{kind}.{extension}"
            yield _changed(seed, f"data of {reader}", number, file, extension, _runs(argv_of(reader, file)))
    for words, file, count in FILES:
        group = f"{words.partition(' ')[0]}, {file}"
        for number in range(count):
            yield _changed(seed, group, number, file, file.rpartition(".")[2], _runs(words.split()))
        for kind in KINDS_OF_FILE:
            yield _case(
                group, f"{group}: {kind}", file, lambda path, kind=kind: replace_by(kind, path), _runs(words.split())
            )


Call = Callable[[Server, Path, str], str]
"""Gives the changed file to nearfar, in the folder of the case; returns what is wrong."""


def _changed(seed: int, group: str, number: int, file: str, extension: str, call: Call) -> Case:
    """A case that changes the content of a file."""
    kind = list(CHANGES[extension])[number % len(CHANGES[extension])]
    name = f"{group} {number}: {kind}"

    def change(path: Path) -> None:
        content = path.read_bytes()
        path.unlink()  # it is a link to a file of all cases
        path.write_bytes(CHANGES[extension][kind](content, Random(f"{seed} {name}")))

    return _case(group, name, file, change, call)


def _case(group: str, name: str, file: str, change: Callable[[Path], object], call: Call) -> Case:
    """A case in a folder with links to the valid files, of which one is changed."""

    def check(server: Server, shared: Path, folder: Path) -> str:
        shutil.copytree(workspace(server, shared), folder, dirs_exist_ok=True, copy_function=os.link)
        change(folder / file)
        return call(server, folder, file)

    return Case(group, name, check)


def _reads(columns: Sequence[str]) -> Call:
    """The reader of tables, or that of lines."""

    def call(server: Server, folder: Path, file: str) -> str:
        done = server.function(f"{__name__}:read", {"file": file, "columns": columns}, cwd=folder)
        return verdicts.of_reader(done, [Path(file).name])

    return call


def _runs(argv: Sequence[str]) -> Call:
    """A command, whose error must name the file or its folder."""

    def call(server: Server, folder: Path, file: str) -> str:
        done = server.command(argv, cwd=folder)
        return verdicts.of_command(done, [Path(file).name, file.partition("/")[0], "nowhere", "cut.npy"])

    return call


def workspace(server: Server, shared: Path) -> Path:
    """The folder of the valid files; the first case that needs it makes it."""
    folder = shared / "valid"
    if not folder.exists():
        fresh = Path(tempfile.mkdtemp(prefix="making-", dir=shared))
        done = server.function(f"{__name__}:build", {"folder": str(fresh.resolve())}, cwd=fresh)
        if done.status != 0:
            raise RuntimeError(f"The valid files could not be made: {done.last_line}")
        try:
            fresh.rename(folder)
        except OSError:  # another thread was faster
            shutil.rmtree(fresh)
    return folder.resolve()


def build(folder: str) -> None:
    """Write the valid files, by small runs of the commands; runs in a fork, in this folder."""
    from nearfar.cli import main
    from nearfar.commands import encode as command
    from tests.encode_helpers import Killed, stop_after
    from tests.tiny import make_workspace, sentences, write_colours

    os.environ.pop("NEARFAR_DATA", None)
    make_workspace(Path())
    write_colours(Path("labelled.tsv"))
    texts = sentences(60, longest=5)
    Path("texts.txt").write_text("\n".join(texts) + "\n")
    Path("tables").mkdir()
    for kind in ROWS:
        for extension in TABLES:
            write_rows(Path(f"tables/{kind}.{extension}"), rows_of(kind))
    Path("tables/texts.txt").write_text("".join(f"{text}\n" for text in texts))
    Path("tables/texts.txt.gz").write_bytes(gzip.compress(Path("tables/texts.txt").read_bytes(), 1))
    shutil.copy(ROOT / "configs/liao-scl.toml", "run.toml")
    shutil.copy(next(iter(sorted((ROOT / "studies/tables").glob("*.toml")))), "study.toml")
    evaluate = "evaluate tiny --tasks pairs.tsv --labelled labelled.tsv"
    for words in (
        " ".join([*TRAIN, "--output run"]),
        " ".join([*FINETUNE, "--output classifier"]),
        f"{evaluate} --output result.json",
        f"{evaluate} --pooling cls --output other.json",
        "compare result.json other.json --resamples 9 --output two.json",
        SEARCH,
    ):
        if main(words.split()) != 0:
            raise RuntimeError(f"nearfar {words} failed.")
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
        patch.setattr(command, "encode_parts", partial(command.encode_parts, block=20))
        stop_after(1, patch)
        main(ENCODE.split())
    assert Path("cut.npy.partial/part-00000.parquet").exists()
    make_runs(Path(), None)
