"""Pairs -> triplets with hard negatives: a search in plain Python, sentence-transformers, formats, resuming, errors."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import pytest
import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.util import cos_sim, mine_hard_negatives, pairwise_cos_sim

from nearfar import Encoder, NearfarError, mine
from nearfar.cli import main
from nearfar.commands.encode import vectors
from nearfar.commands.mine import LIMITS, MiningResult, Negatives, gather, is_excluded, scores, select_negatives
from nearfar.encoder.classifier import Classifier
from nearfar.neighbours.exact import nearest
from tests.encode_helpers import Killed, stop_in
from tests.tiny import save_tiny, sentences, write_pairs


class Fixed:
    """A model of sentence-transformers with given vectors."""

    device = torch.device("cpu")
    similarity, similarity_pairwise = staticmethod(cos_sim), staticmethod(pairwise_cos_sim)

    def __init__(self, queries: dict[str, np.ndarray], documents: dict[str, np.ndarray]) -> None:
        self._queries, self._documents = queries, documents

    def encode_query(self, texts: list[str], **_: Any) -> np.ndarray:
        return np.stack([self._queries[text] for text in texts])

    def encode_document(self, texts: list[str], **_: Any) -> np.ndarray:
        return np.stack([self._documents[text] for text in texts])


def unit(rng: np.random.Generator, count: int, dim: int = 8) -> np.ndarray:
    vectors = rng.standard_normal((count, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def problem(seed: int) -> tuple[list[tuple[str, str]], list[str], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Pairs in which anchors have one to three positives, near or far, a corpus, and vectors."""
    rng = np.random.default_rng(seed)
    anchors = unit(rng, 40)
    pairs, documents = [], {}
    for number, anchor in enumerate(anchors):
        for _ in range(rng.integers(1, 4)):
            vector = anchor + rng.uniform(0.1, 1.5) * unit(rng, 1)[0]
            text = f"document {len(documents)}"
            documents[text] = vector / np.linalg.norm(vector)
            pairs.append((f"anchor {number}", text))
    corpus = [f"other {number}" for number in range(50)]
    documents |= dict(zip(corpus, unit(rng, 50), strict=True))
    rng.shuffle(pairs)  # type: ignore[arg-type]
    return (
        [tuple(pair) for pair in pairs],
        corpus,
        {f"anchor {n}": vector for n, vector in enumerate(anchors)},
        documents,
    )


def chosen_negatives(
    pairs: list[tuple[str, str]],
    corpus: list[str],
    queries: dict[str, np.ndarray],
    documents: dict[str, np.ndarray],
    *,
    range_max: int,
    **settings: Any,
) -> tuple[Negatives, list[tuple[str, str, str]]]:
    """The negatives, and the triplets in the order of the pairs; ``settings`` may hold limits."""
    found = gather(pairs, corpus)
    anchors = np.stack([queries[text] for text in found.anchors])
    texts = np.stack([documents[text] for text in found.documents])
    near = nearest(anchors, texts, range_max + 3)
    positive_scores = (anchors[found.anchor_of] * texts[found.positive_of]).sum(axis=1)
    lowest = pandas.Series(positive_scores).groupby(found.anchor_of).min().to_numpy()
    limits = {name: settings.pop(name) for name in LIMITS if name in settings}
    excluded = is_excluded(near.ids, found.excluded, len(texts))
    negatives = select_negatives(near, excluded, lowest, limits, range_max=range_max, **settings)
    triplets = [
        (found.anchors[anchor], found.documents[positive], found.documents[negative])
        for anchor, positive in zip(found.anchor_of, found.positive_of, strict=True)
        for negative in negatives.ids[negatives.queries == anchor]
    ]
    return negatives, triplets


