"""The rows of a corpus and the queries of a file, in every format; columns by name; bad files."""

import datetime
import gzip
import json
from pathlib import Path

import pytest

from nearfar import NearfarError
from nearfar.commands.search.corpus import Corpus, read_queries

ROWS = [{"id": 1, "text": "a dog  runs", "tags": ["x", None]}, {"id": 2, "text": 'it is "big"', "tags": []}]
EXPECTED = [["a dog runs", 1, ["x", None]], ['it is "big"', 2, []]]
AS_TEXT = [["a dog runs", "1", "x"], ['it is "big"', "2", ""]]
TABLES = {
    "rows.tsv": 'id\ttext\ttags\n1\ta dog  runs\tx\n\n2\tit is "big"\t\n',
    "rows.csv": 'id,text,tags\n1,a dog  runs,x\n2,"it is ""big""",\n',
    "rows.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
}


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in TABLES.items():
        Path(name).write_text(content, encoding="utf-8")
        Path(f"{name}.gz").write_bytes(gzip.compress(content.encode()))


def values(corpus: Corpus) -> list[list[object]]:
    return [json.loads(line, parse_constant=lambda _: None) for _, line in corpus.rows()]


@pytest.mark.parametrize("name", [*TABLES, "rows.tsv.gz"])
def test_rows_of_tables(name: str) -> None:
    corpus = Corpus(name)
    assert (corpus.column, corpus.shown) == ("text", ("id", "tags"))
    assert values(corpus) == (EXPECTED if ".jsonl" in name else AS_TEXT)
    assert [text for text, _ in corpus.rows()] == ["a dog runs", 'it is "big"']
    assert values(Corpus(name, "id" if ".jsonl" not in name else "text", [])) == [
        [row[1] if ".jsonl" not in name else row[0]] for row in values(corpus)
    ]
    assert Corpus(name, show=["tags"]).shown == ("tags",)


def test_rows_of_parquet() -> None:
    import pyarrow
    import pyarrow.parquet

    day, half = datetime.date(2024, 2, 29), [0.5, float("nan")]
    table = {"text": ["one", "two"], "day": [day, None], "score": half, "raw": [b"x", b"y"]}
    pyarrow.parquet.write_table(pyarrow.table(table), "rows.parquet")
    assert values(Corpus("rows.parquet")) == [["one", "2024-02-29", 0.5, "b'x'"], ["two", None, None, "b'y'"]]


def test_lines_of_text() -> None:
    Path("lines.txt").write_text("one dog\n\n  \ntwo\tdogs\r\n", encoding="utf-8")
    corpus = Corpus("lines.txt")
    assert (corpus.column, corpus.shown, values(corpus)) == ("text", (), [["one dog"], ["two dogs"]])


def test_keys_of_json_lines_other_than_the_text_may_be_missing() -> None:
    Path("some.jsonl").write_text('{"text": "one", "a": 1}\n{"text": "two", "b": 2}\n')
    assert values(Corpus("some.jsonl")) == [["one", 1, None], ["two", None, 2]]
    assert values(Corpus("some.jsonl", show=["b", "a"])) == [["one", None, 1], ["two", 2, None]]


BAD = {
    "an unclear column": ({"source": "unclear.tsv"}, "name one with --column. Its columns: first, second"),
    "another column twice": ({"source": "others.tsv"}, "several columns are named 'a'.*--show"),
    "no column to show": ({"source": "rows.tsv", "show": ["tag"]}, "no column 'tag'"),
    "a column of lines": ({"source": "lines.txt", "column": "text"}, "--column text: lines.txt has one text per line"),
    "no key of the text": ({"source": "missing.jsonl"}, r"missing\.jsonl, line 2: no column 'text'"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_files_and_columns(arguments: dict[str, object], message: str) -> None:
    for name, content in {
        "unclear.tsv": b"first\tsecond\na\tb\n",
        "others.tsv": b"text\ta\ta\nx\tb\tc\n",
        "lines.txt": b"one\n",
        "missing.jsonl": b'{"text": "a"}\n{"txt": "b"}\n',
    }.items():
        Path(name).write_bytes(content)
    with pytest.raises(NearfarError, match=message):
        list(Corpus(**arguments).rows())  # type: ignore[arg-type]


def test_queries_of_a_file() -> None:
    Path("q.txt").write_text("one  dog\n\ntwo\n")
    Path("q.tsv").write_text("id\tquery\ttext\n1\tfirst\tx\n")
    Path("t.tsv").write_text("id\ttext\n1\tfirst\n")
    assert read_queries("q.txt", None) == ["one dog", "two"]
    assert read_queries("q.tsv", None) == read_queries("t.tsv", None) == ["first"]
    assert read_queries("q.tsv", "text") == ["x"]


def test_bad_queries() -> None:
    for content, message in (("query\n", "q.tsv: holds no queries"), ("a\tb\nx\ty\n", "name one with --query-column")):
        Path("q.tsv").write_text(content)
        with pytest.raises(NearfarError, match=message):
            read_queries("q.tsv", None)
