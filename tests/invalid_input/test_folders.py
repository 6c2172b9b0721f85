"""Folders that commands read: BEIR data, search indexes and held-out rows, damaged or of something else."""

import io
import json
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


def text(content: str) -> Damage:
    return lambda _: content.encode("utf-8", "surrogateescape")


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def without_last_line(content: bytes) -> bytes:
    return b"".join(content.splitlines(True)[:-1])


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


INDEX: list[tuple[str, Damage, str]] = [
    ("vectors.npy", npy(lambda old: np.hstack([old, old])), TOO_SHORT),
    ("vectors.npy", npy(lambda old: old.astype(np.float64)), TOO_SHORT),
    ("vectors.npy", npy(np.asfortranarray), TOO_SHORT),
    ("vectors.npy", npy(lambda old: old[:-1]), TOO_SHORT),
    ("vectors.npy", lambda content: b"\0" * len(content), TOO_SHORT),
    ("vectors.npy", lambda content: content[:6] + b"\x03" + content[7:], TOO_SHORT),
    ("vectors.npy", npy(with_nan), "vectors.npy: holds a vector that is not finite"),
    *(
        (name, text(content), f"index/{name}: ")
        for name in ("manifest.json", "texts.npy", "rows.jsonl", "rows.npy")
        for content in ("", '{"a": 1}\n')
    ),
]


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
@pytest.mark.parametrize("number", range(len(INDEX)))
def test_a_damaged_index(number: int, index: Path) -> None:
    name, change, message = INDEX[number]
    damage(index / name, change)
    content = (index / name).read_bytes()
    for more in ([], ["--approximate"][: name == "vectors.npy"]):
        assert_refused([*SEARCH.split(), *more, "--output", "hits.tsv"], message, "--rebuild")
    assert not Path("hits.tsv").exists()
    assert (index / name).read_bytes() == content
    assert run_cli([*SEARCH.split(), "--rebuild"]).status == 0
    (index / name).unlink()
    (index / name).mkdir()
    assert_refused([*SEARCH.split(), "--rebuild"], f"{name} is a folder, where an index has a file; remove it")


@pytest.mark.long
def test_an_index_of_something_else_or_of_a_file_that_changed(index: Path) -> None:
    shutil.copytree("tiny", "other")
    settings = Path("other/config.json")
    settings.write_text(settings.read_text().replace('"hidden_dropout_prob": 0.1', '"hidden_dropout_prob": 0.2'))
    Path("more.txt").write_text("two birds\none apple\n")
    before = {file.name: file.read_bytes() for file in index.iterdir()}
    for command, message in (
        (SEARCH.replace("tiny", "other"), "was made with the model tiny, not with other"),
        (f"{SEARCH} --pooling max", "pooling: was mean, is max"),
        (f"{SEARCH} --document-prompt d:", "document prompt: was '', is 'd:'"),
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


# --- held-out rows ---

TRAIN = "train --data rows.tsv --model tiny --output held --max-steps 1 --batch-size 10 --hold-out 20"
EVALUATE, COMPARE = "evaluate held --held-out --resamples 0", "compare held tiny --held-out --resamples 10"


def edited(**changes: object) -> Damage:
    return lambda content: json.dumps({**json.loads(content), **changes}).encode()


HELD_OUT: list[tuple[str, Damage, str]] = [
    ("held_out.json", None, "is not a run that holds out rows"),
    ("held_out.json", cut, "is not a complete JSON file"),
    ("held_out.json", lambda _: b"\xff\xfe", "is not UTF-8 text. Restore the folder"),
    ("held_out.json", text("{}"), "held_out.json: is damaged ('kind' is missing or unknown)"),
    ("held_out.json", edited(kind="x"), "held_out.json: is damaged ('x' is missing or unknown)"),
    ("held_out.json", edited(columns=["a"]), "is damaged (the columns a)"),
    ("held_out.json", edited(candidates=3), "training.tsv does not have 3 rows"),
    ("held_out.json", edited(seed=None), "is damaged"),
    ("rows.tsv", None, "rows.tsv: no such file. Restore the folder"),
    ("rows.tsv", without_last_line, "does not have the digest"),
    ("rows.tsv", lambda old: old[:-2] + b"x\n", "rows.tsv is not what was written"),
    ("rows.tsv", lambda old: old.replace(b"dev\t", b"val\t", 1), "'val' is missing or unknown"),
    ("training.tsv", None, "training.tsv: no such file. Restore the folder"),
    ("training.tsv", lambda old: old[:-2] + b"x\n", "training.tsv is not what was written"),
    ("training.tsv", without_last_line, "does not have"),
]


@pytest.fixture(scope="module")
def held_out(valid_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace with ``held``, a run that holds out rows of triplets."""
    folder = copy_workspace(valid_workspace, tmp_path_factory.mktemp("held"))
    words = "dog cat bird man woman child ball apple house river".split()
    rows = [(f"{one} sees {two}", f"the {one} sees", f"the {two} sees") for one in words for two in words if one < two]
    lines = ["anchor\tpositive\tnegative", *("\t".join(f"{text} {n}" for text in row) for n, row in enumerate(rows))]
    (folder / "rows.tsv").write_text("\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = run_cli(TRAIN.split())
    assert result.status == 0, result.err
    return folder


@pytest.mark.long
def test_damaged_held_out_rows(held_out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(held_out)
    for name, change, message in HELD_OUT:
        file = held_out / "held/held_out" / name
        content = file.read_bytes()
        damage(file, change)
        assert_refused(EVALUATE.split(), message)
        assert_refused(COMPARE.split(), message if name != "held_out.json" or change else "none of the sides is a run")
        file.write_bytes(content)
    assert run_cli(EVALUATE.split()).status == 0
    file = held_out / "held/held_out/before-after.json"
    for content in (b"[]", b'{"kind": "evaluation"}', b"\xff"):
        file.write_bytes(content)
        assert_refused(
            [*TRAIN.split(), "--resume"], f"Remove {file.relative_to(held_out)}; then --resume makes it again"
        )
        assert file.read_bytes() == content
    file.unlink()
    assert run_cli([*TRAIN.split(), "--resume"]).status == 0
    assert json.loads(file.read_text())["kind"] == "comparison"
