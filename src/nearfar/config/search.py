"""Settings of ``nearfar search``. The class docstring is its summary in ``--help``, the text below a field its help."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from nearfar.config.bounds import Count, File, Output, Width
from nearfar.config.encoder import ComputeOptions, SearchOptions
from nearfar.types import NearfarError, Precision


@dataclass(frozen=True, kw_only=True)
class SearchConfig(SearchOptions, ComputeOptions):
    """Search the texts of a file by meaning: the nearest texts of each query.

    The embeddings are kept in an index folder. Later searches encode only texts that are new. Without a query, nearfar
    asks for queries in the terminal.
    """

    # --- Texts ---

    model: File
    """Model folder, run folder, or owner/name on the Hugging Face Hub."""
    input: File
    """File with the texts: .tsv, .csv, .jsonl or .parquet, or .txt with one text per line; text files may end in .gz.
    """
    column: str | None = None
    """Column with the texts; by default text, the second texts of pairs (positive, document, answer, sent1), or the
    only column."""
    show: tuple[str, ...] | None = None
    """Columns to show next to the texts; by default all others, none for no columns."""

    # --- Queries and hits ---

    queries: File | None = None
    """File with queries, in the same formats."""
    query_column: str | None = None
    """Column with the queries; by default query, text, the first texts of pairs (anchor, question, sent0), or the only
    column."""
    skip_empty: bool = False
    """Leave out rows without a text; by default they are an error."""
    top: Count = 10
    """Number of hits for each query."""
    keep_duplicates: bool = False
    """Show every row of a text that occurs several times; by default such a text is one hit."""
    output: Output | None = None
    """File to write the hits to: .tsv or .jsonl. By default they are printed."""
    overwrite: bool = False
    """Replace OUTPUT if it exists."""

    # --- Index ---

    index: Output | None = None
    """Folder of the index; by default INPUT.index, next to the file."""
    rebuild: bool = False
    """Replace the index, also one that is damaged or of another model."""
    approximate: bool = False
    """Search a graph instead of all embeddings (needs usearch): faster from about a million texts."""
    quantize: Literal["int8", "binary"] | None = None
    """Search small codes of the embeddings, then score the best by the embeddings: int8 (a quarter of the bytes) or
    binary (one bit for each dimension). Prints the recall against exact search."""
    rescore: Count | None = None
    """Number of candidates that QUANTIZE scores by the embeddings, for each hit; default: 2 for int8, 10 for binary."""
    dimensions: Width | None = None
    """Keep the first DIMENSIONS of each embedding, best of a model that was trained with --matryoshka; by default
    all."""
    normalize: bool = True
    """Rank by the similarity that the model's folder names, for most the cosine. --no-normalize: rank by inner products
    of the embeddings as they are."""
    precision: Precision = "auto"
    """Precision of the embeddings. auto is that of the index, and for a new index bf16 (bfloat16) if the device
    supports it natively, else fp32."""

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if self.approximate and self.quantize is not None:
            yield f"--approximate and --quantize {self.quantize}: are two ways to search; give one."
        if self.rescore is not None and self.quantize is None:
            yield f"--rescore {self.rescore}: is for quantized search; give --quantize with it."
        if self.query_column is not None and self.queries is None:
            yield f"--query-column {self.query_column}: needs a file, --queries FILE."
        if self.overwrite and self.output is None:
            yield "--overwrite: needs a file to replace, --output FILE."
        if self.output is not None and not self.output.endswith((".tsv", ".jsonl")):
            yield f"--output {self.output}: must end in .tsv or .jsonl."

    def check_queries(self, given: Sequence[str]) -> None:
        """Check that queries are given in one way only: as texts, or by ``queries``.

        Raises:
            NearfarError: both are given.
        """
        if given and self.queries is not None:
            raise NearfarError("Give queries as arguments or with --queries FILE, not both.")
