"""What the commands beside training can be told."""

from dataclasses import dataclass
from typing import Literal

from nearfar.config.bounds import (
    Beams,
    Count,
    File,
    Folds,
    Hidden,
    Length,
    Logit,
    NumpySeed,
    Output,
    PlotPoints,
    Positive,
    ProcessCount,
    Resamples,
    ResamplesOrNone,
    Seed,
)
from nearfar.config.values import Settings
from nearfar.types import Precision


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(Settings):
    """Score encoders on similarity (Spearman, Pearson) and on transfer tasks (accuracy of probes), with intervals."""

    suite: Literal["sts", "transfer", "all"] | None = None
    """sts: STS12 to 16, STS-B, SICK-R; transfer: SentEval's tasks; all: both. By default sts, if no tasks are named."""
    tasks: tuple[File, ...] | None = None
    """Single named sets of either kind, or files of scored pairs."""
    pairs: tuple[File, ...] = ()
    """Scored pairs of your own: files with the columns score, sentence1, sentence2."""
    labelled: tuple[File, ...] = ()
    """Labelled texts of your own, to be told apart by a probe: files with the columns text (or sentence1 and sentence2)
    and label."""
    pooling: str | None = None
    """Override the model's own pooling."""
    max_length: Length | None = None
    """Tokens kept of a sentence; by default the model's own limit."""
    precision: Precision = "auto"
    """auto is fp32 here, as published scores are; bf16 computes embeddings in bfloat16, and scores differ a little."""
    device: str | None = None
    """cpu, cuda, cuda:1 ...; by default CUDA where there is one."""
    protocol: Literal["senteval", "exact"] = "senteval"
    """Of the probes: SentEval's own classifiers, or logistic regression solved exactly on the same folds."""
    nhid: Hidden = 0
    """Hidden units of SentEval's classifier (50 in SBERT-WK); 0 is logistic regression."""
    folds: Folds = 10
    """Of the probes' cross-validation."""
    resamples: ResamplesOrNone = 1000
    """Bootstrap resamples behind each 95% interval."""
    seed: NumpySeed = 0
    """Of the bootstrap, and of a baseline that is fitted."""
    output: Output | None = None
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
class CompareConfig(Settings):
    """Is the first better than the second? Paired bootstrap per task and overall, and a test over seeds."""

    tasks: tuple[File, ...] | None = None
    """Tasks to compare on; by default those that both sides have."""
    aggregate: Literal["all", "mean", "wmean"] = "all"
    """How a task with subsets becomes one number."""
    resamples: Resamples = 10_000
    """Bootstrap resamples."""
    seed: Seed = 0
    """Of the bootstrap."""
    output: Output | None = None
    """Result file to write (JSON; a Markdown table beside it)."""
    overwrite: bool = False
    """Replace OUTPUT even if it is no result of nearfar's."""


@dataclass(frozen=True, kw_only=True)
class EncodeConfig(Settings):
    """Turn the lines of a file into vectors, one a line, in little memory however many; stopped, it can be resumed."""

    input: File
    """Text file, one text a line, also gzipped; or a .tsv, .csv, .jsonl, .parquet file with --column."""
    output: Output
    """The .npy file to write, or a .parquet file with the columns row and embedding."""
    column: str | None = None
    """Column that holds the texts."""
    normalize: bool = False
    """Scale each vector to length 1."""
    pooling: str | None = None
    """Override the model's own pooling."""
    max_length: Length | None = None
    """Tokens kept of a text; by default the model's own limit."""
    precision: Precision = "auto"
    """auto computes in bf16 (bfloat16) where that is native, else in fp32."""
    dtype: Literal["float32", "float16"] = "float32"
    """Of the numbers in the file."""
    with_texts: bool = False
    """Put the texts into the .parquet file too, as the column text."""
    processes: ProcessCount = 1
    """Encode in several processes of this machine, which share its processor, or on several GPUs."""
    resume: bool = False
    """Go on with what a run that was stopped left in OUTPUT.partial."""
    overwrite: bool = False
    """Replace OUTPUT if it exists."""
    device: str | None = None
    """cpu, cuda, cuda:1 ...; by default CUDA where there is one."""


