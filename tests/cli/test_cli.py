"""The command line: help that loads nothing heavy, errors in one line, and each verb from flags to files."""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import nearfar
from nearfar import Encoder, FinetuneConfig
from nearfar.cli import VERBS, main
from nearfar.cli.parsing import describe_fields, parse
from nearfar.registry import METHODS
from nearfar.settings import build, dump_toml, load_toml
from tests.tiny import make_workspace, sentences, write_colours


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tiny encoder, NLI rows and scored pairs; the working directory."""
    monkeypatch.chdir(tmp_path)
    return make_workspace(tmp_path)


TRAIN = "--model tiny --data nli.tsv --evaluate-on pairs.tsv --batch-size 10".split()


HELPS = [[], ["--help"], ["train", "--help"], *([verb, "--help"] for verb in VERBS if verb != "train")]
HELPS += [["train", method, "--help"] for method in METHODS]
HEAVY = {*"torch transformers tokenizers numpy datasets pandas scipy sklearn pyarrow matplotlib".split()}
SLOW = {"pydantic", "typeguard", "rich", "asyncio", "unittest"}
"""Lighter, but each would take a large part of the time of ``--help``."""


@pytest.mark.long
def test_help_loads_nothing_heavy() -> None:
    """That of a method loads no other paper's module."""
    code = f"""if True:
        import sys
        import nearfar
        from nearfar.cli import main
        try:
            main(["train", "scl", "--help"])
        except SystemExit:
            pass
        papers = {{name for name in sys.modules if name.startswith("nearfar.methods.")}}
        assert papers == {{f"nearfar.methods.{{name}}" for name in ("base", "liao", "settings")}}, papers
        for words in {[*HELPS, ["--version"]]!r}:
            print("@@", *words)
            try:
                main(words)
            except SystemExit as left:
                assert not left.code, words
            loaded = {HEAVY | SLOW!r} & set(sys.modules)
            assert not loaded, (words, loaded)
    """
    output = run(code)
    for words, help_output in zip(HELPS, output.split("@@")[1:], strict=False):
        assert "nearfar" in help_output, words
        if words[1:] == ["--help"] and words != ["train", "--help"]:
            assert f"usage: nearfar {words[0]}" in help_output, words


def run(code: str) -> str:
    """Return the output of a new process that runs ``code``."""
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_a_flag_that_turns_an_option_off_says_what_it_does() -> None:
    kinds = {getattr(nearfar, name) for name in nearfar.__all__ if name.endswith("Config")} | set(METHODS.values())
    found = {(kind, field.name) for kind in kinds for field in fields(kind) if field.default is True}
    assert len(found) > 20
    for kind, name in found:
        assert f"--no-{name.replace('_', '-')}: " in describe_fields(kind)[name][1], (kind, name)


@pytest.mark.long
def test_help_lists_each_flag_once_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {getattr(nearfar, name) for name in nearfar.__all__ if name.endswith("Config")} - {nearfar.TrainConfig}
    for kind in kinds:
        with pytest.raises(SystemExit):
            parse(kind, ["--help"], prog="nearfar verb")
        lines = capsys.readouterr().out.splitlines()
        shown = [line.split()[0] for line in lines if line.startswith("  --")]
        assert sorted(shown) == sorted(
            f"--{'no-' * (field.default is True)}{field.name.replace('_', '-')}"
            for field in fields(kind)
            if field.name != "sets"  # tables, which a file has
        ), kind
        if kind is FinetuneConfig:
            titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
            expected = ["Run:", "Rows:", "Texts and model:", "Batches and steps:", "Optimiser:"]
            assert titles == [*expected, "Evaluation and checkpoints:", "Loss:", "Few rows and noise:"]
            assert lines.index("Batches and steps:") < shown_at(lines, "--epochs") < lines.index("Optimiser:")


def shown_at(lines: list[str], name: str) -> int:
    return next(number for number, line in enumerate(lines) if line.startswith(f"  {name} "))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("m --input a", "nearfar encode: lacks --output; nearfar encode --help describes them."),
        ("m --output b --input --precision fp32", "--input: needs a value."),
        ("m q --input a --output b", "q: is neither a flag nor the value of one."),
    ],
)
def test_flags_that_are_refused(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["encode", *words.split()]) == 2
    assert message in capsys.readouterr().err


