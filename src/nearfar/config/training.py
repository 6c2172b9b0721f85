"""Settings of every run, of every training of a sentence encoder, and of fine-tuning."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from nearfar.config import bounds
from nearfar.config.values import Settings, flag
from nearfar.types import Mix, Precision, Schedule, Splits, Tracker


@dataclass(frozen=True, kw_only=True)
class RunConfig(Settings):
    """Settings of every run: the encoder, the rows, the optimiser, evaluation and checkpoints."""

    # --- Run ---

    output: bounds.Output
    """Run folder to create: config, metrics, checkpoint, and the trained model in OUTPUT/model."""
    model: bounds.File = "sentence-transformers/all-MiniLM-L6-v2"
    """Encoder to start from: a folder, or owner/name on the hub."""
    seed: bounds.Seed = 1
    """Seed of the batch order, dropout, and the heads' initial weights."""
    device: str | None = None
    """cpu, cuda, cuda:1 ...; by default CUDA where there is one."""
    precision: Precision = "auto"
    """auto computes encoder and heads in bf16 (bfloat16, on weights that stay float32) where that is native, else in
    fp32."""
    fingerprints: bool = True
    """Save 64-bit hashes of the training and dev texts with the model, so that evaluations report which test rows it
    has seen. Whoever has the model and a text can then check whether the text was used. --no-fingerprints: save none,
    if the texts are confidential; then evaluations cannot tell what the model has seen."""
    track: tuple[Tracker, ...] = ()
    """Also record losses, learning rate, gradient norm, dev scores and settings with these trackers, in
    OUTPUT/tracking; a resumed run may have others (tensorboard needs nearfar[track])."""

    # --- Rows ---

    limit: bounds.RowCount | None = None
    """Use only the first LIMIT rows of the data."""
    skip_empty: bool = False
    """Leave out rows with an empty cell, and say how many; by default they are an error."""

    # --- Texts and model ---

    max_length: bounds.Length | None = None
    """Maximum number of tokens, in training and inference; by default the model's own limit."""
    train_max_length: bounds.Length | None = None
    """Maximum number of tokens in training only; by default MAX_LENGTH."""
    dropout: bounds.BelowOne | None = None
    """Probability of dropout in training; by default the model's own, 0.1 in BERT and RoBERTa."""

    # --- Batches and steps ---

    batch_size: bounds.Count = 64
    """Batch size per process; at most the number of rows."""
    micro_batch: bounds.Count | None = None
    """Micro-batch size for gradient caching: the same gradient in less memory, for a second forward pass."""
    micro_batch_tokens: bounds.Steps | None = None
    """Number of tokens in a micro-batch, in place of MICRO_BATCH."""
    gradient_checkpointing: bool = False
    """Keep the input of each transformer layer alone, and compute the layer again in the backward pass: the same
    gradient in less memory, for a second forward pass. Unlike MICRO_BATCH it helps with a single long text, too."""
    accumulate: bounds.Count = 1
    """Batches whose gradients are averaged into one step."""
    epochs: bounds.Epochs = 1
    """Passes over the rows."""
    max_steps: bounds.Steps | None = None
    """Stop after this number of optimiser steps, whatever EPOCHS says; the schedule ends there too."""

    # --- Optimiser ---

    learning_rate: bounds.LearningRate = 2e-5
    """Peak learning rate."""
    head_learning_rate: bounds.LearningRate | None = None
    """Peak learning rate of the heads, which start from random weights; by default LEARNING_RATE."""
    layer_decay: bounds.PositiveFraction = 1.0
    """Learning rate by layer: layer l of L has LEARNING_RATE * LAYER_DECAY^(L - l), the embeddings LEARNING_RATE *
    LAYER_DECAY^L; what is above the layers has the full rate. 1 turns it off."""
    weight_decay: bounds.Weight = 0.0
    """AdamW's weight decay, on matrices (not on biases and LayerNorm)."""
    beta2: bounds.BelowOne = 0.999
    """AdamW's second beta; the first is 0.9."""
    adam_epsilon: bounds.Epsilon = 1e-8
    """AdamW's epsilon, added to the root of the second moment: 1e-8 in PyTorch, 1e-6 in early transformers."""
    warmup: bounds.Fraction = 0.1
    """Share of the steps in which the learning rate rises."""
    schedule: Schedule = "linear"
    """Learning rate after the warm-up: falling to 0 in a line or as a half cosine, or constant."""
    max_grad_norm: bounds.Weight = 1.0
    """Gradients are clipped to this norm; 0 turns clipping off."""
    ema: bounds.OpenFraction | None = None
    """Average the weights over the steps: exponential moving average with this decay, as in 0.99. Evaluations and the
    saved model use the average; by default off."""

    # --- Evaluation and checkpoints ---

    evaluate_every: bounds.Steps | None = None
    """Steps between evaluations; by default a tenth of the run. The weights before the first step and after the last
    one are always evaluated."""
    patience: bounds.Steps | None = None
    """Early stopping: end after this number of evaluations in a row without a new best score; by default never. The
    score before training counts, and without EVALUATE_EVERY a run has ten evaluations. It needs rows that are scored,
    held out or named. With KEEP last, the weights of the step at which it ends are saved."""
    keep: Literal["best", "last"] = "best"
    """Weights that are saved as OUTPUT/model: those of the best evaluation, or of the last step."""
    checkpoint_every: bounds.Steps = 200
    """Steps between checkpoints; a run killed at any moment resumes from the latest and ends bit-identical."""

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if self.micro_batch is not None and self.micro_batch_tokens is not None:
            yield "--micro-batch and --micro-batch-tokens: each sets the micro-batch size; give one."


