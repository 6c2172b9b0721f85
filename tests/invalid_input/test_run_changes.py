"""Runs that are continued: with changed inputs, beside another process, after an early kill, without permission."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.encode_helpers import Killed
from tests.invalid_input.cli_runner import assert_refused, drop_repeated_flags, run_cli
from tests.invalid_input.runs import STOPPED, STOPPED_FINETUNE, TRAIN
from tests.tiny import save_tiny

pytestmark = pytest.mark.long


def new_text(file: str, old: str, new: str) -> Callable[[], None]:
    """Replaces the first ``old`` in a file, writing a new file."""

    def change() -> None:
        text = Path(file).read_text(encoding="utf-8")
        assert old in text
        Path(file).unlink()
        Path(file).write_text(text.replace(old, new, 1), encoding="utf-8")

    return change


def last_row(file: str, new: str = "") -> None:
    """Replace the last row, writing a new file."""
    rows = Path(file).read_text(encoding="utf-8").splitlines()
    Path(file).unlink()
    Path(file).write_text("\n".join([*rows[:-1], *[new] * bool(new)]) + "\n", encoding="utf-8")


def other_weights() -> None:
    shutil.rmtree("tiny")
    save_tiny(Path("tiny"), seed=1)


CHANGES: dict[str, tuple[list[str], Callable[[], None], str]] = {
    "a label": (STOPPED, new_text("nli.tsv", "entailment", "neutral"), "stopped: --data nli.tsv"),
    "a row less": (STOPPED, lambda: last_row("nli.tsv"), "stopped: --data nli.tsv"),
    "a score": (STOPPED, new_text("pairs.tsv", "\n0.", "\n1."), "stopped: --evaluate-on pairs.tsv"),
    "weights": (STOPPED, other_weights, "stopped: --model tiny"),
    "tokenizer": (STOPPED, new_text("tiny/tokenizer.json", '"dogs"', '"cats"'), "stopped: --model tiny"),
    "labelled rows": (
        STOPPED_FINETUNE,
        new_text("labelled.tsv", "\tcold\n", "\twarm\n"),
        "labelled.tsv (the training rows)",
    ),
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


def test_rows_beyond_the_limit_may_change_those_of_a_second_objective_not(runs: Path) -> None:
    Path("second.toml").write_text('method = "simcse-unsup"\ndata = ["texts.txt"]\n', encoding="utf-8")
    argv = [*STOPPED[:-1], "mixed", "--limit", "60", "--second", "second.toml"]
    stop_at_the_end(argv, "mixed")
    last_row("nli.tsv", "a dog\ta cat\tneutral")
    new_text("texts.txt", "\n", " dog\n")()
    assert_refused([*argv, "--resume"], "the data of --second second.toml changed since this run started")
    new_text("texts.txt", " dog\n", "\n")()
    assert run_cli([*argv, "--resume"]).status == 0


# --- two processes at once ---

HOLD_LOCK = "import sys; from pathlib import Path; from nearfar.disk import folder_lock\n"
HOLD_LOCK += "with folder_lock(Path(sys.argv[1])):\n    print('in', flush=True)\n    sys.stdin.read()\n"


# --- killed while the run folder was created ---


@pytest.mark.parametrize(
    ("left", "resume"),
    [("", True), ("inputs.json.new", False), ("inputs.json", True), ("inputs.json second.toml config.toml.new", False)],
)
def test_leftover_files_of_a_killed_run_have_no_effect(runs: Path, left: str, resume: bool) -> None:
    Path("half").mkdir()
    for name in left.split():
        Path("half", name).write_text('{"--model', encoding="utf-8")
    result = run_cli(drop_repeated_flags([*TRAIN, "--max-steps", "1", "--output", "half", *["--resume"] * resume]))
    assert result.status == 0, result.err
    assert Path("half/model").is_dir()
    assert not list(Path("half").glob("*.new"))


# --- permissions ---


def test_a_folder_that_cannot_be_created_or_listed(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        assert_refused([*TRAIN, "--output", "closed/run"], "closed/run: cannot be written (Permission denied)")
    real = Path.stat
    monkeypatch.setattr(
        Path, "stat", lambda self, **more: (refuse if self.parent.name == "run" else real)(self, **more)
    )
    for argv in ([*TRAIN, "--output", "run"], "evaluate run --tasks pairs.tsv".split()):
        assert_refused(argv, "run/", "Permission denied")