@dataclass(frozen=True, kw_only=True)
class PredictConfig(Settings):
    """Label the rows of a file by a fine-tuned classifier, with each label's probability."""

    input: File
    """Text file, one text a line, blank ones too; or a .tsv, .csv, .jsonl, .parquet file."""
    output: Output
    """The .tsv, .csv or .jsonl file to write."""
    overwrite: bool = False
    """Replace OUTPUT if it exists."""
    text_columns: tuple[str, ...] = ()
    """Columns that hold the one or two texts of a row; by default text, or sentence1 and sentence2."""
    max_length: Length | None = None
    """Tokens kept of a row; by default the model's own limit."""
    precision: Precision = "auto"
    """auto computes in bf16 (bfloat16) where that is native, else in fp32."""
    device: str | None = None
    """cpu, cuda, cuda:1 ...; by default CUDA where there is one."""


@dataclass(frozen=True, kw_only=True)
class GeometryConfig(Settings):
    """Measure and draw the embedding spaces of one or several encoders, side by side."""

    output: Output
    """Folder to write: geometry.json, its table geometry.md, and the plots."""
    overwrite: bool = False
    """Replace files of these names in OUTPUT even if they are no results of nearfar's."""
    pairs: File | None = None
    """Scored pairs that the numbers are of: a named set, or a file with the columns score, sentence1, sentence2; by
    default stsb:dev. microworld:dev is generated and always there."""
    positive_above: Logit | None = None
    """Pairs with a score above this are positive: alignment is theirs. By default 0.8 of the top of the scale: 4 on
    STS-B (Gao et al. 2021, section 3), 0.8 of the highest score of a file."""
    task: File | None = None
    """Scored pairs to score every layer by every pooling on; by default stsb, its test split."""
    labelled: File | None = None
    """Labelled texts to draw: a named set, or a file with the columns text, label; by default sst2:test."""
    labelled_limit: PlotPoints = 400
    """So many of the labelled texts are drawn."""
    pooling: str | None = None
    """Override the models' own pooling: cls, mean, mean_without_cls, max, first_last, layer:K or layer:K:max."""
    max_length: Length | None = None
    """Tokens kept of a text; by default each model's own limit."""
    device: str | None = None
    """cpu, cuda, cuda:1 ...; by default CUDA where there is one."""
    seed: NumpySeed = 0
    """Of uniformity's sample, of t-SNE, and of the choice among pairs with equal scores."""


@dataclass(frozen=True, kw_only=True)
class ReportConfig(Settings):
    """One HTML file, which opens without a network, and a Markdown file beside it: scores, tests, curves, settings."""

    output: Output
    """The .html file to write (a Markdown file beside it)."""
    overwrite: bool = False
    """Replace OUTPUT even if it is no report of nearfar's."""
    title: str | None = None
    """Of the page; by default made of the names of what it shows."""
    compare: Literal["auto", "yes", "no"] = "auto"
    """Test each two of the evaluated sides; auto does where there are 2 to 6 and no comparison file is named."""
    aggregate: Literal["all", "mean", "wmean"] = "all"
    """How a task with subsets becomes one number in the main table and in the comparison."""
    resamples: Resamples = 10_000
    """Bootstrap resamples of the comparison."""
    seed: Seed = 0
    """Of the bootstrap."""


@dataclass(frozen=True, kw_only=True)
class BackTranslateConfig(Settings):
    """Translate sentences to another language and back: pairs for the methods bt and bt+sg-opt. Resumable."""

    input: File
    """Text file, one sentence a line; or a .tsv, .csv, .jsonl, .parquet file with --column."""
    output: Output
    """The .tsv file to write: sentence, translation, pivot. Started again, it goes on where it stopped."""
    column: str | None = None
    """Column that holds the sentences."""
    forward: File = "Helsinki-NLP/opus-mt-en-de"
    """Translation model to the other language: a folder, or owner/name on the hub."""
    backward: File = "Helsinki-NLP/opus-mt-de-en"
    """Translation model back."""
    beams: Beams = 5
    """Beams of the search."""
    temperature: Positive | None = None
    """Sample at this temperature in place of beam search; higher is noisier."""
    batch_size: Count = 32
    """Sentences translated at a time."""
    max_length: Length = 128
    """Tokens kept of a sentence and of a translation."""
    seed: Seed = 1
    """Of the sampling."""
    device: str | None = None
    """cpu, cuda, cuda:1 ...; by default CUDA where there is one."""


@dataclass(frozen=True, kw_only=True)
class EnvConfig(Settings):
    """Show what a bug report needs: versions, processor, threads, GPU, kernels, folders, data, hub. Names no user."""

    json: bool = False
    """Print JSON."""
    offline: bool = False
    """Do not ask the hub whether it can be reached."""
