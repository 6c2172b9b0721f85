"""Damaged run folders: each command reports the file in one sentence, or does not need the file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.invalid_input.cli_runner import BUG_MESSAGE, assert_refused, run_cli
from tests.invalid_input.runs import FINETUNE, GROUP, STOPPED, STOPPED_FINETUNE, TRAIN

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
    "group": [*GROUP, "--resume"],
    "evaluate": "evaluate run --tasks pairs.tsv --resamples 0".split(),
    "compare": "compare run tiny --tasks pairs.tsv --resamples 9".split(),
    "report": "report run --output r.html".split(),
    "report stopped": "report stopped --output r.html".split(),
    "encode": "encode run --input texts.txt --output v.npy".split(),
    "predict": "predict classifier --input texts.txt --output l.tsv".split(),
    "evaluate group": "evaluate group --tasks pairs.tsv --resamples 0".split(),
    "report group": "report group --output r.html".split(),
    "compare classifier": "compare classifier classifier --resamples 9".split(),
}
ALL = frozenset(TEXT_DAMAGES)
REMOVALS = {"missing", "folder"}
READ: dict[tuple[str, str], set[str] | frozenset[str]] = {
    ("resume", "stopped/config.toml"): set(),
    ("resume", "stopped/inputs.json"): {"missing"},
    ("resume", "stopped/metrics.jsonl"): {"missing", "empty", "cut early", "list", "deep"},
    ("resume", "stopped/best.safetensors"): set(),
    ("resume", "stopped/checkpoint/progress.json"): set(),
    ("resume", "stopped/checkpoint/weights.safetensors"): set(),
    ("resume", "stopped/checkpoint/optimiser.safetensors"): set(),
    ("start", "stopped/config.toml"): set(),
    ("resume finished", "run/config.toml"): set(),
    ("resume finished", "run/run.json"): {"missing"},
    ("finetune resume", "tuning/config.toml"): set(),
    ("finetune resume", "tuning/inputs.json"): {"missing"},
    ("finetune resume", "tuning/best.safetensors"): set(),
    ("finetune resume", "tuning/checkpoint/progress.json"): set(),
    ("finetune finished", "classifier/run.json"): {"missing"},
    ("finetune finished", "classifier/result.json"): set(),
    ("group", "group/group.json"): ALL - {"folder"},
    ("group", "group/seed-1/run.json"): {"missing"},
    ("group", "group/seed-2/config.toml"): set(),
    ("evaluate", "run/run.json"): set(),
    ("evaluate", "run/model/nearfar_seen.safetensors"): {"missing"},
    ("compare", "run/run.json"): set(),
    ("report", "run/config.toml"): {*REMOVALS, "empty"},
    ("report", "run/metrics.jsonl"): {*REMOVALS, "empty", "cut early", "deep"},
    ("report", "run/run.json"): REMOVALS,
    ("report stopped", "stopped/metrics.jsonl"): {*REMOVALS, "empty", "cut early", "deep"},
    ("encode", "run/run.json"): ALL - REMOVALS,
    ("predict", "classifier/run.json"): ALL - REMOVALS,
    ("evaluate group", "group/group.json"): set(),
    ("evaluate group", "group/seed-1/run.json"): set(),
    ("report group", "group/group.json"): REMOVALS,
    ("report group", "group/seed-2/run.json"): REMOVALS,
    ("compare classifier", "classifier/result.json"): REMOVALS,
}
"""Command and the file that it reads -> the damages that do not affect it."""
ROWS = [
    (command, file, damage_name)
    for command, file in READ
    for damage_name in (WEIGHT_DAMAGES if file.endswith(".safetensors") else TEXT_DAMAGES)
    if command != "compare classifier" or damage_name not in REMOVALS  # the result depends on the hub
]


@pytest.mark.filterwarnings("ignore:.*has no inputs.json", "ignore:.*this dev set chose the best step")
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
        output = assert_refused(COMMANDS[command], Path(file).name, Path(file).parts[0])
        assert "is already finished" not in output
