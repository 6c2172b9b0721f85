"""Damaged run folders: each command reports the file in one sentence, or does not need the file."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.invalid_input.cli_runner import assert_refused, run_cli
from tests.invalid_input.runs import STOPPED, STOPPED_FINETUNE, TRAIN

pytestmark = pytest.mark.long

DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda _: None,
    "empty": lambda _: b"",
    "cut": lambda content: content[: 2 * len(content) // 3],
    "cut early": lambda content: content[:10],
    "list": lambda _: b"[]",
    "number": lambda _: b"7\n",
    "deep": lambda _: b"[" * 100_000,
    "binary": lambda _: b"\xff\x00\xfe" * 9,
}
"""Damage -> new content of a file, from its old content; beside these, a folder in its place."""
TEXT, WEIGHTS = (
    ("missing", "folder", "empty", "cut early", "list", "number", "deep", "binary"),
    ("missing", "folder", "cut"),
)
COMMANDS = {
    "resume": [*STOPPED, "--resume"],
    "start": STOPPED,
    "resume finished": [*TRAIN, "--output", "run", "--resume"],
    "finetune resume": [*STOPPED_FINETUNE, "--resume"],
    "evaluate": "evaluate run --tasks pairs.tsv --resamples 0".split(),
    "report": "report run --output r.html".split(),
    "report stopped": "report stopped --output r.html".split(),
    "encode": "encode run --input texts.txt --output v.npy".split(),
}
REMOVALS = {"missing", "folder"}
READ: dict[tuple[str, str], set[str]] = {
    ("resume", "stopped/config.toml"): set(),
    ("resume", "stopped/inputs.json"): set(),
    ("resume", "stopped/metrics.jsonl"): {"missing", "empty", "cut early", "list", "deep"},
    ("resume", "stopped/best.safetensors"): set(),
    ("resume", "stopped/checkpoint/progress.json"): set(),
    ("resume", "stopped/checkpoint/weights.safetensors"): set(),
    ("resume", "stopped/checkpoint/optimiser.safetensors"): set(),
    ("start", "stopped/config.toml"): set(),
    ("resume finished", "run/run.json"): set(),
    ("finetune resume", "tuning/inputs.json"): set(),
    ("evaluate", "run/run.json"): set(),
    ("evaluate", "run/model/nearfar_seen.safetensors"): {"missing"},
    ("report", "run/config.toml"): {*REMOVALS, "empty"},
    ("report", "run/metrics.jsonl"): {*REMOVALS, "empty", "cut early", "deep"},
    ("report", "run/run.json"): REMOVALS,
    ("report stopped", "stopped/metrics.jsonl"): {*REMOVALS, "empty", "cut early", "deep"},
    ("encode", "run/run.json"): {*TEXT} - REMOVALS,
}
"""Command and the file that it reads -> the damages that do not affect it."""
ROWS = [
    pytest.param(*row, damage, marks=[pytest.mark.nightly] * bool((number + turn) % 5))
    for number, row in enumerate(READ)
    for turn, damage in enumerate(WEIGHTS if row[1].endswith(".safetensors") else TEXT)
]
"""A fifth of them by day."""


@pytest.mark.filterwarnings("ignore:.*this dev set chose the best step")
@pytest.mark.parametrize(("command", "file", "damage"), ROWS)
def test_a_damaged_file_is_named(runs: Path, command: str, file: str, damage: str) -> None:
    path = runs / file
    content = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif (new := DAMAGE[damage](content)) is not None:
        path.write_bytes(new)
    if damage in READ[command, file]:
        result = run_cli(COMMANDS[command])
        assert result.status == 0, result.err
    else:
        unfinished = command.endswith("finished") and damage == "missing"
        output = assert_refused(COMMANDS[command], "inputs.json" if unfinished else path.name, Path(file).parts[0])
        assert "is already finished" not in output


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("file", ["checkpoint/weights.safetensors", "best.safetensors"])
def test_a_pipe_in_a_checkpoint_is_refused_and_not_waited_for(runs: Path, file: str) -> None:
    (runs / "stopped" / file).unlink()
    os.mkfifo(runs / "stopped" / file)
    assert_refused(COMMANDS["resume"], f"stopped/{file}: is not a regular file")


def test_the_folder_of_a_job_of_a_study_is_named(workspace: Path) -> None:
    Path("job").mkdir()
    Path("run").rename("job/run")
    Path("job/job.json").write_text("{}", encoding="utf-8")
    argv = "evaluate job --tasks pairs.tsv"
    assert_refused(argv.split(), "job: is the folder of a job of a study; name its run folder, job/run.")
    assert run_cli(argv.replace("job", "job/run").split()).status == 0
    Path("job/job.json").unlink()  # any folder may hold one named run
    assert "of a study" not in run_cli(argv.split()).err
