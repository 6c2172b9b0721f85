"""Damaged and foreign indexes of ``nearfar search``, and files that changed: one sentence, and nothing is lost."""

import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.invalid_input.cli_runner import assert_refused, run_cli

SEARCH = "search dog --model tiny --input texts.txt --index index --top 3"


@pytest.fixture
def workspace(workspace: Path) -> Path:
    """The workspace with ``index``, the index of ``texts.txt``."""
    assert run_cli(SEARCH.split()).status == 0
    return workspace


def npy(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[bytes], bytes]:
    """Replace the array in a .npy file."""

    def damage(content: bytes) -> bytes:
        stream = io.BytesIO()
        np.save(stream, change(np.load(io.BytesIO(content))))
        return stream.getvalue()

    return damage


def with_nan(vectors: np.ndarray) -> np.ndarray:
    vectors[7, 3] = np.nan
    return vectors


VECTORS = {
    "wider": (npy(lambda old: np.hstack([old, old])), "vectors.npy: is missing or too short for"),
    "narrower, more": (npy(lambda old: np.vstack([old[:, :16]] * 4)), "vectors.npy: is missing or too short for"),
    "float64": (npy(lambda old: old.astype(np.float64)), "vectors.npy: is missing or too short for"),
    "by columns": (npy(np.asfortranarray), "vectors.npy: is missing or too short for"),
    "fewer": (npy(lambda old: old[:-1]), "vectors.npy: is missing or too short for"),
    "zeros": (lambda content: b"\0" * len(content), "vectors.npy: is missing or too short for"),
    "text": (lambda content: b"a" * len(content), "vectors.npy: is missing or too short for"),
    "open bracket": (lambda old: old.replace(b"), }", b"), (", 1), "vectors.npy: is missing or too short for"),
    "other version": (lambda content: content[:6] + b"\x03" + content[7:], "vectors.npy: is missing or too short for"),
    "NaN": (npy(with_nan), "vectors.npy: holds a vector that is not finite"),
}
"""Name -> what happens to vectors.npy, and the message."""


@pytest.mark.long
@pytest.mark.parametrize("more", ["", "--approximate"], ids=["exact", "approximate"])
@pytest.mark.parametrize("damage", VECTORS)
def test_vectors_that_are_not_those_of_the_index(damage: str, more: str, workspace: Path) -> None:
    if more:
        pytest.importorskip("usearch")
    change, message = VECTORS[damage]
    file = Path("index/vectors.npy")
    file.write_bytes(change(file.read_bytes()))
    argv = [*SEARCH.split(), *more.split()]
    assert_refused([*argv, "--output", "hits.tsv"], message, "--rebuild")
    assert not Path("hits.tsv").exists()
    assert run_cli([*argv, "--rebuild"]).status == 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["manifest.json", "vectors.npy", "texts.npy", "rows.jsonl", "rows.npy"])
@pytest.mark.parametrize("content", [b"", b'{"a": 1}\n', b"\xff\xfe\0", None], ids=["empty", "JSON", "bytes", "folder"])
def test_files_with_other_content(name: str, content: bytes | None, workspace: Path) -> None:
    file = Path("index") / name
    file.unlink()
    if content is None:
        file.mkdir()
        assert_refused(SEARCH.split(), f"{name} is a folder, where an index has a file; remove it")
        assert_refused([*SEARCH.split(), "--rebuild"], "remove it")
        return
    file.write_bytes(content)
    assert_refused(SEARCH.split(), f"index/{name}: ", "--rebuild")
    assert file.read_bytes() == content
    assert run_cli([*SEARCH.split(), "--rebuild"]).status == 0


COMMANDS = {
    "another model": (SEARCH.replace("tiny", "other"), "was made with the model tiny, not with other"),
    "another pooling": (f"{SEARCH} --pooling max", "pooling: was mean, is max"),
    "another prompt": (f"{SEARCH} --document-prompt d:", "document prompt: was '', is 'd:'"),
    "another file": (SEARCH.replace("texts.txt", "more.txt"), "is the index of"),
    "a run": (SEARCH.replace("--index index", "--index run"), "--index run: is a folder with other files (config.toml"),
    "a file": (
        SEARCH.replace("--index index", "--index nli.tsv"),
        "--index nli.tsv: is a file, but an index is a folder",
    ),
    "a missing folder": (SEARCH.replace("--index index", "--index no/index"), "the folder no does not exist"),
}


@pytest.mark.long
@pytest.mark.parametrize("case", COMMANDS)
def test_an_index_of_something_else(case: str, workspace: Path) -> None:
    shutil.copytree("tiny", "other")
    settings = Path("other/config.json")
    settings.write_text(settings.read_text().replace('"hidden_dropout_prob": 0.1', '"hidden_dropout_prob": 0.2'))
    Path("more.txt").write_text("two birds\none apple\n")
    before = {file.name: file.read_bytes() for file in Path("index").iterdir()}
    command, message = COMMANDS[case]
    assert_refused(command.split(), message)
    assert {file.name: file.read_bytes() for file in Path("index").iterdir()} == before


CHANGES = {"empty": (b"", "texts.txt: holds no texts"), "UTF-16": ("a dog\n".encode("utf-16"), "It is UTF-16")}


@pytest.mark.long
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_cannot_be_read_any_more_leaves_its_index(change: str, workspace: Path) -> None:
    content, message = CHANGES[change]
    texts = Path("texts.txt").read_bytes()
    Path("texts.txt").write_bytes(content)
    assert_refused(SEARCH.split(), message)
    Path("texts.txt").write_bytes(texts)
    os.utime("texts.txt", (10**9, 10**9))
    result = run_cli(SEARCH.split())
    assert result.status == 0
    assert "up to date" in result.err
