"""What the commands beside training can be told."""

from dataclasses import dataclass
from typing import Literal

STS_TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr", "sickr-full")
TRANSFER_TASKS = (
    "mr",
    "cr",
    "subj",
    "mpqa",
    "sst2",
    "sst5",
    "trec",
    "mrpc",
    "sick-e",
    "sickr-learned",
    "stsb-learned",
)


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """Score encoders on similarity (Spearman, Pearson) and on transfer tasks (accuracy of probes), with intervals."""

    suite: Literal["sts", "transfer", "all"] | None = None
    """sts: STS12 to 16, STS-B, SICK-R; transfer: SentEval's tasks; all: both. By default sts, if no tasks are named."""
    tasks: tuple[str, ...] | None = None
    """Single named sets of either kind, or files of scored pairs."""
    pairs: tuple[str, ...] = ()
    """Scored pairs of your own: files with the columns score, sentence1, sentence2."""
    labelled: tuple[str, ...] = ()
    """Labelled texts of your own, to be told apart by a probe: files with the columns text (or sentence1 and sentence2)
    and label."""
    pooling: str | None = None
    """Override the model's own pooling."""
    max_length: int | None = None
    """Tokens kept of a sentence; by default the model's own limit."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 computes embeddings in bfloat16, for processors that know it; scores differ a little from those of fp32."""
    device: str | None = None
    """cpu, cuda, cuda:1 ...; by default CUDA where there is one."""
    protocol: Literal["senteval", "exact"] = "senteval"
    """Of the probes: SentEval's own classifiers, or logistic regression solved exactly on the same folds."""
    nhid: int = 0
    """Hidden units of SentEval's classifier (50 in SBERT-WK); 0 is logistic regression."""
    folds: int = 10
    """Of the probes' cross-validation."""
    resamples: int = 1000
    """Bootstrap resamples behind each 95% interval."""
    seed: int = 0
    """Of the bootstrap, and of a baseline that is fitted."""
    output: str | None = None
    """Result file to write (JSON; a Markdown table beside it)."""
    overwrite: bool = False
    """Replace OUTPUT even if it is no result of nearfar's."""
    name: str | None = None
    """What to call the model in the result; by default what it is called here."""
    metric: Literal["spearman", "pearson"] = "spearman"
    """What the table on screen shows of similarity; result files hold both."""
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
    overwrite: bool = False
    """Replace OUTPUT even if it is no result of nearfar's."""


@dataclass(frozen=True, kw_only=True)
class EncodeConfig:
    """Turn the lines of a file into vectors, one a line, in little memory however many; stopped, it can be resumed."""

    input: str
    """Text file, one text a line, also gzipped; or a .tsv, .csv, .jsonl, .parquet file with --column."""
    output: str
    """The .npy file to write, or a .parquet file with the columns row and embedding."""
    column: str | None = None
    """Column that holds the texts."""
    normalize: bool = False
    """Scale each vector to length 1."""
    pooling: str | None = None
    """Override the model's own pooling."""
    max_length: int | None = None
    """Tokens kept of a text; by default the model's own limit."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 computes in bfloat16, for processors that know it."""
    dtype: Literal["float32", "float16"] = "float32"
    """Of the numbers in the file."""
    with_texts: bool = False
    """Put the texts into the .parquet file too, as the column text."""
    processes: int = 1
    """Encode in several processes of this machine, which share its processor, or on several GPUs."""
    resume: bool = False
    """Go on with what a run that was stopped left in OUTPUT.partial."""
    overwrite: bool = False
    """Replace OUTPUT if it exists."""
    device: str | None = None
    """cpu, cuda, cuda:1 ...; by default CUDA where there is one."""


@dataclass(frozen=True, kw_only=True)
class PredictConfig:
    """Label the rows of a file by a fine-tuned classifier, with each label's probability."""

    input: str
    """Text file, one text a line, blank ones too; or a .tsv, .csv, .jsonl, .parquet file."""
    output: str
    """The .tsv, .csv or .jsonl file to write."""
    overwrite: bool = False
    """Replace OUTPUT if it exists."""
    text_columns: tuple[str, ...] = ()
    """Columns that hold the one or two texts of a row; by default text, or sentence1 and sentence2."""
    max_length: int | None = None
    """Tokens kept of a row; by default the model's own limit."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 computes in bfloat16, for processors that know it."""
    device: str | None = None
    """cpu, cuda, cuda:1 ...; by default CUDA where there is one."""


@dataclass(frozen=True, kw_only=True)
class GeometryConfig:
    """Measure and draw the embedding spaces of one or several encoders, side by side."""

    output: str
    """Folder to write: geometry.json, its table geometry.md, and the plots."""
    overwrite: bool = False
    """Replace files of these names in OUTPUT even if they are no results of nearfar's."""
    pairs: str | None = None
    """Scored pairs that the numbers are of: a named set, or a file with the columns score, sentence1, sentence2; by
    default stsb:dev. microworld:dev is generated and always there."""
    positive_above: float = 4.0
    """Pairs with a score above this are positive: alignment is theirs (Gao et al. 2021, section 3)."""
    task: str | None = None
    """Scored pairs to score every layer by every pooling on; by default stsb, its test split."""
    labelled: str | None = None
    """Labelled texts to draw: a named set, or a file with the columns text, label; by default sst2:test."""
    labelled_limit: int = 400
    """So many of the labelled texts are drawn."""
    pooling: str | None = None
    """Override the models' own pooling: cls, mean, mean_without_cls, max, first_last, layer:K or layer:K:max."""
    max_length: int | None = None
    """Tokens kept of a text; by default each model's own limit."""
    device: str | None = None
    """cpu, cuda, cuda:1 ...; by default CUDA where there is one."""
    seed: int = 0
    """Of uniformity's sample, of t-SNE, and of the choice among pairs with equal scores."""


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """One HTML file, which opens without a network, and a Markdown file beside it: scores, tests, curves, settings."""

    output: str
    """The .html file to write (a Markdown file beside it)."""
    overwrite: bool = False
    """Replace OUTPUT even if it is no report of nearfar's."""
    title: str | None = None
    """Of the page; by default made of the names of what it shows."""
    compare: Literal["auto", "yes", "no"] = "auto"
    """Test each two of the evaluated sides; auto does where there are 2 to 6 and no comparison file is named."""
    aggregate: Literal["all", "mean", "wmean"] = "all"
    """How a task with subsets becomes one number in the main table and in the comparison."""
    resamples: int = 10_000
    """Bootstrap resamples of the comparison."""
    seed: int = 0
    """Of the bootstrap."""


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
