"""Damaged run folders: each command reports the file in one sentence, or does not need the file."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.invalid_input.cli_runner import BUG_MESSAGE, assert_refused, run_cli
from tests.invalid_input.runs import FINETUNE, STOPPED, STOPPED_FINETUNE, TRAIN

pytestmark = pytest.mark.long


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda content: content[: 2 * len(content) // 3],
    "cut early": lambda content: content[:10],
    "list": lambda _: b"[]",
    "number": lambda _: b"7\n",
    "deep": lambda _: b"[" * 100_000,
    "binary": lambda _: b"\xff\x00\xfe" * 9,
}
"""Damage -> new content of a file, from its old content."""
TEXT_DAMAGES = ("missing", "folder", "empty", "cut early", "list", "number", "deep", "binary")
WEIGHT_DAMAGES = ("missing", "folder", "empty", "cut", "binary")

COMMANDS = {
    "resume": [*STOPPED, "--resume"],
    "start": STOPPED,
    "resume finished": [*TRAIN, "--output", "run", "--resume"],
    "finetune resume": [*STOPPED_FINETUNE, "--resume"],
    "finetune finished": [*FINETUNE, "--output", "classifier", "--resume"],
    "evaluate": "evaluate run --tasks pairs.tsv --resamples 0".split(),
    "compare": "compare run tiny --tasks pairs.tsv --resamples 9".split(),
    "report": "report run --output r.html".split(),
    "report stopped": "report stopped --output r.html".split(),
    "encode": "encode run --input texts.txt --output v.npy".split(),
    "predict": "predict classifier --input texts.txt --output l.tsv".split(),
    "compare classifier": "compare classifier classifier --resamples 9".split(),
}
ALL = frozenset(TEXT_DAMAGES)
REMOVALS = {"missing", "folder"}
READ: dict[tuple[str, str], set[str] | frozenset[str]] = {
    ("resume", "stopped/config.toml"): set(),
    ("resume", "stopped/inputs.json"): set(),
    ("resume", "stopped/metrics.jsonl"): {"missing", "empty", "cut early", "list", "deep"},
    ("resume", "stopped/best.safetensors"): set(),
    ("resume", "stopped/checkpoint/progress.json"): set(),
    ("resume", "stopped/checkpoint/weights.safetensors"): set(),
    ("resume", "stopped/checkpoint/optimiser.safetensors"): set(),
    ("start", "stopped/config.toml"): set(),
    ("resume finished", "run/config.toml"): set(),
    ("resume finished", "run/run.json"): set(),
    ("finetune resume", "tuning/config.toml"): set(),
    ("finetune resume", "tuning/inputs.json"): set(),
    ("finetune resume", "tuning/best.safetensors"): set(),
    ("finetune resume", "tuning/checkpoint/progress.json"): set(),
    ("finetune finished", "classifier/run.json"): set(),
    ("finetune finished", "classifier/result.json"): set(),
    ("evaluate", "run/run.json"): set(),
    ("evaluate", "run/model/nearfar_seen.safetensors"): {"missing"},
    ("compare", "run/run.json"): set(),
    ("report", "run/config.toml"): {*REMOVALS, "empty"},
    ("report", "run/metrics.jsonl"): {*REMOVALS, "empty", "cut early", "deep"},
    ("report", "run/run.json"): REMOVALS,
    ("report stopped", "stopped/metrics.jsonl"): {*REMOVALS, "empty", "cut early", "deep"},
    ("encode", "run/run.json"): ALL - REMOVALS,
    ("predict", "classifier/run.json"): ALL - REMOVALS,
    ("compare classifier", "classifier/result.json"): REMOVALS,
}
"""Command and the file that it reads -> the damages that do not affect it."""
ROWS = [
    (command, file, damage_name)
    for command, file in READ
    for damage_name in (WEIGHT_DAMAGES if file.endswith(".safetensors") else TEXT_DAMAGES)
    if command != "compare classifier" or damage_name not in REMOVALS  # the result depends on the hub
]


@pytest.mark.filterwarnings("ignore:.*this dev set chose the best step")
@pytest.mark.parametrize(("command", "file", "damage_name"), ROWS)
def test_a_damaged_file_is_named(runs: Path, command: str, file: str, damage_name: str) -> None:
    path = runs / file
    content = path.read_bytes()
    path.unlink()
    if damage_name == "folder":
        path.mkdir()
    elif damage_name != "missing":
        path.write_bytes(DAMAGE[damage_name](content))
    if damage_name in READ[command, file]:
        result = run_cli(COMMANDS[command])
        assert result.status == 0, result.err
        assert BUG_MESSAGE not in result.err
    else:
        unfinished = command.endswith("finished") and damage_name == "missing" and file.endswith("run.json")
        output = assert_refused(COMMANDS[command], "inputs.json" if unfinished else path.name, Path(file).parts[0])
        assert "is already finished" not in output


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize(
    "file", ["checkpoint/weights.safetensors", "checkpoint/optimiser.safetensors", "best.safetensors"]
)
def test_a_pipe_in_a_checkpoint_is_refused_and_not_waited_for(runs: Path, file: str) -> None:
    (runs / "stopped" / file).unlink()
    os.mkfifo(runs / "stopped" / file)
    assert_refused(COMMANDS["resume"], f"stopped/{file}: is not a regular file")


@pytest.mark.parametrize(
    "argv",
    [
        "evaluate job --tasks pairs.tsv",
        "compare job tiny --tasks pairs.tsv",
        "encode job --input texts.txt --output v.npy",
    ],
)
def test_the_folder_of_a_job_of_a_study_is_named(workspace: Path, argv: str) -> None:
    Path("job").mkdir()
    Path("run").rename("job/run")
    Path("job/job.json").write_text("{}", encoding="utf-8")
    assert_refused(argv.split(), "job: is the folder of a job of a study; name its run folder, job/run.")
    assert run_cli([word.replace("job", "job/run") for word in argv.split()]).status == 0
    Path("job/job.json").unlink()  # any folder may hold one named run
    assert "of a study" not in run_cli(argv.split()).err
