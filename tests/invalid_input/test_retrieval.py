"""Retrieval tasks on the command line: malformed sources, and flags that do not fit."""

from pathlib import Path

import pytest

from tests.invalid_input.cli_runner import assert_refused, run_cli

RETRIEVAL = "evaluate nowhere --retrieval"
QRELS = "query-id\tcorpus-id\tscore\n"


@pytest.fixture
def workspace(workspace: Path) -> Path:
    """The workspace with ``beir`` and ``anchors.tsv``, both valid."""
    folder = workspace / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "text": "one"}\n{"_id": "d2", "text": "two"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "uno"}\n')
    (folder / "qrels" / "test.tsv").write_text(f"{QRELS}q1\td1\t1\n")
    (workspace / "anchors.tsv").write_text("anchor\tpositive\na dog\ta cat\none bird\ttwo birds\n")
    return workspace


FOLDERS = {
    "no corpus": ("corpus.jsonl", None, "has no corpus.jsonl"),
    "empty corpus": ("corpus.jsonl", "", "corpus.jsonl is empty; each line should be"),
    "no text": ("corpus.jsonl", '{"_id": "d1"}\n', "corpus.jsonl, line 1: no column 'text'"),
    "duplicate document": (
        "corpus.jsonl",
        '{"_id": "d1", "text": "one"}\n{"_id": "d1", "text": "two"}\n',
        "corpus.jsonl, line 2: the document id 'd1' is already that of beir/corpus.jsonl, line 1",
    ),
    "not JSON": ("queries.jsonl", "uno\n", "queries.jsonl, line 1: not a JSON object"),
    "not UTF-8": ("queries.jsonl", b"\xff\xfe\n", "queries.jsonl, line 1: not UTF-8"),
    "no queries": ("queries.jsonl", "", "queries.jsonl is empty; each line should be"),
    "no header": ("qrels/test.tsv", "q1\td1\t1\n", "test.tsv, line 1: no column 'query-id'"),
    "fractions": ("qrels/test.tsv", f"{QRELS}q1\td1\t0.5\n", "test.tsv, line 2: column 'score' holds '0.5'"),
    "too few fields": ("qrels/test.tsv", f"{QRELS}q1\td1\n", "test.tsv, line 2: 2 fields, but the header has 3"),
    "unknown ids": ("qrels/test.tsv", f"{QRELS}q1\td9\t1\n", "1 of unknown documents"),
    "nothing relevant": ("qrels/test.tsv", f"{QRELS}q1\td1\t0\n", "no query has a relevant document"),
    "text as a score": ("qrels/test.tsv", f"{QRELS}q1\td1\tgood\n", "test.tsv, line 2: column 'score' holds 'good'"),
    "huge score": ("qrels/test.tsv", f"{QRELS}q1\td1\t1e300\n", "column 'score' holds '1e300'. A grade is at most"),
    "infinite score": ("qrels/test.tsv", f"{QRELS}q1\td1\tinf\n", "test.tsv, line 2: column 'score' holds 'inf'"),
    "no score": ("qrels/test.tsv", f"{QRELS}q1\td1\t\n", "test.tsv, line 2: column 'score' holds ''"),
    "negative": ("qrels/test.tsv", f"{QRELS}q1\td1\t-1\n", "1 have a score below 1"),
    "trec_eval's format": ("qrels/test.tsv", "q1 0 d1 1\n", "test.tsv, line 1: no column 'query-id'"),
    "header alone": ("qrels/test.tsv", QRELS, "no query has a relevant document. Of 0 judgements"),
    "contradiction": ("qrels/test.tsv", f"{QRELS}q1\td1\t1\nq1\td1\t2\n", "test.tsv, line 3: query 'q1' and document"),
    "duplicate query": (
        "queries.jsonl",
        '{"_id": "q1", "text": "one"}\n{"_id": "q1", "text": "one"}\n',
        "queries.jsonl, line 2: the query id 'q1' is already that of",
    ),
    "true as an id": (
        "corpus.jsonl",
        '{"_id": true, "text": "one"}\n',
        "corpus.jsonl, line 1: column '_id' holds True",
    ),
    "a list as a text": ("corpus.jsonl", '{"_id": "d1", "text": ["a"]}\n', "corpus.jsonl, line 1: column 'text' holds"),
    "a number as a title": ("corpus.jsonl", '{"_id": "d1", "text": "a", "title": 3}\n', "column 'title' holds 3"),
    "half a surrogate pair": (
        "queries.jsonl",
        '{"_id": "q1", "text": "\\ud800"}\n',
        "line 1: column 'text' holds half a",
    ),
    "no judgements": ("qrels/test.tsv", None, "has no qrels/SPLIT.tsv"),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_malformed_folder(case: str, workspace: Path) -> None:
    name, content, mention = FOLDERS[case]
    file = workspace / "beir" / name
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert_refused([*RETRIEVAL.split(), "beir"], mention)


COMMANDS = {
    "no such file": (f"{RETRIEVAL} anchor.tsv", "no such file. Did you mean 'anchors.tsv'?"),
    "another split": (f"{RETRIEVAL} beir:dev", "beir: has no split 'dev'. It has: test."),
    "another folder": (f"{RETRIEVAL} tiny", "tiny: is a folder, but not in BEIR's layout"),
    "other columns": (f"{RETRIEVAL} pairs.tsv", "no column 'anchor'. Its columns: score, sentence1, sentence2."),
    "plain text": (f"{RETRIEVAL} texts.txt", "texts.txt: unknown extension"),
    "offline": (f"{RETRIEVAL} hub:owner/name", "hub:owner/name"),
    "a corpus of its own": (f"{RETRIEVAL} beir --corpus texts.txt", "beir: has its own corpus"),
    "no corpus file": (f"{RETRIEVAL} anchors.tsv --corpus none.txt", "none.txt: no such file"),
    "no text column": (f"{RETRIEVAL} anchors.tsv --corpus pairs.tsv", "no column 'text'"),
    "ids of pairs": (f"{RETRIEVAL} anchors.tsv --exclude-same-id", "--exclude-same-id is for data in BEIR's layout"),
    "a corpus alone": ("evaluate nowhere --corpus texts.txt", "--corpus is for retrieval tasks"),
    "same ids alone": ("evaluate nowhere --exclude-same-id", "--exclude-same-id is for retrieval tasks"),
    "two kinds": (f"{RETRIEVAL} a.tsv --pairs a.tsv", "a.tsv: is named both as scored pairs and as retrieval"),
    "unknown measure": (f"{RETRIEVAL} beir --measure ndcg", "ndcg"),
    "overwritten corpus": (
        f"{RETRIEVAL} anchors.tsv --corpus corpus.json --output corpus.json --overwrite",
        "corpus.json",
    ),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_refused_command(case: str, workspace: Path) -> None:
    (workspace / "corpus.json").write_text('{"text": "more"}\n')
    command, mention = COMMANDS[case]
    assert_refused(command.split(), mention)


@pytest.mark.long
def test_a_measure_that_results_lack_and_results_on_other_documents(workspace: Path) -> None:
    for name, more in (("one", ""), ("two", "--corpus texts.txt")):
        command = f"evaluate tiny --retrieval anchors.tsv {more} --resamples 10 --output {name}.json"
        assert run_cli(command.split()).status == 0
    assert_refused("compare one.json two.json".split(), "were scored on different data (task anchors.tsv")
    damaged = (workspace / "one.json").read_text().replace('"main": "mrr@10"', '"main": "mrr"')
    (workspace / "one.json").write_text(damaged)
    assert_refused("compare one.json one.json".split(), "retrieval.anchors.tsv.measures has no 'mrr', the main measure")
