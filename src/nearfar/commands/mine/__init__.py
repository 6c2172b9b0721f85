"""``nearfar mine``: hard negatives for pairs of texts, by exact search among the positives and a corpus."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
from jaxtyping import Bool, Float, Float32, Int64
from numpy.typing import NDArray

from nearfar.commands.encode.vectors import OpenEncoder, kept_vectors, open_encoder, vectors_folder
from nearfar.commands.mine.scores import CHUNK, Rescore, Scorer, open_scores
from nearfar.config.calls import accepts_settings
from nearfar.config.encoding import MineConfig
from nearfar.config.values import flag
from nearfar.data.fingerprints import normalize_for_hash
from nearfar.data.memory import takes_rows
from nearfar.data.rows import load_documents
from nearfar.data.sources import skipping_empty
from nearfar.data.triplets import load_tuples
from nearfar.disk import TABLES, write_table, write_text
from nearfar.disk.checks import check_output_file, path_errors, refuse_existing
from nearfar.encoder.precision import check_computing
from nearfar.neighbours.exact import Neighbours
from nearfar.runtime.progress import progress_bar
from nearfar.runtime.versions import __version__
from nearfar.types import NearfarError, VectorSimilarity

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Examples are the triplets at these quantiles of the negative's score."""
LIMITS = ("rescore", "absolute_margin", "relative_margin", "max_score", "min_score")
"""The settings that limit a negative's score, in the order in which they apply; ``rescore``: there must be a score."""
COLUMNS = ("anchor", "positive", "negative", "positive_score", "negative_score")
OWN_SCORES = ("positive_similarity", "negative_similarity")
"""What the last two are called if they are the encoder's own scores, so that training is not on them as a teacher's."""
_SAMPLE = 64
"""Number of random documents that are tried for each missing negative before all documents are scored."""


@dataclass(frozen=True)
class Example:
    """A row of the output."""

    quantile: float
    """Of the negative's score."""
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
    dropped_shares: dict[str, float]
    """Limit -> the share of all candidates that it dropped."""
    positive_score: float
    """Mean score of the rows' positives."""
    negative_score: float
    """Mean score of the rows' negatives."""
    similarity: VectorSimilarity
    """What scores are, unless they are those of ``rescore``: cosines, or what the model's folder names."""
    examples: tuple[Example, ...]
    """The triplets at the quantiles 0, 0.25, 0.5, 0.75 and 1 of the negative's score."""


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

    With ``config.chunk``, documents are cut into passages; a document has the score of its best passage for the anchor,
    and this passage is what the output has of it, positives included.

    With ``config.rescore``, s and p are scores of a reranker or of a table in place of the encoder's. Candidates are
    still the nearest documents by the encoder, nearest first.

    The output has one row for each pair and negative, in the order of the pairs, with the columns anchor, positive and
    negative; ``info-nce`` trains on it with ``negative_column="negative"``. With ``config.rescore`` it has their scores
    too, as positive_score and negative_score, for ``teacher-scores``. The summary is written to
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
    inputs = [*config.data, *config.corpus, *([config.rescore] if config.rescore else [])]
    check_output_file(output, inputs, overwrite=config.overwrite, suffixes=TABLES)
    check_computing(config.device, config.precision)
    refuse_existing([summary], overwrite=config.overwrite, flag="--output (its summary)")
    with skipping_empty(config.skip_empty):
        columns = (config.anchor_column, config.positive_column)
        pairs = load_tuples(config.data, columns=columns, limit=config.limit).rows
        documents = load_documents(config.corpus, column=config.corpus_column) if config.corpus else []
        candidates = gather(pairs, documents)
    rescore = open_scores(config.rescore, device=config.device, precision=config.precision) if config.rescore else None
    opened = open_encoder(config.model, config.opening, config.precision)
    similarity = opened.encoder.similarity
    for name in ("max_score", "min_score"):
        if similarity != "cosine" and getattr(config, name) is not None and not config.rescore:
            raise NearfarError(
                f"{flag(name)}: is a cosine, and {config.model} compares by {similarity!r}; set "
                "--relative-margin or --absolute-margin."
            )
    with vectors_folder(output) as vectors:
        scorer = encode_candidates(vectors, opened, candidates, config, rescore, progress=progress)
        mined = find_negatives(candidates, scorer, config, progress=progress)
        if mined.triplets.empty:
            causes = [f"{flag(name)} dropped {count:,}" for name, count in mined.dropped.items() if count]
            raise NearfarError(
                f"No pair has a negative: of {mined.candidates:,} candidates "
                f"{', '.join(causes) or 'none is in the range of ranks'}. Relax the limits, lower --range-min, "
                f"increase --range-max or add a --corpus; {kept_vectors(output)} keeps the vectors for the next call."
            )
        result = _summarise(candidates, mined, similarity)
        scores = COLUMNS[3:] if config.rescore else OWN_SCORES if config.with_scores else ()
        rows = mined.triplets[list(COLUMNS[: 3 + len(scores)])].itertuples(index=False, name=None)
        write_table(output, [*COLUMNS[:3], *scores], rows)
        content = {"nearfar": __version__, "settings": asdict(config), **asdict(result)}
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


