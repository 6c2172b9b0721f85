"""Folders that commands read: BEIR data, and the place of a search index."""

from pathlib import Path

import pytest

from tests.invalid_input.cli_runner import assert_refused

QRELS = "query-id\tcorpus-id\tscore\n"
JUDGED = "qrels/test.tsv"
COMMANDS = {
    "--retrieval hub:owner/name": "hub:owner/name",
    "--retrieval beir --corpus texts.txt": "beir: has its own corpus",
    "--retrieval anchors.tsv --corpus none.txt": "none.txt: no such file",
    "--retrieval anchors.tsv --corpus pairs.tsv": "no column 'text'",
    "--corpus texts.txt": "--corpus is for retrieval tasks",
    "--exclude-same-id": "--exclude-same-id is for retrieval tasks",
    "--retrieval a.tsv --pairs a.tsv": "a.tsv: is named both by --pairs and by --retrieval",
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


def test_a_place_that_is_no_index(workspace: Path) -> None:
    for place, message in (
        ("run", "--index run: is a folder with other files (config.toml"),
        ("nli.tsv", "--index nli.tsv: nli.tsv is a file, not a folder."),
    ):
        assert_refused(["search", "dog", *f"--model tiny --input texts.txt --index {place}".split()], message)
