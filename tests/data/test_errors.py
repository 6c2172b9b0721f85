"""What the loaders refuse: one table of files for all of them; each error names the file and the line."""

import gzip
import json
from functools import partial
from itertools import cycle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearfar.data.cells import MISSING_VALUES
from nearfar.data.classification import load_classification
from nearfar.data.files import parquet_error, read_file, read_lines
from nearfar.data.labelled import load_labelled_task
from nearfar.data.lines import read_texts
from nearfar.data.noise import load_translations
from nearfar.data.retrieval import load_retrieval
from nearfar.data.rows import load_labelled, load_nli, load_pairs, load_scored, load_sentences
from nearfar.data.sources import column_names, open_table
from nearfar.data.triplets import load_triplets, load_tuples
from tests.data.files import error_of


def read(file, columns=("hypothesis", "label")):
    return list(read_file(Path(file), columns))


def names(file):
    return column_names(open_table(Path(file)))


def texts(file, column=None):
    return list(read_texts(Path(file), column))


def lines(file):
    return list(read_lines(Path(file)))


text = partial(texts, column="said")
triplets = partial(load_tuples, columns=("anchor", "positive", "negative"))
scored = partial(load_tuples, find_negatives=True, scores=True)
translations = partial(load_translations, sentences=["a"])
NLI, SCORED = "premise\thypothesis\tlabel\n", "score\tsentence1\tsentence2\n"
LABELLED, TRANSLATED, TRIPLETS = "label\ttext\n", "sentence\ttranslation\n", "anchor\tpositive\tnegative\n"
TAUGHT = "anchor\tpositive\tnegative\tpositive_score\tnegative_score\n"
FLAG = '{{"query": "a", "pos": ["b"], "neg": ["c", "d"], "pos_scores": {}, "neg_scores": {}}}\n'
LISTS = {
    "[1]": "line 1: column 'neg_scores' has 1 scores, for 2 texts in 'neg'",
    "[1, 2, 3]": "column 'neg_scores' has 3 scores, for 2 texts in 'neg'",
    "[1, null]": "line 1: column 'neg_scores' is empty",
    "[1, NaN]": "line 1: column 'neg_scores' holds nan, not a number",
    '[1, "much"]': "line 1: column 'neg_scores' holds 'much', not a number",
    "[1, [2]]": "line 1: column 'neg_scores' holds [2], not a number",
    "null": "line 1: column 'neg_scores' is empty",
}
JSON = '{"premise": "a dog", "hypothesis": "a cat", "label": 1}\n'
X, A = "x" * 9999, "a" * 9999
HOLDS = "column 'score' holds"
NO_SCORES = "much|NaN|nan|-inf|inf|infinity|1,5|1_000|0x10|1e999|True|3 4|٣|five".split("|")
NO_SCORES_IN_JSON = ("true", "NaN", "Infinity", "[3]", '{"a": 3}', "1" * 400, "1e999", '"3 4"')
NO_LABELS = {
    "NaN": "is empty",
    "0.5": "holds 0.5. A label is a string or an integer;",
    '"0.5"': "numbers with fractions are scores",
    "Infinity": "A label is a string or an integer",
    '{"a": "warm"}': "A label is a string or an integer",
    '"\\ud800"': "half a surrogate pair",
    '"\\u0000"': "is empty",
}
MISSING = "line 4: column 'label' holds '{}', which marks a missing value"
READERS_OF_LABELS = (load_labelled, load_classification, load_labelled_task)
ROWS = [
    # loader, extension, content, expected message
    # --- files with columns
    (read, "tsv", "label\thypothesis\n1\tx\n2\n", "line 3: 1 fields, but the header has 2 columns"),
    (read, "tsv", b"label\thypothesis\n1\tx\n2\t\xe9t\xe9\n", "line 3: not UTF-8 (byte 3 of the line is 0xe9)"),
    (read, "tsv", NLI.encode("utf-16"), "line 1: not UTF-8 (byte 1 of the line is 0xff). Save it as text in UTF-8"),
    (read, "tsv", NLI.encode("utf-16-le"), "contains NUL bytes, as UTF-16 does"),
    (read, "tsv", gzip.compress(NLI.encode()), "the name of a gzipped file ends in .gz"),
    (read, "tsv", "", "is empty"),
    (read, "csv", 'label,hypothesis\n1,"x\ny"\n2\n', "line 4: 1 fields"),
    (read, "csv", 'label,hypothesis\n1,x\n2,"never closed\n3,y\n', "line 3: not well-formed CSV"),
    (read, "csv", "hypothesis,label\ra,neutral\r", "line 1: not well-formed CSV"),
    (read, "jsonl", JSON + '{"label": 1\n', "line 2: not a JSON object"),
    (read, "jsonl", JSON + '{"label": 1, "label": 2}\n', "line 2: not a JSON object: a key occurs twice, of label"),
    (read, "json", '[{"label": 1, "hypothesis": "x"}]\n', "line 1: a JSON list, not an object"),
    (read, "jsonl", '{"label": ' + "[" * 10**5 + "\n", "line 1: not a JSON object"),
    (read, "tsv.gz", NLI, "cannot be read: Not a gzipped file"),
    (read, "tsv.gz", gzip.compress(NLI.encode(), mtime=0)[:-4], "cannot be read: Compressed file ended"),
    (read, "tsv.gz", gzip.compress(b"", mtime=0)[:10] + b"\xff" * 99, "its compressed data is damaged"),
    (read, "parquet", "label", "cannot be read as Parquet"),
    (read, "txt", "label", "unknown extension. Files with columns end in .tsv, .tsv.gz, .csv"),
    (names, "tsv", " \na\tb\n", "bad.tsv, line 1: is empty or blank, and should name the columns"),
    # --- texts
    (texts, "tsv", "said\n", "is a table; name the column"),
    (text, "tsv", "said\na dog\n \n", "line 3: column 'said' is empty"),
    (load_sentences, "txt", "one\n\x00\n", "line 2: column 'text' is empty"),
    # --- labels
    (load_labelled, "tsv", LABELLED + "x\ta\nx\tb\n", "Every text has the label 'x'"),
    (load_labelled, "tsv", LABELLED + "x\ta\nx\tb\ny\tc\ny\tc\n", "The label 'y' has a single text, 'c'; contrastive"),
    (load_labelled, "tsv", LABELLED + "x\ta\ny\ta\n", "All labelled texts are equal ('a')"),
    (load_labelled, "tsv", LABELLED, "bad.tsv: no labelled texts"),
    (load_labelled, "tsv", LABELLED + f"{X}\ta\ny\tb\ny\tc\n", f"The label '{X[:75]} ... has a single text, 'a'"),
    (load_labelled_task, "tsv", "text\tlabels\none\tx\n", "labelled data has the columns text and label, or sentence1"),
    (load_classification, "tsv", LABELLED + "yes\tone\nno\ttwo\n", "bad.tsv: too few rows to hold some out for test;"),
    *(
        (load, "tsv", f"text\tlabel\na\tx\nb\ty\nc\t{label}\n", MISSING.format(label) if label else "'label' is empty")
        for load, label in zip(cycle(READERS_OF_LABELS), MISSING_VALUES)
    ),
    *(
        (load_labelled_task, "jsonl", '{"text": "a", "label": "b"}\n{"text": "c", "label": ' + label + "}\n", message)
        for label, message in NO_LABELS.items()
    ),
    # --- scores
    (load_scored, "tsv", SCORED + "3\ta\tb\n3\ta\tc\n", "bad.tsv: every score is 3;"),
    (load_scored, "tsv", SCORED + "3\ta\ta\n4\ta\ta\n", "All scored pairs are equal ('a')"),
    *((load_pairs, "tsv", SCORED + f"1\ta\tb\n{score}\ta\tb\n", f"line 3: {HOLDS}") for score in NO_SCORES),
    (load_pairs, "jsonl", '{"sentence1": "a", "sentence2": "b", "score": null}\n', "column 'score' is empty"),
    *(
        (load_pairs, "jsonl", '{"sentence1": "a", "sentence2": "b", "score": ' + score + "}\n", f"line 1: {HOLDS}")
        for score in NO_SCORES_IN_JSON
    ),
    # --- NLI rows
    (load_nli, "tsv", NLI + "p\th\tneutral\np\th\tmaybe\n", "line 3: unknown label 'maybe'. Known: entailment,"),
    (load_nli, "jsonl", JSON.replace("1", "1" * 400), "line 1: column 'label' holds 1111"),
    (load_nli, "jsonl", JSON.replace('"a dog"', "[" * 400 + "]" * 400), "line 1: column 'premise' holds"),
    (load_nli, "jsonl", JSON.replace('"a dog"', "[" + "1," * 10**5 + "1]"), " ... (list), not text"),
    (load_nli, "tsv", NLI + "p\th\t-\np\th\t-1\n", "bad.tsv: no labelled NLI rows, 2 dropped"),
    # --- pairs and triplets
    (load_tuples, "csv", "anchor,positive\na,a\n", "All pairs are equal"),
    (load_tuples, "tsv", "anchor\tpositive\na\tb\nc\t\n", "line 3: column 'positive' is empty"),
    (triplets, "tsv", "anchor\tpositive\n", "line 1: no column 'negative'. Its columns: anchor, positive."),
    # --- scores of a teacher
    (scored, "tsv", f"{TAUGHT}a\tb\tc\t1\t2\na\tb\td\t1\t\n", "line 3: column 'negative_score' is empty. Rows with"),
    (scored, "tsv", f"{TAUGHT}a\tb\tc\t\t2\n", "line 2: column 'positive_score' is empty"),
    *((scored, "tsv", f"{TAUGHT}a\tb\tc\t{bad}\t2\n", "line 2: column 'positive_score' holds") for bad in NO_SCORES),
    *((scored, "tsv", f"{TAUGHT}a\tb\tc\t1\t{bad}\n", "line 2: column 'negative_score' holds") for bad in NO_SCORES),
    *((scored, "jsonl", FLAG.format("[2]", bad), message) for bad, message in LISTS.items()),
    (
        scored,
        "jsonl",
        FLAG.format("[2, 3]", "[1, 0]"),
        "line 1: column 'pos_scores' has 2 scores, for 1 texts in 'pos'",
    ),
    (scored, "jsonl", '{"query": "a", "pos": [], "neg": ["c"], "pos_scores": [], "neg_scores": [1]}', "'pos' is empty"),
    (scored, "jsonl", '{"query": "a", "pos": [3], "neg": ["c"], "pos_scores": [1], "neg_scores": [1]}', "not text"),
    (scored, "tsv", "anchor\tpositive\tnegative\nd\te\tf\n", "has no scores. Name their columns as those of the texts"),
    (
        scored,
        "tsv",
        "anchor\tpositive\tnegative_1\tnegative_2\tnegative_score_1\tnegative_score_2\na\tb\tc\td\t1\t2\n",
        "no column has the scores of 'positive', beside negative_score_1, negative_score_2. Call it as its texts",
    ),
    # Errors in a file are not reported as missing columns.
    (load_triplets, "csv", "sent0,sent1,hard_neg\na,b\n", "line 2: 2 fields"),
    (load_triplets, "tsv", TRIPLETS + "a\tb\t\n", "line 2: column 'negative' is empty"),
    # --- translations, retrieval
    (translations, "tsv", TRANSLATED, "bad.tsv: no translations, only a header."),
    (translations, "tsv", TRANSLATED + "a\tb\na\tc\n", "line 3: a second translation of 'a'"),
    (translations, "tsv", TRANSLATED + "a\t \n", "line 2: column 'translation' is empty"),
    (load_retrieval, "tsv", NLI + "a\ty\t2\nb\tz\t1\n", "no NLI row is an entailment, so no document is"),
]


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_a_file_is_refused(number, tmp_path):
    load, extension, content, message = ROWS[number]
    file = tmp_path / f"bad.{extension}"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    found = error_of(load, str(file))
    assert message in found
    assert f"bad.{extension}" in found
    assert len(found) < 2000