SETTINGS: dict[str, dict[str, Any]] = {
    "both margins": {"relative_margin": 0.2, "absolute_margin": 0.05},
    "everything": {"relative_margin": 0.1, "max_score": 0.5, "min_score": 0.1, "range_min": 2},
    "narrow": {"relative_margin": 0.05, "range_min": 2, "range_max": 5},
    "many": {"relative_margin": 0.05, "num_negatives": 6, "range_max": 60},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_candidates_are_those_of_sentence_transformers(name: str) -> None:
    pairs, corpus, queries, documents = problem(0)
    settings = {"num_negatives": 3, "range_min": 0, "range_max": 20, **SETTINGS[name]}
    table = datasets.Dataset.from_dict({"anchor": [one for one, _ in pairs], "positive": [two for _, two in pairs]})
    model: Any = Fixed(queries, documents)
    theirs = mine_hard_negatives(table, model, corpus=corpus, verbose=False, **settings)
    count = settings.pop("num_negatives")
    _, ours = chosen_negatives(pairs, corpus, queries, documents, count=count, **settings)
    expected = {(row["anchor"], row["positive"], row["negative"]) for row in theirs}
    assert len(expected) == len(theirs) > 30
    assert set(ours) == expected
    assert len(ours) == len(expected)


@pytest.mark.long
def test_random_sampling_draws_from_the_whole_range() -> None:
    arguments, how = problem(0), {"relative_margin": 0.05, "range_max": 20, "range_min": 1}
    options, _ = chosen_negatives(*arguments, **how, count=20)  # type: ignore[arg-type]
    expected = [set(options.ids[options.queries == query].tolist()) for query in range(40)]
    seen: list[set[int]] = [set() for _ in expected]
    for seed in range(40):
        numbers = np.random.default_rng(seed).random((40, 23))
        drawn, _ = chosen_negatives(*arguments, **how, count=3, random=numbers)  # type: ignore[arg-type]
        for query in range(40):
            own = drawn.queries == query
            found = drawn.ids[own].tolist()
            assert len(found) == len(set(found)) == min(3, len(expected[query]))
            seen[query] |= set(found)
            assert (np.diff(drawn.scores[own]) <= 0).all()
    assert seen == expected


def test_equal_texts_are_never_negatives() -> None:
    pairs = [("How old is he?", "He is ten."), ("how old is he", "Ten years."), ("Who?", "She."), ("A dog!", "a cat")]
    corpus = ["HE IS TEN", "ten years", "a dog", "How old is he", "she", "other"]
    found = gather(pairs, corpus)
    excluded = {
        anchor: {found.documents[number] for number in numbers}
        for anchor, numbers in zip(found.anchors, found.excluded, strict=True)
    }
    first = {"He is ten.", "HE IS TEN", "Ten years.", "ten years", "How old is he"}
    assert excluded == {
        "How old is he?": first,
        "how old is he": first,
        "Who?": {"She.", "she"},
        "A dog!": {"a cat", "a dog"},
    }
    assert found.documents == ["He is ten.", "Ten years.", "She.", "a cat", *corpus]


TEXTS = list(dict.fromkeys(sentences(90, seed=3, longest=9)))
NEAR = [f"{text} dog" if number % 3 else TEXTS[30 + number] for number, text in enumerate(TEXTS[:30])]
"""Two thirds of the positives are similar to their anchors."""
PAIRS = [*zip(TEXTS[:30], NEAR, strict=True), (TEXTS[0], TEXTS[60]), (TEXTS[1], NEAR[2])]
FLAGS = ["--model", "tiny", "--data", "pairs.tsv", "--output", "triplets.tsv"]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save_tiny(tmp_path / "tiny")
    write(tmp_path / "pairs.tsv", ["anchor", "positive"], PAIRS)
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS[61:]) + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(vectors, "PART_TEXTS", 7)
    monkeypatch.setattr("nearfar.commands.mine.CHUNK", 10)
    monkeypatch.setattr(scores, "CHUNK", 10)
    return tmp_path


def write(file: Path, columns: list[str], rows: list[tuple[str, ...]]) -> None:
    file.write_text("".join("\t".join(row) + "\n" for row in [tuple(columns), *rows]), encoding="utf-8")


