"""A dry run finds every error that would stop a run, passes what a run accepts, and says what it changes."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.invalid_input.cli_runner import assert_refused, copy_workspace, drop_repeated_flags, run_cli
from tests.invalid_input.runs import link_runs

TRAIN = "train scl --model tiny --data nli.tsv --evaluate-on pairs.tsv --batch-size 10 --max-steps 1 --output new"
SAME = TRAIN.replace("--max-steps 1", "--max-steps 2")
"""The settings of the prepared run."""


@pytest.fixture
def workspace(valid_workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return link_runs(valid_workspace, tmp_path, monkeypatch)


def nothing() -> None:
    pass


def text(file: str, content: str) -> Callable[[], object]:
    return lambda: Path(file).write_text(content)


def run(*, finished: bool) -> Callable[[], object]:
    def prepare() -> None:
        copy_workspace(Path("run"), Path("new"))
        if not finished:
            Path("new/run.json").unlink()

    return prepare


ROWS: dict[str, tuple[Callable[[], object], str, str]] = {
    # id: what is prepared, flags that replace those of TRAIN, expected message
    "dev pairs are a pipe": (lambda: os.mkfifo("bad.tsv"), "--evaluate-on bad.tsv", "is a pipe"),
    "a file is in the way": (text("new", "mine"), "", "new: "),
    "another run is in the way": (run(finished=True), "--learning-rate 0.5", "--learning-rate"),
    "this run, unfinished": (run(finished=False), SAME, "--resume"),
    "no such model": (nothing, "--model nowhere/at/all", "nowhere/at/all"),
    "data of a further set missing": (
        *(text("run.toml", 'method = "scl"\n[[sets]]\ndata = ["no.tsv"]\n'), "train run.toml", "set 2: no.tsv"),
    ),
    "views": (nothing, "train sg --data texts.txt --views 0-99", "--views 0 to 99"),
}


def argv_of(flags: str, *more: str) -> list[str]:
    """The words of TRAIN with flags, and perhaps a method, in place of its own."""
    words = flags.split()
    method = words[1] if words[:1] == ["train"] else "scl"
    rest = words[2:] if words[:1] == ["train"] else words
    return drop_repeated_flags(["train", method, *TRAIN.split()[2:], *rest, *more])


@pytest.mark.long
@pytest.mark.parametrize("case", ROWS)
def test_errors_of_a_run_are_errors_of_a_dry_run(case: str, workspace: Path) -> None:
    prepare, flags, mention = ROWS[case]
    prepare()
    before = sorted(Path().rglob("*"))
    for words in (["--dry-run"], []):
        assert_refused(argv_of(flags, *words), mention)
    assert sorted(Path().rglob("*")) == before


@pytest.mark.long
@pytest.mark.parametrize(("method", "rows", "limit"), [("scl", "nli.tsv", 30), ("sg-opt", "texts.txt", 10)])
def test_the_batch_shrinks_to_a_small_file(method: str, rows: str, limit: int, workspace: Path) -> None:
    shared = f"--model tiny --evaluate-on pairs.tsv --limit {limit} --max-steps 1 --output new --data {rows}"
    argv = ["train", method, *shared.split(), *(["--projection", "8"] if method == "sg-opt" else [])]
    dry = run_cli([*argv, "--dry-run"])
    assert dry.status == 0, dry.err
    assert f"batch size {limit}: there are {limit} rows in {rows} (--limit {limit})" in dry.out
    assert f"batch size {limit}" in run_cli([*argv, "--batch-size", "63", "--dry-run"]).out
    if method == "scl":  # and the run with this batch resumes
        assert run_cli(argv).status == 0
        weights = Path("new/model/model.safetensors").read_bytes()
        Path("new/inputs.json").write_text(json.dumps(json.loads(Path("new/run.json").read_text())["inputs"]))
        Path("new/run.json").unlink()
        assert run_cli([*argv, "--resume"]).status == 0
        assert Path("new/model/model.safetensors").read_bytes() == weights
