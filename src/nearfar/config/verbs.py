"""Settings of the commands that have few of them, and of evaluate.

The class docstring is the command's summary in ``--help``; the text below a field is the help of its flag.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from nearfar.config import bounds
from nearfar.config.encoder import ComputeOptions, DeviceOption, PassageOptions, RoleOptions
from nearfar.config.values import Settings
from nearfar.types import Precision, RetrievalMeasure


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(PassageOptions, RoleOptions, ComputeOptions):
    """Score encoders on semantic textual similarity, transfer tasks and retrieval.

    Similarity has Spearman and Pearson, transfer tasks the accuracy of a probe, retrieval nDCG, MRR, MAP and recall.
    Every score has a 95% bootstrap confidence interval.
    """

    # --- Tasks ---

    suite: Literal["sts", "transfer", "all"] | None = None
    """Task suite. sts: STS12-16, STS-B, SICK-R; transfer: the SentEval tasks; all: both. Default: sts if no tasks are
    named."""
    tasks: tuple[bounds.File, ...] | None = None
    """Tasks to evaluate: names from either suite, or files of scored pairs."""
    pairs: tuple[bounds.File, ...] = ()
    """Your own scored pairs: files with the columns score, sentence1, sentence2."""
    labelled: tuple[bounds.File, ...] = ()
    """Your own labelled texts, for a classification probe: files with the columns text (or sentence1 and sentence2) and
    label."""
    mteb: tuple[str, ...] = ()
    """STS tasks of mteb by name, as in STSBenchmark: their scored pairs. Needs the extra mteb."""

    # --- Retrieval ---

    retrieval: tuple[bounds.File, ...] = ()
    """Retrieval tasks: pairs (a file with the columns anchor and positive), NLI rows (premises search for the
    hypotheses that they entail), a folder in BEIR's layout (corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv; FOLDER:SPLIT,
    default: test), or such a data set on the hub (hub:owner/name)."""
    corpus: bounds.File | None = None
    """More documents for the pairs or NLI rows of --retrieval, relevant to no query: a text file, or a table with the
    column text."""
    anchor_column: str = "anchor"
    """Column of the queries in the pairs of --retrieval."""
    positive_column: str = "positive"
    """Column of their relevant documents in the pairs of --retrieval."""
    skip_empty: bool = False
    """Leave out rows of your own files with an empty cell, and say how many; by default they are an error."""
    exclude_same_id: bool = False
    """Do not rank the document that has the id of the query, as BEIR does for ArguAna and Quora."""
    hybrid: bool = False
    """Fuse each ranking with that of BM25, by reciprocal ranks. Needs bm25s (the extra search)."""

    # --- Held-out rows ---

    held_out: bool = False
    """Evaluate a run on the rows that it held out to test on: neither trained on nor used to choose the step."""
    held_out_of: bounds.File | None = None
    """Evaluate any model on the rows that this run held out to test on."""
    prompt: bounds.Prompt | None = None
    """Text before each text of all tasks but retrieval, as in "query: ", or the name of one of the model's prompts; ''
    for no prompt. By default the model's own."""
    query_prompt: bounds.Prompt | None = None
    """Text before each query of retrieval tasks, or a prompt's name; '' for no prompt. By default the model's own."""
    document_prompt: bounds.Prompt | None = None
    """Text before each document of retrieval tasks, or a prompt's name; '' for no prompt. By default the model's
    own."""

    # --- Vectors ---

    dimensions: bounds.Width | None = None
    """Score the first DIMENSIONS of the embeddings; by default all."""
    quantize: Literal["float16", "int8", "binary"] | None = None
    """Score embeddings that are stored as by nearfar encode --quantize; queries of retrieval are not quantized. The
    ranges of int8 are those of at most 10,000 texts of the tasks."""
    precision: Precision = "auto"
    """Precision of the embeddings. auto is fp32, as in published scores; bf16 changes scores slightly."""

    # --- Probes ---

    protocol: Literal["senteval", "exact"] = "senteval"
    """Probe classifier: SentEval's own, or logistic regression solved to convergence on the same folds."""
    probe_preset: Literal["senteval", "liao", "kim"] = "senteval"
    """Settings of the probes. senteval: those of SentEval's published results; liao: those of Liao 2021 (5 folds,
    RMSprop, batches of 128, tenacity 3, a check every 2 epochs); kim: those of Kim et al. 2021 (50 hidden units). A
    single setting overrides the preset."""
    nhid: bounds.Hidden | None = None
    """Hidden units of SentEval's classifier; 0 means logistic regression. Default: 0; with --probe-preset kim, 50."""
    folds: bounds.Folds | None = None
    """Number of cross-validation folds of the probes. Default: 10; with --probe-preset liao, 5."""
    probe_optimiser: Literal["adam", "rmsprop"] | None = None
    """Optimiser of SentEval's classifier. Default: adam; with --probe-preset liao, rmsprop."""
    probe_learning_rate: bounds.LearningRate | None = None
    """Its learning rate. Default: 0.001 for adam, 0.01 for rmsprop."""
    probe_batch_size: bounds.Count | None = None
    """Its batch size. Default: 64; with --probe-preset liao, 128."""
    probe_tenacity: bounds.Tenacity | None = None
    """Checks without improvement before the one that stops its training. Default: 5; with --probe-preset liao, 3."""
    probe_epoch_size: bounds.Count | None = None
    """Epochs between two checks. Default: 4; with --probe-preset liao, 2."""
    probe_max_epochs: bounds.Count | None = None
    """No check starts after this number of epochs. Default: 200."""
    probe_l2: tuple[bounds.Weight, ...] | None = None
    """L2 penalties to choose from. Default: 1e-5 1e-4 1e-3 1e-2."""
    probe_seed: bounds.NumpySeed = 1111
    """Seed of the probes' initial weights, held-out rows and batches; 1111 in published results."""
    fold_seed: bounds.NumpySeed = 1111
    """Seed of the cross-validation folds; 1111 in published results."""

    # --- Output ---

    resamples: bounds.ResamplesOrNone = 1000
    """Bootstrap resamples for each 95% confidence interval; 0 means no intervals."""
    seed: bounds.NumpySeed = 0
    """Seed of the bootstrap and of baselines that are fitted."""
    output: bounds.Output | None = None
    """Result file to write (JSON, with a Markdown table next to it)."""
    overwrite: bool = False
    """Replace OUTPUT even if nearfar did not write it."""
    name: str | None = None
    """Name of the model in the result; by default the MODEL argument."""
    metric: Literal["spearman", "pearson"] = "spearman"
    """Similarity metric to print; result files contain both."""
    measure: RetrievalMeasure | None = None
    """Retrieval measure to print with its interval; result files contain all. Default: mrr@10 for pairs, ndcg@10 for
    BEIR's layout."""
    subsets: bool = False
    """Print the score of each subset; result files always contain them."""


