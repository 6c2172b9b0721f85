"""Files as Excel, pandas, R and people write them, and rows in memory: each means one thing."""

import io
import json
import re
from pathlib import Path

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearfar import InfoNceConfig, SimcseSupConfig
from nearfar.commands.search.corpus import Corpus, read_queries
from nearfar.commands.train.choose import choose_method, resolve_config
from nearfar.commands.train.inputs import read_rows
from nearfar.data.classification import load_classification
from nearfar.data.files import read_file
from nearfar.data.labelled import load_labelled_task
from nearfar.data.memory import takes_rows
from nearfar.data.retrieval import load_retrieval
from nearfar.data.rows import load_labelled, load_nli, load_pairs, load_scored, load_sentences
from nearfar.data.sources import column_names, open_table, skipping_empty
from nearfar.data.triplets import load_triplets, load_tuples
from tests.data.files import error_of, write

PAIRS = [("a, b?", "c; d"), ('say "no"', "e")]
FRAME = pd.DataFrame(PAIRS, columns=["anchor", "positive"])
LINES = pd.DataFrame([("two\nlines", "a\ttab"), ('say "no"', "x")], columns=["anchor", "positive"])


def written(**settings) -> str:
    """A frame as pandas writes it."""
    stream = io.StringIO()
    settings.pop("frame", FRAME).to_csv(stream, **{"index": False, **settings})
    return stream.getvalue()


