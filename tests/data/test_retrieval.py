"""Retrieval tasks from BEIR's layout, from the hub and from pairs; what is left out is counted."""

import re

import datasets
import pytest

from nearfar.data.retrieval import load_retrieval
from tests.data.files import error_of, write, write_lines

CORPUS = (
    '{"_id": "d1", "title": "Cats", "text": "A cat  sleeps."}',
    '{"_id": "d2", "title": "", "text": "Dogs bark."}',
    '{"_id": "d3", "text": "Markets fall."}',
    '{"_id": 4, "title": null, "text": null, "metadata": {}}',
)
QUERIES = ('{"_id": "q1", "text": "Who sleeps?"}', '{"_id": "q2", "text": "Who barks?"}', '{"_id": "q3", "text": "?"}')
QRELS = ("query-id\tcorpus-id\tscore", "q2\td2\t1", "q1\td1\t2", "q1\t4\t1", "q1\td2\t0", "q3\td1\t-1")


@pytest.fixture
def beir(tmp_path):
    """A function that writes a folder in BEIR's layout, with other lines for some of its files."""

    def make(*, corpus=CORPUS, queries=QUERIES, **qrels):
        folder = tmp_path / "beir"
        write_lines(folder / "corpus.jsonl", *corpus)
        write_lines(folder / "queries.jsonl", *queries)
        for split, lines in (qrels or {"test": QRELS}).items():
            write_lines(folder / "qrels" / f"{split}.tsv", *lines)
        return str(folder)

    return make


def test_a_folder_in_beirs_layout(beir):
    task = load_retrieval(beir())
    assert task.queries == ["Who sleeps?", "Who barks?"]
    assert task.documents == ["Cats A cat sleeps.", "Dogs bark.", "Markets fall.", ""]
    assert task.relevant == [{0: 2, 3: 1}, {1: 1}]
    assert task.query_ids == ["q1", "q2"]
    assert task.document_ids == ["d1", "d2", "d3", "4"]
    assert (task.main, task.excluded) == ("ndcg@10", {})
    assert {what: number for what, number in task.counts.items() if number} == {
        "queries without relevant documents": 1,
        "empty documents": 1,
    }


def test_test_is_the_default_split_or_else_the_only_one(beir):
    dev = ("query-id\tcorpus-id\tscore", "q3\td3\t1")
    folder = beir(test=QRELS, dev=dev)
    assert load_retrieval(folder).query_ids == ["q1", "q2"]
    assert load_retrieval(f"{folder}:dev").query_ids == ["q3"]
    assert (
        error_of(load_retrieval, f"{folder}:train")
        == f"{folder}: has no split 'train' of judgements (qrels). It has: dev, test."
    )


def test_a_document_with_the_id_of_the_query_is_excluded_on_request(beir):
    corpus = (*CORPUS, '{"_id": "q2", "title": "Barking", "text": "Who barks?"}', '{"_id": "q1", "text": "other"}')
    folder = beir(corpus=corpus)
    task = load_retrieval(folder)
    assert task.excluded == {}
    found = [number for what, number in task.counts.items() if "--exclude-same-id" in what]
    assert found == [1]  # only q2 also has the text of its document
    task = load_retrieval(folder, exclude_same_id=True)
    assert task.excluded == {0: 5, 1: 4}
    assert task.counts["queries with the id of a document, not ranked for them"] == 2
    folder = beir(corpus=corpus, test=(*QRELS, "q2\tq2\t1"))
    assert load_retrieval(folder, exclude_same_id=True).excluded == {0: 5}  # a relevant document stays


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"corpus": (*CORPUS, CORPUS[0])}, "corpus.jsonl, line 5: the document id 'd1' is already that of a row above"),
        ({"queries": (*QUERIES, QUERIES[1])}, "queries.jsonl, line 4: the query id 'q2' is already that of"),
        ({"corpus": (*CORPUS, '{"_id": "d5"}')}, "corpus.jsonl, line 5: no column 'text'"),
        ({"corpus": (*CORPUS, '{"_id": "d5", "text": 3}')}, "line 5: column 'text' holds 3 .int., not text"),
        ({"queries": (*QUERIES, '{"_id": "", "text": "x"}')}, "line 4: column '_id' holds ''. An id is a text"),
        ({"corpus": ()}, "corpus.jsonl is empty; each line should be a JSON object"),
        ({"test": (*QRELS, "q1\td3\t0.5")}, "test.tsv, line 7: column 'score' holds '0.5'. A grade of relevance is a"),
        ({"test": (*QRELS, "q1\td3\t1e300")}, "a whole number, at most"),
        ({"test": (*QRELS, "q1\td1\t1")}, "line 7: 'q1' and 'd1' have another score in a line above"),
        ({"test": QRELS[1:]}, "line 1: no column 'query-id'"),
        (
            {"test": ("query-id\tcorpus-id\tscore", "q1\td9\t1", "q9\td1\t1", "q1\td1\t0")},
            "1 judgements of unknown queries, 1 judgements of unknown documents",
        ),
    ],
)
def test_malformed_folders(beir, files, message):
    folder = beir(**files)
    found = error_of(load_retrieval, folder)
    assert re.search(message, found), found


PAIRS = ("anchor\tpositive\tnote", "a\tx\t1", "b\ty\t2", "a\tz\t3", "c\tx\t4", "a\tx\t5", "x\ty\t6", "d\td\t7")