SETTINGS_OF_SETS = frozenset({"data", "limit", "batch_size", "weight", "query_prompt", "document_prompt", "prompt"})
"""The settings of :class:`TrainConfig` that each set of rows has for itself, beside those that its method adds."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig(RunConfig):
    """Settings of every training of a sentence encoder, to which each method adds its own."""

    needs: ClassVar[tuple[tuple[str, str], ...]] = (
        ("mix_temperature", "mix proportional"),
        ("adapter", "lora_rank"),
        ("document_model", "freeze"),
        ("document_vectors", "freeze"),
        ("query_layer", "freeze"),
    )

    # --- Rows ---

    data: tuple[bounds.File, ...] = ()
    """Training rows: files, or named data sets. Each further --data is a set of its own, as in --data pairs.tsv --data
    texts.txt=0.3, where 0.3 is its weight; own is the texts of the first set, vocabulary texts of random words of
    MODEL's vocabulary."""
    evaluate_on: bounds.File | None = None
    """Dev set, scored pairs: stsb:dev, microworld:dev, or a file with score, sentence1, sentence2. By default rows of
    DATA are held out: half choose the best step, half test the result."""
    hold_out: bounds.HoldOut | None = None
    """Hold out this share (0 to 0.5) or number of anchors; 0 for none. By default 5%, at least 200 and at most 1,000;
    none with EVALUATE_ON, and none of fewer than 400 anchors (1,000 labelled texts), which further trainings without
    one of five folds each test."""
    guard: tuple[bounds.File, ...] = ()
    """Judged sets on which the model may not get worse: scored pairs, as stsb:dev or a file, and retrieval, a folder in
    BEIR's layout. After training, averages with the weights of MODEL are tried, and the best on the dev rows that is
    no worse than MODEL on all of these sets is kept; if none is, MODEL itself."""
    guard_margin: bounds.Points = 0.5
    """Points by which a model may be worse on a set of GUARD."""

    # --- Texts and model ---

    pooling: str | None = None
    """cls, mean, mean_without_cls, max, lasttoken, weightedmean, first_last, embeddings_last, last_two, layer:K or
    layer:K:max; 'own' or none for the model's own."""
    query_prompt: bounds.Prompt | None = None
    """Text before each query (anchor, premise), or a prompt's name; '' for no prompt; by default the model's own."""
    document_prompt: bounds.Prompt | None = None
    """Text before each document (positive, negative, hypothesis), or a prompt's name; by default the model's own."""
    prompt: bounds.Prompt | None = None
    """Text before all other texts (single sentences, scored pairs), or a prompt's name; by default the model's own."""
    keep_layers: str | None = None
    """Keep only these transformer layers of MODEL: a number of them, evenly spaced, or their numbers, as in 2,4,6."""
    lora_rank: bounds.Width | None = None
    """Train low-rank adapters of this rank in place of all weights (needs nearfar[lora])."""
    lora_alpha: bounds.Positive = 16.0
    """Scale of the adapters: LORA_ALPHA / LORA_RANK."""
    freeze: Literal["documents"] | None = None
    """Train the encoder of queries alone: vectors of documents stay as they are, and so does an index of them. OUTPUT
    is a folder with both, a Router of sentence-transformers. For rows with queries and documents (pairs, triplets, NLI
    rows, rows with scores of a teacher)."""
    document_model: bounds.Model | None = None
    """Encoder of documents with FREEZE; by default MODEL. Both give vectors of one width: a static encoder as MODEL
    makes queries of a transformer's index nearly free."""
    document_vectors: bounds.File | None = None
    """With FREEZE, vectors of documents that exist already: a search index, or a .npy file with the vector of the
    positive of each row of DATA. Documents without one are encoded. Some are compared with those of the encoder."""
    query_layer: bool = False
    """With FREEZE, train one square layer after MODEL and nothing else; it starts as the identity."""
    adapter: Literal["merge", "keep"] = "merge"
    """merge adds the adapters to the weights at the end. keep saves them alone, in peft's format: a small folder, which
    needs MODEL where it is now, and peft in sentence-transformers."""
    start_weight: bounds.BelowOne = 0.0
    """Average the trained weights with those of MODEL, whose share this is, as in 0.5 (Wortsman et al. 2022, WiSE-FT).
    Evaluations and the saved model use the average; 0 turns it off."""

    # --- More than one loss ---

    matryoshka: tuple[bounds.Width, ...] | None = None
    """Train the first dimensions to be embeddings of their own: the loss at each of these widths, summed, as in
    384,256,128,64 (Kusupati et al. 2022). By default only the full width."""
    matryoshka_weights: tuple[bounds.Positive, ...] | None = None
    """Weight of the loss at each width of MATRYOSHKA; by default 1 each."""
    sets: tuple[dict[str, Any], ...] = ()
    """Further sets of rows to train on: a table for each, with data, weight, method and its settings, batch_size, limit
    and prompts; other settings are those of the run. Without a method, it is the recommended one for the rows."""
    weight: bounds.Positive = 1.0
    """Weight of the loss of DATA where there are several sets."""
    mix: Mix = "together"
    """With several sets: each step takes a batch of every set (together); or each batch is of one set, by the number
    of batches of each (proportional), in turn (round-robin), or by the weights as shares (weighted). An epoch is one
    pass over the first set."""
    mix_temperature: bounds.Positive = 1.0
    """T of proportional: a set with n batches has a share of n^(1/T); a high T makes the shares equal."""

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if self.evaluate_on is not None and self.hold_out:
            yield (
                "--evaluate-on and --hold-out: held-out rows would choose the best step, and so would --evaluate-on; "
                "give one."
            )
        if self.start_weight and self.lora_rank is not None:
            yield (
                f"--start-weight {self.start_weight:g} and --lora-rank: adapters have no weights before training to "
                "average with. Leave one out, or average the finished model with MODEL by nearfar soup."
            )
        for other in ("keep_layers", "guard"):
            if self.adapter == "keep" and getattr(self, other):
                yield f"--adapter keep and {flag(other)}: changes weights of MODEL, which an adapter keeps as they are."
        if self.query_layer and self.lora_rank is not None:
            yield "--query-layer and --lora-rank: each trains something else in place of all weights; give one."
        if self.freeze is not None and self.adapter == "keep":
            yield "--freeze documents and --adapter keep: a folder with two encoders has whole ones; merge the adapter."
        if self.freeze is not None and self.matryoshka:
            yield "--freeze documents and --matryoshka: vectors of documents stay as they are, at their full width."
        if self.guard and self.keep_layers is not None:
            yield f"--guard and --keep-layers {self.keep_layers}: a model of fewer layers cannot become MODEL again."
        if self.mix != "together" and not self.sets:
            yield f"--mix {self.mix}: mixes several sets of rows; give --data again for each further one."
        widths, weights = self.matryoshka, self.matryoshka_weights
        if widths is not None and (not widths or len(set(widths)) < len(widths)):
            yield f"--matryoshka {' '.join(map(str, widths))}: give one or more widths, each once."
        if weights is not None and len(weights) != len(widths or ()):
            yield (
                f"--matryoshka-weights {' '.join(f'{weight:g}' for weight in weights)}: must be one weight for each "
                f"width of --matryoshka ({' '.join(map(str, widths)) if widths else 'which is not given'})."
            )


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(RunConfig):
    """Fine-tune a classifier by cross-entropy and supervised contrastive learning (Gunel et al. 2021).

    It is tested on rows that it was not trained on. Columns of FILE: text, label; or sentence1, sentence2, label, for
    pairs that are read together. Labels with a fraction, such as 3.5, are scores. For single texts nearfar train --data
    FILE is better, above all for few. FILE.toml has all settings; those of the paper are in
    configs/gunel-*.toml.
    """

    # --- Rows ---

    task: bounds.File = "sst2"
    """sst2, cola, mrpc, mrpc-glue, rte, qnli, mnli, stsb (a regression), amazon2, yelp2; or your own labelled file."""
    splits: Splits = "auto"
    """Where validation and test rows come from. few-shot: one half of GLUE's validation set is the test set, rows of
    the other half choose the step. full: GLUE's validation set is the test set; training rows, as many, choose the
    step. held-out: the same, but VALIDATION_ROWS training rows. 10-90: the first 10% of GLUE's validation set choose
    the step, the others are the test set. auto, for GLUE tasks: few-shot with a sample of rows, else full; for all
    other rows: held-out."""
    validation: bounds.File | None = None
    """File of validation rows, which choose the best step; by default rows as SPLITS says."""
    test: bounds.File | None = None
    """File of test rows; by default those of SPLITS, or a fifth of your own file."""
    text_columns: tuple[str, ...] = ()
    """One or two columns with the texts of a file; by default text, or sentence1 and sentence2."""
    label_column: str = "label"
    """Column of a file with the labels or scores."""
    validation_rows: bounds.AtLeastTwo | None = None
    """Number of validation rows, in the labels' proportions; by default 500, and with full splits as many as test rows.
    """
    metric: Literal["accuracy", "f1", "matthews", "pearson", "spearman"] | None = None
    """Metric on the validation rows that chooses the best step; by default Matthews correlation for cola, Pearson
    correlation for scores, and accuracy for all other tasks."""

    # --- Loss ---

    scl_weight: bounds.Fraction = 0.9
    """Lambda in the loss (1 - lambda) * cross-entropy + lambda * SCL; 0 means cross-entropy only. Without FILE.toml the
    default is 0.5."""
    temperature: bounds.Temperature = 0.3
    """Temperature of SCL."""
    scl_reduction: Literal["sum", "mean"] = "sum"
    """SCL of a batch: the sum over its rows with a positive, as in the paper, or their mean, which weighs less against
    cross-entropy, in batches of 16 up to 16 times. Without FILE.toml the default is mean."""

    # --- Few rows and noise ---

    sample_size: bounds.AtLeastTwo | None = None
    """Few-shot: train on a random sample of this number of rows; by default on all rows."""
    sample_seed: bounds.Seed = 1
    """Seed of the sample."""
    sample_balanced: bool = True
    """Sample the same number of rows for each label. --no-sample-balanced: sample in the labels' proportions."""
    noise: bounds.File = "none"
    """Noise in the training texts: word-dropout, word-swap or characters, or a file of back-translations to use."""
    noise_rate: bounds.Fraction = 0.1
    """Fraction of words or characters that the noise changes."""
    noise_mode: Literal["replace", "add"] = "replace"
    """replace trains on the noisy texts in place of the originals; add trains on both, twice the number of rows."""

    # --- Batches and steps ---

    batch_size: bounds.Count = 16
    """Batch size per process."""
    epochs: bounds.Epochs = 3
    """Number of passes over the training rows. Without FILE.toml the default fits their number."""
    learning_rate: bounds.LearningRate = 1e-5
    """Peak learning rate (1e-5 in the paper). Without FILE.toml the default fits the encoder."""
    balanced: bool = False
    """Balance each batch: the same number of rows for each label."""

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if self.validation is not None and self.splits not in ("auto", "held-out"):
            yield f"--splits {self.splits} and --validation: each chooses the validation rows; give one of them."
        if self.validation_rows is not None and self.splits == "10-90":
            yield "--validation-rows: --splits 10-90 sets the number of validation rows; leave one out."
