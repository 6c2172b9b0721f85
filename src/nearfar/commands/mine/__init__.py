"""``nearfar mine``: hard negatives for pairs of texts, by exact search among the positives and a corpus."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.commands.encode.vectors import kept_vectors, open_encoder, vectors_folder
from nearfar.commands.mine.negatives import Candidates, Mined, Triplet, find_negatives, gather, list_triplets
from nearfar.config.calls import accepts_settings
from nearfar.config.encoding import MineConfig
from nearfar.config.values import flag
from nearfar.data.memory import takes_rows
from nearfar.data.rows import load_documents
from nearfar.data.sources import skipping_empty
from nearfar.data.triplets import load_tuples
from nearfar.disk import TABLES, write_table, write_text
from nearfar.disk.checks import check_output_file, path_errors, refuse_existing
from nearfar.encoder.precision import check_computing
from nearfar.runtime.versions import __version__
from nearfar.types import NearfarError, VectorSimilarity

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Examples are the triplets at these quantiles of the negative's score."""


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


def _summarise(candidates: Candidates, mined: Mined, config: MineConfig, similarity: VectorSimilarity) -> MiningResult:
    """The counts and examples of what was mined.

    Raises:
        NearfarError: no pair has a negative.
    """
    dropped = dict(mined.negatives.counts)
    considered = dropped.pop("candidates")
    scores = mined.negatives.scores[candidates.anchor_of]
    found = np.isfinite(scores).sum(axis=1)
    if not found.any():
        start = "lower --range-min, " if config.range_min else ""
        causes = ", ".join(f"{flag(name)} dropped {count:,}" for name, count in dropped.items() if count)
        raise NearfarError(
            f"No pair has a negative: of {considered:,} candidates {causes or 'none is in the range of ranks'}. Relax "
            f"the limits, {start}increase --range-max or add a --corpus; {kept_vectors(config.output)} keeps the "
            "embeddings for the next call."
        )
    scores = scores[np.isfinite(scores)]
    order = np.argsort(scores, kind="stable")
    examples = [int(order[int(quantile * (len(order) - 1))]) for quantile in QUANTILES]
    return MiningResult(
        pairs=len(found),
        anchors=len(candidates.anchors),
        documents=len(candidates.documents),
        triplets=len(scores),
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
