"""Settings of the commands that encode texts and compare them: encode, search, mine, dedup, threshold, geometry.

The class docstring is the command's summary in ``--help``; the text below a field is the help of its flag.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from glob import has_magic
from typing import Annotated, Literal

from msgspec import Meta

from nearfar.config import bounds
from nearfar.config.encoder import ComputeOptions, EncoderOptions, PassageOptions, SearchOptions
from nearfar.config.values import flag
from nearfar.types import NearfarError, Precision

DEFAULT_SHARD_ROWS = 1_000_000
"""Number of rows of a part if ``--shard-rows`` is not given."""
_OF_SHARDS = ("keep", "engine", "ray_address", "shard")
"""Settings that are for output in parts."""


@dataclass(frozen=True, kw_only=True)
class EncodeConfig(EncoderOptions, ComputeOptions):
    """Encode a file of texts into a file of embeddings, one row per text.

    Memory use does not grow with the number of texts. An interrupted run can be resumed. With --shard-rows, with a
    pattern such as 'FOLDER/*.parquet' as --input, or with an address such as s3://, OUTPUT is a folder of parts, which
    many workers write.
    """

    input: bounds.File
    """Text file with one text per line, optionally gzipped; or a .tsv, .csv, .jsonl or .parquet file with --column. For
    output in parts: a .parquet file, a quoted pattern such as 'FOLDER/*.parquet', or an fsspec address of either
    (s3://, gs://)."""
    output: bounds.Output
    """File to write: .npy, or .parquet with the columns row and embedding. For output in parts: a folder, or its fsspec
    address, for part-00000.parquet, ... with the columns row and vector."""
    resume: bool = False
    """Resume an interrupted run: write the parts that are missing or whose checksum is wrong, in OUTPUT.partial or in a
    folder OUTPUT."""
    overwrite: bool = False
    """Replace OUTPUT if it exists; of a folder, what a run of nearfar encode wrote there."""

    # --- Texts and vectors ---

    column: str | None = None
    """Column with the texts."""
    normalize: bool = False
    """Scale each embedding to unit length."""
    dimensions: bounds.Width | None = None
    """Keep the first DIMENSIONS of each embedding, best of a model that was trained with --matryoshka. Embeddings of
    unit length get unit length again. By default all."""
    dtype: Literal["float32", "float16"] = "float32"
    """Data type of the embeddings in OUTPUT."""
    quantize: Literal["float16", "int8", "binary"] | None = None
    """Write smaller embeddings. int8: one byte for each dimension, with the ranges of the dimensions in
    OUTPUT.ranges.npy (without the suffix of OUTPUT); binary: one bit, the sign; float16: as --dtype float16."""
    calibrate: bounds.File | None = None
    """Ranges of int8: a .npy file of embeddings, or the .ranges.npy file of an earlier run, whose codes are then
    comparable with the new ones. By default the ranges of the embeddings themselves."""
    with_texts: bool = False
    """Add the texts to the .parquet file, as the column text."""
    device: str | None = None
    """Device: cpu, cuda, cuda:1 ...; by default CUDA if available. Workers on Ray reserve a GPU each if it is cuda."""

    workers: bounds.Count = 1
    """Number of processes, each with its own encoder. They share the cores of this machine, and take its GPUs in turn.
    """
    threads: bounds.Count | None = None
    """Threads of each worker; by default the cores of this machine divided by WORKERS, and 1 with --ray-address."""

    # --- Output in parts ---

    shard_rows: bounds.RowCount | None = None
    """Write a folder of parts with this number of rows each; 1,000,000 where parts are written for another reason. Each
    part is one job, which a worker does, or does again, as a whole."""
    keep: tuple[str, ...] = ()
    """Columns of the input to copy into the parts."""
    engine: Literal["local", "ray"] = "local"
    """Where parts are written: by workers on this machine, or on a Ray cluster (needs nearfar[scale])."""
    ray_address: str | None = None
    """Address of the Ray cluster; by default a Ray is started on this machine."""
    shard: bounds.Shard | None = None
    """Write one share of the parts, as in 17/1000: the 17th of 1,000 processes with the same OUTPUT, such as those of a
    Slurm array. Implies --resume."""

    needs = (("calibrate", "quantize int8"), ("ray_address", "engine ray"))

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if self.quantize is not None and self.dtype != "float32":
            yield f"--dtype {self.dtype} and --quantize {self.quantize}: each sets the data type; give one."
        if not self.sharded:
            defaults = {field.name: field.default for field in fields(self)}
            given = [name for name in _OF_SHARDS if getattr(self, name) != defaults[name]]
            yield from (f"{flag(name)}: is for output in parts; give --shard-rows with it." for name in given)
            return
        if self.column is None:
            yield f"--input {self.input}: is read as Parquet; name the column of the texts with --column."
        if self.with_texts:
            yield f"--with-texts: is for output in one file; give --keep {self.column} in its place."
        if self.quantize == "int8" and self.calibrate is None:
            yield (
                "--quantize int8: parts are written independently, so the ranges must be known before; give "
                "--calibrate."
            )
        if self.overwrite and self.shard is not None:
            yield "--overwrite and --shard: processes would remove each other's parts; leave one out."
        if twice := sorted({name for name in self.keep if self.keep.count(name) > 1}):
            yield f"--keep {twice[0]}: is given twice; give it once."
        if taken := [name for name in self.keep if name in ("row", "vector")]:
            yield f"--keep {taken[0]}: the parts have a column {taken[0]} of their own; rename the column."
        in_memory = [place for place in (self.input, self.output) if place.startswith("memory://")]
        if in_memory and (self.engine == "ray" or self.workers > 1 or self.threads):
            yield f"{in_memory[0]}: only this process sees it; leave out --engine, --workers and --threads."

    @property
    def sharded(self) -> bool:
        """Whether the output is a folder of parts."""
        if self.shard_rows is not None or "://" in self.input or "://" in self.output:
            return True
        return has_magic(self.input) and not os.path.lexists(self.input)


@dataclass(frozen=True, kw_only=True)
class SearchConfig(PassageOptions, SearchOptions, ComputeOptions):
    """Search the texts of a file by meaning: the nearest texts of each query.

    The embeddings are kept in an index folder. Later searches encode only texts that are new. Without a query, nearfar
    asks for queries in the terminal.
    """

    # --- Texts ---

    model: bounds.File
    """Model folder, run folder, or owner/name on the Hugging Face Hub."""
    input: bounds.File
    """File with the texts: .tsv, .csv, .jsonl or .parquet, or .txt with one text per line; text files may end in .gz.
    """
    column: str | None = None
    """Column with the texts; by default text, the second texts of pairs (positive, document, answer, sent1), or the
    only column."""
    show: tuple[str, ...] | None = None
    """Columns to show next to the texts; by default all others, none for no columns."""

    # --- Queries and hits ---

    queries: bounds.File | None = None
    """File with queries, in the same formats."""
    query_column: str | None = None
    """Column with the queries; by default query, text, the first texts of pairs (anchor, question, sent0), or the only
    column."""
    skip_empty: bool = False
    """Leave out rows without a text; by default they are an error."""
    top: bounds.Count = 10
    """Number of hits for each query."""
    threshold: bounds.Logit | bounds.ThresholdFile | None = None
    """Show only hits with at least this score: a number, or a file of nearfar threshold, which bounds the share of
    wrong hits; then each hit also has the probability that it is right."""
    hybrid: bool = False
    """Search by words too (BM25), and fuse the two rankings: the score of a hit is the sum of 1 / (60 + rank) over
    both. Needs bm25s (the extra search). Measure with nearfar evaluate --hybrid whether it helps."""
    keep_duplicates: bool = False
    """Show every row of a text that occurs several times; by default such a text is one hit."""
    output: bounds.Output | None = None
    """File to write the hits to: .tsv or .jsonl. By default they are printed."""
    overwrite: bool = False
    """Replace OUTPUT if it exists."""

    # --- Index ---

    index: bounds.Output | None = None
    """Folder of the index; by default INPUT.index, next to the file."""
    rebuild: bool = False
    """Replace the index, also one that is damaged or of another model."""
    approximate: bool = False
    """Search a graph instead of all embeddings (needs usearch): faster from about a million texts."""
    quantize: Literal["int8", "binary"] | None = None
    """Search small codes of the embeddings, then score the best by the embeddings: int8 (a quarter of the bytes) or
    binary (one bit for each dimension). Prints the recall against exact search."""
    rescore: bounds.Count | None = None
    """Number of candidates that QUANTIZE scores by the embeddings, for each hit; default: 2 for int8, 10 for binary."""
    dimensions: bounds.Width | None = None
    """Keep the first DIMENSIONS of each embedding, best of a model that was trained with --matryoshka; by default
    all."""
    normalize: bool = True
    """Rank by the similarity that the model's folder names, for most the cosine. --no-normalize: rank by inner products
    of the embeddings as they are."""
    precision: Precision = "auto"
    """Precision of the embeddings. auto is that of the index, and for a new index bf16 (bfloat16) if the device
    supports it natively, else fp32."""

    needs = (("rescore", "quantize"), ("query_column", "queries"), ("overwrite", "output"))

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if self.approximate and self.quantize is not None:
            yield f"--approximate and --quantize {self.quantize}: are two ways to search; give one."
        if self.hybrid and self.threshold is not None:
            yield "--threshold and --hybrid: a fused score is a sum over ranks, not a similarity; leave one out."
        if self.output is not None and not self.output.endswith((".tsv", ".jsonl")):
            yield f"--output {self.output}: must end in .tsv or .jsonl."

    def check_queries(self, given: Sequence[str]) -> None:
        """Check that queries are given in one way only: as texts, or by ``queries``.

        Raises:
            NearfarError: both are given.
        """
        if given and self.queries is not None:
            raise NearfarError("Give queries as arguments or with --queries FILE, not both.")


Cosine = Annotated[float, Meta(ge=-1, le=1)]
Negatives = Annotated[int, Meta(ge=1, le=1000)]
"""Number of hard negatives of an anchor."""
Rank = Annotated[int, Meta(ge=0, le=10**6)]


@dataclass(frozen=True, kw_only=True)
class MineConfig(SearchOptions, PassageOptions, ComputeOptions):
    """Mine hard negatives: turn pairs (anchor, positive) into triplets (anchor, positive, negative).

    The negatives of an anchor are the documents that the encoder finds nearest to it, without its positives and
    without documents that are nearly as similar as a positive. Vectors are kept until OUTPUT is complete, so that
    another call does not compute them again.
    """

    model: bounds.File
    """Encoder that scores the candidates: a model folder, a run folder, or owner/name on the Hugging Face Hub."""
    data: tuple[bounds.File, ...]
    """Pairs: files with the columns below, or flickr8k, microworld."""
    output: bounds.Output
    """File to write: .tsv, .csv or .jsonl with the columns anchor, positive, negative. The summary is written next to
    it."""
    corpus: tuple[bounds.File, ...] = ()
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
    relative_margin: bounds.BelowOne | None = 0.05
    """A negative's score is at most the positive's score times (1 - RELATIVE_MARGIN); none turns this off. 0.05 is the
    best limit of Moreira et al. 2024 (TopK-PercPos, 95%)."""
    absolute_margin: bounds.Weight | None = None
    """A negative's score is at most the positive's score minus ABSOLUTE_MARGIN (TopK-MarginPos of Moreira et al.
    2024)."""
    max_score: bounds.Logit | None = None
    """A negative's score is at most this; a cosine without RESCORE."""
    min_score: bounds.Logit | None = None
    """A negative's score is at least this; a cosine without RESCORE."""
    rescore: bounds.File | None = None
    """Scores that judge the candidates in place of MODEL's: a reranker with one output (a cross-encoder: a folder, or
    owner/name on the hub), whose logits they are, or a table with the columns query, document, score. The margins and
    limits are then on these, and the output has them as positive_score and negative_score, to train on."""
    range_min: Rank = 0
    """Skip this number of the nearest candidates that are within the limits."""
    range_max: bounds.Count | None = None
    """Take negatives from this number of nearest documents, not counting positives. Default: RANGE_MIN + 10 *
    NEGATIVES + the largest number of positives of an anchor."""
    sampling: Literal["top", "random"] = "top"
    """top takes the nearest candidates, random draws from all candidates in the range."""
    fill_random: bool = False
    """Give pairs with too few negatives random documents below the limits. By default such a pair has fewer rows, or
    none."""

    # --- Rows and output ---

    limit: bounds.RowCount | None = None
    """Use only the first LIMIT pairs of the data."""
    skip_empty: bool = False
    """Leave out rows with an empty cell, and say how many; by default they are an error."""
    with_scores: bool = False
    """Add MODEL's scores, as positive_similarity and negative_similarity; with RESCORE its scores are always there."""
    seed: bounds.NumpySeed = 0
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
        if self.rescore is not None and self.fill_random:
            yield "--fill-random and --rescore: random documents have no such scores; leave one out."
        for name, low, high in (("absolute_margin", 0, 2), ("max_score", -1, 1), ("min_score", -1, 1)):
            limit = getattr(self, name)
            if self.rescore is None and limit is not None and not low <= limit <= high:
                yield f"{flag(name)} {limit:g}: must be from {low} to {high}, as cosines are, without --rescore."


@dataclass(frozen=True, kw_only=True)
class DedupConfig(EncoderOptions, ComputeOptions):
    """Remove near-duplicates from a file: of each group of similar texts, one row is kept.

    Without --threshold, only a histogram of the similarities is shown, to choose one. Vectors are kept until OUTPUT is
    complete, so that another call does not compute them again.
    """

    model: bounds.File
    """Encoder that scores similarity: a model folder, a run folder, or owner/name on the Hugging Face Hub."""
    input: bounds.File
    """Text file with one text per line; or a .tsv, .csv, .jsonl or .parquet file with --column. Text formats may be
    gzipped."""
    output: bounds.Output | None = None
    """File to write, in the format of INPUT, with all columns of the rows kept. Without --threshold nothing is written
    to it, but the embeddings are kept in OUTPUT.vectors for a second call with --threshold."""
    threshold: Cosine | bounds.ThresholdFile | None = None
    """Two texts with at least this cosine are in the same group: a number, or a file that nearfar threshold made of
    judged pairs. Groups are connected components: a chain of similar texts is one group."""
    keep: Literal["first", "longest"] = "first"
    """Row of a group to keep: the first in the file, or the one with the longest text."""
    groups: bounds.Output | None = None
    """File that lists the rows of each group: .tsv, .csv or .jsonl."""
    column: str | None = None
    """Column with the texts; by default text, or the only column."""
    overwrite: bool = False
    """Replace OUTPUT and GROUPS if they exist."""

    needs = (("groups", "threshold"),)

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if self.groups is not None and self.groups == self.output:
            yield f"--groups {self.groups}: is also --output; name another file."


@dataclass(frozen=True, kw_only=True)
class ThresholdConfig(SearchOptions, ComputeOptions):
    """Find the score from which on at most a share ERROR of the shown hits is wrong, for search and dedup.

    The share is that among the hits that a query shows, and is bounded for queries like those of the data, with
    CONFIDENCE. OUTPUT also has the probability that a hit of a score is right.
    """

    model: bounds.File
    """Encoder that scores the hits: a model folder, a run folder, or owner/name on the Hugging Face Hub."""
    output: bounds.Output
    """The .json file to write, for --threshold of nearfar search and nearfar dedup."""
    overwrite: bool = False
    """Replace OUTPUT if it exists."""
    error: bounds.OpenFraction = 0.05
    """Largest share of wrong hits among the shown ones: 0.05 is one of twenty."""
    confidence: bounds.OpenFraction = 0.95
    """Probability that the bound holds: in 1 - CONFIDENCE of such calls the share may be larger."""
    seed: bounds.NumpySeed = 0
    """Seed of the split of the queries into those that fix what is tested, a fifth, and those that are tested."""

    # --- Data ---

    pairs: bounds.File | None = None
    """Judged pairs of a query and a hit (or of two texts, for dedup), judged as they would be shown, such as the hits
    of nearfar search --output with a column label: 1 for right, 0 for wrong. The texts are in sentence1 and sentence2,
    query and text, or columns of pairs; those with the same first text are hits of one query."""
    label_column: str | None = None
    """Column with the judgements of --pairs; by default label, else score."""
    right_from: bounds.Logit | None = None
    """A judgement of at least this is right, where judgements are not 0 and 1."""
    retrieval: bounds.File | None = None
    """A retrieval task, as for nearfar evaluate: pairs (anchor, positive), NLI rows, or a folder in BEIR's layout. Each
    query is searched for; hits that are not its relevant documents are wrong."""
    corpus: bounds.File | None = None
    """More documents for the pairs or NLI rows of --retrieval, relevant to no query: a text file, or a table with the
    column text."""
    top: bounds.Count = 10
    """Number of hits that a query of --retrieval shows at most, as --top of nearfar search."""

    needs = (("label_column", "pairs"), ("right_from", "pairs"), ("corpus", "retrieval"), ("top", "retrieval"))

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if (self.pairs is None) == (self.retrieval is None):
            yield "Name either judged pairs by --pairs, or a retrieval task by --retrieval."


@dataclass(frozen=True, kw_only=True)
class GeometryConfig(EncoderOptions):
    """Measure and plot the embedding spaces of one or more encoders, or write a page to explore your own texts.

    --output FOLDER: alignment, uniformity, layers and t-SNE plots, on scored pairs and labelled texts (STS-B and SST-2
    by default). --page FILE: an interactive map of --texts by one encoder, or by two, before and after. Give either or
    both.
    """

    # --- Output ---

    output: bounds.Output | None = None
    """Folder to write: geometry.json, the table geometry.md, and the plots. Uses --pairs, --task and --labelled."""
    page: bounds.Output | None = None
    """The .html file to write: an offline page with a map of --texts, search, and the nearest and farthest texts of
    each by one or two encoders. Needs --texts and no other data."""
    overwrite: bool = False
    """Replace PAGE, and files of these names in OUTPUT, even if nearfar did not write them."""

    # --- Page ---

    texts: bounds.File | None = None
    """Texts on the page: a named set, a text file with one text per line, or a .tsv, .csv, .jsonl or .parquet file,
    whose other columns are shown too."""
    column: str | None = None
    """Column of --texts with the texts; by default text."""
    color_by: str | None = None
    """Column of --texts that gives the points their colours at first: at most 30 different values, or numbers. The page
    has a menu of all such columns."""
    texts_limit: bounds.PageTexts = 50_000
    """Maximum number of texts on the page; of more distinct texts, a random sample is shown (see --seed)."""

    # --- Measures and plots ---

    pairs: bounds.File | None = None
    """Scored pairs to measure alignment and uniformity on: a named set, or a file with the columns score, sentence1,
    sentence2. Default: stsb:dev. microworld:dev is generated and needs no download."""
    positive_above: bounds.Logit | None = None
    """Alignment is measured on the pairs with a score above this. Default: 0.8 of the maximum score: 4 on STS-B (Gao et
    al. 2021, section 3), 0.8 of the highest score in a file."""
    task: bounds.File | None = None
    """Scored pairs to evaluate every layer and pooling on; by default stsb (its test split)."""
    labelled: bounds.File | None = None
    """Labelled texts to plot: a named set, or a file with the columns text, label; by default sst2:test."""
    labelled_limit: bounds.PlotPoints = 400
    """Number of labelled texts to plot."""
    seed: bounds.NumpySeed = 0
    """Seed of the sample for uniformity, of t-SNE, of the choice among pairs with equal scores, and of the sample of
    --texts."""

    needs = (
        *(("page", "texts"), ("texts", "page"), ("column", "page"), ("color_by", "page")),
        *(("pairs", "output"), ("positive_above", "output"), ("task", "output"), ("labelled", "output")),
    )

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if self.output is None and self.page is None:
            yield "Name what to write: --output FOLDER for measures and plots, --page FILE for a page, or both."
        if self.page is not None and not self.page.lower().endswith((".html", ".htm")):
            yield f"--page {self.page}: must end in .html."

    def check_models(self, count: int) -> None:
        """Raise a NearfarError if a page of this number of models is asked for; it shows one or two."""
        if self.page is not None and count > 2:
            raise NearfarError(
                f"--page shows one model, or two (before and after), not {count}. Write a page for each pair."
            )
