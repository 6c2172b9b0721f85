"""Run folders that are damaged, or continued: with changed inputs, after an early kill, without permission."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.encode_helpers import Killed
from tests.invalid_input.cli_runner import assert_refused, drop_repeated_flags, run_cli
from tests.invalid_input.runs import STOPPED, STOPPED_FINETUNE, TRAIN
from tests.tiny import save_tiny

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
    "resume finished": [*TRAIN, "--output", "run", "--resume"],
    "finetune resume": [*STOPPED_FINETUNE, "--resume"],
    "evaluate": "evaluate run --tasks pairs.tsv --resamples 0".split(),
    "report": "report run --output r.html".split(),
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
    ("resume finished", "run/run.json"): set(),
    ("finetune resume", "tuning/inputs.json"): set(),
    ("evaluate", "run/run.json"): set(),
    ("evaluate", "run/model/nearfar_seen.safetensors"): {"missing"},
    ("report", "run/config.toml"): {*REMOVALS, "empty"},
    ("report", "run/metrics.jsonl"): {*REMOVALS, "empty", "cut early", "deep"},
    ("report", "run/run.json"): REMOVALS,
    ("encode", "run/run.json"): {*TEXT} - REMOVALS,
}
"""Command and the file that it reads -> the damages that do not affect it."""
ROWS = [
    pytest.param(*row, damage, marks=[pytest.mark.nightly] * bool((number + turn) % 5))
    for number, row in enumerate(READ)
    for turn, damage in enumerate(WEIGHTS if row[1].endswith(".safetensors") else TEXT)
]
"""A fifth of them by day."""


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


def test_the_folder_of_a_job_of_a_study_is_named(workspace: Path) -> None:
    Path("job").mkdir()
    Path("run").rename("job/run")
    Path("job/job.json").write_text("{}", encoding="utf-8")
    argv = "evaluate job --tasks pairs.tsv"
    assert_refused(argv.split(), "job: is the folder of a job of a study; name its run folder, job/run.")
    assert run_cli(argv.replace("job", "job/run").split()).status == 0
    Path("job/job.json").unlink()  # any folder may hold one named run
    assert "of a study" not in run_cli(argv.split()).err


# --- runs that are continued ---


def new_text(file: str, old: str, new: str) -> Callable[[], None]:
    """Replaces the first ``old`` in a file, writing a new file."""

    def change() -> None:
        text = Path(file).read_text(encoding="utf-8")
        assert old in text
        Path(file).unlink()
        Path(file).write_text(text.replace(old, new, 1), encoding="utf-8")

    return change


def other_weights() -> None:
    shutil.rmtree("tiny")
    save_tiny(Path("tiny"), seed=1)


CHANGES: dict[str, tuple[list[str], Callable[[], None], str]] = {
    "a label": (STOPPED, new_text("nli.tsv", "entailment", "neutral"), "stopped: --data nli.tsv"),
    "a score": (STOPPED, new_text("pairs.tsv", "\n0.", "\n1."), "stopped: --evaluate-on pairs.tsv"),
    "weights": (STOPPED, other_weights, "stopped: --model tiny"),
    "tokenizer": (STOPPED, new_text("tiny/tokenizer.json", '"dogs"', '"cats"'), "stopped: --model tiny"),
    "labels": (STOPPED_FINETUNE, new_text("labelled.tsv", "\tcold\n", "\twarm\n"), "labelled.tsv (the training rows)"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_run_resumes_only_with_the_same_inputs(runs: Path, name: str) -> None:
    argv, change, mention = CHANGES[name]
    folder = Path(argv[-1])
    before = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    change()
    advice = f"choose another --output, or remove {folder}"
    assert_refused([*argv, "--resume"], f"{mention} changed since this run started", advice)
    assert {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()} == before


def stop_at_the_end(argv: list[str], folder: str) -> None:
    """A run that is killed after its last step."""

    def stop(_: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nearfar.runs.folder.RunFolder.finish", stop)
        with pytest.raises(Killed):
            run_cli(argv)
    Path(folder, "run.json").unlink()


def test_rows_beyond_the_limit_may_change_those_of_a_further_set_not(runs: Path) -> None:
    argv = [*STOPPED[:-1], "mixed", "--limit", "60", "--data", "texts.txt"]
    stop_at_the_end(argv, "mixed")
    with_other_end = Path("nli.tsv").read_text(encoding="utf-8").rsplit("\n", 2)[0] + "\na dog\ta cat\tneutral\n"
    Path("nli.tsv").unlink()
    Path("nli.tsv").write_text(with_other_end, encoding="utf-8")
    new_text("texts.txt", "\n", " dog\n")()
    assert_refused([*argv, "--resume"], "set 2, --data texts.txt changed since this run started")
    new_text("texts.txt", " dog\n", "\n")()
    assert run_cli([*argv, "--resume"]).status == 0


# --- killed while the run folder was created ---


@pytest.mark.parametrize(
    ("left", "resume"),
    [("", True), ("inputs.json.new", False), ("inputs.json", True), ("inputs.json config.toml.new", False)],
)
def test_leftover_files_of_a_killed_run_have_no_effect(runs: Path, left: str, resume: bool) -> None:
    Path("half").mkdir()
    for name in left.split():
        Path("half", name).write_text('{"--model', encoding="utf-8")
    result = run_cli(drop_repeated_flags([*TRAIN, "--max-steps", "1", "--output", "half", *["--resume"] * resume]))
    assert result.status == 0, result.err
    assert Path("half/model").is_dir()
    assert not list(Path("half").glob("*.new"))