class Mined(NamedTuple):
    """The negatives of all anchors."""

    triplets: pandas.DataFrame
    """The rows of the output, in the order of the pairs, nearest negative first: :data:`COLUMNS`; ``pair``, the number
    of the pair; and ``filled``, whether the negative is a random document."""
    candidates: int
    """Number of the nearest documents without the excluded ones."""
    dropped: dict[str, int]
    """For each limit, the number of candidates that it dropped and no limit before it."""
    depth: int
    """Number of nearest documents that were searched for each anchor."""


def _summarise(candidates: Candidates, mined: Mined, similarity: VectorSimilarity) -> MiningResult:
    """The counts and examples of what was mined."""
    triplets = mined.triplets
    ordered = triplets.sort_values("negative_score", kind="stable")[list(COLUMNS)]
    examples = [(quantile, *ordered.iloc[int(quantile * (len(ordered) - 1))]) for quantile in QUANTILES]
    return MiningResult(
        pairs=len(candidates.anchor_of),
        anchors=len(candidates.anchors),
        documents=len(candidates.documents),
        triplets=len(triplets),
        without_negative=len(candidates.anchor_of) - triplets["pair"].nunique(),
        filled=int(triplets["filled"].sum()),
        searched=mined.depth,
        candidates=mined.candidates,
        dropped=mined.dropped,
        dropped_shares={name: count / max(1, mined.candidates) for name, count in mined.dropped.items()},
        positive_score=float(triplets["positive_score"].mean()),
        negative_score=float(triplets["negative_score"].mean()),
        similarity=similarity,
        examples=tuple(Example(*values) for values in examples),
    )


def gather(pairs: Sequence[Sequence[str]], corpus: Sequence[str]) -> Candidates:
    """Collect the candidates of pairs (anchor, positive) and further documents.

    Excluded for an anchor are its positives, the positives of equal anchors, and all documents that equal one of these
    or the anchor. Texts are equal here if they have the same letters and digits in any case
    (:func:`nearfar.data.fingerprints.normalize_for_hash`).
    """
    anchor_of, anchors = pandas.factorize(np.array([anchor for anchor, _ in pairs], object))
    document_of, documents = pandas.factorize(np.array([*(positive for _, positive in pairs), *corpus], object))
    equal, never = defaultdict[str, list[int]](list), defaultdict[str, set[int]](set)
    for number, text in enumerate(documents):
        equal[normalize_for_hash(text)].append(number)
    for anchor, positive in pairs:
        key = normalize_for_hash(anchor)
        never[key].update(equal.get(key, ()), equal[normalize_for_hash(positive)])
    excluded = [np.array(sorted(never[normalize_for_hash(anchor)]), dtype=np.int64) for anchor in anchors]
    return Candidates(anchors.tolist(), documents.tolist(), anchor_of, document_of[: len(pairs)], excluded)


