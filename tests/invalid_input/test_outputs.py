"""Outputs: inputs and other files are not overwritten, and paths that cannot be written are errors at once."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.invalid_input.cli_runner import assert_refused, run_cli
from tests.invalid_input.tables import paired, write_rows

MINE = "mine --model tiny --data nli.tsv --anchor-column premise --positive-column hypothesis --relative-margin none"
TO_FILE = {
    "predict": ("predict classifier --input mine.tsv --output", "labels.tsv"),
    "encode": ("encode tiny --input mine.tsv --column text --output", "vectors.npy"),
    "mine": (f"{MINE} --output", "triplets.tsv"),
    "search": ("search dog --model tiny --input mine.tsv --output", "hits.jsonl"),
    "evaluate": ("evaluate tiny --tasks pairs.tsv --resamples 0 --output", "scores.json"),
    "compare": ("compare result.json result.json --resamples 9 --output", "difference.json"),
    "report": ("report result.json --output", "page.html"),
}
"""Commands that write a file, and the name of that file."""
RESULTS = ("evaluate", "compare", "report")
"""Those whose own files are replaced."""
to_file = pytest.mark.parametrize(("command", "name"), TO_FILE.values(), ids=TO_FILE)


@pytest.fixture
def user_files(workspace: Path) -> Path:
    """A folder with a user's files, also as Parquet."""
    rows = [{"text": f"a dog {number}"} for number in range(6)]
    for extension in ("tsv", "jsonl", "parquet"):
        write_rows(Path(f"mine.{extension}"), rows)
    lines = [line.split("\t") for line in Path("pairs.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    names = ("score", "sentence1", "sentence2")
    write_rows(Path("scored.jsonl"), [dict(zip(names, line, strict=True)) for line in lines])
    Path("scored.jsonl").rename("scored.json")
    shutil.copy("result.json", "other.json")
    return workspace


def symlink(file: str) -> str:
    Path(f"soft{Path(file).suffix}").symlink_to(file)
    return f"soft{Path(file).suffix}"


def hard_link(file: str) -> str:
    os.link(file, f"hard{Path(file).suffix}")
    return f"hard{Path(file).suffix}"


SPELLINGS: tuple[Callable[[str], str], ...] = (
    lambda file: file,
    lambda file: f"../{Path.cwd().name}/tiny/../{file}",
    lambda file: str(Path(file).absolute()),
    symlink,
    hard_link,
)
INPUTS = {
    "predict classifier --input mine.jsonl --output": "mine.jsonl",
    "encode tiny --input mine.parquet --column text --output": "mine.parquet",
    f"{MINE} --corpus mine.tsv --output": "mine.tsv",
    "evaluate tiny --pairs scored.json --output": "scored.json",
    "compare other.json result.json --output": "result.json",
    "back-translate --input mine.tsv --column text --output": "mine.tsv",
}
"""Commands whose output is one of their inputs."""


@pytest.mark.parametrize(("row", "spelling"), paired(INPUTS, range(len(SPELLINGS))))
def test_no_output_is_an_input(user_files: Path, row: str, spelling: int) -> None:
    file = INPUTS[row]
    before = Path(file).read_bytes()
    output = SPELLINGS[spelling](file)
    for flags in ([], ["--overwrite"] * (not row.startswith("back-translate"))):
        assert_refused([*row.split(), output, *flags], f"--output {output}: would overwrite the input", file)
    assert Path(file).read_bytes() == before
    assert not list(Path().glob("*.new"))


@pytest.mark.long
@to_file
def test_files_are_replaced_only_with_overwrite(user_files: Path, command: str, name: str) -> None:
    argv = [*command.split(), name]
    Path(name).write_text("a thesis", encoding="utf-8")
    output = assert_refused(argv, f"--output {name}: ", "replace it by --overwrite")
    assert "Writing" not in output
    assert Path(name).read_text(encoding="utf-8") == "a thesis"
    result = run_cli([*argv, "--overwrite"])
    assert result.status == 0, result.err
    assert Path(name).read_bytes()[:8] != b"a thesis"
    if command.split(maxsplit=1)[0] in RESULTS:
        assert run_cli(argv).status == 0
    elif not name.startswith("hits"):
        assert_refused(argv, f"--output {name}: exists; replace it by --overwrite")


@to_file
def test_places_that_cannot_be_written(
    user_files: Path, command: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    suffix = Path(name).suffix
    Path(f"folder{suffix}").mkdir()
    Path("closed").mkdir()
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "closed" and real(path, mode))
    rows = [
        ("y" * (231 - len(suffix)) + suffix, "has a name of over 230 bytes; choose a shorter one"),
        (f"folder{suffix}", "is a folder"),
        (f"mine.tsv/out{suffix}", "mine.tsv"),
        (f"closed/{name}", "the folder closed is not writable"),
        (f"none/{name}", "the folder none does not exist"),
    ]
    for output, message in rows[: 4 if command.split(maxsplit=1)[0] in RESULTS else 5]:
        assert_refused([*command.split(), output], "--output ", message)
    assert not Path("none").exists()
    assert not list(Path().glob("y*"))


# --- a run folder as a model ---


@pytest.mark.long
@pytest.mark.parametrize(("verb", "folder"), [("encode", "run"), ("predict", "classifier")])
def test_a_run_folder_is_a_model_if_it_is_finished(user_files: Path, verb: str, folder: str) -> None:
    outputs = {"encode": ("v.npy", "w.npy"), "predict": ("v.tsv", "w.tsv")}[verb]
    for model, output in zip((folder, f"{folder}/model"), outputs, strict=True):
        assert run_cli([verb, model, "--input", "texts.txt", "--output", output]).status == 0
    assert Path(outputs[0]).read_bytes() == Path(outputs[1]).read_bytes()
    argv = [verb, folder, "--input", "texts.txt", "--output", f"x{Path(outputs[0]).suffix}"]
    Path(folder, "run.json").rename("away.json")
    assert_refused(argv, f"{folder}: is a run that is not finished (no run.json)", "--resume")
    Path("away.json").rename(Path(folder, "run.json"))
    shutil.rmtree(Path(folder, "model"))
    assert_refused(argv, f"{folder}: is a finished run, but its folder model is missing")
