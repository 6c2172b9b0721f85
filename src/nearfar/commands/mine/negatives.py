"""Which documents are hard negatives of a query: candidates, limits on their scores, and the search for them."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64
from numpy.typing import NDArray

from nearfar.commands.encode.vectors import OpenEncoder
from nearfar.config.encoding import MineConfig
from nearfar.data.fingerprints import normalize_for_hash
from nearfar.neighbours import pair_similarities
from nearfar.neighbours.exact import Neighbours, nearest
from nearfar.runtime.progress import progress_bar
from nearfar.types import VectorSimilarity

NO_DOCUMENT = -1
"""The id in place of a negative that was not found; its score is minus infinity."""


CHUNK = 2**11
"""Number of anchors whose nearest documents are searched together, and of pairs that are scored together."""


_SAMPLE = 64
"""Number of random documents that are tried for each missing negative before all documents are scored."""


class Triplet(NamedTuple):
    """A mined row with its scores."""

    anchor: str
    positive: str
    negative: str
    positive_score: float
    negative_score: float


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
    documents = {text: number for number, text in enumerate(dict.fromkeys([*(pair[1] for pair in pairs), *corpus]))}
    equal: dict[str, list[int]] = {}
    for text, number in documents.items():
        equal.setdefault(normalize_for_hash(text), []).append(number)
    never: dict[str, set[int]] = {}
    for anchor, positive in pairs:
        key = normalize_for_hash(anchor)
        never.setdefault(key, set(equal.get(key, ()))).update(equal[normalize_for_hash(positive)])
    excluded = [sorted(never[normalize_for_hash(anchor)]) for anchor in anchors]
    return Candidates(
        list(anchors),
        list(documents),
        np.array([anchors[pair[0]] for pair in pairs], dtype=np.int64),
        np.array([documents[pair[1]] for pair in pairs], dtype=np.int64),
        np.cumsum([0, *map(len, excluded)], dtype=np.int64),
        np.array([number for numbers in excluded for number in numbers], dtype=np.int64),
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
        violated: dict[str, Callable[[float], Any]] = {
            "absolute_margin": lambda margin: scores + np.float32(margin) > lowest,
            "relative_margin": lambda margin: scores > lowest - np.abs(lowest) * np.float32(margin),
            "max_score": lambda limit: scores > limit,
            "min_score": lambda limit: scores < limit,
        }
        return {name: violated[name](limit) for name, limit in self._asdict().items() if limit is not None}


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
    kept &= (ranks >= range_min) & (ranks < (ranks.shape[1] if range_max is None else range_max))
    for query, row in enumerate(kept if random else ()):
        assert random is not None
        numbers = np.where(row, random(query, len(row)), np.inf)
        row[np.argsort(numbers, kind="stable")[count:]] = False
    chosen = kept & (kept.cumsum(axis=1) <= count)
    ids = np.full((len(chosen), count), NO_DOCUMENT, dtype=np.int64)
    scores = np.full((len(chosen), count), -np.inf, dtype=np.float32)
    rows, columns = chosen.nonzero()
    places = chosen.cumsum(axis=1)[rows, columns] - 1
    ids[rows, places], scores[rows, places] = found.ids[rows, columns], found.scores[rows, columns]
    return Negatives(ids, scores, candidates, dropped)


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

    negatives: Negatives
    positive_scores: Float32[np.ndarray, " pairs"]
    """The score of each pair."""
    depth: int
    """Number of nearest documents that were searched for each anchor."""
    filled: Int64[np.ndarray, " anchors"]
    """Number of negatives of each anchor that are random documents."""


class _Vectors(NamedTuple):
    """The vectors of anchors and documents."""

    queries: NDArray[np.float32]
    documents: NDArray[np.float32]
    similarity: VectorSimilarity

    def score(
        self, queries: Int64[np.ndarray, " pairs"], documents: Int64[np.ndarray, " pairs"]
    ) -> Float32[np.ndarray, " pairs"]:
        """The scores of pairs of an anchor and a document, given by their numbers; in blocks."""
        scores = np.empty(len(queries), dtype=np.float32)
        for start in range(0, len(scores), CHUNK):
            rows = slice(start, start + CHUNK)
            pairs = self.queries[queries[rows]], self.documents[documents[rows]]
            scores[rows] = pair_similarities(*pairs, self.similarity)
        return scores


def find_negatives(
    folder: Path, opened: OpenEncoder, candidates: Candidates, config: MineConfig, *, progress: bool
) -> Mined:
    """Encode what ``folder`` has no vectors of, find the nearest documents of each anchor, and choose the negatives."""
    anchors, texts, similarity = candidates.anchors, candidates.documents, opened.encoder.similarity
    with progress_bar("encoding", len(anchors) + len(texts), shown=progress) as advance:
        how: dict[str, Any] = {"normalize": similarity == "cosine", "on_texts": advance}
        queries = opened.encode_texts(folder, anchors, role="query", **how)
        vectors = _Vectors(queries, opened.encode_texts(folder, texts, role="document", **how), similarity)
    positive_scores = vectors.score(candidates.anchor_of, candidates.positive_of)
    lowest = np.full(len(anchors), np.inf, dtype=np.float32)
    np.minimum.at(lowest, candidates.anchor_of, positive_scores)
    most = candidates.most_positives
    range_max = config.range_max or config.range_min + 10 * config.negatives + most
    depth = min(range_max + most, len(texts))
    limits = NegativeLimits(*(getattr(config, name) for name in NegativeLimits._fields))
    found: list[Negatives] = []
    filled = np.zeros(len(anchors), dtype=np.int64)
    with progress_bar("searching", len(anchors), unit="anchors", shown=progress) as advance:
        for start in range(0, len(anchors), CHUNK):
            stop = min(start + CHUNK, len(anchors))
            near = nearest(
                queries[start:stop], vectors.documents, depth, similarity=similarity, device=opened.encoder.device
            )
            excluded = mask_of(near.ids, len(texts), *candidates.excluded_of(start, stop))

            def numbers(query: int, size: int, start: int = start) -> NDArray[np.float64]:
                return np.random.default_rng((config.seed, start + query)).random(size)

            chosen = select_negatives(
                near,
                excluded,
                lowest[start:stop],
                limits,
                count=config.negatives,
                range_min=config.range_min,
                range_max=range_max,
                random=numbers if config.sampling == "random" else None,
            )
            found.append(chosen)
            for row in np.flatnonzero((chosen.ids == NO_DOCUMENT).any(axis=1)) if config.fill_random else ():
                anchor = start + int(row)
                filled[anchor] = _fill(
                    chosen,
                    int(row),
                    vectors,
                    anchor=anchor,
                    never=candidates.excluded_of(anchor, anchor + 1)[1],
                    limits=limits,
                    lowest=lowest[anchor : anchor + 1],
                    seed=config.seed,
                )
            advance(stop - start)
    every = Negatives(
        np.concatenate([one.ids for one in found]),
        np.concatenate([one.scores for one in found]),
        sum(one.candidates for one in found),
        {name: sum(one.dropped[name] for one in found) for name in found[0].dropped},
    )
    return Mined(every, positive_scores, depth, filled)


def _fill(
    negatives: Negatives,
    row: int,
    vectors: _Vectors,
    *,
    anchor: int,
    never: Int64[np.ndarray, " entries"],
    limits: NegativeLimits,
    lowest: Float32[np.ndarray, " one"],
    seed: int,
) -> int:
    """Replace the missing negatives of an anchor, in a ``row``, by random documents, in place; returns their number.

    A random document is not excluded (``never``), not yet chosen, and not above the upper limits. First a sample of the
    documents is tried, then all of them.
    """
    documents, empty = len(vectors.documents), np.flatnonzero(negatives.ids[row] == NO_DOCUMENT)
    draw, upper = np.random.default_rng((seed, anchor, 1)), limits._replace(min_score=None)
    chosen = empty[:0]
    for size in dict.fromkeys((min(_SAMPLE * len(empty), documents), documents)):
        sample = draw.choice(documents, size=size, replace=False)
        scores = vectors.score(np.full(size, anchor), sample)
        fits = ~np.isin(sample, [*negatives.ids[row], *never])
        for violated in upper.violations(scores[None], lowest).values():
            fits &= ~violated[0]
        chosen = np.flatnonzero(fits)[: len(empty)]
        if len(chosen) == len(empty):
            break
    places = empty[: len(chosen)]
    negatives.ids[row, places], negatives.scores[row, places] = sample[chosen], scores[chosen]
    return len(chosen)


def list_triplets(candidates: Candidates, mined: Mined) -> Iterator[Triplet]:
    """The rows of the output, in the order of the pairs, nearest negative first."""
    documents, negatives = candidates.documents, mined.negatives
    pairs = zip(candidates.anchor_of, candidates.positive_of, mined.positive_scores, strict=True)
    for anchor, positive, score in pairs:
        for negative, negative_score in zip(negatives.ids[anchor], negatives.scores[anchor].tolist(), strict=True):
            if negative != NO_DOCUMENT:
                texts = (candidates.anchors[anchor], documents[positive], documents[negative])
                yield Triplet(*texts, round(float(score), 6), round(negative_score, 6))
