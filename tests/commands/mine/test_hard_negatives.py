"""Hard negatives equal a search in plain Python, and the candidates of sentence-transformers' mine_hard_negatives."""

from typing import Any

import datasets
import numpy as np
import pytest
import torch
from sentence_transformers.util import cos_sim, mine_hard_negatives, pairwise_cos_sim

from nearfar.commands.mine.negatives import NO_DOCUMENT, NegativeLimits, Negatives, gather, mask_of, select_negatives
from nearfar.neighbours.exact import nearest


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


def mined(
    pairs: list[tuple[str, str]],
    corpus: list[str],
    queries: dict[str, np.ndarray],
    documents: dict[str, np.ndarray],
    limits: NegativeLimits,
    *,
    range_max: int,
    **settings: Any,
) -> tuple[Negatives, list[tuple[str, str, str]]]:
    """The negatives, and the triplets in the order of the pairs."""
    found = gather(pairs, corpus)
    anchors = np.stack([queries[text] for text in found.anchors])
    texts = np.stack([documents[text] for text in found.documents])
    near = nearest(anchors, texts, range_max + found.most_positives)
    lowest = np.full(len(anchors), np.inf, np.float32)
    np.minimum.at(lowest, found.anchor_of, (anchors[found.anchor_of] * texts[found.positive_of]).sum(axis=1))
    excluded = mask_of(near.ids, len(texts), *found.excluded_of(0, len(anchors)))
    negatives = select_negatives(near, excluded, lowest, limits, range_max=range_max, **settings)
    triplets = [
        (found.anchors[anchor], found.documents[positive], found.documents[negative])
        for anchor, positive in zip(found.anchor_of, found.positive_of, strict=True)
        for negative in negatives.ids[anchor]
        if negative != NO_DOCUMENT
    ]
    return negatives, triplets


SETTINGS: dict[str, dict[str, Any]] = {
    "no limits": {},
    "relative": {"relative_margin": 0.05},
    "absolute": {"absolute_margin": 0.1},
    "both": {"relative_margin": 0.2, "absolute_margin": 0.05},
    "scores": {"max_score": 0.6, "min_score": 0.2},
    "everything": {"relative_margin": 0.1, "max_score": 0.5, "min_score": 0.1, "range_min": 2},
    "skipped": {"range_min": 3},
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
    limits = NegativeLimits(*(settings.get(field) for field in NegativeLimits._fields))
    _, ours = mined(
        *(pairs, corpus, queries, documents, limits),
        count=settings["num_negatives"],
        range_min=settings["range_min"],
        range_max=settings["range_max"],
    )
    expected = {(row["anchor"], row["positive"], row["negative"]) for row in theirs}
    assert len(expected) == len(theirs) > 30
    assert set(ours) == expected
    assert len(ours) == len(expected)


@pytest.mark.parametrize("seed", range(2))
def test_negatives_equal_plain_python(seed: int) -> None:
    pairs, corpus, queries, documents = problem(seed + 10)
    limits = NegativeLimits(absolute_margin=0.02, relative_margin=0.1, max_score=0.7, min_score=-0.5)
    everything = len(documents)
    negatives, triplets = mined(pairs, corpus, queries, documents, limits, range_max=everything, count=4, range_min=1)
    expected, dropped = [], dict.fromkeys(NegativeLimits._fields, 0)
    for number, (anchor, positive) in enumerate(pairs):
        positives = [text for other, text in pairs if other == anchor]
        lowest = min(float(queries[anchor] @ documents[text]) for text in positives)
        first_row = anchor not in [other for other, _ in pairs[:number]]
        kept = []
        for text, vector in documents.items():
            score = float(queries[anchor] @ vector)
            broken = {
                "absolute_margin": score > lowest - 0.02,
                "relative_margin": score > lowest - abs(lowest) * 0.1,
                "max_score": score > 0.7,
                "min_score": score < -0.5,
            }
            if text in positives:
                continue
            cause = next((limit for limit, bad in broken.items() if bad), None)
            if cause is None:
                kept.append((-score, text))
            elif first_row:
                dropped[cause] += 1
        expected += [(anchor, positive, text) for _, text in sorted(kept)[1:5]]
    assert triplets == expected
    assert negatives.dropped == dropped
    assert all(dropped.values())


@pytest.mark.long
def test_random_sampling_draws_from_the_whole_range() -> None:
    pairs, corpus, queries, documents = problem(0)
    limits = NegativeLimits(relative_margin=0.05)
    arguments = (pairs, corpus, queries, documents, limits)
    options, _ = mined(*arguments, range_max=20, count=20, range_min=1)
    seen: list[set[int]] = [set() for _ in options.ids]
    for seed in range(40):

        def numbers(query: int, size: int, seed: int = seed) -> np.ndarray:
            return np.random.default_rng((seed, query)).random(size)

        drawn, _ = mined(*arguments, range_max=20, count=3, range_min=1, random=numbers)
        for query, ids in enumerate(drawn.ids):
            found = ids[ids != NO_DOCUMENT].tolist()
            assert len(found) == len(set(found)) == min(3, (options.ids[query] != NO_DOCUMENT).sum())
            seen[query] |= set(found)
            scores = drawn.scores[query][: len(found)]
            assert (np.diff(scores) <= 0).all()
    assert seen == [set(ids[ids != NO_DOCUMENT].tolist()) for ids in options.ids]


def test_equal_texts_are_never_negatives() -> None:
    pairs = [("How old is he?", "He is ten."), ("how old is he", "Ten years."), ("Who?", "She."), ("A dog!", "a cat")]
    corpus = ["HE IS TEN", "ten years", "a dog", "How old is he", "she", "other"]
    found = gather(pairs, corpus)
    excluded = {
        anchor: {found.documents[number] for number in found.excluded_of(row, row + 1)[1]}
        for row, anchor in enumerate(found.anchors)
    }
    first = {"He is ten.", "HE IS TEN", "Ten years.", "ten years", "How old is he"}
    assert excluded == {
        "How old is he?": first,
        "how old is he": first,
        "Who?": {"She.", "she"},
        "A dog!": {"a cat", "a dog"},
    }
    assert found.documents == ["He is ten.", "Ten years.", "She.", "a cat", *corpus]


def test_the_largest_number_of_positives_counts_distinct_ones() -> None:
    assert gather([("a", "b"), ("a", "b"), ("a", "c"), ("d", "b")], []).most_positives == 2
