"""The hard negatives of anchors: candidates, limits on their scores, and the choice among the nearest documents."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
from jaxtyping import Bool, Float, Float32, Int64
from numpy.typing import NDArray

from nearfar.commands.encode.vectors import OpenEncoder
from nearfar.config.encoding import MineConfig
from nearfar.data.fingerprints import normalize_for_hash
from nearfar.neighbours import pair_similarities
from nearfar.neighbours.exact import Neighbours, nearest
from nearfar.runtime.progress import progress_bar

LIMITS = ("absolute_margin", "relative_margin", "max_score", "min_score")
"""The settings that limit a negative's score, in the order in which they apply."""
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
    excluded: list[NDArray[np.int64]]
    """The documents that are never negatives of each anchor."""


def gather(pairs: Sequence[Sequence[str]], corpus: Sequence[str]) -> Candidates:
    """Collect the candidates of pairs (anchor, positive) and further documents.

    Excluded for an anchor are its positives, the positives of equal anchors, and all documents that equal one of these
    or the anchor. Texts are equal here if they have the same letters and digits in any case
    (:func:`nearfar.data.fingerprints.normalize_for_hash`).
    """
    anchor_of, anchors = pandas.factorize(np.array([anchor for anchor, _ in pairs], object))
    document_of, documents = pandas.factorize(np.array([*(positive for _, positive in pairs), *corpus], object))
    equal: dict[str, list[int]] = {}
    for number, text in enumerate(documents):
        equal.setdefault(normalize_for_hash(text), []).append(number)
    never: dict[str, set[int]] = {}
    for anchor, positive in pairs:
        key = normalize_for_hash(anchor)
        never.setdefault(key, set(equal.get(key, ()))).update(equal[normalize_for_hash(positive)])
    excluded = [np.array(sorted(never[normalize_for_hash(anchor)]), dtype=np.int64) for anchor in anchors]
    return Candidates(anchors.tolist(), documents.tolist(), anchor_of, document_of[: len(pairs)], excluded)


def violations(
    scores: Float32[np.ndarray, "queries documents"],
    positive: Float32[np.ndarray, " queries"],
    limits: Mapping[str, float],
) -> dict[str, Bool[np.ndarray, "queries documents"]]:
    """For each limit on the score s of a negative: which scores violate it, p the lowest score of a query's positives.

    absolute_margin: s <= p - absolute_margin (TopK-MarginPos of Moreira et al. 2024, arXiv:2407.15831).
    relative_margin: s <= p - |p| * relative_margin (TopK-PercPos; for a positive p the same as
    p * (1 - relative_margin)). max_score: s <= max_score. min_score: s >= min_score.
    """
    lowest = positive[:, None]
    violated: dict[str, Callable[[float], Any]] = {
        "absolute_margin": lambda margin: scores + np.float32(margin) > lowest,
        "relative_margin": lambda margin: scores > lowest - np.abs(lowest) * np.float32(margin),
        "max_score": lambda limit: scores > limit,
        "min_score": lambda limit: scores < limit,
    }
    return {name: violated[name](limits[name]) for name in LIMITS if name in limits}


class Negatives(NamedTuple):
    """The negatives of each query, nearest first."""

    ids: Int64[np.ndarray, "queries count"]
    """Positions of the documents; :data:`NO_DOCUMENT` where there are fewer."""
    scores: Float32[np.ndarray, "queries count"]
    """Their scores; minus infinity where there are fewer."""
    counts: dict[str, int]
    """``candidates``, the nearest documents without the excluded ones; and for each limit, those that it dropped and no
    limit before it."""


def select_negatives(
    found: Neighbours,
    excluded: Bool[np.ndarray, "queries k"],
    positive: Float32[np.ndarray, " queries"],
    limits: Mapping[str, float],
    *,
    count: int,
    range_min: int = 0,
    range_max: int | None = None,
    random: Float[np.ndarray, "queries k"] | None = None,
) -> Negatives:
    """Choose up to ``count`` negatives of each query from its nearest documents.

    The nearest documents that are neither excluded nor outside the limits are ranked 0, 1, 2 ... by score; negatives
    have a rank in [range_min, range_max). With the same arguments on the same vectors, these are the candidates of
    ``mine_hard_negatives`` in sentence-transformers.

    Args:
        found: nearest documents of each query, best first.
        excluded: which of them are never negatives, such as the query's positives.
        positive: the lowest score of the query's positives.
        limits: limits on the score, see :func:`violations`.
        count: number of negatives of a query.
        range_min: number of candidates to skip.
        range_max: number of candidates to choose from; None for all.
        random: None to take the nearest candidates; otherwise numbers, of which those with the lowest are taken.
    """
    kept = ~excluded
    counts = {"candidates": int(kept.sum())}
    for name, violated in violations(found.scores, positive, limits).items():
        counts[name] = int((kept & violated).sum())
        kept &= ~violated
    ranks = kept.cumsum(axis=1) - 1
    kept &= (ranks >= range_min) & (ranks < (ranks.shape[1] if range_max is None else range_max))
    if random is not None:
        drawn = np.where(kept, random, np.inf).argsort(axis=1, kind="stable").argsort(axis=1)
        kept &= drawn < count
    columns = np.argsort(~kept, axis=1, kind="stable")[:, :count]
    chosen = np.take_along_axis(kept, columns, axis=1)
    ids = np.where(chosen, np.take_along_axis(found.ids, columns, axis=1), NO_DOCUMENT)
    scores = np.where(chosen, np.take_along_axis(found.scores, columns, axis=1), -np.inf).astype(np.float32)
    return Negatives(ids, scores, counts)


