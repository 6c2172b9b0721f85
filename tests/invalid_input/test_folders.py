"""Folders that commands read: BEIR data, search indexes and held-out rows, damaged or of something else."""

import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.invalid_input.cli_runner import assert_refused, copy_workspace, run_cli

Damage = Callable[[bytes], bytes] | None
"""What happens to the content of a file; None: it is removed."""


def damage(file: Path, change: Damage) -> None:
    content = file.read_bytes()
    file.unlink()
    if change is not None:
        file.write_bytes(change(content))


# --- retrieval tasks ---

QRELS = "query-id\tcorpus-id\tscore\n"
JUDGED = "qrels/test.tsv"
COMMANDS = {
    "--retrieval hub:owner/name": "hub:owner/name",
    "--retrieval beir --corpus texts.txt": "beir: has its own corpus",
    "--retrieval anchors.tsv --corpus none.txt": "none.txt: no such file",
    "--retrieval anchors.tsv --corpus pairs.tsv": "no column 'text'",
    "--corpus texts.txt": "--corpus is for retrieval tasks",
    "--exclude-same-id": "--exclude-same-id is for retrieval tasks",
    "--retrieval a.tsv --pairs a.tsv": "a.tsv: is named both as scored pairs and as retrieval",
    "--retrieval anchors.tsv --corpus corpus.json --output corpus.json --overwrite": "corpus.json",
}


@pytest.fixture
def retrieval(workspace: Path) -> Path:
    """The workspace with ``beir`` and ``anchors.tsv``, both valid."""
    folder = workspace / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "text": "one"}\n{"_id": "d2", "text": "two"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "uno"}\n')
    (folder / JUDGED).write_text(f"{QRELS}q1\td1\t1\n")
    (workspace / "anchors.tsv").write_text("anchor\tpositive\na dog\ta cat\none bird\ttwo birds\n")
    (workspace / "corpus.json").write_text('{"text": "more"}\n')
    return workspace


@pytest.mark.parametrize("flags", COMMANDS)
def test_a_refused_command(flags: str, retrieval: Path) -> None:
    assert_refused(["evaluate", "nowhere", *flags.split()], COMMANDS[flags])


@pytest.mark.long
def test_a_measure_that_results_lack_and_results_on_other_documents(retrieval: Path) -> None:
    for name, more in (("one", ""), ("two", "--corpus texts.txt")):
        command = f"evaluate tiny --retrieval anchors.tsv {more} --resamples 10 --output {name}.json"
        assert run_cli(command.split()).status == 0
    assert_refused("compare one.json two.json".split(), "were scored on different data (task anchors.tsv")
    damaged = (retrieval / "one.json").read_text().replace('"main": "mrr@10"', '"main": "mrr"')
    (retrieval / "one.json").write_text(damaged)
    assert_refused("compare one.json one.json".split(), "retrieval.anchors.tsv.measures has no 'mrr', the main measure")


# --- search indexes ---

SEARCH = "search dog --model tiny --input texts.txt --index index --top 3"
TOO_SHORT = "vectors.npy: is missing or too short for"


def npy(change: Callable[[np.ndarray], np.ndarray]) -> Damage:
    """Replace the array in a .npy file."""

    def apply(content: bytes) -> bytes:
        stream = io.BytesIO()
        np.save(stream, change(np.load(io.BytesIO(content))))
        return stream.getvalue()

    return apply


def with_nan(vectors: np.ndarray) -> np.ndarray:
    vectors[7, 3] = np.nan
    return vectors


INDEX: tuple[tuple[Damage, str], ...] = (
    (npy(lambda old: np.hstack([old, old])), TOO_SHORT),
    (npy(lambda old: old.astype(np.float64)), TOO_SHORT),
    (npy(np.asfortranarray), TOO_SHORT),
    (lambda content: b"\0" * len(content), TOO_SHORT),
    (lambda content: content[:6] + b"\x03" + content[7:], TOO_SHORT),
    (npy(with_nan), "vectors.npy: holds a vector that is not finite"),
)
"""Vectors of another form; ``tests/commands/search`` has the other damages."""


@pytest.fixture(scope="module")
def valid_index(valid_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace with ``index``, the index of ``texts.txt``."""
    folder = copy_workspace(valid_workspace, tmp_path_factory.mktemp("index"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run_cli(SEARCH.split()).status == 0
    return folder


@pytest.fixture
def index(valid_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy_workspace(valid_index, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "index"


@pytest.mark.long
def test_damaged_vectors_of_an_index(index: Path) -> None:
    valid = (index / "vectors.npy").read_bytes()
    for change, message in INDEX:
        (index / "vectors.npy").write_bytes(valid)
        damage(index / "vectors.npy", change)
        for more in ([], ["--approximate"]):
            assert_refused([*SEARCH.split(), *more, "--output", "hits.tsv"], message, "--rebuild")
    assert not Path("hits.tsv").exists()
    assert run_cli([*SEARCH.split(), "--rebuild"]).status == 0
    (index / "vectors.npy").unlink()
    (index / "vectors.npy").mkdir()
    assert_refused([*SEARCH.split(), "--rebuild"], "vectors.npy is a folder, where an index has a file; remove it")


@pytest.mark.long
def test_an_index_of_something_else_or_of_a_file_that_changed(index: Path) -> None:
    shutil.copytree("tiny", "other")
    settings = Path("other/config.json")
    settings.write_text(settings.read_text().replace('"hidden_dropout_prob": 0.1', '"hidden_dropout_prob": 0.2'))
    Path("more.txt").write_text("two birds\none apple\n")
    before = {file.name: file.read_bytes() for file in index.iterdir()}
    for command, message in (
        (SEARCH.replace("tiny", "other"), "was made with the model tiny, not with other"),
        (f"{SEARCH} --pooling max", "--pooling was mean, is max"),
        (f"{SEARCH} --document-prompt d:", "--document-prompt was '', is d:"),
        (SEARCH.replace("texts.txt", "more.txt"), "is the index of"),
        (SEARCH.replace("--index index", "--index run"), "--index run: is a folder with other files (config.toml"),
        (SEARCH.replace("--index index", "--index nli.tsv"), "--index nli.tsv: is a file, but an index is a folder"),
        (SEARCH.replace("--index index", "--index no/index"), "the folder no does not exist"),
    ):
        assert_refused(command.split(), message)
    texts = Path("texts.txt").read_bytes()
    for content, message in ((b"", "texts.txt: holds no texts"), ("a dog\n".encode("utf-16"), "It is UTF-16")):
        Path("texts.txt").write_bytes(content)
        assert_refused(SEARCH.split(), message)
    assert {file.name: file.read_bytes() for file in index.iterdir()} == before
    Path("texts.txt").write_bytes(texts)
    os.utime("texts.txt", (10**9, 10**9))
    result = run_cli(SEARCH.split())
    assert result.status == 0
    assert "up to date" in result.err
