"""The search for hard negatives: the candidates of each anchor, the nearest of them, and the choice among these."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int64
from numpy.typing import NDArray

from nearfar.commands.encode.vectors import OpenEncoder
from nearfar.config.mining import MineConfig
from nearfar.data.fingerprints import normalize_for_hash
from nearfar.neighbours.exact import Neighbours, nearest, pair_similarities
from nearfar.neighbours.hard_negatives import NO_DOCUMENT, NegativeLimits, Negatives, mask_of, select_negatives
from nearfar.runtime.progress import progress_bar
from nearfar.types import VectorSimilarity

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


def search(folder: Path, opened: OpenEncoder, candidates: Candidates, config: MineConfig, *, progress: bool) -> Mined:
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
