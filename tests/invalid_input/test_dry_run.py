"""A dry run finds every error that would stop a run, and passes what a run accepts."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.invalid_input.cli_runner import assert_refused, copy_workspace, drop_repeated_flags, run_cli
from tests.invalid_input.tables import link_workspace

TRAIN = "train scl --model tiny --data nli.tsv --batch-size 10 --max-steps 1".split()


@pytest.fixture
def workspace(valid_workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return link_workspace(valid_workspace, tmp_path, monkeypatch)


def _scored(*rows: str) -> Callable[[Path], object]:
    text = "\n".join(["score\tsentence1\tsentence2", *rows]) + "\n"
    return lambda _: Path("bad.tsv").write_text(text)


def _nothing(_: Path) -> None:
    pass


HINTS = ("--evaluate-on FILE", "--evaluate-on microworld:dev", "NEARFAR_DATA")
DEV: dict[str, tuple[Callable[[Path], object], str, tuple[str, ...]]] = {
    "default": (_nothing, "stsb:dev", ("stsb:dev was not found", *HINTS)),
    "empty": (_nothing, "", ("--evaluate-on '': must not be empty",)),
    "missing": (_nothing, "bad.tsv", ("bad.tsv: no such file", *HINTS)),
    "a pipe": (lambda _: os.mkfifo("bad.tsv"), "bad.tsv", ("is a pipe",)),
    "other columns": (_nothing, "nli.tsv", ("nli.tsv, line 1: no column 'sentence1'",)),
    "no scores": (lambda _: Path("bad.tsv").write_text("sentence1\tsentence2\na\tb\n"), "bad.tsv", ("column 'score'",)),
    "no pairs": (_scored(), "bad.tsv", ("bad.tsv: no pairs",)),
    "words for scores": (_scored("high\ta\tb"), "bad.tsv", ("bad.tsv, line 2", "not a number")),
    "equal scores": (_scored(*["3\ta\tb", "3\tc\td"] * 3), "bad.tsv", ("all gold scores are equal",)),
    "two pairs": (_scored("3\ta\tb", "2\tc\td"), "bad.tsv", ("2 pairs, where a correlation needs",)),
    "one text": (_scored("1\ta\ta", "2\ta\ta", "3\ta\ta"), "bad.tsv", ("all texts are equal",)),
}


@pytest.mark.parametrize("words", [["--dry-run"], []], ids=["dry", "run"])
@pytest.mark.parametrize("case", DEV)
def test_dev_pairs_that_cannot_choose_a_step(case: str, words: list[str], workspace: Path) -> None:
    prepare, spec, mentions = DEV[case]
    prepare(workspace)
    assert_refused([*TRAIN, "--output", "new", "--evaluate-on", spec, *words], *mentions)
    assert not Path("new").exists()


def _file(_: Path) -> None:
    Path("new").write_text("mine")


def _folder(_: Path) -> None:
    Path("new").mkdir()
    Path("new/mine.txt").write_text("mine")


def _run(workspace: Path) -> None:
    copy_workspace(workspace / "run", workspace / "new")


def _unfinished(workspace: Path) -> None:
    _run(workspace)
    Path("new/run.json").unlink()


def _second(text: str) -> Callable[[Path], object]:
    return lambda _: Path("second.toml").write_text(text)


SAME = "train scl --model tiny --data nli.tsv --evaluate-on pairs.tsv --batch-size 10 --max-steps 2"
"""The settings of the prepared run."""
FAILING_RUNS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a file is in the way": (_file, "", "new: "),
    "a folder is in the way": (_folder, "", "new: already exists"),
    "another run is in the way": (_run, "--learning-rate 0.5", "--learning-rate"),
    "this run, finished": (_run, SAME, "new"),
    "this run, unfinished": (_unfinished, SAME, "--resume"),
    "nothing to resume": (_nothing, "--resume", "there is no run to resume"),
    "no such model": (_nothing, "--model nowhere/at/all", "nowhere/at/all"),
    "no such data": (_nothing, "--data nowhere.tsv", "nowhere.tsv: no such file"),
    "other data": (_nothing, "--data pairs.tsv", "no column 'premise'"),
    "no such second method": (_nothing, "--second slc", "no method is called 'slc'"),
    "no such second file": (_nothing, "--second nowhere.toml", "nowhere.toml"),
    "second without data": (_nothing, "--second bt", "bt has no default data"),
    "second's data missing": (_second('method = "bt"\ndata = ["no.tsv"]\n'), "--second second.toml", "no.tsv"),
    "second's batch": (
        _second('method = "bt"\ndata = ["two.tsv"]\nbatch_size = 9\nsentence_column = "a"\ntranslation_column = "b"\n'),
        "--second second.toml",
        "--second second.toml: --batch-size 9: there are 3 rows in two.tsv. Set it from 2 to 3.",
    ),
    "a batch of more rows": (_nothing, "--batch-size 500", "--batch-size 500: there are 120 rows in nli.tsv"),
    "few rows": (
        _nothing,
        "--limit 5",
        "--batch-size 10: there are 5 rows in nli.tsv (--limit 5). Set it from 1 to 5.",
    ),
    "views": (_nothing, "train sg --data texts.txt --views 0-99", "--views 0 to 99"),
    "adapters and drift": (_nothing, "train sg --data texts.txt --lora-rank 2", "--drift-weight 0"),
}


@pytest.mark.parametrize("words", [["--dry-run"], []], ids=["dry", "run"])
@pytest.mark.parametrize("case", FAILING_RUNS)
def test_errors_of_a_run_are_errors_of_a_dry_run(case: str, words: list[str], workspace: Path) -> None:
    prepare, flags, mention = FAILING_RUNS[case]
    Path("two.tsv").write_text("a\tb\n" + "".join(f"a dog {n}\ta cat {n}\n" for n in range(3)))
    prepare(workspace)
    before = sorted(Path().rglob("*"))
    first = [] if flags.startswith("train") else [*TRAIN, "--evaluate-on", "pairs.tsv"]
    argv = [*first, *flags.split(), "--output", "new", *words]
    if flags.startswith("train sg"):
        argv += ["--model", "tiny", "--evaluate-on", "pairs.tsv", "--batch-size", "10"]
    assert_refused(drop_repeated_flags(argv), mention)
    assert sorted(Path().rglob("*")) == before


def test_adapters_that_are_not_installed(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    flags = ["--evaluate-on", "pairs.tsv", "--output", "new", "--lora-rank", "2", "--dry-run"]
    assert_refused([*TRAIN, *flags], "nearfar[lora]")


def _dry_run_output(*flags: str) -> str:
    result = run_cli(
        drop_repeated_flags([*TRAIN, "--output", "new", "--evaluate-on", "pairs.tsv", "--dry-run", *flags])
    )
    assert result.status == 0, result.err
    assert not Path("new").exists()
    return result.out


@pytest.mark.long
def test_counts_are_printed_last_and_a_batch_shows_three_anchors(workspace: Path) -> None:
    short, long = _dry_run_output("--batch-size", "60"), _dry_run_output("--batch-size", "60", "--verbose")
    counts = short[short.rindex("nli.tsv: ") :]
    assert counts == long[long.rindex("nli.tsv: ") :]
    for part in ("120 rows: 40 entailment", "dev set: pairs.tsv: 30 pairs", "distinct sentences", "1 steps", "GiB"):
        assert part in counts
        assert short.index(part) > short.index("batch 2\n")
    assert "anchor" not in counts
    assert short.count("  anchor ") == 2 * 3
    assert short.count("  ... and 17 more\n") == 2
    assert long.count("  anchor ") == 2 * 20
    assert "more\n" not in long


def test_two_objectives_show_three_anchors_each(workspace: Path) -> None:
    Path("second.toml").write_text('method = "simcse-unsup"\ndata = ["texts.txt"]\n')
    output = _dry_run_output("--second", "second.toml")
    batch = output[output.index("batch 1\n") : output.index("batch 2\n")]
    first, second = batch.split("and 0.1 times simcse-unsup:")
    assert (first.count("  anchor "), second.count("    anchor ")) == (3, 3)
    assert "    ... and 7 more" in second
    assert "second objective, simcse-unsup: texts.txt" in output


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "rows", "fact"),
    [
        (
            "scl",
            "nli.tsv",
            "batch size 30: there are 30 rows in nli.tsv (--limit 30), fewer than the default batch size of 64",
        ),
        ("simcse-unsup", "texts.txt", "batch size 30: there are 30 rows in texts.txt (--limit 30)"),
        ("simcse-sup", "nli.tsv", "batch size 30: there are 30 rows in nli.tsv (--limit 30), fewer than the default"),
        ("regression", "pairs.tsv", "batch size 10: there are 10 rows in pairs.tsv (--limit 10)"),
        ("supcon-text", "labelled.tsv", "batch size 30: there are 30 rows in labelled.tsv (--limit 30)"),
        (
            "sg-opt",
            "texts.txt",
            "batch size 10: there are 10 rows in texts.txt (--limit 10), fewer than the default batch size of 16",
        ),
    ],
)
def test_the_default_batch_shrinks_to_a_small_file(method: str, rows: str, fact: str, workspace: Path) -> None:
    limit = fact.split()[2].rstrip(":")
    shared = f"--model tiny --evaluate-on pairs.tsv --limit {limit} --max-steps 1 --output new --data {rows}"
    argv = ["train", method, *shared.split(), *(["--projection", "8"] if method == "sg-opt" else [])]
    dry = run_cli([*argv, "--dry-run"])
    assert dry.status == 0, dry.err
    assert fact in dry.out
    assert_refused([*argv, "--batch-size", "63"], f"--batch-size 63: there are {limit} rows in {rows}")


@pytest.mark.long
def test_a_run_with_a_batch_that_shrank_resumes(workspace: Path) -> None:
    argv = "train scl --model tiny --data nli.tsv --evaluate-on pairs.tsv --limit 30 --epochs 3 --output new".split()
    first = run_cli(argv)
    assert first.status == 0
    assert "batch size 30" in first.out
    weights = Path("new/model/model.safetensors").read_bytes()
    Path("new/inputs.json").write_text(json.dumps(json.loads(Path("new/run.json").read_text())["inputs"]))
    Path("new/run.json").unlink()
    again = run_cli([*argv, "--resume"])
    assert again.status == 0, again.err
    assert Path("new/model/model.safetensors").read_bytes() == weights


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "content", "mention"),
    [
        ("scl", "premise\thypothesis\tlabel\n", "no labelled rows"),
        ("info-nce", "anchor\tpositive\n", "one.tsv: no pairs"),
        ("info-nce", "anchor\tpositive\na dog\ta cat\n", "there is 1 row in one.tsv; info-nce contrasts rows"),
        ("simcse-unsup", "text\na dog\n", "All sentences are equal"),
        ("bt", "sentence\ttranslation\na dog\ta cat\n", "there is 1 row in one.tsv; bt contrasts rows"),
    ],
)
def test_data_without_negatives_is_refused(method: str, content: str, mention: str, workspace: Path) -> None:
    Path("one.tsv").write_text(content)
    argv = ["train", method, *"--model tiny --data one.tsv --evaluate-on pairs.tsv --output new".split()]
    for words in ([], ["--dry-run"], ["--batch-size", "1"]):
        output = assert_refused([*argv, *words], mention)
        assert "to 1" not in output


@pytest.mark.long
def test_geometry_of_scores_on_any_scale(workspace: Path) -> None:
    """Positive pairs are above 0.8 of the highest score of a file, and above 4 on the scale of a named set."""
    lines = [line.split("\t") for line in Path("pairs.tsv").read_text().splitlines()[1:]]
    for top in (1, 100):
        rows = [f"{top if n % 3 else 0}\t{first}\t{second}" for n, (_, first, second) in enumerate(lines)]
        Path("other.tsv").write_text("\n".join(["score\tsentence1\tsentence2", *rows]) + "\n")
        argv = "geometry tiny --pairs other.tsv --task pairs.tsv --labelled labelled.tsv --output space".split()
        result = run_cli(argv)
        assert result.status == 0, result.err
        assert f"on the 20 pairs of other.tsv with a score above {0.8 * top:g}" in " ".join(result.out.split())
        assert_refused(
            [*argv, "--positive-above", "1000"], "other.tsv: no pair has a score above --positive-above 1000"
        )