def violations(
    scores: Float32[np.ndarray, "queries documents"],
    positive: Float32[np.ndarray, " queries"],
    limits: Mapping[str, Any],
) -> Iterator[tuple[str, Bool[np.ndarray, "queries documents"]]]:
    """For each limit on the score s of a negative: which scores violate it, p the lowest score of a query's positives.

    absolute_margin: s <= p - absolute_margin (TopK-MarginPos of Moreira et al. 2024, arXiv:2407.15831).
    relative_margin: s <= p - |p| * relative_margin (TopK-PercPos; for a positive p the same as
    p * (1 - relative_margin)). max_score: s <= max_score. min_score: s >= min_score. rescore: s and p are known.
    """
    lowest = positive[:, None]
    for name, limit in limits.items():
        if name == "rescore":
            yield name, np.isnan(scores) | np.isnan(lowest)
        elif name == "min_score":
            yield name, scores < limit
        elif name == "max_score":
            yield name, scores > limit
        elif name == "absolute_margin":
            yield name, scores + np.float32(limit) > lowest
        else:
            yield name, scores > lowest - np.abs(lowest) * np.float32(limit)


class Negatives(NamedTuple):
    """Negatives of queries, query by query, nearest first."""

    queries: Int64[np.ndarray, " negatives"]
    ids: Int64[np.ndarray, " negatives"]
    """Positions of the documents."""
    scores: Float32[np.ndarray, " negatives"]
    counts: dict[str, int]
    """Of the candidates, and of those that each limit dropped; see :class:`Mined`."""


