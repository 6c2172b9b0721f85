"""Outputs: inputs and other files are not overwritten, and paths that cannot be written are errors at once."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.invalid_input.cli_runner import assert_refused, run_cli
from tests.invalid_input.runs import FINETUNE, TRAIN

TO_FILE = {
    "predict": ("predict classifier --input mine.tsv --output", "labels.tsv"),
    "encode": ("encode tiny --input mine.tsv --column text --output", "vectors.npy"),
    "encode parquet": ("encode tiny --input mine.tsv --column text --output", "vectors.parquet"),
    "mine": (
        "mine --model tiny --data nli.tsv --anchor-column premise --positive-column hypothesis --relative-margin none "
        "--output",
        "triplets.tsv",
    ),
    "dedup": ("dedup --model tiny --input mine.tsv --column text --threshold 0.9 --output", "kept.tsv"),
    "search": ("search dog --model tiny --input mine.tsv --output", "hits.tsv"),
    "search json": ("search dog --model tiny --input mine.tsv --output", "hits.jsonl"),
    "evaluate": ("evaluate tiny --tasks pairs.tsv --resamples 0 --output", "scores.json"),
    "compare": ("compare result.json result.json --resamples 9 --output", "difference.json"),
    "report": ("report result.json --output", "page.html"),
}
"""Commands that write a file, and the name of that file."""


@pytest.fixture
def user_files(workspace: Path) -> Path:
    """A folder with a user's files, also as Parquet."""
    import pyarrow
    import pyarrow.parquet

    texts = [f"a dog {number}" for number in range(6)]
    Path("mine.tsv").write_text("\n".join(["text", *texts]) + "\n", encoding="utf-8")
    Path("mine.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in texts), encoding="utf-8")
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), "mine.parquet")
    shutil.copy("pairs.tsv", "scored.tsv")
    lines = [line.split("\t") for line in Path("pairs.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    rows = (
        f'{{"score": {score}, "sentence1": "{first}", "sentence2": "{second}"}}\n' for score, first, second in lines
    )
    Path("scored.json").write_text("".join(rows), encoding="utf-8")
    return workspace


def same(file: str) -> str:
    return file


def dot_prefixed(file: str) -> str:
    return f"./{file}"


def via_parent(file: str) -> str:
    return f"../{Path.cwd().name}/tiny/../{file}"


def absolute(file: str) -> str:
    return str(Path(file).absolute())


def symlink(file: str) -> str:
    Path(f"soft{Path(file).suffix}").symlink_to(file)
    return f"soft{Path(file).suffix}"


def hard_link(file: str) -> str:
    os.link(file, f"hard{Path(file).suffix}")
    return f"hard{Path(file).suffix}"


PATH_SPELLINGS = (same, dot_prefixed, via_parent, absolute, symlink, hard_link)
INPUTS = {
    "predict tsv": ("predict classifier --input mine.tsv --output", "mine.tsv"),
    "predict jsonl": ("predict classifier --input mine.jsonl --output", "mine.jsonl"),
    "search": ("search dog --model tiny --input mine.tsv --output", "mine.tsv"),
    "search queries": ("search --model tiny --input texts.txt --queries mine.jsonl --output", "mine.jsonl"),
    "encode": ("encode tiny --input mine.parquet --column text --output", "mine.parquet"),
    "mine": (
        "mine --model tiny --data scored.tsv --anchor-column sentence1 --positive-column sentence2 --output",
        "scored.tsv",
    ),
    "mine corpus": (
        "mine --model tiny --data nli.tsv --anchor-column premise --positive-column hypothesis --corpus mine.tsv "
        "--output",
        "mine.tsv",
    ),
    "dedup": ("dedup --model tiny --input mine.jsonl --column text --threshold 0.9 --output", "mine.jsonl"),
    "evaluate": ("evaluate tiny --pairs scored.json --output", "scored.json"),
    "compare first": ("compare result.json other.json --output", "result.json"),
    "compare second": ("compare other.json result.json --output", "result.json"),
    "back-translate": ("back-translate --input mine.tsv --column text --output", "mine.tsv"),
}
"""Commands whose output is one of their inputs."""


@pytest.mark.parametrize("overwrite", [False, True], ids=["plain", "overwrite"])
@pytest.mark.parametrize("spelling", PATH_SPELLINGS)
@pytest.mark.parametrize("row", INPUTS)
def test_no_output_is_an_input(user_files: Path, row: str, spelling: Callable[[str], str], overwrite: bool) -> None:
    command, file = INPUTS[row]
    shutil.copy("result.json", "other.json")
    before = Path(file).read_bytes()
    output = str(Path(spelling(file)))
    flags = ["--overwrite"] * (overwrite and row != "back-translate")
    assert_refused([*command.split(), output, *flags], f"--output {output}: would overwrite the input", file)
    assert Path(file).read_bytes() == before
    assert not list(Path().glob("*.new"))


@pytest.mark.parametrize("overwrite", [False, True], ids=["plain", "overwrite"])
def test_the_markdown_of_a_result_may_be_an_input(user_files: Path, overwrite: bool) -> None:
    flags = ["--overwrite"] * overwrite
    shutil.copy("result.json", "page.md")
    assert_refused(["report", "page.md", "--output", "page.html", *flags], "page.md")
    shutil.copytree("run", "page")
    Path("page/metrics.jsonl").rename("page.md")
    Path("page/metrics.jsonl").symlink_to("../page.md")
    assert_refused(["report", "page", "--output", "page.html", *flags], "page.md")
    assert Path("page.md").is_file()
    assert not Path("page.html").exists()
    assert_refused(
        ["evaluate", "tiny", "--tasks", "pairs.tsv", "--output", "tiny/config.json", *flags], "tiny/config.json"
    )
    assert run_cli("encode tiny --input texts.txt --output v.npy".split()).status == 0


@pytest.mark.long
@pytest.mark.parametrize("row", TO_FILE)
def test_other_files_are_replaced_only_with_overwrite(user_files: Path, row: str) -> None:
    command, name = TO_FILE[row]
    Path(name).write_text("a thesis", encoding="utf-8")
    output = assert_refused([*command.split(), name], f"--output {name}: ", "replace it by --overwrite")
    assert "Writing" not in output
    assert Path(name).read_text(encoding="utf-8") == "a thesis"
    result = run_cli([*command.split(), name, "--overwrite"])
    assert result.status == 0, result.err
    assert Path(name).read_bytes()[:8] != b"a thesis"


@pytest.mark.long
@pytest.mark.parametrize("row", ["evaluate", "compare", "report"])
def test_a_result_of_nearfar_is_replaced(user_files: Path, row: str) -> None:
    command, name = TO_FILE[row]
    for _ in range(2):
        result = run_cli([*command.split(), name])
        assert result.status == 0, result.err


@pytest.mark.parametrize("row", ["predict", "encode", "encode parquet", "mine", "dedup"])
def test_other_outputs_are_not_replaced(user_files: Path, row: str) -> None:
    command, name = TO_FILE[row]
    assert run_cli([*command.split(), name]).status == 0
    assert_refused([*command.split(), name], f"--output {name}: exists; replace it by --overwrite")


@pytest.mark.parametrize(
    ("row", "content"),
    [
        ("evaluate", '{"schema": 1}'),
        ("evaluate", '{"schema": 1, "kind": "group"}'),
        ("evaluate", '{"schema": "1", "kind": "evaluation"}'),
        ("evaluate", '[{"schema": 1, "kind": "evaluation"}]'),
        ("evaluate", '{"schema": 1, "kind": "evaluation"'),
        ("evaluate", ""),
        ("compare", "{}"),
        ("report", "<!DOCTYPE html><title>nearfar</title>"),
    ],
)
def test_files_similar_to_a_result_are_not_results(user_files: Path, row: str, content: str) -> None:
    command, name = TO_FILE[row]
    Path(name).write_text(content, encoding="utf-8")
    assert_refused([*command.split(), name], f"--output {name}: ", "--overwrite")
    assert Path(name).read_text(encoding="utf-8") == content


@pytest.mark.parametrize("row", ["evaluate", "compare", "report"])
def test_a_markdown_file_of_another_program(user_files: Path, row: str) -> None:
    command, name = TO_FILE[row]
    notes = Path(name).with_suffix(".md")
    notes.write_text("notes", encoding="utf-8")
    assert_refused([*command.split(), name], f"--output {notes}: ", "--overwrite")
    assert notes.read_text(encoding="utf-8") == "notes"
    assert not Path(name).exists()


def test_geometry_replaces_its_own_files_only(user_files: Path) -> None:
    command = "geometry tiny --pairs pairs.tsv --output space".split()
    Path("space").mkdir()
    for name in ("geometry.json", "geometry.md", "spectrum.png", "pairs.png", "labels.png", "layers-tiny.png"):
        Path("space", name).write_text("mine", encoding="utf-8")
        assert_refused(command, f"space/{name}: ", "--overwrite")
        assert Path("space", name).read_text(encoding="utf-8") == "mine"
        Path("space", name).unlink()
    shutil.copy("pairs.tsv", "space/spectrum.tsv")
    Path("space/spectrum.png").symlink_to("spectrum.tsv")
    command[3] = "space/spectrum.tsv"
    assert_refused([*command, "--overwrite"], "space/spectrum.png: would overwrite the input space/spectrum.tsv")


# --- encode, interrupted and finished ---


@pytest.mark.long
def test_encode_resumes_when_it_replaces(user_files: Path) -> None:
    from tests.encode_helpers import Killed, stop_after

    words = "encode tiny --input texts.txt --output v.npy".split()
    Path("v.npy").write_text("old", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        stop_after(0, patch)
        with pytest.raises(Killed):
            run_cli([*words, "--overwrite"])
    assert Path("v.npy").read_text(encoding="utf-8") == "old"
    assert_refused([*words, "--resume"], "v.npy: exists; replace it by --overwrite")
    assert run_cli([*words, "--resume", "--overwrite"]).status == 0
    assert_refused([*words, "--resume"], "v.npy: is finished, there is nothing to resume", "--overwrite")


# --- paths ---

LONG = "x" * 300


@pytest.mark.parametrize("row", TO_FILE)
def test_names_that_are_too_long(user_files: Path, row: str) -> None:
    command, name = TO_FILE[row]
    suffix = Path(name).suffix
    assert_refused([*command.split(), LONG + suffix], "has a name of over 230 bytes", "choose a shorter one")
    assert_refused([*command.split(), "y" * (231 - len(suffix)) + suffix], "has a name of over 230 bytes")
    assert not list(Path().glob("y*"))


TOO_LONG = {
    "a run": [*TRAIN, "--output", LONG],
    "a run resumed": [*TRAIN, "--output", LONG, "--resume"],
    "a classifier": [*FINETUNE, "--output", LONG],
    "the model": ["encode", LONG, "--input", "texts.txt", "--output", "v.npy"],
    "the model of a run": ["train", "scl", "--model", LONG, *TRAIN[4:], "--output", "new"],
    "a classifier's model": ["predict", LONG, "--input", "texts.txt", "--output", "l.tsv"],
    "the encoder of a score": ["evaluate", LONG, "--tasks", "pairs.tsv"],
    "pairs": ["evaluate", "tiny", "--tasks", f"{LONG}.tsv"],
    "a side": ["compare", LONG, "result.json"],
    "a result": ["compare", f"{LONG}.json", "result.json"],
    "what a report is of": ["report", LONG, "--output", "r.html"],
    "a space": ["geometry", LONG, "--pairs", "pairs.tsv", "--output", "space"],
    "the folder of a space": ["geometry", "tiny", "--pairs", "pairs.tsv", "--output", LONG],
    "texts": ["encode", "tiny", "--input", f"{LONG}.txt", "--output", "v.npy"],
    "a model for search": ["search", "dog", "--model", LONG, "--input", "texts.txt"],
    "a corpus": ["search", "dog", "--model", "tiny", "--input", f"{LONG}.txt"],
    "queries": ["search", "--model", "tiny", "--input", "texts.txt", "--queries", f"{LONG}.txt"],
    "an index": ["search", "dog", "--model", "tiny", "--input", "texts.txt", "--index", LONG],
    "rows": ["predict", "classifier", "--input", f"{LONG}.tsv", "--output", "l.tsv"],
    "training data": [*TRAIN[:4], "--data", f"{LONG}.tsv", *TRAIN[6:], "--output", "new"],
    "dev pairs": [*TRAIN[:6], "--evaluate-on", f"{LONG}.tsv", "--output", "new"],
    "labelled rows": ["finetune", f"{LONG}.tsv", *FINETUNE[2:], "--output", "new"],
    "validation rows": [*FINETUNE, "--validation", f"{LONG}.tsv", "--output", "new"],
    "noise": [*FINETUNE, "--noise", LONG, "--output", "new"],
    "sentences": ["back-translate", "--input", f"{LONG}.txt", "--output", "b.tsv"],
    "translations": ["back-translate", "--input", "texts.txt", "--output", f"{LONG}.tsv"],
}


@pytest.mark.parametrize("row", TOO_LONG)
def test_paths_that_are_too_long(user_files: Path, row: str) -> None:
    output = assert_refused(TOO_LONG[row], "xxx", "has a name of over 2", "choose a shorter one")
    assert not Path("new").exists()
    assert len(output) < 1500


@pytest.mark.parametrize("row", TO_FILE)
@pytest.mark.parametrize(
    ("output", "message"),
    [("tiny/", "is a folder"), ("mine.tsv/out", "mine.tsv")],
    ids=["a folder", "in a file"],
)
def test_invalid_paths(user_files: Path, row: str, output: str, message: str) -> None:
    command, name = TO_FILE[row]
    suffix = Path(name).suffix
    if output.endswith("/"):
        Path(f"folder{suffix}").mkdir()
        output = f"folder{suffix}"
    else:
        output += suffix
    assert_refused([*command.split(), output], f"--output {output}: ", message)


@pytest.mark.parametrize("row", TO_FILE)
def test_folders_that_cannot_be_written(user_files: Path, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command, name = TO_FILE[row]
    Path("closed").mkdir()
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "closed" and real(path, mode))
    assert_refused([*command.split(), f"closed/{name}"], f"--output closed/{name}: the folder closed is not writable")


@pytest.mark.parametrize("row", ["predict", "encode", "search"])
def test_missing_folders_are_named(user_files: Path, row: str) -> None:
    command, name = TO_FILE[row]
    assert_refused([*command.split(), f"none/{name}"], f"--output none/{name}: the folder none does not exist")
    assert not Path("none").exists()


@pytest.mark.parametrize("row", ["evaluate", "compare", "report"])
def test_folders_of_results_are_created(user_files: Path, row: str) -> None:
    command, name = TO_FILE[row]
    assert run_cli([*command.split(), f"deep/er/{name}"]).status == 0
    assert Path(f"deep/er/{name}").is_file()


# --- a run folder as a model ---

RUN_AS_MODEL = {
    "encode": "encode run --input texts.txt --output v.npy",
    "evaluate": "evaluate run --tasks pairs.tsv --resamples 0",
    "compare": "compare run tiny --tasks pairs.tsv --resamples 9",
    "predict": "predict classifier --input texts.txt --output l.tsv",
    "search": "search dog --model run --input texts.txt",
    "train": "train scl --model run --data nli.tsv --evaluate-on pairs.tsv --batch-size 10 --max-steps 1 --output new",
    "finetune": "finetune labelled.tsv --model run --validation-rows 20 --max-steps 1 --output new",
    "a baseline": "evaluate whitening:run --tasks pairs.tsv --resamples 0",
}


@pytest.mark.long
@pytest.mark.parametrize("row", RUN_AS_MODEL)
def test_a_run_folder_is_accepted_as_model(user_files: Path, row: str) -> None:
    result = run_cli(RUN_AS_MODEL[row].split())
    assert result.status == 0, result.err
    if row == "encode":
        assert run_cli("encode run/model --input texts.txt --output w.npy".split()).status == 0
        assert Path("v.npy").read_bytes() == Path("w.npy").read_bytes()


@pytest.mark.parametrize("row", RUN_AS_MODEL)
def test_a_run_without_a_model(user_files: Path, row: str) -> None:
    folder = "classifier" if row == "predict" else "run"
    Path(folder, "run.json").rename("away.json")
    assert_refused(RUN_AS_MODEL[row].split(), f"{folder}: is a run that is not finished (no run.json)", "--resume")
    Path("away.json").rename(Path(folder, "run.json"))
    shutil.rmtree(Path(folder, "model"))
    assert_refused(RUN_AS_MODEL[row].split(), f"{folder}: is a finished run, but its folder model is missing")


def test_importing_disk_loads_nothing_heavy() -> None:
    code = "import sys, nearfar.disk; assert not {'torch', 'transformers', 'numpy', 'safetensors'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_other_system_errors_are_not_path_errors() -> None:
    from nearfar.disk import path_errors

    for error in (OSError(errno.EIO, "Input/output error", "x"), OSError("no number"), OSError(errno.EACCES, "no")):
        with pytest.raises(OSError, match=r".") as caught, path_errors():
            raise error
        assert caught.value is error