NOT_UTF8 = [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")]
PARQUET = [
    ("premise", lambda: pa.Array.from_buffers(pa.string(), 2, NOT_UTF8), "row 2: column 'premise' is not UTF-8"),
    ("premise", lambda: pa.array([b"a", b"b"]), "row 1: column 'premise' holds b'a' (bytes), not text"),
    ("premise", lambda: pa.array([{"a": 1}, {"a": 2}]), "row 1: column 'premise' holds {'a': 1} (dict)"),
    ("premise", lambda: pa.array([1.5, 2.5]), "row 1: column 'premise' holds 1.5 (float)"),
    ("premise", lambda: pa.array(["a", None]), "row 2: column 'premise' is empty"),
    ("premise", lambda: pa.nulls(2), "row 1: column 'premise' is empty. Rows with empty cells: 2 (row 1, 2)"),
    ("premise", lambda: pa.array([2**62, 2**62], pa.timestamp("us")), "bad.parquet cannot be read as Parquet"),
    ("label", lambda: pa.array(["neutral", "maybe"]).dictionary_encode(), "row 2: unknown label 'maybe'"),
    ("label", lambda: pa.array([True, False]), "row 1: unknown label true"),
    ("premise", lambda: pa.array([], pa.string()), "bad.parquet: no labelled NLI rows"),
]


@pytest.mark.parametrize("number", range(len(PARQUET)))
def test_a_column_of_parquet_is_refused(number, tmp_path):
    name, make, message = PARQUET[number]
    column = make()
    table = {key: pa.array(["neutral"] * len(column), pa.string()) for key in ("premise", "hypothesis", "label")}
    pq.write_table(pa.table(table | {name: column}), tmp_path / "bad.parquet")
    assert message in error_of(load_nli, str(tmp_path / "bad.parquet"))


def test_parquet_that_is_cut_off_or_has_broken_class_names(tmp_path):
    file = tmp_path / "bad.parquet"
    table = pa.table({name: ["a", "b"] for name in ("premise", "hypothesis", "label")})
    info = json.dumps({"info": {"features": {"label": {"names": 3, "_type": "Nonsense"}}}})
    pq.write_table(table.replace_schema_metadata({"huggingface": info}), file)
    assert "bad.parquet cannot be read" in error_of(load_nli, str(file))
    content = file.read_bytes()
    for kept in (0.1, 0.99):
        file.write_bytes(content[: int(kept * len(content))])
        assert "bad.parquet cannot be read as Parquet" in error_of(load_nli, str(file))
    thrift = OSError("Couldn't deserialize thrift: TProtocolException: Invalid data\n")
    assert str(parquet_error("a", thrift)) == "a cannot be read as Parquet: Couldn't deserialize thrift: Invalid data."