def select_negatives(
    found: Neighbours,
    excluded: Bool[np.ndarray, "queries k"],
    positive: Float32[np.ndarray, " queries"],
    limits: Mapping[str, Any],
    *,
    count: int,
    range_min: int = 0,
    range_max: int,
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
        range_max: number of candidates to choose from.
        random: None to take the nearest candidates; otherwise numbers, of which those with the lowest are taken.
    """
    kept = ~excluded
    counts = {"candidates": int(kept.sum())}
    for name, violated in violations(found.scores, positive, limits):
        counts[name] = int((kept & violated).sum())
        kept &= ~violated
    ranks = kept.cumsum(axis=1) - 1
    kept &= (ranks >= range_min) & (ranks < range_max)
    if random is not None:
        drawn = np.where(kept, random, np.inf).argsort(axis=1, kind="stable").argsort(axis=1)
        kept &= drawn < count
    queries, columns = np.nonzero(kept & (kept.cumsum(axis=1) <= count))
    return Negatives(queries, found.ids[queries, columns], found.scores[queries, columns], counts)


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


def encode_candidates(
    folder: Path, opened: OpenEncoder, candidates: Candidates, config: MineConfig, rescore: Rescore, *, progress: bool
) -> Scorer:
    """Encode anchors and documents, those of which ``folder`` has no vectors."""
    cut = [[text] for text in candidates.documents]
    if config.chunk is not None:
        cut = opened.encoder.passages(candidates.documents, config.chunk, overlap=config.overlap)
    anchors, passages = candidates.anchors, list(chain.from_iterable(cut))
    how: dict[str, Any] = {"normalize": opened.encoder.similarity == "cosine"}
    with progress_bar("encoding", len(anchors) + len(passages), shown=progress) as how["on_texts"]:
        return Scorer(
            anchors=anchors,
            passages=passages,
            owners=np.repeat(np.arange(len(cut)), list(map(len, cut))),
            queries=opened.encode_texts(folder, anchors, role="query", **how),
            vectors=opened.encode_texts(folder, passages, role="document", **how),
            similarity=opened.encoder.similarity,
            device=str(opened.encoder.device),
            rescore=rescore,
            folder=folder,
        )


def find_negatives(candidates: Candidates, scorer: Scorer, config: MineConfig, *, progress: bool) -> Mined:
    """Find the nearest documents of each anchor, and choose the negatives."""
    anchors, texts = candidates.anchors, candidates.documents
    positive_scores = scorer.scores(candidates.anchor_of, candidates.positive_of)
    lowest = pandas.Series(positive_scores).groupby(candidates.anchor_of).min().to_numpy()
    most = int(np.bincount(candidates.anchor_of).max())  # positives of an anchor
    range_max = config.range_max or config.range_min + 10 * config.negatives + most
    depth = min(range_max + most, len(texts))
    limits = {name: limit for name in LIMITS if (limit := getattr(config, name)) is not None}

    def draw_negatives(anchor: int, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Random documents in place of those that are missing beside ``ids``, of which a sample is tried before all.

        None is excluded, chosen already or above the upper limits.
        """
        missing, draw = config.negatives - len(ids), np.random.default_rng((config.seed, anchor, 1))
        for size in (min(_SAMPLE * missing, len(texts)), len(texts)):
            sample = draw.choice(len(texts), size=size, replace=False)
            own = scorer.scores(np.full(size, anchor), sample)
            never = np.isin(sample, [*candidates.excluded[anchor], *ids])
            for name, violated in violations(own[None], lowest[[anchor]], limits):
                never |= violated[0] & (name != "min_score")
            chosen = np.flatnonzero(~never)[:missing]
            if len(chosen) == missing:
                break
        return sample[chosen], own[chosen]

    chunks, counts = list[tuple[NDArray[Any], ...]](), Counter[str]()
    how: dict[str, Any] = {"count": config.negatives, "range_min": config.range_min, "range_max": range_max}
    with progress_bar("searching", len(anchors), unit="anchors", shown=progress) as advance:
        for start in range(0, len(anchors), CHUNK):
            chunk, numbers = slice(start, start + CHUNK), range(len(anchors))[start : start + CHUNK]
            near = scorer.nearest(chunk, depth)
            excluded = is_excluded(near.ids, candidates.excluded[chunk], len(texts))
            if scorer.rescore:
                kept = np.nonzero(~excluded)
                near.scores[kept] = scorer.scores(kept[0] + start, near.ids[kept])
            if config.sampling == "random":
                how["random"] = np.stack([np.random.default_rng((config.seed, n)).random(depth) for n in numbers])
            own = select_negatives(near, excluded, lowest[chunk], limits, **how)
            chunks.append((own.queries + start, own.ids, own.scores, np.zeros(len(own.ids), bool)))
            counts.update(own.counts)
            missing = np.bincount(own.queries, minlength=len(numbers)) < config.negatives
            for row in np.flatnonzero(missing) if config.fill_random else ():
                drawn, scores = draw_negatives(start + int(row), own.ids[own.queries == row])
                chunks.append((np.full(len(drawn), start + row), drawn, scores, np.ones(len(drawn), bool)))
            advance(len(numbers))
    columns = dict(zip(("anchor", "negative", "negative_score", "filled"), zip(*chunks, strict=True), strict=True))
    negatives = pandas.DataFrame({name: np.concatenate(parts) for name, parts in columns.items()})
    return Mined(
        _triplets(candidates, scorer, positive_scores, negatives), counts.pop("candidates"), dict(counts), depth
    )


def _triplets(
    candidates: Candidates, scorer: Scorer, positive_scores: Float32[np.ndarray, " pairs"], negatives: pandas.DataFrame
) -> pandas.DataFrame:
    """The rows of the output, from the numbers of the anchors and documents of ``negatives``."""
    positives = scorer.shown(candidates.anchor_of, candidates.positive_of)
    of = (negatives[name].to_numpy(np.int64) for name in ("anchor", "negative"))
    negatives = negatives.assign(negative=scorer.shown(*of))
    pairs = {"anchor": candidates.anchor_of, "positive": positives, "positive_score": positive_scores}
    triplets = pandas.DataFrame(pairs).reset_index(names="pair").dropna().merge(negatives, on="anchor")
    for name, texts in zip(COLUMNS, (scorer.anchors, scorer.passages, scorer.passages), strict=False):
        triplets[name] = triplets[name].map(texts.__getitem__).astype(object)
    return triplets.astype(dict.fromkeys(COLUMNS[3:], np.float64)).round(6)
