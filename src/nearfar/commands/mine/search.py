"""The search for hard negatives: the candidates of each anchor, the nearest of them, and the choice among these."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64
from numpy.typing import NDArray

from nearfar.commands.encode.vectors import OpenEncoder
from nearfar.config.mining import MineConfig
from nearfar.data.fingerprints import normalize_for_hash
from nearfar.neighbours import pair_similarities
from nearfar.neighbours.exact import Neighbours, nearest
from nearfar.runtime.progress import progress_bar
from nearfar.types import VectorSimilarity

NO_DOCUMENT = -1
"""The id in place of a negative that was not found; its score is minus infinity."""
CHUNK = 2**11
"""Number of anchors whose nearest documents are searched and saved together."""
_SAMPLE = 64
"""Number of random documents that are tried for each missing negative before all documents are scored."""


class Candidates(NamedTuple):
    """Distinct anchors and documents, and how the pairs refer to them."""

    anchors: list[str]
    documents: list[str]
    """The distinct positives in the order of the pairs, then the texts of the corpus that are not among them."""
    anchor_of: Int64[np.ndarray, " pairs"]
    """Position of each pair's anchor."""
    positive_of: Int64[np.ndarray, " pairs"]
    """Position of each pair's positive among the documents."""
    starts: NDArray[np.int64]
    """Anchor i never has the documents ``excluded[starts[i] : starts[i + 1]]`` as negatives."""
    excluded: Int64[np.ndarray, " entries"]

    @property
    def most_positives(self) -> int:
        """The largest number of positives of an anchor."""
        pairs = np.unique(np.stack([self.anchor_of, self.positive_of], axis=1), axis=0)
        return int(np.bincount(pairs[:, 0]).max())

    def excluded_of(self, first: int, last: int) -> tuple[Int64[np.ndarray, " entries"], Int64[np.ndarray, " entries"]]:
        """The excluded documents of the anchors ``first`` to ``last - 1``: positions from ``first``, and documents."""
        counts = np.diff(self.starts[first : last + 1])
        return np.repeat(np.arange(last - first), counts), self.excluded[self.starts[first] : self.starts[last]]


def gather(pairs: Sequence[Sequence[str]], corpus: Sequence[str]) -> Candidates:
    """Collect the candidates of pairs (anchor, positive) and further documents.

    Excluded for an anchor are its positives, the positives of equal anchors, and all documents that equal one of these
    or the anchor. Texts are equal here if they have the same letters and digits in any case
    (:func:`nearfar.data.fingerprints.normalize_for_hash`).
    """
    anchors = {text: number for number, text in enumerate(dict.fromkeys(pair[0] for pair in pairs))}
    texts = dict.fromkeys(pair[1] for pair in pairs)
    texts.update(dict.fromkeys(corpus))
    documents = {text: number for number, text in enumerate(texts)}
    equal: dict[str, list[int]] = {}
    for text, number in documents.items():
        equal.setdefault(normalize_for_hash(text), []).append(number)
    never: dict[str, set[int]] = {}
    for anchor, positive in pairs:
        key = normalize_for_hash(anchor)
        if key not in never:
            never[key] = set(equal.get(key, ()))
        never[key].update(equal[normalize_for_hash(positive)])
    lists = [sorted(never[normalize_for_hash(anchor)]) for anchor in anchors]
    return Candidates(
        list(anchors),
        list(documents),
        np.array([anchors[pair[0]] for pair in pairs], dtype=np.int64),
        np.array([documents[pair[1]] for pair in pairs], dtype=np.int64),
        np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64),
        np.array([number for one in lists for number in one], dtype=np.int64),
    )


class NegativeLimits(NamedTuple):
    """Limits on the score s of a negative, given the lowest score p of the query's positives; None for no limit."""

    absolute_margin: float | None = None
    """s <= p - absolute_margin (TopK-MarginPos of Moreira et al. 2024, arXiv:2407.15831)."""
    relative_margin: float | None = None
    """s <= p - |p| * relative_margin (TopK-PercPos; the same as p * (1 - relative_margin) for a positive p)."""
    max_score: float | None = None
    """s <= max_score."""
    min_score: float | None = None
    """s >= min_score."""

    def violations(
        self, scores: Float32[np.ndarray, "queries documents"], positive: Float32[np.ndarray, " queries"]
    ) -> dict[str, Bool[np.ndarray, "queries documents"]]:
        """For each limit that is set, in the order of the fields: which scores violate it."""
        lowest = positive[:, None]
        found = {}
        if self.absolute_margin is not None:
            found["absolute_margin"] = scores + np.float32(self.absolute_margin) > lowest
        if self.relative_margin is not None:
            found["relative_margin"] = scores > lowest - np.abs(lowest) * np.float32(self.relative_margin)
        if self.max_score is not None:
            found["max_score"] = scores > self.max_score
        if self.min_score is not None:
            found["min_score"] = scores < self.min_score
        return found