def mined(output: str = "triplets.tsv", **settings: Any) -> tuple[MiningResult, list[dict[str, str]]]:
    """Mine without progress bars; returns the result and the rows of the file."""
    result = mine(**{"model": "tiny", "data": "pairs.tsv", "output": output, "progress": False, **settings})
    with Path(output).open(encoding="utf-8", newline="") as stream:
        return result, list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.long
@pytest.mark.parametrize("chunk", [None, 3])
def test_triplets_equal_a_plain_search(chunk: int | None, workspace: Path) -> None:
    limits = {"absolute_margin": 0.01, "relative_margin": 0.05, "max_score": 0.9, "min_score": -0.2}
    passages = {"chunk": chunk, "overlap": 1} if chunk else {}
    settings = {"corpus": "corpus.txt", "negatives": 2, "range_min": 1, "range_max": 500, "with_scores": True}
    result, rows = mined(**settings, **limits, **passages)
    encoder = Encoder.from_pretrained("tiny")
    documents = list(dict.fromkeys([*(positive for _, positive in PAIRS), *TEXTS[61:]]))
    anchors = list(dict.fromkeys(anchor for anchor, _ in PAIRS))
    parts = {text: encoder.passages([text], chunk, overlap=1)[0] if chunk else [text] for text in documents}
    vectors = {part: encoder.encode([part], normalize=True)[0] for own in parts.values() for part in own}
    queries = dict(zip(anchors, encoder.encode(anchors, normalize=True), strict=True))
    kept, dropped, candidates = {}, dict.fromkeys(limits, 0), 0

    def best(anchor: str, text: str) -> tuple[float, str]:
        scores = [float(queries[anchor] @ vectors[part]) for part in parts[text]]
        return max(scores), parts[text][int(np.argmax(np.float32(scores)))]

    for anchor in anchors:
        positives, fitting = [text for other, text in PAIRS if other == anchor], []
        lowest = min(best(anchor, text)[0] for text in positives)
        for text in (text for text in documents if text not in (*positives, anchor)):
            (score, part), candidates = best(anchor, text), candidates + 1
            broken = (score > lowest - 0.01, score > lowest - abs(lowest) * 0.05, score > 0.9, score < -0.2)
            if any(broken):
                dropped[list(limits)[broken.index(True)]] += 1
            else:
                fitting.append((-score, part))
        kept[anchor] = [text for _, text in sorted(fitting)[1:3]]
    expected = [(anchor, best(anchor, positive)[1], text) for anchor, positive in PAIRS for text in kept[anchor]]
    assert [(row["anchor"], row["positive"], row["negative"]) for row in rows] == expected
    assert (result.dropped, result.candidates) == (dropped, candidates)
    for row in rows:
        scores = [float(row["positive_similarity"]), float(row["negative_similarity"])]
        own = [queries[row["anchor"]] @ vectors[row[column]] for column in ("positive", "negative")]
        np.testing.assert_allclose(scores, own, atol=2e-6)
    assert (result.pairs, result.anchors, result.documents) == (32, 30, len(documents))
    assert (result.triplets, result.searched) == (len(rows), len(documents))
    assert sorted(os.listdir()) == ["corpus.txt", "pairs.tsv", "tiny", "triplets.tsv", "triplets.tsv.summary.json"]


@pytest.mark.long
def test_the_summary_has_counts_and_examples_at_the_quantiles(workspace: Path) -> None:
    result, rows = mined(max_score=0.9, with_scores=True)
    summary = json.loads(Path("triplets.tsv.summary.json").read_text())
    assert summary["triplets"] == result.triplets == len(rows)
    assert summary["settings"]["max_score"] == 0.9
    shares = {name: count / result.candidates for name, count in summary["dropped"].items()}
    assert summary["dropped_shares"] == pytest.approx(shares)
    scores = sorted(float(row["negative_similarity"]) for row in rows)
    quantiles = [0, 0.25, 0.5, 0.75, 1]
    assert [example["quantile"] for example in summary["examples"]] == quantiles
    expected = [scores[int(quantile * (len(rows) - 1))] for quantile in quantiles]
    assert [example["negative_score"] for example in summary["examples"]] == expected
    assert summary["negative_score"] == pytest.approx(np.mean(scores), abs=1e-5)
    assert result.without_negative == len(PAIRS) - len({(row["anchor"], row["positive"]) for row in rows})