FILES = {
    "semicolons": ("csv", 'anchor;positive\na, b?;"c; d"\n"say ""no""";e\n', PAIRS),
    "bars": ("csv", written(sep="|"), PAIRS),
    "commas": ("csv", written(), PAIRS),
    "commas in names": ("csv", 'anchor;positive;"more, of it"\na;b;1,5\nc;d;2\n', [("a", "b"), ("c", "d")]),
    "tabs in csv, quoted": ("csv", written(sep="\t"), PAIRS),
    "tabs in csv, bare": ("csv", 'anchor\tpositive\n"a, b?\tc; d\nsay "no"\te\n', [('"a, b?', "c; d"), PAIRS[1]]),
    "commas in tsv": ("tsv", written(), PAIRS),
    "an index": ("csv", written(index=True), PAIRS),
    "tsv by pandas": ("tsv", written(sep="\t"), PAIRS),
    "tsv by pandas, gzipped name": ("tsv", written(sep="\t", lineterminator="\r\n"), PAIRS),
    "tsv by pandas, in lines": ("tsv", written(sep="\t", frame=LINES), [("two\nlines", "a\ttab"), ('say "no"', "x")]),
    "tsv by R": ("tsv", written(sep="\t", quoting=1), PAIRS),
    "tsv by hand": ("tsv", 'anchor\tpositive\n"a b"\t"c"\n"d"\t"e"\n', [("a b", "c"), ("d", "e")]),
    "tsv with bare marks": (
        "tsv",
        'anchor\tpositive\n"yes"\t5" pipe\n"a", b\tx\n',
        [('"yes"', '5" pipe'), ('"a", b', "x")],
    ),
    "tsv with an open mark": ("tsv", 'anchor\tpositive\n"a\tb\nc\td\n', [('"a', "b"), ("c", "d")]),
    "names in any case": ("csv", "ID,Positive , ANCHOR\n1,b,a\n2,d,c\n", [("a", "b"), ("c", "d")]),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_as_it_was_written(name, tmp_path):
    extension, content, rows = FILES[name]
    file = Path(write(tmp_path / f"rows.{extension}", content))
    assert [values for _, values in read_file(file, ("anchor", "positive"))] == rows
    assert load_tuples(str(file)).rows == [tuple(" ".join(text.split()) for text in row) for row in rows]
    assert {name.lower() for name in column_names(open_table(file))} >= {"anchor", "positive"}
    assert not any("unnamed" in name.lower() or not name for name in column_names(open_table(file)))


SEPARATED = "fields, but the header has 2 columns, separated by"
STRAY = "line 4: a quotation mark that does not enclose a field"
ENCLOSED = 'anchor\tpositive\n"a ""b"""\tc\n"a ""c"""\tc\n'
REFUSED = {
    "uneven": ("csv", "anchor;positive\na;b\nc;d;e\n", f"line 3: 3 {SEPARATED} semicolons: anchor, positive"),
    "a semicolon": ("csv", "question; or title\na b\n", f"line 2: 1 {SEPARATED} semicolons: question, or title"),
    "a bar": ("tsv", "question|title\na b\nc\n", f"line 2: 1 {SEPARATED} vertical bars: question, title"),
    "a tab": ("csv", "question\ttitle\na b\nc\n", f"line 2: 1 {SEPARATED} tabs: question, title"),
    "a stray mark": ("tsv", ENCLOSED + 'x "y" z\tw\n', STRAY),
    "an open mark": ("tsv", ENCLOSED + 'x\t"w\n', STRAY),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_could_mean_several_things_is_refused(name, tmp_path):
    extension, content, message = REFUSED[name]
    found = error_of(load_sentences, write(tmp_path / f"rows.{extension}", content), column=re.split(r"\W", content)[0])
    assert f"rows.{extension}, {message}" in found


def test_named_sets_have_no_quoting(folder):
    write(folder / "sts/STS15/answers-students.tsv", 'score\tsentence1\tsentence2\n1.8\t"a ""b"""\tc\n')
    assert load_pairs("sts15:answers-students")[0].first == '"a ""b"""'
    assert load_pairs(str(folder / "sts/STS15/answers-students.tsv"))[0].first == 'a "b"'


# --- names of columns ---


@pytest.mark.parametrize(
    "names", ["query,positive", "query,document", "Question,Answer", "sent0,sent1", "Anchor,POSITIVE"]
)
def test_pairs_have_the_same_names_everywhere(names, tmp_path):
    file = write(tmp_path / "a.csv", f"{names},id\na,b,1\nc,d,2\n")
    assert load_tuples(file).rows == [("a", "b"), ("c", "d")]
    task = load_retrieval(file)
    assert (task.queries, task.documents) == (["a", "c"], ["b", "d"])
    assert [text for text, _ in Corpus(file).rows()] == ["b", "d"]
    assert read_queries(file, None) == ["a", "c"]
    assert choose_method([file]).columns == tuple(names.split(","))
    assert read_rows(InfoNceConfig(data=(file,), output="x")).rows == [("a", "b"), ("c", "d")]


def test_what_matches_nothing_is_answered_with_flags(tmp_path):
    file = write(tmp_path / "a.csv", "Ticket ID, Customer question,Reply\n1,how do I pay?,by card\n")
    found = error_of(choose_method, [file])
    assert "--anchor-column NAME --positive-column NAME (pairs, info-nce)" in found
    assert "--text-column NAME --label-column NAME (labelled texts, supcon-text)" in found
    assert "--anchor-column --positive-column" in error_of(read_rows, InfoNceConfig(data=(file,), output="x"))


# --- hard negatives ---


def parquet(file: Path, table: dict[str, list[object]]) -> str:
    pq.write_table(pa.table(table), file)
    return str(file)


NEGATIVES = {
    "numbered": ("a.tsv", "anchor\tpositive\tnegative_1\tnegative_2\na\tb\tx\ty\nc\td\tz\t\n", "negative"),
    "numbered otherwise": ("a.csv", "query,document,Negative 1,Negative 2\na,b,x,y\nc,d,z,\n", "Negative"),
    "of simcse": ("a.csv", "sent0,sent1,hard_neg1,hard_neg2\na,b,x,y\nc,d,,z\n", "hard_neg"),
    "lists": (
        "a.jsonl",
        '{"anchor": "a", "positive": "b", "negatives": ["x", "y"]}\n'
        '{"anchor": "c", "positive": "d", "negatives": ["z"]}\n',
        "negatives",
    ),
    "parquet": (
        "a.parquet",
        {"anchor": ["a", "c"], "positive": ["b", "d"], "negative": [["x", "y"], ["z"]]},
        "negative",
    ),
}


@pytest.mark.parametrize("name", NEGATIVES)
def test_all_negatives_of_a_row_are_read(name, tmp_path):
    file, content, column = NEGATIVES[name]
    path = parquet(tmp_path / file, content) if isinstance(content, dict) else write(tmp_path / file, content)
    expected = [("a", "b", "x"), ("a", "b", "y"), ("c", "d", "z")]
    pair = ("query", "document") if "query" in str(content) else ("sent0", "sent1") if "sent0" in str(content) else ()
    for data in (
        read_rows(InfoNceConfig(data=(path,), output="x")),
        read_rows(SimcseSupConfig(data=(path,), output="x")),
        read_rows(resolve_config(None, {"data": path, "output": "x"})),
        load_triplets(path),
        load_tuples(path, columns=(*(pair or ("anchor", "positive")), column)),
    ):
        assert data.rows == expected
        assert "not read" not in data.sources[0]
    assert choose_method([path]).rows == "triplets"
    assert read_rows(InfoNceConfig(data=(path,), output="x", negative_column=None)).rows == [("a", "b"), ("c", "d")]
    unread = load_tuples(path).sources[0]
    assert "columns that are not read: " in unread
    assert column.casefold() in unread.casefold()


SCORED = {
    "numbered": (
        "a.tsv",
        "negative_score_2\tanchor\tpositive\tscore\tnegative_1\tnegative_score_1\tnegative_2\n"
        "0.2\ta\tb\t0.9\tx\t0.1\ty\n\tc\td\t0.8\tz\t-3\t\n",
    ),
    "one each": (
        "a.csv",
        "Query,Document,Hard Neg,Document score,hard_neg_score\na,b,x,0.9,0.1\na,b,y,0.9,0.2\nc,d,z,0.8,-3\n",
    ),
    "lists of FlagEmbedding": (
        "a.jsonl",
        '{"query": "a", "pos": ["b"], "neg": ["x", "y"], "pos_scores": [0.9], "neg_scores": [0.1, "0.2"]}\n'
        '{"query": "c", "pos": ["d"], "neg": ["z"], "pos_scores": [0.8], "neg_scores": [-3]}\n',
    ),
    "parquet": (
        "a.parquet",
        {
            **{"anchor": ["a", "c"], "positive": ["b", "d"], "negatives": [["x", "y"], ["z"]]},
            **{"positive_score": [0.9, 0.8], "negative_scores": [[0.1, 0.2], [-3.0]]},
        },
    ),
}


@pytest.mark.parametrize("name", SCORED)
def test_scores_of_a_teacher_are_read_with_their_texts(name, tmp_path):
    file, content = SCORED[name]
    path = parquet(tmp_path / file, content) if isinstance(content, dict) else write(tmp_path / file, content)
    data = load_tuples(path, find_negatives=True, scores=True)
    assert data.rows == [("a", "b", "x"), ("a", "b", "y"), ("c", "d", "z")]
    assert data.targets == [(0.9, 0.1), (0.9, 0.2), (0.8, -3.0)]
    assert "not read" not in data.sources[0]
    choice = choose_method([path])
    assert (choice.method, choice.rows) == ("teacher-scores", "triplets with scores")
    assert len(choice.columns) == len(column_names(open_table(Path(path))))
    chosen = read_rows(resolve_config(None, {"data": path, "output": "x"}))
    assert (chosen.rows, chosen.targets) == (data.rows, data.targets)
    assert read_rows(SimcseSupConfig(data=(path,), output="x")).targets is None


def test_each_positive_of_a_list_makes_rows(tmp_path):
    pairs = write(tmp_path / "pairs.jsonl", '{"query": "a", "pos": ["b", " c"]}\n{"query": "d", "pos": ["e"]}\n')
    data = load_tuples(pairs)
    assert (data.rows, data.repaired) == ([("a", "b"), ("a", "c"), ("d", "e")], 1)
    row = '{"query": "a", "pos": ["b", "c"], "neg": ["x", "y"], "pos_scores": [4, 3], "neg_scores": [2, 1]}\n'
    data = load_tuples(write(tmp_path / "lists.jsonl", row), find_negatives=True, scores=True)
    assert data.rows == [("a", "b", "x"), ("a", "b", "y"), ("a", "c", "x"), ("a", "c", "y")]
    assert data.targets == [(4, 2), (4, 1), (3, 2), (3, 1)]
    assert choose_method([pairs]).columns == ("query", "pos")
    score = write(tmp_path / "score.tsv", "anchor\tpositive\tscore\n" + "a\tb\t1\n" * 5)
    assert choose_method([score]).method == "info-nce", "without negatives there is nothing to compare scores with"


# --- what is not read, and empty cells ---


def test_a_description_names_the_separator_and_what_is_not_read(tmp_path):
    nli = write(tmp_path / "nli.csv", "id;premise;hypothesis;label;note\n1;a;b;0;x\n")
    note = "; columns separated by semicolons; columns that are not read: id, note"
    assert load_nli(nli).sources[0].endswith(note)
    labelled = write(tmp_path / "l.csv", "id,text,label\n" + "".join(f"{n},t{n},{n % 2}\n" for n in range(20)))
    assert "(columns that are not read: id)" in load_classification(labelled).sources[0]
    scored = write(tmp_path / "s.csv", "id,sentence1,sentence2,score\n1,a,b,1\n2,a,c,2\n")
    assert load_scored(scored).sources[0].endswith("; columns that are not read: id")
    assert load_sentences(write(tmp_path / "t.csv", "text\na\nb\n")).sources == (f"{tmp_path}/t.csv: 2 sentences",)


EMPTY = {
    "pairs": (load_tuples, "anchor,positive\na,b\n,c\nd,\n e ,f\n,\n", [("a", "b"), ("e", "f")]),
    "sentences": (load_sentences, "id,text\n1,a\n2,\n3,\n4,e\n5,\n", [("a",), ("e",)]),
    "labelled": (load_labelled, "text,label\na,x\n,x\nb,\nc,y\n,y\ne,x\nf,y\n", [("a",), ("c",), ("e",), ("f",)]),
    "scored": (load_scored, "sentence1,sentence2,score\na,b,1\n,b,1\na,b,\na,c,2\n,,\n", [("a", "b"), ("a", "c")]),
}


@pytest.mark.parametrize("kind", EMPTY)
def test_empty_cells_are_counted_and_listed_and_can_be_left_out(kind, tmp_path):
    load, content, rows = EMPTY[kind]
    file = write(tmp_path / "a.csv", content)
    found = error_of(load, file)
    assert "a.csv, line 3: column " in found
    assert " is empty. Rows with empty cells: 3 (line 3, 4, 6). Fill them in, or leave them out" in found
    assert "--skip-empty" in found
    with (
        skipping_empty(True),
        pytest.warns(UserWarning, match=r"a\.csv: .* that are left out: 3 \(line 3, 4, 6\)"),
    ):
        assert load(file).rows == rows
    assert "is empty" in error_of(load, file)


# --- rows in memory ---


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "nearfar" / "rows"


@takes_rows
def files_of(*, data):
    return data


RECORDS = [{"text": "a", "label": 1, "more": ["x"]}, {"text": 'b "c"\n', "label": 0, "more": []}]
IN_MEMORY = {
    "list": RECORDS,
    "DataFrame": pd.DataFrame(RECORDS, index=[4, 7]),
    "Dataset": datasets.Dataset.from_list(RECORDS),
}


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_rows_in_memory_are_a_file_of_their_contents(kind, cache):
    file = files_of(data=IN_MEMORY[kind])
    assert file == files_of(data=IN_MEMORY[kind])
    assert Path(file).parent == cache
    assert Path(file).name.startswith(f"{kind}-")
    assert [json.loads(line) for line in Path(file).read_text().splitlines()] == RECORDS
    assert load_labelled_task(file).splits["all"].texts == [("a",), ('b "c"',)]
    others = [{**RECORDS[0], "text": "other"}, RECORDS[1]]
    assert files_of(data=others) != files_of(data=RECORDS)
    if kind != "list":
        assert files_of(data=[IN_MEMORY[kind], "b.tsv"]) == [file, "b.tsv"]


def test_values_in_memory_keep_their_meaning(cache):
    frame = pd.DataFrame(
        {"text": ["a", None], "score": [0.1234567890123, float("nan")], "when": pd.Timestamp("2024-01-02")}
    )
    first, second = map(json.loads, Path(files_of(data=frame)).read_text().splitlines())
    assert first["score"] == 0.1234567890123
    assert first["when"].startswith("2024-01-02")
    assert (second["text"], second["score"]) == (None, None)
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    labelled = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, 0, -1]}, features=features)
    labels = [json.loads(line)["label"] for line in Path(files_of(data=labelled)).read_text().splitlines()]
    assert labels == ["yes", "no", None]