class Negatives(NamedTuple):
    """The negatives of each query, nearest first."""

    ids: Int64[np.ndarray, "queries count"]
    """Positions of the documents; :data:`NO_DOCUMENT` where there are fewer."""
    scores: Float32[np.ndarray, "queries count"]
    """Their scores; minus infinity where there are fewer."""
    candidates: int
    """Number of documents that were considered: the nearest ones without the excluded ones."""
    dropped: dict[str, int]
    """For each limit, the number of candidates that it dropped and no limit before it."""


def select_negatives(
    found: Neighbours,
    excluded: Bool[np.ndarray, "queries k"],
    positive: Float32[np.ndarray, " queries"],
    limits: NegativeLimits,
    *,
    count: int,
    range_min: int = 0,
    range_max: int | None = None,
    random: Callable[[int, int], np.ndarray] | None = None,
) -> Negatives:
    """Choose up to ``count`` negatives of each query from its nearest documents.

    The nearest documents that are neither excluded nor outside the limits are ranked 0, 1, 2 ... by score; negatives
    have a rank in [range_min, range_max). With the same arguments on the same vectors, these are the candidates of
    ``mine_hard_negatives`` in sentence-transformers.

    Args:
        found: nearest documents of each query, best first.
        excluded: which of them are never negatives, such as the query's positives.
        positive: the lowest score of the query's positives.
        limits: limits on the score.
        count: number of negatives of a query.
        range_min: number of candidates to skip.
        range_max: number of candidates to choose from; None for all.
        random: None to take the nearest candidates; otherwise a function of (query, k) that returns ``k`` random
            numbers, by which the negatives are drawn.
    """
    kept = ~excluded
    candidates, dropped = int(kept.sum()), {}
    for name, violated in limits.violations(found.scores, positive).items():
        dropped[name] = int((kept & violated).sum())
        kept &= ~violated
    ranks = kept.cumsum(axis=1) - 1
    kept &= ranks >= range_min
    if range_max is not None:
        kept &= ranks < range_max
    if random is not None:
        kept = _draw(kept, count, random)
    chosen = kept & (kept.cumsum(axis=1) <= count)
    ids = np.full((len(chosen), count), NO_DOCUMENT, dtype=np.int64)
    scores = np.full((len(chosen), count), -np.inf, dtype=np.float32)
    rows, columns = chosen.nonzero()
    places = chosen.cumsum(axis=1)[rows, columns] - 1
    ids[rows, places], scores[rows, places] = found.ids[rows, columns], found.scores[rows, columns]
    return Negatives(ids, scores, candidates, dropped)


def _draw(
    options: Bool[np.ndarray, "queries k"], count: int, random: Callable[[int, int], np.ndarray]
) -> Bool[np.ndarray, "queries k"]:
    """A random subset of at most ``count`` options of each query."""
    drawn = np.zeros_like(options)
    for query, row in enumerate(options):
        numbers = np.where(row, random(query, len(row)), np.inf)
        order = np.argsort(numbers, kind="stable")[: min(count, int(row.sum()))]
        drawn[query, order] = True
    return drawn


def mask_of(
    ids: Int64[np.ndarray, "queries k"],
    documents: int,
    queries: Int64[np.ndarray, " entries"],
    entries: Int64[np.ndarray, " entries"],
) -> Bool[np.ndarray, "queries k"]:
    """Which of the ``ids`` of each query are listed for it as (``queries``, ``entries``); ids are below ``documents``.

    >>> mask_of(np.array([[5, 2], [2, 7]]), 10, np.array([0, 1]), np.array([2, 2]))
    array([[False,  True],
           [ True, False]])
    """
    keys = ids + np.arange(len(ids), dtype=np.int64)[:, None] * documents
    return np.isin(keys, queries * documents + entries)


class Mined(NamedTuple):
    """The negatives of all anchors."""

    ids: Int64[np.ndarray, "anchors count"]
    """Positions of the documents; -1 where there are fewer."""
    scores: Float32[np.ndarray, "anchors count"]
    """Their scores; minus infinity where there are fewer."""
    positive_scores: Float32[np.ndarray, " pairs"]
    """The score of each pair."""
    depth: int
    """Number of nearest documents that were searched for each anchor."""
    candidates: int
    """Number of these documents that are not excluded."""
    dropped: dict[str, int]
    """Limit -> number of candidates that it dropped."""
    filled: Int64[np.ndarray, " anchors"]
    """Number of negatives of each anchor that are random documents."""


class _Problem(NamedTuple):
    """What all chunks of anchors share."""

    queries: NDArray[np.float32]
    documents: NDArray[np.float32]
    candidates: Candidates
    similarity: VectorSimilarity
    lowest: Float32[np.ndarray, " anchors"]
    """The lowest score of each anchor's positives."""
    limits: NegativeLimits
    range_max: int
    config: MineConfig