def test_pairs(tmp_path):
    file = write_lines(tmp_path / "pairs.tsv", *PAIRS)
    task = load_retrieval(file)
    assert task.queries == ["a", "b", "c", "x"]
    assert task.documents == ["x", "y", "z"]
    assert task.relevant == [{0: 1, 2: 1}, {1: 1}, {0: 1}, {1: 1}]
    assert task.excluded == {3: 0}
    assert task.main == "mrr@10"
    assert task.counts == {
        "pairs dropped, because repeated or with the same text twice": 2,
        "queries that are documents, not ranked for themselves": 1,
    }


@pytest.mark.parametrize("name", ["more.txt", "more.tsv"])
def test_a_corpus_adds_distractors(tmp_path, name):
    file = write_lines(tmp_path / "pairs.tsv", *PAIRS)
    lines = {"more.txt": ["z", "", "w", "w"], "more.tsv": ["id\ttext", "1\tz", "2\tw", "3\tw"]}
    corpus = write_lines(tmp_path / name, *lines[name])
    task = load_retrieval(file, corpus=corpus)
    assert task.documents == ["x", "y", "z", "w"]
    assert task.counts["documents added by the corpus"] == 1
    assert task.relevant == load_retrieval(file).relevant


NLI = (
    "premise\thypothesis\tlabel",
    "a\tx\tentailment",
    "a\ty\tcontradiction",
    "b\tz\tneutral",
    "x\tw\tentailment",
    "a\tv\tentailment",
    "b\tx\t-",
)


def test_nli_rows(tmp_path):
    """Premises with an entailment are queries; the hypotheses of all labels are documents."""
    file = write_lines(tmp_path / "nli.tsv", *NLI)
    task = load_retrieval(file)
    assert task.queries == ["a", "x"]
    assert sorted(task.documents) == ["v", "w", "x", "y", "z"]
    relevant = [{task.documents[place]: grade for place, grade in one.items()} for one in task.relevant]
    assert relevant == [{"x": 1, "v": 1}, {"w": 1}]
    assert {query: task.documents[place] for query, place in task.excluded.items()} == {1: "x"}
    assert task.main == "mrr@10"
    assert task.counts == {
        "rows without a label dropped": 1,
        "premises without an entailed hypothesis, which are no queries": 1,
        "queries that are documents, not ranked for themselves": 1,
    }
    more = write(tmp_path / "more.txt", "x\nu\n")
    assert load_retrieval(file, corpus=more).documents == [*task.documents, "u"]


def table(**columns):
    return datasets.Dataset.from_dict(columns)


HUB = {
    ("owner/nano", "corpus"): {"train": table(_id=["d1", "d2"], text=["one", "two"])},
    ("owner/nano", "queries"): {"train": table(_id=["q1", "q2"], text=["uno", "dos"])},
    ("owner/nano", "qrels"): {"train": table(**{"query-id": ["q2", "q1"], "corpus-id": ["d2", "d1"]})},
    ("owner/mteb", "corpus"): {"corpus": table(_id=["d1"], title=["T"], text=["one"])},
    ("owner/mteb", "queries"): {"queries": table(_id=["q1", "q2"], text=["uno", "dos"])},
    ("owner/mteb", "default"): {
        "train": table(**{"query-id": ["q1"], "corpus-id": ["d1"], "score": [2]}),
        "test": table(**{"query-id": ["q2"], "corpus-id": ["d1"], "score": [1]}),
    },
    ("owner/bare", "corpus"): {"corpus": table(_id=["d1"], text=["one"])},
    ("owner/pairs", None): {"train": table(anchor=["a", "b"], positive=["x", "y"])},
}


@pytest.fixture
def hub(monkeypatch, tmp_path, fake_hub):
    """A hub with the data sets above."""

    def answer(name, config, split):
        if (name, config) not in HUB:
            raise ValueError(f"no {name}, {config}")
        data = datasets.DatasetDict(HUB[name, config])
        return data if split is None else data[split]

    monkeypatch.chdir(tmp_path)
    fake_hub(answer)


@pytest.mark.parametrize("spec", ["hub:owner/nano", "hub:owner/nano:train"])
def test_nanobeir_on_the_hub(hub, spec):
    task = load_retrieval(spec)
    assert (task.queries, task.documents) == (["uno", "dos"], ["one", "two"])
    assert task.relevant == [{0: 1}, {1: 1}]
    assert task.main == "ndcg@10"


def test_mteb_on_the_hub(hub):
    task = load_retrieval("hub:owner/mteb")
    assert (task.queries, task.documents, task.relevant) == (["dos"], ["T one"], [{0: 1}])
    assert load_retrieval("hub:owner/mteb:train").relevant == [{0: 2}]
    assert "has no split 'dev' of judgements (qrels). It has: train, test." in error_of(
        load_retrieval, "hub:owner/mteb:dev"
    )


def test_pairs_on_the_hub_and_a_corpus_without_judgements(hub):
    assert load_retrieval("hub:owner/pairs").queries == ["a", "b"]
    assert "hub:owner/bare/default: ValueError" in error_of(load_retrieval, "hub:owner/bare")
    assert "ValueError: no owner/none, None" in error_of(load_retrieval, "hub:owner/none")
