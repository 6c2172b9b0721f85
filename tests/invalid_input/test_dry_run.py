"""A dry run finds every error that would stop a run, passes what a run accepts, and says what it changes."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from nearfar.commands.train.dev import load_dev_pairs
from nearfar.commands.train.run import EncoderRun
from nearfar.config import SclConfig
from nearfar.types import NearfarError
from tests.invalid_input.cli_runner import assert_refused, copy_workspace, drop_repeated_flags, run_cli
from tests.invalid_input.tables import link_workspace

TRAIN = "train scl --model tiny --data nli.tsv --evaluate-on pairs.tsv --batch-size 10 --max-steps 1 --output new"
SAME = TRAIN.replace("--max-steps 1", "--max-steps 2")
"""The settings of the prepared run."""
SG = "train sg --data texts.txt"


@pytest.fixture
def workspace(valid_workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return link_workspace(valid_workspace, tmp_path, monkeypatch)


def nothing() -> None:
    pass


def text(file: str, content: str) -> Callable[[], object]:
    return lambda: Path(file).write_text(content)


def scored(*rows: str) -> Callable[[], object]:
    return text("bad.tsv", "\n".join(["score\tsentence1\tsentence2", *rows]) + "\n")


def run(*, finished: bool) -> Callable[[], object]:
    def prepare() -> None:
        copy_workspace(Path("run"), Path("new"))
        if not finished:
            Path("new/run.json").unlink()

    return prepare


def folder() -> None:
    Path("new").mkdir()
    Path("new/mine.txt").write_text("mine")


BAD, ONE = "--evaluate-on bad.tsv", "--data one.tsv"
SECOND = 'method = "bt"\ndata = ["{}"]\nbatch_size = 9\nsentence_column = "a"\ntranslation_column = "b"\n'
ROWS: dict[str, tuple[Callable[[], object], str, str]] = {
    # id: what is prepared, flags that replace those of TRAIN, expected message
    "no dev pairs by name": (nothing, "--evaluate-on stsb:dev", "stsb:dev was not found"),
    "missing dev pairs": (nothing, BAD, "bad.tsv: no such file"),
    "and how to get some": (nothing, BAD, "--evaluate-on microworld:dev"),
    "dev pairs are a pipe": (lambda: os.mkfifo("bad.tsv"), BAD, "is a pipe"),
    "other columns": (nothing, "--evaluate-on nli.tsv", "nli.tsv, line 1: no column 'sentence1'"),
    "no scores": (text("bad.tsv", "sentence1\tsentence2\na\tb\n"), BAD, "column 'score'"),
    "no pairs": (scored(), BAD, "bad.tsv: no pairs"),
    "words for scores": (scored("high\ta\tb"), BAD, "bad.tsv, line 2"),
    "equal scores": (scored(*["3\ta\tb", "3\tc\td"] * 3), BAD, "all gold scores are equal"),
    "two pairs": (scored("3\ta\tb", "2\tc\td"), BAD, "2 pairs, where a correlation needs"),
    "one text": (scored("1\ta\ta", "2\ta\ta", "3\ta\ta"), BAD, "all texts are equal"),
    "a file is in the way": (text("new", "mine"), "", "new: "),
    "a folder is in the way": (folder, "", "new: already exists"),
    "another run is in the way": (run(finished=True), "--learning-rate 0.5", "--learning-rate"),
    "this run, finished": (run(finished=True), SAME, "new"),
    "this run, unfinished": (run(finished=False), SAME, "--resume"),
    "nothing to resume": (nothing, "--resume", "there is no run to resume"),
    "no such model": (nothing, "--model nowhere/at/all", "nowhere/at/all"),
    "no such data": (nothing, "--data nowhere.tsv", "nowhere.tsv: no such file"),
    "no such second method": (nothing, "--second slc", "no method is called 'slc'"),
    "no such second file": (nothing, "--second nowhere.toml", "nowhere.toml"),
    "second without data": (nothing, "--second bt", "bt has no default data"),
    "second's data missing": (text("second.toml", SECOND.format("no.tsv")), "--second second.toml", "no.tsv"),
    "second's batch": (
        text("second.toml", SECOND.format("two.tsv")),
        "--second second.toml",
        "--second second.toml: --batch-size 9: there are 3 rows in two.tsv. Set it from 2 to 3.",
    ),
    "a batch of more rows": (nothing, "--batch-size 500", "--batch-size 500: there are 120 rows in nli.tsv"),
    "few rows": (nothing, "--limit 5", "--batch-size 10: there are 5 rows in nli.tsv (--limit 5). Set it from 1 to 5."),
    "views": (nothing, f"{SG} --views 0-99", "--views 0 to 99"),
    "adapters and drift": (nothing, f"{SG} --lora-rank 2", "--drift-weight 0"),
    "no rows": (text("one.tsv", "premise\thypothesis\tlabel\n"), ONE, "no labelled rows"),
    "no pair": (text("one.tsv", "anchor\tpositive\n"), f"train info-nce {ONE}", "one.tsv: no pairs"),
    "one pair": (
        text("one.tsv", "anchor\tpositive\na dog\ta cat\n"),
        f"train info-nce {ONE} --batch-size 2",
        "there is 1 row in one.tsv; info-nce contrasts rows",
    ),
    "one sentence": (text("one.tsv", "text\na dog\n"), f"train simcse-unsup {ONE}", "All sentences are equal"),
    "a link to nothing": (lambda: Path("gone.tsv").symlink_to("nowhere"), "--data gone.tsv", "gone.tsv"),
    "a column twice": (
        text("twice.tsv", "premise\tlabel\tlabel\thypothesis\na\t0\t0\tb\n"),
        "--data twice.tsv",
        "2 columns named 'label'",
    ),
}


def argv_of(flags: str, *more: str) -> list[str]:
    """The words of TRAIN with flags, and perhaps a method, in place of its own."""
    words = flags.split()
    method = words[1] if words[:1] == ["train"] else "scl"
    rest = words[2:] if words[:1] == ["train"] else words
    return drop_repeated_flags(["train", method, *TRAIN.split()[2:], *rest, *more])


@pytest.mark.parametrize("words", [["--dry-run"], []], ids=["dry", "run"])
@pytest.mark.parametrize("case", ROWS)
def test_errors_of_a_run_are_errors_of_a_dry_run(case: str, words: list[str], workspace: Path) -> None:
    prepare, flags, mention = ROWS[case]
    Path("two.tsv").write_text("a\tb\n" + "".join(f"a dog {n}\ta cat {n}\n" for n in range(3)))
    prepare()
    before = sorted(Path().rglob("*"))
    output = assert_refused(argv_of(flags, *words), mention)
    for wrong in ("to 1.", "Did you mean 'gone.tsv'", "Did you mean 'label'"):
        assert wrong not in output.replace("from 1 to", "")
    assert sorted(Path().rglob("*")) == before


def test_adapters_that_are_not_installed(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    assert_refused(argv_of("--lora-rank 2 --dry-run"), "nearfar[lora]")


def dry_run(flags: str) -> str:
    result = run_cli(argv_of(f"{flags} --dry-run"))
    assert result.status == 0, result.err
    assert not Path("new").exists()
    return result.out


@pytest.mark.long
def test_a_batch_of_the_second_objective_is_shown(workspace: Path) -> None:
    Path("second.toml").write_text('method = "simcse-unsup"\ndata = ["texts.txt"]\nbatch_size = 10\n')
    output = dry_run("--second second.toml")
    batch = output[output.index("batch 1\n") : output.index("batch 2\n")]
    first, second = batch.split("and 0.1 times simcse-unsup:")
    assert (first.count("  anchor "), second.count("    anchor ")) == (3, 3)
    assert "    ... and 7 more" in second
    assert "second objective, simcse-unsup: texts.txt" in output


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "rows", "limit"),
    [
        ("scl", "nli.tsv", 30),
        ("simcse-sup", "nli.tsv", 30),
        ("regression", "pairs.tsv", 10),
        ("sg-opt", "texts.txt", 10),
    ],
)
def test_the_default_batch_shrinks_to_a_small_file(method: str, rows: str, limit: int, workspace: Path) -> None:
    shared = f"--model tiny --evaluate-on pairs.tsv --limit {limit} --max-steps 1 --output new --data {rows}"
    argv = ["train", method, *shared.split(), *(["--projection", "8"] if method == "sg-opt" else [])]
    dry = run_cli([*argv, "--dry-run"])
    assert dry.status == 0, dry.err
    assert f"batch size {limit}: there are {limit} rows in {rows} (--limit {limit})" in dry.out
    assert_refused([*argv, "--batch-size", "63"], f"--batch-size 63: there are {limit} rows in {rows}")
    if method == "scl":  # and the run with this batch resumes
        assert run_cli(argv).status == 0
        weights = Path("new/model/model.safetensors").read_bytes()
        Path("new/inputs.json").write_text(json.dumps(json.loads(Path("new/run.json").read_text())["inputs"]))
        Path("new/run.json").unlink()
        assert run_cli([*argv, "--resume"]).status == 0
        assert Path("new/model/model.safetensors").read_bytes() == weights


@pytest.mark.long
def test_geometry_of_scores_on_any_scale(workspace: Path) -> None:
    """Positive pairs are above 0.8 of the highest score of a file."""
    lines = [line.split("\t") for line in Path("pairs.tsv").read_text().splitlines()[1:]]
    rows = [f"{100 if n % 3 else 0}\t{first}\t{second}" for n, (_, first, second) in enumerate(lines)]
    Path("other.tsv").write_text("\n".join(["score\tsentence1\tsentence2", *rows]) + "\n")
    argv = "geometry tiny --pairs other.tsv --output space".split()
    result = run_cli(argv)
    assert result.status == 0, result.err
    assert "on the 20 pairs of other.tsv with a score above 80" in " ".join(result.out.split())
    assert_refused([*argv, "--positive-above", "1000"], "other.tsv: no pair has a score above --positive-above 1000")


class Collapsing:
    """An encoder whose vectors are all equal after some calls."""

    def __init__(self, good_calls: int) -> None:
        self.good_calls, self.draws = good_calls, np.random.default_rng(0)

    def encode(self, texts: Sequence[str], **_: object) -> Any:
        self.good_calls -= 1
        shape = (len(texts), 8)
        return (self.draws.normal(size=shape) if self.good_calls >= 0 else np.ones(shape)).astype(np.float32)


def test_the_error_for_collapsed_weights_does_not_blame_the_dev_file(workspace: Path) -> None:
    def run(good_calls: int) -> EncoderRun:
        """A run of which only what an evaluation needs is there."""
        made = object.__new__(EncoderRun)
        made.encoder, made.dev, made.console = Collapsing(good_calls), load_dev_pairs("pairs.tsv"), Console(quiet=True)  # type: ignore[assignment]
        made.config = SclConfig(output="x", precision="fp32")
        made.warned_of_collapse = made.has_score = False
        return made

    collapsing = run(2)
    collapsing.evaluate()
    collapsing.evaluate()
    with pytest.raises(NearfarError, match=r"^training diverged or collapsed; choose a lower --learning-rate\. pairs"):
        collapsing.evaluate()
    with pytest.raises(NearfarError, match=r"^pairs\.tsv: no correlation"):
        run(0).evaluate()
