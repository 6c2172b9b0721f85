"""``nearfar mine``: hard negatives for pairs of texts, by exact search among the positives and a corpus."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64
from numpy.typing import NDArray

from nearfar.commands.encode.vectors import OpenEncoder, kept_vectors, open_encoder, vectors_folder
from nearfar.config.calls import accepts_settings
from nearfar.config.encoding import MineConfig
from nearfar.config.values import flag
from nearfar.data.fingerprints import normalize_for_hash
from nearfar.data.memory import takes_rows
from nearfar.data.rows import load_documents
from nearfar.data.sources import skipping_empty
from nearfar.data.triplets import load_tuples
from nearfar.disk import TABLES, check_output_file, path_errors, refuse_existing, write_table, write_text
from nearfar.encoder.precision import check_computing
from nearfar.neighbours import pair_similarities
from nearfar.neighbours.exact import Neighbours, nearest
from nearfar.runtime.progress import progress_bar
from nearfar.runtime.versions import __version__
from nearfar.types import NearfarError, VectorSimilarity

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Examples are the triplets at these quantiles of the negative's score."""
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


@dataclass(frozen=True, kw_only=True)
class MiningResult:
    """What ``nearfar mine`` found; ``OUTPUT.summary.json`` holds the same fields."""

    pairs: int
    """Number of pairs in the data."""
    anchors: int
    """Number of distinct anchors."""
    documents: int
    """Number of distinct documents: the positives and the corpus."""
    triplets: int
    """Number of rows written."""
    without_negative: int
    """Number of pairs without a row."""
    filled: int
    """Number of rows whose negative is a random document (``fill_random``)."""
    searched: int
    """Number of nearest documents that were searched for each anchor."""
    candidates: int
    """Number of candidates of all anchors: the nearest documents that are neither positives nor equal texts."""
    dropped: dict[str, int]
    """Limit -> number of candidates that it dropped. Limits apply in this order, and each candidate counts once."""
    positive_score: float
    """Mean score of the rows' positives."""
    negative_score: float
    """Mean score of the rows' negatives."""
    similarity: VectorSimilarity
    """What scores are: cosines, or what the model's folder names."""
    examples: tuple[Triplet, ...]
    """The triplets at the quantiles 0, 0.25, 0.5, 0.75 and 1 of the negative's score."""

    @property
    def dropped_shares(self) -> dict[str, float]:
        """Limit -> the share of all candidates that it dropped."""
        return {name: count / max(1, self.candidates) for name, count in self.dropped.items()}

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        examples = zip(QUANTILES, self.examples, strict=False)
        shown = [{"quantile": quantile, **example._asdict()} for quantile, example in examples]
        return {**asdict(self), "dropped_shares": self.dropped_shares, "examples": shown}


