"""What the commands beside training can be told."""

from dataclasses import dataclass
from typing import Literal

STS_TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr", "sickr-full")


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """Score encoders on semantic textual similarity: Spearman and Pearson, per task and subset, with intervals."""

    tasks: tuple[str, ...] = STS_TASKS
    """Named sets, or files with the columns score, sentence1, sentence2."""
    pooling: str | None = None
    """Override the model's own pooling."""
    max_length: int | None = None
    """Tokens kept of a sentence; by default the model's own limit."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 computes embeddings in bfloat16, which is faster on many processors and moves a score by hundredths."""
    device: str | None = None
    """cpu, cuda, cuda:1 ...; by default CUDA where there is one."""
    resamples: int = 1000
    """Bootstrap resamples behind each 95% interval."""
    seed: int = 0
    """Of the bootstrap."""
    output: str | None = None
    """Result file to write (JSON; a Markdown table beside it)."""
    name: str | None = None
    """What to call the model in the result; by default what it is called here."""
    metric: Literal["spearman", "pearson"] = "spearman"
    """What the table on screen shows; result files hold both."""
    subsets: bool = False
    """Show each subset on screen too; result files always hold them."""


@dataclass(frozen=True, kw_only=True)
class CompareConfig:
    """Is the first better than the second? Paired bootstrap per task and overall, and a test over seeds."""

    tasks: tuple[str, ...] | None = None
    """Tasks to compare on; by default those that both sides have."""
    aggregate: Literal["all", "mean", "wmean"] = "all"
    """How a task with subsets becomes one number."""
    resamples: int = 10_000
    """Bootstrap resamples."""
    seed: int = 0
    """Of the bootstrap."""
    output: str | None = None
    """Result file to write (JSON; a Markdown table beside it)."""


@dataclass(frozen=True, kw_only=True)
class EncodeConfig:
    """Turn the lines of a file into vectors: one float32 row a line, as a NumPy .npy file."""

    input: str
    """Text file, one text a line; or a .tsv, .csv, .jsonl, .parquet file with --column."""
    output: str
    """The .npy file to write."""
    column: str | None = None
    """Column that holds the texts."""
    normalize: bool = False
    """Scale each vector to length 1."""
    pooling: str | None = None
    """Override the model's own pooling."""
    max_length: int | None = None
    """Tokens kept of a text; by default the model's own limit."""
    device: str | None = None
    """cpu, cuda, cuda:1 ...; by default CUDA where there is one."""


@dataclass(frozen=True, kw_only=True)
class BackTranslateConfig:
    """Translate sentences to another language and back: pairs for the methods bt and bt+sg-opt. Resumable."""

    input: str
    """Text file, one sentence a line; or a .tsv, .csv, .jsonl, .parquet file with --column."""
    output: str
    """The .tsv file to write: sentence, translation, pivot. Started again, it goes on where it stopped."""
    column: str | None = None
    """Column that holds the sentences."""
    forward: str = "Helsinki-NLP/opus-mt-en-de"
    """Translation model to the other language: a folder, or owner/name on the hub."""
    backward: str = "Helsinki-NLP/opus-mt-de-en"
    """Translation model back."""
    beams: int = 5
    """Beams of the search."""
    temperature: float | None = None
    """Sample at this temperature in place of beam search; higher is noisier."""
    batch_size: int = 32
    """Sentences translated at a time."""
    max_length: int = 128
    """Tokens kept of a sentence and of a translation."""
    seed: int = 1
    """Of the sampling."""
    device: str | None = None
    """cpu, cuda, cuda:1 ...; by default CUDA where there is one."""