@pytest.mark.long
def test_missing_negatives_can_be_random(workspace: Path) -> None:
    how: dict[str, Any] = {"negatives": 3, "range_max": 6, "relative_margin": 0.05, "with_scores": True}
    few, some = mined(**how)
    full, rows = mined("full.tsv", **how, fill_random=True)
    assert full.filled == full.triplets - few.triplets > 0
    assert full.without_negative < few.without_negative
    lowest: dict[str, float] = {}
    for row in rows:
        lowest[row["anchor"]] = min(lowest.get(row["anchor"], 2.0), float(row["positive_similarity"]))
    for row in rows:
        assert (row["anchor"], row["negative"]) not in PAIRS
        limit = lowest[row["anchor"]] - 0.05 * abs(lowest[row["anchor"]])
        assert float(row["negative_similarity"]) <= limit + 1e-5
    assert {tuple(row.values()) for row in some} <= {tuple(row.values()) for row in rows}
    assert len({tuple(row.values()) for row in rows}) == len(rows)
    assert mined("again.tsv", **how, fill_random=True) == (full, rows)


@pytest.mark.long
def test_random_sampling_depends_on_the_seed_and_not_on_the_chunks(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = mined("a.tsv", sampling="random", range_max=40)
    mined("b.tsv", sampling="random", range_max=40, seed=1)
    mined("c.tsv", range_max=40)
    monkeypatch.setattr("nearfar.commands.mine.CHUNK", 3)
    monkeypatch.setattr(scores, "CHUNK", 3)
    mined("d.tsv", sampling="random", range_max=40)
    content = [Path(f"{name}.tsv").read_bytes() for name in "abcd"]
    assert content[0] == content[3]
    assert len(set(content)) == 3
    assert first.triplets > 20


@pytest.mark.long
def test_the_command_reports_counts_limits_and_examples_and_how_to_train(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pairs(workspace / "dev.tsv")
    assert main(["mine", *FLAGS, "--max-score", "0.95"]) == 0
    printed = capsys.readouterr().out
    result = json.loads(Path("triplets.tsv.summary.json").read_text())
    assert f"Wrote {result['triplets']} triplets to triplets.tsv" in printed
    assert f"dropped by --max-score 0.95: {result['dropped_shares']['max_score']:.1%}" in printed
    assert f"{result['without_negative']} pairs have no negative and are left out; --fill-random" in printed
    command = next(line for line in printed.splitlines() if line.startswith("Train on the triplets: "))
    argv = command.partition(": nearfar ")[2].replace("RUN", "run").split()
    assert main([*argv, "--evaluate-on", "dev.tsv", "--max-steps", "1", "--batch-size", "8"]) == 0


@pytest.mark.long
def test_ctrl_c_prints_how_to_continue(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        stop_in(patch, scores, "nearest", 1, KeyboardInterrupt())
        assert main(["mine", *FLAGS]) == 130
    printed = capsys.readouterr().out
    assert "Stopped; finished parts are kept in triplets.tsv.vectors. Continue with:" in printed
    assert printed.splitlines()[-1].split()[1:] == ["mine", *FLAGS]
    monkeypatch.setattr(Encoder, "encode_tokens", None)  # nothing is encoded again
    assert main(["mine", *FLAGS]) == 0


@pytest.mark.long
@pytest.mark.parametrize("changed", [{"model": "other"}, {"data": "fewer.tsv"}, {"pooling": "cls"}])
def test_vectors_of_other_models_and_texts_are_not_used(workspace: Path, changed: dict[str, Any]) -> None:
    save_tiny(workspace / "other", seed=1)
    write(workspace / "fewer.tsv", ["anchor", "positive"], PAIRS[:-1])
    with pytest.MonkeyPatch.context() as patch:
        stop_in(patch, scores, "nearest", 1, Killed())
        with pytest.raises(Killed):
            mined()
    assert mined(**changed) == mined("expected.tsv", **changed)


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_score": 0.999999}, r"No pair has a negative: of \d+ candidates --relative-margin dropped"),
        ({"relative_margin": None, "range_min": 999}, r"No pair has a negative: .*none is in the range of ranks"),
    ],
)
def test_errors(workspace: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(NearfarError, match=message):
        mined(**{"output": "triplets.tsv", **settings})
    assert not Path("triplets.tsv").exists()


# --- scores of a reranker ---


@pytest.fixture
def reranker(workspace: Path) -> Path:
    """A cross-encoder of sentence-transformers with random weights, whose logits spread."""
    torch.manual_seed(0)
    model = CrossEncoder("tiny", num_labels=1, device="cpu")
    with torch.no_grad():
        model.model.classifier.weight.mul_(30)
    model.save_pretrained("reranker")
    return workspace / "reranker"


def expected_triplets(scores: dict[tuple[str, str], float], margin: float) -> list[tuple[str, str, str, float, float]]:
    """The nearest document by the encoder that is scored below each pair's anchor's positives, by a plain search."""
    encoder = Encoder.from_pretrained("tiny")
    documents = list(dict.fromkeys(positive for _, positive in PAIRS))
    queries = dict(zip(TEXTS, encoder.encode(TEXTS, normalize=True, precision="fp32"), strict=True))
    vectors = dict(zip(documents, encoder.encode(documents, normalize=True, precision="fp32"), strict=True))
    rows = []
    for anchor, positive in PAIRS:
        own = [text for other, text in PAIRS if other == anchor]
        known = [scores[anchor, text] for text in own if (anchor, text) in scores]
        others = sorted((-float(queries[anchor] @ vectors[text]), text) for text in documents)
        fitting = [
            text
            for _, text in others
            if text not in (*own, anchor) and known and scores.get((anchor, text), np.inf) <= min(known) - margin
        ]
        if fitting and (anchor, positive) in scores:
            chosen = fitting[0]
            rows.append((anchor, positive, chosen, scores[anchor, positive], scores[anchor, chosen]))
    return rows


def assert_rows(rows: list[dict[str, str]], expected: list[tuple[str, str, str, float, float]]) -> None:
    assert [tuple(row.values())[:3] for row in rows] == [row[:3] for row in expected]
    assert list(rows[0]) == ["anchor", "positive", "negative", "positive_score", "negative_score"]
    found = [[float(row["positive_score"]), float(row["negative_score"])] for row in rows]
    np.testing.assert_allclose(found, [row[3:] for row in expected], atol=2e-5)


JUDGED: dict[str, Any] = {"range_max": 500, "relative_margin": None, "absolute_margin": 0.5, "precision": "fp32"}


@pytest.mark.long
def test_a_cross_encoder_judges_the_candidates_and_its_scores_are_trained_on(
    reranker: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [(anchor, text) for anchor, _ in PAIRS for text in dict.fromkeys(positive for _, positive in PAIRS)]
    logits = CrossEncoder("reranker", device="cpu").predict(pairs, activation_fn=torch.nn.Identity())
    expected = expected_triplets(dict(zip(pairs, map(float, logits), strict=True)), 0.5)
    result, rows = mined(rescore="reranker", **JUDGED)
    assert_rows(rows, expected)
    assert result.dropped["rescore"] == 0 < result.dropped["absolute_margin"] < result.candidates
    assert not Path("triplets.tsv.vectors").exists()
    assert main(["train", "--model", "tiny", "--data", "triplets.tsv", "--output", "run", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "triplets with scores" in printed
    assert "training by teacher-scores" in printed


@pytest.mark.long
def test_scores_that_were_computed_before_a_stop_are_kept(reranker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        stop_in(patch, scores, "nearest", 2, Killed())
        with pytest.raises(Killed):
            mined(rescore="reranker", **JUDGED)
    computed: list[int] = []
    predict = Classifier.predict

    def counted(self: Classifier, items: Any, **how: Any) -> Any:
        computed.append(len(items))
        return predict(self, items, **how)

    monkeypatch.setattr(Classifier, "predict", counted)
    stopped = mined(rescore="reranker", **JUDGED)
    again, computed[:] = sum(computed), []
    assert mined("expected.tsv", rescore="reranker", **JUDGED) == stopped
    assert 0 < again < sum(computed)


@pytest.mark.long
def test_a_table_judges_what_it_has_scores_of(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = np.random.default_rng(0)
    documents = list(dict.fromkeys(positive for _, positive in PAIRS))
    every = {(anchor, text): float(draw.normal()) for anchor, _ in PAIRS for text in documents}
    scores = {pair: score for pair, score in every.items() if pair != PAIRS[2] and draw.random() < 0.8}
    rows = [(*pair, str(score)) for pair, score in scores.items()]
    write(workspace / "scores.tsv", ["query", "document", "score"], rows)
    flags = ["--absolute-margin", "0.5", "--relative-margin", "none", "--range-max", "500", "--precision", "fp32"]
    assert main(["mine", *FLAGS, "--rescore", "scores.tsv", *flags]) == 0
    printed = capsys.readouterr().out
    assert "dropped by --rescore scores.tsv: " in printed
    with Path("triplets.tsv").open(encoding="utf-8", newline="") as stream:
        mined_rows = list(csv.DictReader(stream, delimiter="\t"))
    expected = expected_triplets(scores, 0.5)
    assert PAIRS[2] not in {row[:2] for row in expected}
    assert_rows(mined_rows, expected)
    # The mined file is a table of scores too.
    _, again = mined("again.tsv", rescore="triplets.tsv", **JUDGED)
    assert again == mined_rows


@pytest.mark.long
def test_unusable_scores_are_refused(workspace: Path) -> None:
    write(workspace / "bad.tsv", ["query", "document", "score"], [("a dog", "a cat", "1"), ("a dog", "a bird", "high")])
    write(workspace / "none.tsv", ["query", "document", "text"], [("a dog", "a cat", "1")])
    write(workspace / "other.tsv", ["query", "document", "score"], [("a dog", "a cat", "1"), ("a dog", "a bird", "2")])
    Classifier.from_pretrained("tiny", label_names=("a", "b")).save_pretrained("labels")
    for settings, problem in (
        ({"rescore": "bad.tsv"}, r"bad\.tsv, line 3: column 'score' holds 'high', not a number"),
        ({"rescore": "none.tsv"}, r"none\.tsv: has no scores\. Name their columns as those"),
        ({"rescore": "missing.tsv"}, r"missing\.tsv"),
        ({"rescore": "other.tsv"}, r"No pair has a negative: of \d+ candidates --rescore dropped \d+"),
        ({"rescore": "tiny"}, r"--rescore tiny: .*holds no classifier.*can be given in a table"),
        ({"rescore": "labels"}, "--rescore labels: classifies into 2 labels, and should give one score"),
        ({"rescore": "other.tsv", "fill_random": True}, "--fill-random and --rescore: random documents have no such"),
        ({"max_score": 3.0}, "--max-score 3: must be from -1 to 1, as cosines are, without --rescore"),
        ({"absolute_margin": 2.5}, r"--absolute-margin 2\.5: must be from 0 to 2, as cosines are, without --rescore"),
    ):
        with pytest.raises(NearfarError, match=problem):
            mined(**settings)
    with pytest.raises(NearfarError, match=r"--output other\.tsv: would overwrite the input"):
        mine(model="tiny", data="pairs.tsv", rescore="other.tsv", output="other.tsv", overwrite=True)