def test_values_are_taken_as_they_are_typed() -> None:
    words = ["--output=x=y", "--hard_negative_weight", "-1e-3", "--query-prompt", "-a: ", "--prompt", "", "--data", "a"]
    config, _ = parse(nearfar.InfoNceConfig, [*words, "-5", "--matryoshka", "8,4", "2"], prog="nearfar train")
    assert (config.output, config.hard_negative_weight) == ("x=y", -1e-3)
    assert (config.query_prompt, config.prompt) == ("-a: ", "")
    assert (config.data, config.matryoshka) == (("a", "-5"), (8, 4, 2))


@pytest.mark.long
def test_train_evaluate_compare_encode(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "scl", *TRAIN, "--output", "run", "--learning-rate", "1e-3"]) == 0
    sentence = r"Spearman on pairs\.tsv: [-\d.]+ before training, [-\d.]+ at the best step, \d+\."
    assert re.search(sentence, capsys.readouterr().out)
    assert main(["evaluate", "tiny", "--tasks", "pairs.tsv", "--output", "before.json", "--name", "untrained"]) == 0
    assert "untrained" in capsys.readouterr().out
    compare = ["compare", "run", "before.json", "--resamples", "200", "--output", "difference.json"]
    assert main(compare) == 0  # a run's folder is its model
    assert "untrained" in capsys.readouterr().out
    assert {path.name for path in workspace.glob("*.md")} == {"before.md", "difference.md"}

    lines = [*sentences(4), "", "dog 🐶"]
    (workspace / "texts.txt").write_text("\n".join(lines) + "\n")
    assert main(["encode", "run/model", "--input", "texts.txt", "--output", "texts.npy", "--normalize"]) == 0
    assert "Wrote 6 embeddings with 32 dimensions to texts.npy" in capsys.readouterr().out
    expected = Encoder.from_pretrained("run/model").encode(lines, normalize=True)
    np.testing.assert_array_equal(np.load("texts.npy"), expected)


FINETUNE = "--model tiny --batch-size 8 --validation-rows 20".split()


@pytest.mark.long
def test_finetune_from_a_file_whose_settings_flags_override(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_colours(workspace / "labelled.tsv", 90)
    config = FinetuneConfig(output="run", task="labelled.tsv", model="tiny", batch_size=8, epochs=1, seed=5)
    (workspace / "run.toml").write_text(dump_toml(config))
    assert main(["finetune", "run.toml", "--scl-weight", "0", "--sample-size", "10", "--no-sample-balanced"]) == 0
    kind, values = load_toml("run/config.toml")
    found = build(kind, values, source="run")
    assert isinstance(found, FinetuneConfig)
    assert (found.task, found.seed, found.scl_weight) == ("labelled.tsv", 5, 0.0)
    assert (found.sample_size, found.sample_balanced) == (10, False)
    assert "10 of 65 training rows drawn, in the labels' proportions, sample 1" in capsys.readouterr().out
    assert main(["finetune", "run.toml"]) == 2
    assert "other settings (--sample-balanced, --sample-size, --scl-weight)" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # warnings are shown, as on the command line; in tests they are errors
def test_long_texts_give_one_warning(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workspace / "long.txt").write_text("a dog runs by the river\na dog\n")
    assert main("encode tiny --input long.txt --output x.npy --max-length 5".split()) == 0
    assert "warning: 1 of 2 distinct texts are longer than 5 tokens and were truncated." in capsys.readouterr().err


def test_errors_have_no_control_characters(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A file of somebody else could otherwise move the cursor, or write to the clipboard of a terminal."""
    assert main(["report", str(tmp_path / "run\x1b]52;c;x\x07"), "--output", str(tmp_path / "page.html")]) == 2
    shown = capsys.readouterr()
    assert "]52;c;x" in shown.err
    assert "\x1b" not in shown.err + shown.out
    assert "\x07" not in shown.err + shown.out
