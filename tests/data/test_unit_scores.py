"""Tables of scores by any tool, run files of TREC and judgements: what is read, and what is refused."""

import re

import pandas as pd
import pytest

from nearfar.data.unit_scores import read_qrels, read_run, read_scores
from nearfar.types import NearfarError

ROWS = [
    {"system": system, "unit": unit, "score": score, "seed": seed, "cluster": unit // 2}
    for system, seed, scores in (("a", 1, (0.5, 1, 0)), ("a", 2, (0.25, 1, 0.5)), ("b", 7, (0, 0.75, 1)))
    for unit, score in enumerate(scores)
]


def test_all_orders_of_rows_give_the_same_scores(tmp_path):
    file = tmp_path / "board.csv"
    pd.DataFrame(ROWS[::-1]).to_csv(file, index=False)
    systems = read_scores(file)
    (task, scores), *others = systems.tasks.items()
    assert (task, others, scores.measure) == ("board", [], "score x 100")
    assert list(scores.runs) == [("a", "1"), ("a", "2"), ("b", "7")]
    assert scores.values.tolist() == [[0.5, 1, 0], [0.25, 1, 0.5], [0, 0.75, 1]]
    assert scores.clusters.tolist() == [0, 0, 1]
    assert systems.sources == dict.fromkeys("ab", str(file))


HEAD = "system\tunit\tscore\n"
BAD_TABLES = {
    "empty file": ("", "board.tsv, line 1: is empty or blank"),
    "no rows": (HEAD, "board.tsv: has no rows"),
    "no column": ("model\tunit\tscore\na\t1\t1\n", "line 1: no column 'system'. Its columns: model, unit, score"),
    "not a number": (f"{HEAD}a\t1\t1\nb\t1\thigh\n", "line 3: column 'score' holds 'high', not a number"),
    "too large": (f"{HEAD}a\t1\t1e300\n", "line 2: score 1e+300 is outside"),
    "twice": (f"{HEAD}a\t1\t1\na\t2\t1\na\t1\t0\n", "line 4: system 'a' has a score on unit '1' in a row above"),
    "other units": (
        f"{HEAD}a\t1\t1\na\t2\t1\na\t3\t1\nb\t2\t0\n",
        "task board: system 'b' has no score on 2 of 3 units: 1, 3. Systems are compared on the same units",
    ),
    "clusters": ("system\tunit\tscore\tcluster\na\t1\t1\tx\nb\t1\t0\ty\n", "unit '1' of task board has two clusters"),
}


@pytest.mark.parametrize(("content", "message"), BAD_TABLES.values(), ids=BAD_TABLES)
def test_bad_tables_are_refused_with_row_and_column(tmp_path, content, message):
    file = tmp_path / "board.tsv"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(NearfarError, match=re.escape(message)):
        read_scores(file)


def test_documents_are_ranked_by_float32_scores_and_ties_by_identifiers(tmp_path):
    file = tmp_path / "a.run"
    scores = {"d1": "0.5", "d3": "0.5", "d2": "0.500000001", "d10": "0.6", "d0": "-1e3"}
    lines = [f"q{query} Q0 {name} 1 {score} mine" for query in (1, 2) for name, score in scores.items()]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    best_first = ["d10", "d3", "d2", "d1", "d0"]
    assert read_run(file) == ("mine", {"q1": best_first, "q2": best_first})
    file.write_text(f"{lines[0]}\n{lines[1]}s\n", encoding="utf-8")
    assert read_run(file)[0] is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("qrels.txt", "q1 0 d1 2\nq1 0 d2 0\nq2 0 d1 -1\n"),
        ("qrels.tsv", "q1\t0\td1\t2\nq1\t0\td2\t0\nq2\t0\td1\t-1\n"),
        ("qrels.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td1\t-1\n"),
    ],
)
def test_judgements_of_trec_and_of_beir(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert read_qrels(tmp_path / name) == {"q1": {"d1": 2, "d2": 0}, "q2": {"d1": -1}}


BAD_LINES = {
    "empty run": (read_run, "", "is empty; each line should be: query Q0 document rank score tag"),
    "short run": (read_run, "q1 Q0 d1 1 0.5 t\nq1 d2 0.5\n", "line 2: 3 fields; expected 6: query Q0"),
    "twice": (read_run, "q1 Q0 d1 1 2 t\nq1 Q0 d1 2 1 t\n", "line 2: query 'q1' has document 'd1' in a line above"),
    "two grades": (read_qrels, "q1 0 d1 1\nq1 0 d1 2\n", "line 2: 'q1' and 'd1' have another score in a line above"),
}


@pytest.mark.parametrize(("read", "content", "message"), BAD_LINES.values(), ids=BAD_LINES)
def test_bad_lines_of_trec_are_refused(tmp_path, read, content, message):
    file = tmp_path / "file.txt"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(NearfarError, match=re.escape(message)):
        read(file)
