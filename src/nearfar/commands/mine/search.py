"""The search for hard negatives: encode anchors and documents, find the nearest documents, choose among them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float32, Int64
from numpy.typing import NDArray

from nearfar.commands.encode.progress import progress_bar
from nearfar.commands.encode.work_folder import WorkFolder
from nearfar.commands.mine.candidates import Candidates
from nearfar.config.mining import MineConfig
from nearfar.neighbours.exact import Neighbours, nearest
from nearfar.neighbours.hard_negatives import NO_DOCUMENT, NegativeLimits, Negatives, mask_of, select_negatives

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder

CHUNK = 2**11
"""Number of anchors whose nearest documents are searched and saved together."""
_SAMPLE = 64
"""Number of random documents that are tried for each missing negative before all documents are scored."""


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
    lowest: Float32[np.ndarray, " anchors"]
    """The lowest score of each anchor's positives."""
    limits: NegativeLimits
    range_max: int
    config: MineConfig


def search(
    work: WorkFolder, encoder: "Encoder", candidates: Candidates, config: MineConfig, *, progress: bool
) -> Mined:
    """Encode what is not yet encoded, search what is not yet searched, and choose the negatives."""
    anchors, texts = candidates.anchors, candidates.documents
    with progress_bar("encoding", len(anchors) + len(texts), shown=progress) as advance:

        def unit(encode: Callable[..., NDArray[np.float32]]) -> Callable[[Sequence[str]], NDArray[np.float32]]:
            return lambda some: encode(some, normalize=True, precision=config.precision)

        queries = work.encode("anchors", anchors, encoder.dim, unit(encoder.encode_query), advance)
        documents = work.encode("documents", texts, encoder.dim, unit(encoder.encode_document), advance)
    positive_scores = _pair_scores(queries, documents, candidates)
    lowest = np.full(len(anchors), np.inf, dtype=np.float32)
    np.minimum.at(lowest, candidates.anchor_of, positive_scores)
    most = candidates.most_positives
    range_max = config.range_max or config.range_min + 10 * config.negatives + most
    depth = min(range_max + most, len(texts))
    limits = NegativeLimits(config.absolute_margin, config.relative_margin, config.max_score, config.min_score)
    problem = _Problem(queries, documents, candidates, lowest, limits, range_max, config)
    found, filled = [], []
    with progress_bar("searching", len(anchors), unit="anchors", shown=progress) as advance:
        for start in range(0, len(anchors), CHUNK):
            stop = min(start + CHUNK, len(anchors))

            def compute(start: int = start, stop: int = stop) -> dict[str, NDArray[np.generic]]:
                return nearest(queries[start:stop], documents, depth, device=encoder.device)._asdict()

            shapes = dict.fromkeys(Neighbours._fields, (stop - start, depth))
            near = Neighbours(**work.arrays(f"nearest-{depth}-{start}", compute, shapes=shapes))
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
    queries: NDArray[np.float32], documents: NDArray[np.float32], candidates: Candidates
) -> Float32[np.ndarray, " pairs"]:
    """The score of each pair, in blocks."""
    scores = np.empty(len(candidates.anchor_of), dtype=np.float32)
    for start in range(0, len(scores), CHUNK):
        rows = slice(start, start + CHUNK)
        own = documents[candidates.positive_of[rows]]
        scores[rows] = np.einsum("pd,pd->p", queries[candidates.anchor_of[rows]], own)
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
                scores[part] = documents[sample[part]] @ problem.queries[anchor]
            violated = upper.violations(scores[None], problem.lowest[anchor : anchor + 1]).values()
            fits = ~np.isin(sample, taken) & ~np.any([np.zeros_like(scores, bool), *(v[0] for v in violated)], axis=0)
            if fits.sum() >= len(empty) or size == len(documents):
                chosen = np.flatnonzero(fits)[: len(empty)]
                places = empty[: len(chosen)]
                negatives.ids[row, places], negatives.scores[row, places] = sample[chosen], scores[chosen]
                filled[row] = len(chosen)
                break
    return filled
