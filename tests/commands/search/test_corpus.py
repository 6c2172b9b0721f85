"""The rows of a corpus and the queries of a file, in every format; columns by name; bad files."""

import datetime
import json
from pathlib import Path

import pytest

from nearfar import NearfarError
from nearfar.commands.search.corpus import Corpus, read_queries


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def values(corpus: Corpus) -> list[list[object]]:
    return [json.loads(line, parse_constant=lambda _: None) for _, line in corpus.rows()]


def test_rows_of_tables() -> None:
    Path("rows.tsv").write_text('id\ttext\ttags\n1\ta dog  runs\tx\n\n2\tit is "big"\t\n', encoding="utf-8")
    corpus = Corpus("rows.tsv")
    assert (corpus.column, corpus.shown) == ("text", ("id", "tags"))
    assert values(corpus) == [["a dog runs", "1", "x"], ['it is "big"', "2", ""]]
    assert values(Corpus("rows.tsv", "id", [])) == [["1"], ["2"]]
    assert Corpus("rows.tsv", show=["tags"]).shown == ("tags",)


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
    "no column to show": ({"source": "unclear.tsv", "column": "first", "show": ["tag"]}, "--show: no column 'tag'"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_files_and_columns(arguments: dict[str, object], message: str) -> None:
    for name, content in {
        "unclear.tsv": b"first\tsecond\na\tb\n",
        "others.tsv": b"text\ta\ta\nx\tb\tc\n",
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


def test_a_file_without_queries() -> None:
    Path("q.tsv").write_text("query\n")
    with pytest.raises(NearfarError, match="holds no queries"):
        read_queries("q.tsv", None)