def is_excluded(
    ids: Int64[np.ndarray, "queries k"], excluded: Sequence[NDArray[np.int64]], documents: int
) -> Bool[np.ndarray, "queries k"]:
    """Which of the ``ids`` of each query are ``excluded`` for it; ids are below ``documents``.

    >>> is_excluded(np.array([[5, 2], [2, 7]]), [np.array([2]), np.array([2, 3])], 10)
    array([[False,  True],
           [ True, False]])
    """
    starts = np.arange(len(ids), dtype=np.int64) * documents
    keys = np.repeat(starts, list(map(len, excluded))) + np.concatenate(excluded)
    return np.isin(ids + starts[:, None], keys)


class Mined(NamedTuple):
    """The negatives of all anchors."""

    negatives: Negatives
    positive_scores: Float32[np.ndarray, " pairs"]
    """The score of each pair."""
    depth: int
    """Number of nearest documents that were searched for each anchor."""
    filled: Int64[np.ndarray, " anchors"]
    """Number of negatives of each anchor that are random documents."""


def find_negatives(
    folder: Path, opened: OpenEncoder, candidates: Candidates, config: MineConfig, *, progress: bool
) -> Mined:
    """Encode what ``folder`` has no vectors of, find the nearest documents of each anchor, and choose the negatives."""
    anchors, texts, similarity = candidates.anchors, candidates.documents, opened.encoder.similarity
    with progress_bar("encoding", len(anchors) + len(texts), shown=progress) as advance:
        normalize = similarity == "cosine"
        queries = opened.encode_texts(folder, anchors, role="query", normalize=normalize, on_texts=advance)
        documents = opened.encode_texts(folder, texts, role="document", normalize=normalize, on_texts=advance)

    def score(of: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.float32]:
        scores = np.empty(len(of), dtype=np.float32)
        for start in range(0, len(scores), CHUNK):
            rows = slice(start, start + CHUNK)
            scores[rows] = pair_similarities(queries[of[rows]], documents[others[rows]], similarity)
        return scores

    positive_scores = score(candidates.anchor_of, candidates.positive_of)
    lowest = np.full(len(anchors), np.inf, dtype=np.float32)
    np.minimum.at(lowest, candidates.anchor_of, positive_scores)
    pairs = np.unique(np.stack([candidates.anchor_of, candidates.positive_of], axis=1), axis=0)
    most = int(np.bincount(pairs[:, 0]).max())  # positives of an anchor
    range_max = config.range_max or config.range_min + 10 * config.negatives + most
    depth = min(range_max + most, len(texts))
    limits = {name: limit for name in LIMITS if (limit := getattr(config, name)) is not None}

    def fill(anchor: int, ids: NDArray[np.int64], scores: NDArray[np.float32]) -> int:
        """Replace missing negatives by random documents, of which a sample is tried before all; returns their number.

        None is excluded, chosen already or above the upper limits.
        """
        empty = np.flatnonzero(ids == NO_DOCUMENT)
        draw, upper = np.random.default_rng((config.seed, anchor, 1)), limits | {"min_score": -np.inf}
        for size in (min(_SAMPLE * len(empty), len(texts)), len(texts)):
            sample = draw.choice(len(texts), size=size, replace=False)
            own = score(np.full(size, anchor), sample)
            never = np.isin(sample, [*candidates.excluded[anchor], *ids])
            for violated in violations(own[None], lowest[[anchor]], upper).values():
                never |= violated[0]
            chosen = np.flatnonzero(~never)[: len(empty)]
            if len(chosen) == len(empty):
                break
        ids[empty[: len(chosen)]], scores[empty[: len(chosen)]] = sample[chosen], own[chosen]
        return len(chosen)

    filled, found = np.zeros(len(anchors), dtype=np.int64), list[Negatives]()
    how: dict[str, Any] = {"count": config.negatives, "range_min": config.range_min, "range_max": range_max}
    with progress_bar("searching", len(anchors), unit="anchors", shown=progress) as advance:
        for start in range(0, len(anchors), CHUNK):
            chunk, numbers = slice(start, start + CHUNK), range(len(anchors))[start : start + CHUNK]
            near = nearest(queries[chunk], documents, depth, similarity=similarity, device=opened.encoder.device)
            excluded = is_excluded(near.ids, candidates.excluded[chunk], len(texts))
            if config.sampling == "random":
                how["random"] = np.stack([np.random.default_rng((config.seed, n)).random(depth) for n in numbers])
            found.append(select_negatives(near, excluded, lowest[chunk], limits, **how))
            for row in np.flatnonzero((found[-1].ids == NO_DOCUMENT).any(axis=1)) if config.fill_random else ():
                filled[start + row] = fill(start + int(row), found[-1].ids[row], found[-1].scores[row])
            advance(len(numbers))
    ids, scores = (np.concatenate(parts) for parts in zip(*(each[:2] for each in found), strict=True))
    counts = {name: sum(each.counts[name] for each in found) for name in found[0].counts}
    return Mined(Negatives(ids, scores, counts), positive_scores, depth, filled)


def list_triplets(candidates: Candidates, mined: Mined, chosen: Sequence[int] | None = None) -> Iterator[Triplet]:
    """The rows of the output, in the order of the pairs, nearest negative first; or the ``chosen`` ones."""
    negatives = mined.negatives
    pairs, ranks = np.nonzero(negatives.ids[candidates.anchor_of] != NO_DOCUMENT)
    for row in range(len(pairs)) if chosen is None else chosen:
        pair, place = pairs[row], (candidates.anchor_of[pairs[row]], ranks[row])
        texts = candidates.documents[candidates.positive_of[pair]], candidates.documents[negatives.ids[place]]
        scores = round(float(mined.positive_scores[pair]), 6), round(float(negatives.scores[place]), 6)
        yield Triplet(candidates.anchors[place[0]], *texts, *scores)