@takes_rows
@accepts_settings(MineConfig)
@path_errors()
def mine(config: MineConfig, *, progress: bool = True) -> MiningResult:
    """Write triplets with hard negatives for the pairs in ``config.data`` to ``config.output``.

    Settings can be given by name: ``mine(model="runs/first", data="pairs.tsv", output="triplets.tsv")``; see
    :class:`nearfar.MineConfig`. Candidates are all distinct positives and the texts of ``config.corpus``, scored by the
    cosine of ``encode_query(anchor)`` and ``encode_document(text)``, or as :attr:`nearfar.Encoder.similarity` says. For
    an anchor with positives of scores p₁ ... pₙ and p = min pᵢ, a negative's score s satisfies
    s <= p - \\|p\\| * relative_margin, and s <= p - absolute_margin, s <= max_score and s >= min_score where these are
    set (Moreira et al. 2024, arXiv:2407.15831). The positives of an anchor, and texts with the same letters and digits
    as the anchor or one of its positives, are never negatives.

    The output has one row for each pair and negative, in the order of the pairs, with the columns anchor, positive and
    negative; ``info-nce`` trains on it with ``negative_column="negative"``. The summary is written to
    ``OUTPUT.summary.json``. Vectors are kept in ``OUTPUT.vectors`` until the output is complete, so that another call
    does not compute them again. Search is exact and blocked: in memory are the texts and a few blocks.

    Args:
        config: the settings.
        progress: show progress bars.

    Raises:
        NearfarError: an input, a column or the model is missing or unusable; the output has another suffix, exists, is
            an input or cannot be written; no pair has a negative within the limits.
    """
    output, summary = Path(config.output), summary_file(config.output)
    check_output_file(output, [*config.data, *config.corpus], overwrite=config.overwrite, suffixes=TABLES)
    check_computing(config.device, config.precision)
    refuse_existing([summary], overwrite=config.overwrite, flag="--output (its summary)")
    with skipping_empty(config.skip_empty):
        columns = (config.anchor_column, config.positive_column)
        pairs = load_tuples(config.data, columns=columns, limit=config.limit).rows
        documents = load_documents(config.corpus, column=config.corpus_column) if config.corpus else []
        candidates = gather(pairs, documents)
    opened = open_encoder(config.model, config.opening, config.precision)
    similarity = opened.encoder.similarity
    for name in ("max_score", "min_score"):
        if similarity != "cosine" and getattr(config, name) is not None:
            raise NearfarError(
                f"{flag(name)}: is a cosine, and {config.model} compares by {similarity!r}; set "
                "--relative-margin or --absolute-margin."
            )
    with vectors_folder(output) as vectors:
        mined = find_negatives(vectors, opened, candidates, config, progress=progress)
        result = _summarise(candidates, mined, config, similarity)
        names = Triplet._fields[: None if config.with_scores else 3]
        write_table(output, names, (row[: len(names)] for row in list_triplets(candidates, mined)))
        content = {"nearfar": __version__, "settings": asdict(config), **result.to_dict()}
        write_text(summary, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return result


def summary_file(output: str | Path) -> Path:
    """The path of the summary that belongs to an output file."""
    return Path(f"{output}.summary.json")


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
    anchors = {text: number for number, text in enumerate(dict.fromkeys(pair[0] for pair in pairs))}
    documents = {text: number for number, text in enumerate(dict.fromkeys([*(pair[1] for pair in pairs), *corpus]))}
    equal: dict[str, list[int]] = {}
    for text, number in documents.items():
        equal.setdefault(normalize_for_hash(text), []).append(number)
    never: dict[str, set[int]] = {}
    for anchor, positive in pairs:
        key = normalize_for_hash(anchor)
        never.setdefault(key, set(equal.get(key, ()))).update(equal[normalize_for_hash(positive)])
    return Candidates(
        list(anchors),
        list(documents),
        np.array([anchors[pair[0]] for pair in pairs], dtype=np.int64),
        np.array([documents[pair[1]] for pair in pairs], dtype=np.int64),
        [np.array(sorted(never[normalize_for_hash(anchor)]), dtype=np.int64) for anchor in anchors],
    )


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
        limits: limits on the score, see :func:`violations`.
        count: number of negatives of a query.
        range_min: number of candidates to skip.
        range_max: number of candidates to choose from; None for all.
        random: None to take the nearest candidates; otherwise a function of (query, k) that returns ``k`` random
            numbers, by which the negatives are drawn.
    """
    kept = ~excluded
    counts = {"candidates": int(kept.sum())}
    for name, violated in violations(found.scores, positive, limits).items():
        counts[name] = int((kept & violated).sum())
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
        how: dict[str, Any] = {"normalize": similarity == "cosine", "on_texts": advance}
        queries = opened.encode_texts(folder, anchors, role="query", **how)
        documents = opened.encode_texts(folder, texts, role="document", **how)

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
    upper = {name: limit for name, limit in limits.items() if name != "min_score"}

    def try_out(anchor: int, sample: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        scores = score(np.full(len(sample), anchor), sample)
        fits = ~np.isin(sample, candidates.excluded[anchor])
        for violated in violations(scores[None], lowest[[anchor]], upper).values():
            fits &= ~violated[0]
        return scores, fits

    found: list[Negatives] = []
    filled = np.zeros(len(anchors), dtype=np.int64)
    with progress_bar("searching", len(anchors), unit="anchors", shown=progress) as advance:
        for start in range(0, len(anchors), CHUNK):
            chunk = slice(start, start + CHUNK)
            near = nearest(queries[chunk], documents, depth, similarity=similarity, device=opened.encoder.device)

            def numbers(query: int, size: int, start: int = start) -> NDArray[np.float64]:
                return np.random.default_rng((config.seed, start + query)).random(size)

            chosen = select_negatives(
                near,
                is_excluded(near.ids, candidates.excluded[chunk], len(texts)),
                lowest[chunk],
                limits,
                count=config.negatives,
                range_min=config.range_min,
                range_max=range_max,
                random=numbers if config.sampling == "random" else None,
            )
            found.append(chosen)
            for row in np.flatnonzero((chosen.ids == NO_DOCUMENT).any(axis=1)) if config.fill_random else ():
                anchor = start + int(row)
                draw = np.random.default_rng((config.seed, anchor, 1))
                filled[anchor] = _fill(chosen.ids[row], chosen.scores[row], len(texts), draw, partial(try_out, anchor))
            advance(len(chosen.ids))
    every = Negatives(
        np.concatenate([each.ids for each in found]),
        np.concatenate([each.scores for each in found]),
        {name: sum(each.counts[name] for each in found) for name in found[0].counts},
    )
    return Mined(every, positive_scores, depth, filled)


def _fill(
    ids: NDArray[np.int64],
    scores: NDArray[np.float32],
    documents: int,
    draw: np.random.Generator,
    try_out: Callable[[NDArray[np.int64]], tuple[NDArray[np.float32], NDArray[np.bool_]]],
) -> int:
    """Replace the missing negatives of an anchor by random documents, in place; returns their number.

    A random document is not excluded, not yet chosen, and not above the upper limits. First a sample of the documents
    is tried, then all of them. ``try_out`` returns the scores of documents, and which of them may be negatives.
    """
    empty = np.flatnonzero(ids == NO_DOCUMENT)
    chosen = empty[:0]
    for size in dict.fromkeys((min(_SAMPLE * len(empty), documents), documents)):
        sample = draw.choice(documents, size=size, replace=False)
        own, fits = try_out(sample)
        chosen = np.flatnonzero(fits & ~np.isin(sample, ids))[: len(empty)]
        if len(chosen) == len(empty):
            break
    places = empty[: len(chosen)]
    ids[places], scores[places] = sample[chosen], own[chosen]
    return len(chosen)


def list_triplets(candidates: Candidates, mined: Mined, chosen: Sequence[int] | None = None) -> Iterator[Triplet]:
    """The rows of the output, in the order of the pairs, nearest negative first; or the ``chosen`` ones."""
    of, negatives = candidates.anchor_of, mined.negatives
    pairs, ranks = np.nonzero(negatives.ids[of] != NO_DOCUMENT)
    for row in range(len(pairs)) if chosen is None else chosen:
        pair, rank = pairs[row], ranks[row]
        anchor, positive = of[pair], candidates.documents[candidates.positive_of[pair]]
        negative, score = candidates.documents[negatives.ids[anchor, rank]], float(negatives.scores[anchor, rank])
        scores = round(float(mined.positive_scores[pair]), 6), round(score, 6)
        yield Triplet(candidates.anchors[anchor], positive, negative, *scores)


def _summarise(candidates: Candidates, mined: Mined, config: MineConfig, similarity: VectorSimilarity) -> MiningResult:
    """The counts and examples of what was mined.

    Raises:
        NearfarError: no pair has a negative.
    """
    negatives, dropped = mined.negatives, dict(mined.negatives.counts)
    considered = dropped.pop("candidates")
    found = (negatives.ids != NO_DOCUMENT).sum(axis=1)[candidates.anchor_of]
    if not found.any():
        start = "lower --range-min, " if config.range_min else ""
        causes = ", ".join(f"{flag(name)} dropped {count:,}" for name, count in dropped.items() if count)
        raise NearfarError(
            f"No pair has a negative: of {considered:,} candidates {causes or 'none is in the range of ranks'}. Relax "
            f"the limits, {start}increase --range-max or add a --corpus; {kept_vectors(config.output)} keeps the "
            "embeddings for the next call."
        )
    scores = negatives.scores[candidates.anchor_of]
    scores = scores[np.isfinite(scores)]
    order = np.argsort(scores, kind="stable")
    examples = [int(order[int(quantile * (len(order) - 1))]) for quantile in QUANTILES]
    return MiningResult(
        pairs=len(found),
        anchors=len(candidates.anchors),
        documents=len(candidates.documents),
        triplets=int(found.sum()),
        without_negative=int((found == 0).sum()),
        filled=int(mined.filled[candidates.anchor_of].sum()),
        searched=mined.depth,
        candidates=considered,
        dropped=dropped,
        positive_score=float(np.average(mined.positive_scores, weights=found)),
        negative_score=float(scores.mean(dtype=np.float64)),
        similarity=similarity,
        examples=tuple(list_triplets(candidates, mined, examples)),
    )
