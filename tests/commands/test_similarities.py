"""A folder's ``similarity_fn_name`` decides scores and ranks in all verbs, as in sentence-transformers."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import evaluation

from nearfar import Encoder, NearfarError, evaluate, mine, search
from tests.tiny import save_tiny, sentences

TEXTS = list(dict.fromkeys(sentences(120, seed=3, longest=9)))
QUERIES, DOCUMENTS = TEXTS[:20], TEXTS[20:]
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")


@pytest.fixture(params=SIMILARITIES)
def theirs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SentenceTransformer:
    """A model of this similarity, whose queries are short; its folder is ``tiny`` in the working directory."""
    monkeypatch.chdir(tmp_path)
    save_tiny(tmp_path / "plain")
    Encoder.from_pretrained("plain").save_pretrained("tiny")
    for name, settings in (
        ("sentence_bert_config.json", {"query_length": 4}),
        ("config_sentence_transformers.json", {"similarity_fn_name": request.param}),
    ):
        file = tmp_path / "tiny" / name
        file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    rows = [f"{query}\t{document}" for query, document in zip(QUERIES, DOCUMENTS, strict=False)]
    Path("pairs.tsv").write_text("\n".join(["anchor\tpositive", *rows]) + "\n")
    Path("more.txt").write_text("\n".join(DOCUMENTS[20:]) + "\n")
    return SentenceTransformer("tiny", device="cpu")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.* truncated")
def test_scores_and_ranks_equal_those_of_sentence_transformers(theirs: SentenceTransformer) -> None:
    name = theirs.similarity_fn_name
    gold = [float(number % 6) for number in range(20)]
    rows = [f"{number}\t{a}\t{b}" for number, a, b in zip(gold, QUERIES, DOCUMENTS, strict=False)]
    Path("scored.tsv").write_text("\n".join(["score\tsentence1\tsentence2", *rows]) + "\n")
    settings = {"pairs": ("scored.tsv",), "retrieval": ("pairs.tsv",), "corpus": "more.txt", "resamples": 0}
    for model in ("tiny", theirs):
        result = evaluate(model, progress=False, **settings)
        similar = evaluation.EmbeddingSimilarityEvaluator(QUERIES, DOCUMENTS[:20], gold, write_csv=False)(theirs)
        for metric in ("spearman", "pearson"):
            own = result.tasks["scored.tsv"].metric(metric).all.score
            assert own == pytest.approx(100 * similar[f"{metric}_{name}"], abs=1e-3)
        corpus = {str(number): text for number, text in enumerate(DOCUMENTS)}
        ranked = evaluation.InformationRetrievalEvaluator(
            {str(number): text for number, text in enumerate(QUERIES)},
            corpus,
            {str(number): {str(number)} for number in range(20)},
            write_csv=False,
        )(theirs)
        for measure in ("ndcg@10", "mrr@10", "recall@10"):
            expected = 100 * ranked[f"{name}_{measure}"]
            assert result.retrieval["pairs.tsv"].measures[measure].score == pytest.approx(expected, abs=1e-3)
        assert result.config.get("similarity", "cosine") == name


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.* truncated")
def test_hits_and_hard_negatives_equal_those_of_sentence_transformers(theirs: SentenceTransformer) -> None:
    scores = np.asarray(theirs.similarity(theirs.encode_query(QUERIES), theirs.encode_document(DOCUMENTS)))
    hits = search(QUERIES, model="tiny", input="more.txt", top=3, precision="fp32", device="cpu")
    for row, own in zip(scores[:, 20:], hits, strict=True):
        order = np.argsort(-row)[:3]
        assert [hit.text for hit in own] == [DOCUMENTS[20 + place] for place in order]
        np.testing.assert_allclose([hit.score for hit in own], row[order], rtol=1e-4, atol=1e-4)
    files = {"data": "pairs.tsv", "corpus": "more.txt", "output": "mined.tsv"}
    result = mine(model="tiny", **files, range_max=100, with_scores=True, precision="fp32", progress=False)
    assert result.similarity == theirs.similarity_fn_name
    with Path("mined.tsv").open(encoding="utf-8", newline="") as stream:
        rows = {row["anchor"]: row for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)}
    for number, own in enumerate(scores):
        limit = own[number] - 0.05 * abs(own[number])
        allowed = [place for place in np.argsort(-own) if place != number and own[place] <= limit]
        row = rows.pop(QUERIES[number], None)
        assert (row is None) == (not allowed)
        if row is not None:
            assert row["negative"] == DOCUMENTS[allowed[0]]
            assert float(row["negative_similarity"]) == pytest.approx(own[allowed[0]], rel=1e-4, abs=1e-4)
    if result.similarity != "cosine":
        with pytest.raises(NearfarError, match=f"--max-score: is a cosine, and tiny compares by '{result.similarity}'"):
            mine(model="tiny", **files, max_score=0.9, overwrite=True)
    if result.similarity in ("euclidean", "manhattan"):
        with pytest.raises(NearfarError, match="--quantize: finds texts by inner products, and tiny compares by minus"):
            search(QUERIES[0], model="tiny", input="more.txt", quantize="binary")
