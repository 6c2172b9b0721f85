"""Settings of every run, and of every training of a sentence encoder."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from nearfar.config.bounds import (
    BelowOne,
    Count,
    Epochs,
    Epsilon,
    File,
    Fraction,
    HoldOut,
    LearningRate,
    Length,
    OpenFraction,
    Output,
    Positive,
    PositiveFraction,
    Prompt,
    RowCount,
    Seed,
    Steps,
    Weight,
    Width,
)
from nearfar.config.values import Settings
from nearfar.types import NearfarError, Precision, Schedule, Tracker


@dataclass(frozen=True, kw_only=True)
class RunConfig(Settings):
    """Settings of every run: the encoder, the rows, the optimiser, evaluation and checkpoints."""

    output: Output
    """Run folder to create: config, metrics, checkpoint, and the trained model in OUTPUT/model."""
    model: File = "sentence-transformers/all-MiniLM-L6-v2"
    """Encoder to start from: a folder, or owner/name on the hub."""
    max_length: Length | None = None
    """Maximum number of tokens, in training and inference; by default the model's own limit."""
    train_max_length: Length | None = None
    """Maximum number of tokens in training only; by default MAX_LENGTH."""
    dropout: BelowOne | None = None
    """Probability of dropout in training; by default the model's own, 0.1 in BERT and RoBERTa."""
    limit: RowCount | None = None
    """Use only the first LIMIT rows of the data."""
    skip_empty: bool = False
    """Leave out rows with an empty cell, and say how many; by default they are an error."""
    batch_size: Count = 64
    """Batch size per process; the default shrinks to the number of rows."""
    micro_batch: Count | None = None
    """Micro-batch size for gradient caching: the same gradient in less memory, for a second forward pass."""
    micro_batch_tokens: Steps | None = None
    """Number of tokens in a micro-batch, in place of MICRO_BATCH."""
    epochs: Epochs = 1
    """Passes over the rows."""
    max_steps: Steps | None = None
    """Stop after this number of optimiser steps, whatever EPOCHS says; the schedule ends there too."""
    accumulate: Count = 1
    """Batches whose gradients are averaged into one step."""
    learning_rate: LearningRate = 2e-5
    """Peak learning rate."""
    head_learning_rate: LearningRate | None = None
    """Peak learning rate of the heads, which start from random weights; by default LEARNING_RATE."""
    layer_decay: PositiveFraction = 1.0
    """Learning rate by layer: layer l of L has LEARNING_RATE * LAYER_DECAY^(L - l), the embeddings LEARNING_RATE *
    LAYER_DECAY^L; what is above the layers has the full rate. 1 turns it off."""
    weight_decay: Weight = 0.0
    """AdamW's weight decay, on matrices (not on biases and LayerNorm)."""
    beta2: BelowOne = 0.999
    """AdamW's second beta; the first is 0.9."""
    adam_epsilon: Epsilon = 1e-8
    """AdamW's epsilon, added to the root of the second moment: 1e-8 in PyTorch, 1e-6 in early transformers."""
    warmup: Fraction = 0.1
    """Share of the steps in which the learning rate rises."""
    schedule: Schedule = "linear"
    """Learning rate after the warm-up: falling to 0 in a line or as a half cosine, or constant."""
    max_grad_norm: Weight = 1.0
    """Gradients are clipped to this norm; 0 turns clipping off."""
    ema: OpenFraction | None = None
    """Average the weights over the steps: exponential moving average with this decay, as in 0.99. Evaluations and the
    saved model use the average; by default off."""
    precision: Precision = "auto"
    """auto computes encoder and heads in bf16 (bfloat16, on weights that stay float32) where that is native, else in
    fp32."""
    device: str | None = None
    """cpu, cuda, cuda:1 ...; by default CUDA where there is one."""
    seed: Seed = 1
    """Seed of the batch order, dropout, and the heads' initial weights."""
    evaluate_every: Steps | None = None
    """Steps between evaluations; by default a tenth of the run. The weights before the first step and after the last
    one are always evaluated."""
    patience: Steps | None = None
    """Stop after this number of evaluations in a row without a new best score; by default never."""
    keep: Literal["best", "last"] = "best"
    """Weights that are saved as OUTPUT/model: those of the best evaluation, or of the last step."""
    checkpoint_every: Steps = 200
    """Steps between checkpoints; a run killed at any moment resumes from the latest and ends bit-identical."""
    track: tuple[Tracker, ...] = ()
    """Also record losses, learning rate, gradient norm, dev scores and settings with these trackers, in
    OUTPUT/tracking; a resumed run may have others (tensorboard needs nearfar[track])."""
    fingerprints: bool = True
    """Save 64-bit hashes of the training and dev texts with the model, so that evaluations report which test rows it
    has seen. Whoever has the model and a text can then check whether the text was used. --no-fingerprints: save none,
    if the texts are confidential; then evaluations cannot tell what the model has seen."""

    def __post_init__(self) -> None:
        """Check values, and those that exclude each other."""
        super().__post_init__()
        if self.micro_batch is not None and self.micro_batch_tokens is not None:
            raise NearfarError("--micro-batch and --micro-batch-tokens: each sets the micro-batch size; give one.")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(RunConfig):
    """Settings of every training of a sentence encoder, to which each method adds its own."""

    recipe_batch_size: ClassVar[int | None] = None
    """The batch size that train --data sets where the rows choose the method; it shrinks as the default does."""

    data: tuple[File, ...] = ()
    """Training rows: files, or named data sets."""
    pooling: str | None = None
    """cls, mean, mean_without_cls, max, first_last, embeddings_last, last_two, layer:K or layer:K:max; 'own' or none
    for the model's own."""
    start_weight: BelowOne = 0.0
    """Average the trained weights with those of MODEL, whose share this is, as in 0.5 (Wortsman et al. 2022, WiSE-FT).
    Evaluations and the saved model use the average; 0 turns it off."""
    keep_layers: str | None = None
    """Keep only these transformer layers of MODEL: a number of them, evenly spaced, or their numbers, as in 2,4,6."""
    query_prompt: Prompt | None = None
    """Text before each query (anchor, premise), or a prompt's name; '' for no prompt; by default the model's own."""
    document_prompt: Prompt | None = None
    """Text before each document (positive, negative, hypothesis), or a prompt's name; by default the model's own."""
    prompt: Prompt | None = None
    """Text before all other texts (single sentences, scored pairs), or a prompt's name; by default the model's own."""
    lora_rank: Width | None = None
    """Train low-rank adapters of this rank in place of all weights, and merge them at the end (needs nearfar[lora])."""
    lora_alpha: Positive = 16.0
    """Scale of the adapters: LORA_ALPHA / LORA_RANK."""
    matryoshka: tuple[Width, ...] | None = None
    """Train the first dimensions to be embeddings of their own: the loss at each of these widths, summed, as in
    384,256,128,64 (Kusupati et al. 2022). By default only the full width."""
    matryoshka_weights: tuple[Positive, ...] | None = None
    """Weight of the loss at each width of MATRYOSHKA; by default 1 each."""
    sentences: tuple[File, ...] = ()
    """Sentences without labels, to train on beside DATA: text files with one a line, or tables; own is the texts of
    DATA itself, vocabulary texts of random words of MODEL's vocabulary. They make a second objective: sg-opt1 with the
    token embeddings as its guide, in batches of 64."""
    second: File | None = None
    """A second objective on the same encoder: a method's name, or a TOML file with its method, data and settings."""
    second_weight: Weight = 0.1
    """Weight of the second objective's loss; the first has weight 1."""
    evaluate_on: File | None = None
    """Dev set, scored pairs: stsb:dev, microworld:dev, or a file with score, sentence1, sentence2. By default rows of
    DATA are held out: half choose the best step, half test the result."""
    hold_out: HoldOut | None = None
    """Hold out this share (0 to 0.5) or number of anchors; 0 for none. By default 5%, at least 200 and at most 1,000;
    none with EVALUATE_ON, and none of fewer than 400 anchors (1,000 labelled texts), which further trainings without
    one of five folds each test."""

    def __post_init__(self) -> None:
        """Check values, and those that exclude each other."""
        super().__post_init__()
        if self.evaluate_on is not None and self.hold_out:
            raise NearfarError(
                "--evaluate-on and --hold-out: held-out rows would choose the best step, and so would --evaluate-on; "
                "give one."
            )
        if self.start_weight and self.lora_rank is not None:
            raise NearfarError(
                f"--start-weight {self.start_weight:g} and --lora-rank: adapters have no weights before training to "
                "average with. Leave one out, or average the finished model with MODEL by nearfar soup."
            )
        if self.sentences and self.second is not None:
            raise NearfarError("--sentences and --second: there can be one second objective; give one of the two.")
        widths, weights = self.matryoshka, self.matryoshka_weights
        if widths is not None and (not widths or len(set(widths)) < len(widths)):
            raise NearfarError(f"--matryoshka {' '.join(map(str, widths))}: give one or more widths, each once.")
        if weights is not None and len(weights) != len(widths or ()):
            raise NearfarError(
                f"--matryoshka-weights {' '.join(f'{weight:g}' for weight in weights)}: must be one weight for each "
                f"width of --matryoshka ({' '.join(map(str, widths)) if widths else 'which is not given'})."
            )