@dataclass(frozen=True, kw_only=True)
class CompareConfig(Settings):
    """Test whether the first side is better than the others, on each task and on their average.

    Each difference has one 95% interval, over test rows and, where a side has several, training runs.
    """

    tasks: tuple[bounds.File, ...] | None = None
    """Tasks to compare on; by default all that both sides have, or the rows that a side, a run, held out to test on."""
    held_out: bool = False
    """Compare on the rows that the first run among the sides held out to test on; the default for runs that have them
    if no tasks are named."""
    examples: bool = False
    """Also show held-out queries that two models rank differently, with their hits: the three that gain most, and the
    three that lose most."""
    aggregate: Literal["all", "mean", "wmean"] = "all"
    """Score of a task with subsets: over all its pairs, or the mean or size-weighted mean (wmean) over subsets."""
    measure: RetrievalMeasure | None = None
    """Measure of retrieval tasks. Default: mrr@10 for pairs, ndcg@10 for BEIR's layout and run files."""
    qrels: bounds.File | None = None
    """Judgements of relevance, TREC's or BEIR's: the sides are run files of TREC, whose documents they judge."""
    resamples: bounds.Resamples = 10_000
    """Number of bootstrap resamples."""
    seed: bounds.Seed = 0
    """Seed of the bootstrap."""
    margin: bounds.Points | None = None
    """Largest difference, in points, that counts as level. Default: 0.5; in a table with scores beyond 1, 0.5% of their
    range."""
    output: bounds.Output | None = None
    """Result file to write (JSON, with a Markdown table next to it)."""
    overwrite: bool = False
    """Replace OUTPUT even if nearfar did not write it."""


