"""Settings of the commands that look for similar texts: mine and dedup.

The class docstring is the command's summary in ``--help``; the text below a field is the help of its flag.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from nearfar.config.bounds import BelowOne, File, NumpySeed, Output, RowCount
from nearfar.config.encoder import ComputeOptions, EncoderOptions, SearchOptions

Cosine = Annotated[float, Meta(ge=-1, le=1)]
Margin = Annotated[float, Meta(ge=0, le=2)]
"""A difference of two cosines."""
Negatives = Annotated[int, Meta(ge=1, le=1000)]
"""Number of hard negatives of an anchor."""
Rank = Annotated[int, Meta(ge=0, le=10**6)]
LastRank = Annotated[int, Meta(ge=1, le=10**6)]


@dataclass(frozen=True, kw_only=True)
class MineConfig(SearchOptions, ComputeOptions):
    """Mine hard negatives: turn pairs (anchor, positive) into triplets (anchor, positive, negative).

    The negatives of an anchor are the documents that the encoder finds nearest to it, without its positives and
    without documents that are nearly as similar as a positive. Vectors are kept until OUTPUT is complete, so that
    another call does not compute them again.
    """

    model: File
    """Encoder that scores the candidates: a model folder, a run folder, or owner/name on the Hugging Face Hub."""
    data: tuple[File, ...]
    """Pairs: files with the columns below, or flickr8k, microworld."""
    output: Output
    """File to write: .tsv, .csv or .jsonl with the columns anchor, positive, negative. The summary is written next to
    it."""
    corpus: tuple[File, ...] = ()
    """More documents to choose negatives from, besides the positives: text files with one document per line, tables
    with CORPUS_COLUMN, or named sets."""
    anchor_column: str = "anchor"
    """Column of the anchors."""
    positive_column: str = "positive"
    """Column of the positives."""
    corpus_column: str = "text"
    """Column of the documents in CORPUS."""

    # --- Negatives ---

    negatives: Negatives = 1
    """Number of negatives for each pair; each is a row of the output."""
    relative_margin: BelowOne | None = 0.05
    """A negative's score is at most the positive's score times (1 - RELATIVE_MARGIN); none turns this off. 0.05 is the
    best limit of Moreira et al. 2024 (TopK-PercPos, 95%)."""
    absolute_margin: Margin | None = None
    """A negative's score is at most the positive's score minus ABSOLUTE_MARGIN (TopK-MarginPos of Moreira et al.
    2024)."""
    max_score: Cosine | None = None
    """A negative's score is at most this cosine."""
    min_score: Cosine | None = None
    """A negative's score is at least this cosine."""
    range_min: Rank = 0
    """Skip this number of the nearest candidates that are within the limits."""
    range_max: LastRank | None = None
    """Take negatives from this number of nearest documents, not counting positives. Default: RANGE_MIN + 10 *
    NEGATIVES + the largest number of positives of an anchor."""
    sampling: Literal["top", "random"] = "top"
    """top takes the nearest candidates, random draws from all candidates in the range."""
    fill_random: bool = False
    """Give pairs with too few negatives random documents below the limits. By default such a pair has fewer rows, or
    none."""

    # --- Rows and output ---

    limit: RowCount | None = None
    """Use only the first LIMIT pairs of the data."""
    skip_empty: bool = False
    """Leave out rows with an empty cell, and say how many; by default they are an error."""
    with_scores: bool = False
    """Add the columns positive_score and negative_score."""
    seed: NumpySeed = 0
    """Seed of random sampling."""
    overwrite: bool = False
    """Replace OUTPUT and its summary if they exist."""

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if self.range_max is not None and self.range_max - self.range_min < self.negatives:
            yield (
                f"--range-max {self.range_max}: leaves {max(0, self.range_max - self.range_min)} candidates after "
                f"--range-min {self.range_min}, fewer than --negatives {self.negatives}; increase --range-max."
            )
        if self.min_score is not None and self.max_score is not None and self.min_score > self.max_score:
            yield f"--min-score {self.min_score:g}: must not be above --max-score, which is {self.max_score:g}."
        if self.anchor_column == self.positive_column:
            yield f"--positive-column {self.positive_column}: is also --anchor-column; name two columns."


@dataclass(frozen=True, kw_only=True)
class DedupConfig(EncoderOptions, ComputeOptions):
    """Remove near-duplicates from a file: of each group of similar texts, one row is kept.

    Without --threshold, only a histogram of the similarities is shown, to choose one. Vectors are kept until OUTPUT is
    complete, so that another call does not compute them again.
    """

    model: File
    """Encoder that scores similarity: a model folder, a run folder, or owner/name on the Hugging Face Hub."""
    input: File
    """Text file with one text per line; or a .tsv, .csv, .jsonl or .parquet file with --column. Text formats may be
    gzipped."""
    output: Output | None = None
    """File to write, in the format of INPUT, with all columns of the rows kept. Without --threshold nothing is written
    to it, but the embeddings are kept in OUTPUT.vectors for a second call with --threshold."""
    threshold: Cosine | None = None
    """Two texts with at least this cosine are in the same group. Groups are connected components: a chain of similar
    texts is one group."""
    keep: Literal["first", "longest"] = "first"
    """Row of a group to keep: the first in the file, or the one with the longest text."""
    groups: Output | None = None
    """File that lists the rows of each group: .tsv, .csv or .jsonl."""
    column: str | None = None
    """Column with the texts."""
    overwrite: bool = False
    """Replace OUTPUT and GROUPS if they exist."""

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if self.groups is not None and self.threshold is None:
            yield "--groups: needs --threshold. Run without both first, to see which threshold fits."
        if self.groups is not None and self.groups == self.output:
            yield f"--groups {self.groups}: is also --output; name another file."