def find_negatives(
    folder: Path, opened: OpenEncoder, candidates: Candidates, config: MineConfig, *, progress: bool
) -> Mined:
    """Encode what ``folder`` has no vectors of, find the nearest documents of each anchor, and choose the negatives."""
    anchors, texts = candidates.anchors, candidates.documents
    with progress_bar("encoding", len(anchors) + len(texts), shown=progress) as advance:
        encoder, similarity = opened.encoder, opened.encoder.similarity
        how: dict[str, Any] = {"normalize": similarity == "cosine", "on_texts": advance}
        queries = opened.encode_texts(folder, anchors, role="query", **how)
        documents = opened.encode_texts(folder, texts, role="document", **how)
    positive_scores = _pair_scores(queries, documents, candidates, similarity)
    lowest = np.full(len(anchors), np.inf, dtype=np.float32)
    np.minimum.at(lowest, candidates.anchor_of, positive_scores)
    most = candidates.most_positives
    range_max = config.range_max or config.range_min + 10 * config.negatives + most
    depth = min(range_max + most, len(texts))
    limits = NegativeLimits(config.absolute_margin, config.relative_margin, config.max_score, config.min_score)
    problem = _Problem(queries, documents, candidates, similarity, lowest, limits, range_max, config)
    found, filled = [], []
    with progress_bar("searching", len(anchors), unit="anchors", shown=progress) as advance:
        for start in range(0, len(anchors), CHUNK):
            stop = min(start + CHUNK, len(anchors))
            near = nearest(queries[start:stop], documents, depth, similarity=similarity, device=encoder.device)
            found.append(_choose(problem, near, start, stop))
            filled.append(_fill(problem, found[-1], start) if config.fill_random else np.zeros(stop - start, np.int64))
            advance(stop - start)
    return Mined(
        np.concatenate([one.ids for one in found]),
        np.concatenate([one.scores for one in found]),
        positive_scores,
        depth,
        sum(one.candidates for one in found),
        {name: sum(one.dropped[name] for one in found) for name in found[0].dropped},
        np.concatenate(filled),
    )


def _pair_scores(
    queries: NDArray[np.float32], documents: NDArray[np.float32], candidates: Candidates, similarity: VectorSimilarity
) -> Float32[np.ndarray, " pairs"]:
    """The score of each pair, in blocks."""
    scores = np.empty(len(candidates.anchor_of), dtype=np.float32)
    for start in range(0, len(scores), CHUNK):
        rows = slice(start, start + CHUNK)
        own = documents[candidates.positive_of[rows]]
        scores[rows] = pair_similarities(queries[candidates.anchor_of[rows]], own, similarity)
    return scores


def _choose(problem: _Problem, near: Neighbours, start: int, stop: int) -> Negatives:
    """The negatives of the anchors from ``start`` up to ``stop``."""
    config, candidates = problem.config, problem.candidates

    def numbers(query: int, size: int) -> NDArray[np.float64]:
        return np.random.default_rng((config.seed, start + query)).random(size)

    return select_negatives(
        near,
        mask_of(near.ids, len(candidates.documents), *candidates.excluded_of(start, stop)),
        problem.lowest[start:stop],
        problem.limits,
        count=config.negatives,
        range_min=config.range_min,
        range_max=problem.range_max,
        random=numbers if config.sampling == "random" else None,
    )


def _fill(problem: _Problem, negatives: Negatives, start: int) -> Int64[np.ndarray, " anchors"]:
    """Replace missing negatives by random documents, in place; returns their number for each anchor.

    A random document is not excluded, not yet chosen, and not above the upper limits. First a sample of the documents
    is tried, then all of them.
    """
    filled = np.zeros(len(negatives.ids), dtype=np.int64)
    documents, excluded_of = problem.documents, problem.candidates.excluded_of
    upper = problem.limits._replace(min_score=None)
    for row in np.flatnonzero((negatives.ids == NO_DOCUMENT).any(axis=1)):
        empty = np.flatnonzero(negatives.ids[row] == NO_DOCUMENT)
        anchor = start + int(row)
        taken = np.concatenate([negatives.ids[row], excluded_of(anchor, anchor + 1)[1]])
        draw = np.random.default_rng((problem.config.seed, anchor, 1))
        for size in dict.fromkeys((min(_SAMPLE * len(empty), len(documents)), len(documents))):
            sample = draw.choice(len(documents), size=size, replace=False)
            scores = np.empty(size, dtype=np.float32)
            for first in range(0, size, 8 * CHUNK):
                part = slice(first, first + 8 * CHUNK)
                tried = documents[sample[part]]
                query = np.broadcast_to(problem.queries[anchor], tried.shape)
                scores[part] = pair_similarities(query, tried, problem.similarity)
            violated = upper.violations(scores[None], problem.lowest[anchor : anchor + 1]).values()
            fits = ~np.isin(sample, taken) & ~np.any([np.zeros_like(scores, bool), *(v[0] for v in violated)], axis=0)
            if fits.sum() >= len(empty) or size == len(documents):
                chosen = np.flatnonzero(fits)[: len(empty)]
                places = empty[: len(chosen)]
                negatives.ids[row, places], negatives.scores[row, places] = sample[chosen], scores[chosen]
                filled[row] = len(chosen)
                break
    return filled