@dataclass(frozen=True, kw_only=True)
class PredictConfig(ComputeOptions):
    """Predict labels and their probabilities for the rows of a file, and score them where the file has labels."""

    input: bounds.File
    """Text file with one text per line (a blank line is an empty text); or a .tsv, .csv, .jsonl or .parquet file."""
    output: bounds.Output
    """File to write: .tsv, .csv or .jsonl."""
    overwrite: bool = False
    """Replace OUTPUT if it exists."""
    text_columns: tuple[str, ...] = ()
    """One or two columns with the texts of a row; by default text, or sentence1 and sentence2."""
    label_column: str | None = None
    """Column with labels, or scores, to score the predictions; by default label, if there is one."""
    max_length: bounds.Length | None = None
    """Maximum number of tokens in a row; longer rows are truncated. By default the model's own limit."""


@dataclass(frozen=True, kw_only=True)
class ReportConfig(Settings):
    """Write a report as one offline HTML file and a Markdown file: scores, paired tests, training curves, settings.

    Two to six evaluated sides are compared.
    """

    output: bounds.Output
    """The .html file to write (with a Markdown file next to it)."""
    overwrite: bool = False
    """Replace OUTPUT even if nearfar did not write it."""
    title: str | None = None
    """Title of the report; by default the names of the models in it."""
    aggregate: Literal["all", "mean", "wmean"] = "all"
    """Score of a task with subsets: over all its pairs, or the mean or size-weighted mean (wmean) over subsets."""
    resamples: bounds.Resamples = 10_000
    """Number of bootstrap resamples of the comparison."""
    seed: bounds.Seed = 0
    """Seed of the bootstrap."""


@dataclass(frozen=True, kw_only=True)
class BackTranslateConfig(DeviceOption):
    """Make paraphrase pairs by translating sentences to another language and back, for the methods bt and bt+sg-opt.

    A TOML file can hold the settings, as configs/back-translate-fsmt.toml does; flags override them.
    Run the same command again to resume an interrupted run.
    """

    input: bounds.File
    """Text file with one sentence per line; or a .tsv, .csv, .jsonl or .parquet file with --column."""
    output: bounds.Output
    """The .tsv file to write, with the columns sentence, translation, pivot. An unfinished one is resumed."""
    column: str | None = None
    """Column with the sentences."""
    forward: bounds.File = "Helsinki-NLP/opus-mt-en-de"
    """Translation model to the other language: a folder, or owner/name on the Hugging Face Hub."""
    backward: bounds.File = "Helsinki-NLP/opus-mt-de-en"
    """Translation model back to the original language."""
    beams: bounds.Beams = 5
    """Number of beams in beam search."""
    temperature: bounds.Positive | None = None
    """Sample at this temperature instead of beam search; higher is noisier."""
    batch_size: bounds.Count = 32
    """Number of sentences to translate at a time."""
    max_length: bounds.Length = 128
    """Maximum number of tokens in a sentence and in a translation."""
    seed: bounds.Seed = 1
    """Seed of the sampling."""


@dataclass(frozen=True, kw_only=True)
class EnvConfig(Settings):
    """Show the environment for a bug report: versions, processor, threads, GPU, kernels, folders, data.

    User names are removed.
    """

    json: bool = False
    """Print JSON."""


@dataclass(frozen=True, kw_only=True)
class DemoConfig(Settings):
    """Show the whole workflow on generated pairs, offline: train, test on held-out rows, search, explore."""

    output: bounds.Output = "demo"
    """Folder to write; the folder of an earlier demo is replaced."""
    model: bounds.File = "sentence-transformers/all-MiniLM-L6-v2"
    """Encoder to start from: a folder, or owner/name on the Hugging Face Hub."""
    seed: bounds.Seed = 1
    """Seed of the held-out rows and of training."""
    precision: Precision = "fp32"
    """Precision of training; auto is bf16 (bfloat16) if the device supports it natively, else fp32. Scores are computed
    in fp32."""
    max_steps: bounds.Steps | None = None
    """Stop training after this number of optimiser steps."""


