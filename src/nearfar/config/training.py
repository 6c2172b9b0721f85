"""What every run can be told, whatever it trains, and what every training of an encoder can be told."""

from dataclasses import dataclass
from typing import Literal

from nearfar.config.bounds import (
    BelowOne,
    Count,
    Epochs,
    File,
    Fraction,
    LearningRate,
    Length,
    Output,
    Positive,
    Rows,
    Seed,
    Steps,
    Weight,
    Width,
)
from nearfar.config.values import InvalidValueError, Settings, field_types, format_text
from nearfar.types import NearfarError, Precision


@dataclass(frozen=True, kw_only=True)
class RunConfig(Settings):
    """What every run has: the encoder, the rows, the optimiser, and how it is watched."""

    output: Output
    """Run folder to create: config, metrics, checkpoint, and the trained model in OUTPUT/model."""
    model: File = "sentence-transformers/all-MiniLM-L6-v2"
    """Encoder to start from: a folder, or owner/name on the hub."""
    max_length: Length | None = None
    """Tokens kept of a sentence, in training and ever after; by default the model's own limit."""
    train_max_length: Length | None = None
    """Tokens kept of a sentence in training only; by default MAX_LENGTH."""
    limit: Rows | None = None
    """Use only the first so many rows of the data."""
    batch_size: Count = 64
    """Rows in a batch, of each process where there are several; the default shrinks to the rows there are."""
    micro_batch: Count | None = None
    """Encode so many texts at a time, and twice: memory grows far less with the batch; the gradient is the same."""
    micro_batch_tokens: Steps | None = None
    """In place of MICRO_BATCH: encode at a time as many texts as have so many tokens between them."""
    epochs: Epochs = 1
    """Passes over the rows."""
    max_steps: Steps | None = None
    """Stop after so many optimiser steps, however many epochs that is; the schedule ends there too."""
    accumulate: Count = 1
    """Batches whose gradients are averaged into one step."""
    learning_rate: LearningRate = 2e-5
    """Peak of the learning rate."""
    head_learning_rate: LearningRate | None = None
    """Peak for the heads on top of the encoder, which start from nothing; by default the same."""
    weight_decay: Weight = 0.0
    """AdamW's, on matrices (not on biases and LayerNorm)."""
    beta2: BelowOne = 0.999
    """AdamW's second beta; the first is 0.9."""
    warmup: Fraction = 0.1
    """Share of the steps over which the learning rate rises."""
    schedule: Literal["linear", "constant"] = "linear"
    """After the warm-up: falling to 0, or staying."""
    max_grad_norm: Weight = 1.0
    """Gradients are clipped to this norm; 0 leaves them."""
    precision: Precision = "auto"
    """auto computes encoder and heads in bf16 (bfloat16, on weights that stay float32) where that is native, else in
    fp32."""
    device: str | None = None
    """cpu, cuda, cuda:1 ...; by default CUDA where there is one."""
    seed: Seed = 1
    """Of the batches' order, dropout, and the heads' start."""
    evaluate_every: Steps = 100
    """Steps between evaluations; the last step is always evaluated."""
    patience: Steps | None = None
    """Stop after so many evaluations in a row without a new best; by default never."""
    keep: Literal["best", "last"] = "best"
    """Which weights become OUTPUT/model: those of the best evaluation, or the last step's."""
    checkpoint_every: Steps = 200
    """Steps between checkpoints; a run killed at any moment resumes from the latest and ends bit-identical."""

    def __post_init__(self) -> None:
        """Refuse values that no run can use, before anything is loaded."""
        super().__post_init__()
        if self.micro_batch is not None and self.micro_batch_tokens is not None:
            raise NearfarError(
                "--micro-batch and --micro-batch-tokens: each says how much is encoded at a time; give one."
            )


@dataclass(frozen=True, kw_only=True)
class TrainConfig(RunConfig):
    """What every training of a sentence encoder has beside: its pooling, and the pairs that it is watched on."""

    pooling: str | None = None
    """cls, mean, mean_without_cls, max, first_last, layer:K or layer:K:max; by default the model's own."""
    lora_rank: Width | None = None
    """Train low-rank adapters of this rank in place of all weights, and merge them at the end (needs nearfar[lora])."""
    lora_alpha: Positive = 16.0
    """The adapters are scaled by LORA_ALPHA / LORA_RANK."""
    second: File | None = None
    """A second objective on the same encoder: a method's name, or a TOML file with its method, data and settings."""
    second_weight: Weight = 0.1
    """What the second objective's loss is multiplied by; the first's counts once."""
    evaluate_on: File = "stsb:dev"
    """Scored pairs that choose the best step: stsb:dev, microworld:dev, or a file with score, sentence1, sentence2."""


SEEDS = 1000
"""The most runs of a group."""


def parse_seeds(given: str) -> tuple[int, ...]:
    """``1,2,3`` -> (1, 2, 3).

    Raises:
        NearfarError: anything but whole numbers that may be seeds, each once.
    """
    kind = field_types(RunConfig)["seed"]
    parts = [part.strip() for part in given.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise NearfarError(f"--seeds {format_text(given)}: write whole numbers with commas between, as in 1,2,3.")
    if len(parts) > SEEDS:
        raise NearfarError(f"--seeds {format_text(given)}: must be at most {SEEDS:,} seeds.")
    try:
        seeds = tuple(kind.from_text(part) for part in parts)
    except InvalidValueError as error:
        raise NearfarError(f"--seeds {format_text(given)}: each {error}.") from None
    if len(set(seeds)) < len(seeds):
        raise NearfarError(f"--seeds {format_text(given)}: write each seed once.")
    return seeds
