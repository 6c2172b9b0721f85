"""``nearfar evaluate --retrieval`` and ``compare`` of its results, from files to tables."""

import json
from pathlib import Path

import numpy as np
import pytest

from nearfar.commands.compare import compare
from nearfar.commands.evaluate import evaluate
from nearfar.data.retrieval import MEASURES
from nearfar.evaluation.results import EvaluationResult
from nearfar.evaluation.tables import result_markdown
from tests.tiny import save_tiny, sentences

DOCUMENTS = list(dict.fromkeys(sentences(150, seed=3, longest=9)))
QUERIES = list(dict.fromkeys(sentences(25, seed=4, longest=5)))


def letters(texts):
    """Counts of the letters a to z."""
    return np.array([[text.count(chr(97 + n)) for n in range(26)] for text in texts], dtype=np.float32)


def lengths(texts):
    """Counts of words of each length: a worse encoder."""
    return np.array([[sum(len(w) == n for w in text.split()) for n in range(1, 9)] for text in texts], dtype=np.float32)


@pytest.fixture
def beir(tmp_path, monkeypatch):
    """A folder in BEIR's layout as ``beir`` in the working directory; its grades are numbers of common words."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    texts = [{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate([*DOCUMENTS, ""])]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    queries = [{"_id": f"q{n}", "text": text} for n, text in enumerate([*QUERIES, "not judged"])]
    (folder / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    lines = ["query-id\tcorpus-id\tscore"]
    for number, query in enumerate(QUERIES):
        common = [len(set(query.split()) & set(document.split())) for document in DOCUMENTS]
        order = sorted(range(len(DOCUMENTS)), key=common.__getitem__, reverse=True)[:6]
        lines += [f"q{number}\td{document}\t{max(common[document], 1)}" for document in order]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    return "beir"


@pytest.fixture
def pairs(beir):
    """Pairs as ``pairs.tsv`` and a corpus as ``more.txt`` in the working directory."""
    rows = [f"{query}\t{document}" for query, document in zip(QUERIES, DOCUMENTS, strict=False)]
    Path("pairs.tsv").write_text("\n".join(["anchor\tpositive", *rows]) + "\n")
    Path("more.txt").write_text("\n".join(DOCUMENTS[20:]) + "\n")
    return "pairs.tsv"


def test_from_a_folder_and_a_file_to_a_result_file_and_tables(beir, pairs):
    result = evaluate(letters, retrieval=[beir, pairs], resamples=50, output="r.json", progress=False)
    assert EvaluationResult.load("r.json") == result
    assert list(result.all_tasks) == [beir, pairs]
    assert (result.dim, result.tasks, result.transfer) == (26, {}, None)
    assert result.texts == len({*QUERIES, *DOCUMENTS, ""})
    assert [scored.main for scored in result.retrieval.values()] == ["ndcg@10", "mrr@10"]
    scored = result.retrieval[beir]
    assert (scored.queries, scored.documents) == (len(QUERIES), len(DOCUMENTS) + 1)
    assert scored.counts["queries without relevant documents"] == scored.counts["empty documents"] == 1
    written = json.loads(Path("r.json").read_text())["retrieval"][beir]
    assert list(written["measures"]) == list(MEASURES)
    assert written["measures"]["ndcg@10"]["score"] == pytest.approx(
        100 * np.mean(written["per_query"]["ndcg@10"]), abs=1e-4
    )
    assert written["measures"]["ndcg@10"]["low"] < written["measures"]["ndcg@10"]["score"]
    page = Path("r.md").read_text()
    assert "| task | queries | documents | ndcg@10 | mrr@10 | map@100 | recall@1 | recall@10 | recall@100 |" in page
    assert "beir: queries without relevant documents (1), empty documents (1)." in page
    assert page == result_markdown(result)


def test_one_text_is_encoded_once_for_all_tasks(beir, pairs):
    calls = []

    def encode(texts):
        calls.extend(texts)
        return letters(texts)

    Path("scored.tsv").write_text(
        "\n".join(["score\tsentence1\tsentence2", f"1\t{QUERIES[0]}\tx", "2\ty\tx", "3\tz\ty"])
    )
    evaluate(encode, retrieval=[beir, pairs], pairs=["scored.tsv"], resamples=0, progress=False)
    assert len(calls) == len(set(calls)) == len({*QUERIES, *DOCUMENTS, "", "x", "y", "z"})


@pytest.mark.long
def test_compare_pairs_over_queries(beir, pairs):
    for name, encode in (("a", letters), ("b", lengths)):
        evaluate(encode, retrieval=[beir, pairs], resamples=10, output=f"{name}.json", progress=False)
    comparison = compare("a.json", "b.json", resamples=200, output="c.json", progress=False)
    assert {task: row.measure for task, row in comparison.tasks.items()} == {beir: "ndcg@10", pairs: "mrr@10"}
    assert comparison.overall_retrieval is None  # of different measures
    row = comparison.tasks[beir]
    assert (row.kind, row.pairs, row.units) == ("retrieval", len(QUERIES), len(QUERIES))
    assert row.low < row.difference < row.high
    assert row.difference > 0
    one_measure = compare("a.json", lengths, measure="recall@10", resamples=200, progress=False)
    assert one_measure.overall_retrieval.tasks == [beir, pairs]
    assert one_measure.config.measure == "recall@10"
    assert "| beir, ndcg@10 | " in Path("c.md").read_text()


def test_a_model_is_evaluated_like_the_result_that_it_is_compared_with(pairs):
    Path("qa.tsv").write_text(Path(pairs).read_text().replace("anchor\tpositive", "question\tanswer"))
    columns = {"anchor_column": "question", "positive_column": "answer"}
    result = evaluate(letters, retrieval="qa.tsv", corpus="more.txt", **columns, resamples=0, progress=False)
    assert (result.config["corpus"], result.config["anchor_column"]) == ("more.txt", "question")
    assert result.retrieval["qa.tsv"].documents == len({*DOCUMENTS})
    row = compare(result, letters, resamples=20, progress=False).tasks["qa.tsv"]
    assert (row.difference, row.p) == (0, 1)


@pytest.mark.long
def test_a_transductive_baseline_is_fitted_on_the_texts_of_each_task(beir, pairs, tmp_path):
    save_tiny(tmp_path / "bert")
    how = {"pooling": "mean", "resamples": 0, "device": "cpu", "progress": False}
    both, alone = (
        evaluate("whitening:bert,dimensions=16", retrieval=tasks, **how) for tasks in ([beir, pairs], [pairs])
    )
    assert both.config["transductive"]
    assert list(both.retrieval) == [beir, pairs]
    assert alone.retrieval[pairs] == both.retrieval[pairs]