@dataclass(frozen=True, kw_only=True)
class GetDataConfig(Settings):
    """Download public data sets into the data folder, convert downloads of your own, or list the sets.

    Without NAME and --source it lists all sets. The same command goes on after an interruption; a download with a
    published checksum goes on where it stopped.
    """

    source: bounds.File | None = None
    """Convert this instead of downloading: a folder, archive or file, as SentEval's data/downstream, GLUE's archives,
    or the official packages."""
    output: bounds.Output | None = None
    """The data folder to write; by default NEARFAR_DATA."""
    list: bool = False
    """List the sets: where each is, its rows and licence, the papers' tables that need it, and how to get it."""
    overwrite: bool = False
    """Make files again that exist in the data folder."""


@dataclass(frozen=True, kw_only=True)
class PushConfig(Settings):
    """Upload a model to the Hugging Face Hub with a model card of its training, data and scores.

    Log in first: hf auth login, or the environment variable HF_TOKEN. HF_ENDPOINT names another server.
    """

    private: bool = False
    """Create the repository as a private one; an existing repository stays as it is."""
    results: tuple[bounds.File, ...] = ()
    """Result files of nearfar evaluate whose scores the card shows."""
    examples: bool = False
    """Show texts of your data in the card: three held-out rows, and the queries that gain and lose most, with their
    hits. Leave it out if they are private."""
    message: str = "Upload model"
    """Message of the commit."""
    revision: str | None = None
    """Branch to upload to; it must exist. By default main."""
    pull_request: bool = False
    """Open a pull request in place of a commit."""
    dry_run: bool = False
    """List the files and show the card; upload nothing."""


@dataclass(frozen=True, kw_only=True)
class StaticConfig(ComputeOptions):
    """Make a static encoder of any encoder: one vector for each token, averaged over the tokens of a text.

    It is much faster and less accurate. nearfar train distill --model OUTPUT fits it to the encoder.
    """

    output: bounds.Output
    """Folder to write, in the format of sentence-transformers."""
    dim: bounds.Width | None = 256
    """Number of principal components to keep, at most the width of MODEL; none for all."""
    sif: bounds.Fraction = 1e-4
    """A token of frequency p gets the weight SIF / (SIF + p), where frequencies follow Zipf's law in the order of the
    vocabulary; 0 for equal weights."""


@dataclass(frozen=True, kw_only=True)
class SoupConfig(ComputeOptions):
    """Average the weights of models that were trained from the same model into one model (Wortsman et al. 2022).

    The models must have the same architecture, tokenizer, pooling and prompts; only their weights may differ.
    """

    output: bounds.Output
    """Model folder to create."""
    weights: tuple[bounds.Positive, ...] | None = None
    """Weight of each model in the average, in their order, as in 2,1,1; by default all equal."""
    greedy: bool = False
    """Add the models one by one, from the best on the dev set down, and keep each only if the score of the average does
    not fall."""
    evaluate_on: bounds.File | None = None
    """Dev set of GREEDY, scored pairs: stsb:dev, microworld:dev, or a file with score, sentence1, sentence2."""
    fingerprints: bool = True
    """Save the hashes of the texts that the models were trained on, and of the dev set, with the average.
    --no-fingerprints: save none; then evaluations cannot tell what the average has seen."""
    precision: Precision = "auto"
    """Precision of the embeddings of the dev set: auto, fp32 or bf16. Weights are averaged in float64."""

    needs = (("greedy", "evaluate_on"), ("evaluate_on", "greedy"))

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if self.greedy and self.weights is not None:
            yield "--greedy and --weights: a greedy average has equal weights; give one of them."


Opset = Annotated[int, Meta(ge=18, le=23)]
"""Version of ONNX's operator set; torch's exporter writes 18 and later."""


@dataclass(frozen=True, kw_only=True)
class ExportConfig(Settings):
    """Export an encoder or a classifier as one ONNX or OpenVINO graph, and compare it with the original.

    The graph takes token ids and a mask. It returns pooled embeddings, normalised if the model normalises them, or the
    logits of a classifier. OUTPUT also gets the tokenizer, the config, the comparison (export.json), and a README.md
    with a short example that needs no torch.
    """

    output: bounds.Output
    """Folder to write."""
    format: Literal["onnx", "openvino"] = "onnx"
    """Format of the graph: onnx for ONNX Runtime, openvino for OpenVINO."""
    quantize: Literal["none", "int8"] = "none"
    """int8: weights as 8-bit integers, one scale per output channel. onnx computes the scale of activations for each
    batch; openvino takes fixed ranges from calibration texts."""
    calibrate: bounds.File | None = None
    """Texts to calibrate the activation ranges of --format openvino --quantize int8 on: a text file with one text per
    line, or a table with the column text. By default the dev rows that the model's run held out."""
    evaluate_on: bounds.File | None = None
    """Rows to compare the scores of graph and original on: scored pairs, a file or a name such as stsb:dev; for a
    classifier, labelled rows. By default the rows that the model's run tests on, else STS-B dev, else generated
    pairs."""
    opset: Opset | None = None
    """Version of ONNX's operator set, for --format onnx. By default the one that torch recommends."""
    max_length: bounds.Length | None = None
    """Maximum number of tokens in a text; longer texts are truncated. By default the model's own limit."""
    timing: bool = True
    """Measure the texts per second of each side. --no-timing: leave them out, which saves some seconds."""
    force: bool = False
    """Keep the graph even if it differs too much from the original."""
    overwrite: bool = False
    """Replace OUTPUT if it is an earlier export."""

    needs = (("opset", "format onnx"), ("calibrate", "format openvino"), ("calibrate", "quantize int8"))


@dataclass(frozen=True, kw_only=True)
class StudyConfig(Settings):
    """Run a study, that is, all cells of a table described by a TOML file, and write the table with tests and plots.

    A study that was stopped goes on with the same command. Cells that are finished are not run again.
    """

    output: bounds.Output
    """Folder to write: study.json, units.parquet, page.md, table.csv, table.tex and plots."""
    scale: str | None = None
    """Scale of the study, one of the tables [scales.NAME] of the file; by default the file itself."""
    start: bounds.File | None = None
    """Model that replaces {start} in the file: a folder, or owner/name on the Hugging Face Hub."""
    cells: bounds.Output | None = None
    """Folder of the finished cells; studies with the same folder share them. Default: OUTPUT/cells."""
    only: tuple[str, ...] = ()
    """Run only these rows, by their ids; the table has the finished cells of all rows."""

    # --- Workers ---

    workers: bounds.ProcessCount = 1
    """Number of worker processes on this machine."""
    threads: bounds.Count | None = None
    """Threads of each worker; by default the cores of this machine divided by WORKERS."""
    engine: Literal["process", "inline", "ray"] = "process"
    """Where cells run: in worker processes, in this process, or as tasks on a Ray cluster (needs nearfar[scale])."""
    ray_address: str | None = None
    """Address of the Ray cluster; by default a Ray is started on this machine."""
    shard: bounds.Shard | None = None
    """Run one part of the cells, as in 3/40: the third of 40. All parts need the same --cells."""
    discard_models: bool = False
    """Remove the model of each training when all cells that need it are finished."""

    # --- Statistics ---

    resamples: bounds.Resamples = 10_000
    """Number of bootstrap resamples of intervals and tests."""
    seed: bounds.Seed = 0
    """Seed of the bootstrap."""

    needs = (("ray_address", "engine ray"),)

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if self.engine == "inline" and self.workers > 1:
            yield "--engine inline runs one cell at a time; leave --workers out, or use --engine process."


Scale: TypeAlias = Literal["tiny", "here", "paper"]
SCALES: tuple[Scale, ...] = ("paper", "here", "tiny")
START = "sentence-transformers/all-MiniLM-L6-v2"
"""The encoder that the scale ``here`` starts from by default."""


@dataclass(frozen=True, kw_only=True)
class ReproduceConfig(StudyConfig):
    """Reproduce tables and figures of the papers; without a name, list them.

    Each is a study (see nearfar study). The table has the paper's numbers beside ours, and says what differs.
    """

    output: bounds.Output = "reproduced"
    """Folder to write: OUTPUT/NAME has study.json, page.md, table.csv, table.tex and plots of a table."""
    scale: Scale = "here"
    """paper: the models, data, settings and seeds of the paper. here: smaller, for two cores and the data folder, from
    START. tiny: generated data and a tiny encoder, in seconds, to try the command."""
    start: bounds.File | None = None
    """Model to start from at the scale here; by default all-MiniLM-L6-v2. At the scale tiny by default a generated
    encoder. The scale paper has the paper's models."""
    cells: bounds.Output | None = None
    """Folder of the finished cells; tables with the same folder share them. Default: OUTPUT/cells."""
