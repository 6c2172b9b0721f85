"""What every run can be told, whatever it trains, and what every training of an encoder can be told."""

from dataclasses import dataclass
from typing import Literal

from nearfar.types import NearfarError


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What every run has: the encoder, the rows, the optimiser, and how it is watched."""

    output: str
    """Run folder to create: config, metrics, checkpoint, and the trained model in OUTPUT/model."""
    model: str = "sentence-transformers/all-MiniLM-L6-v2"
    """Encoder to start from: a folder, or owner/name on the hub."""
    max_length: int | None = None
    """Tokens kept of a sentence, in training and ever after; by default the model's own limit."""
    train_max_length: int | None = None
    """Tokens kept of a sentence in training only; by default MAX_LENGTH."""
    limit: int | None = None
    """Use only the first so many rows of the data."""
    batch_size: int = 64
    """Rows in a batch, of each process where there are several; the default shrinks to the rows there are."""
    micro_batch: int | None = None
    """Encode so many texts at a time, and twice: memory grows far less with the batch; the gradient is the same."""
    micro_batch_tokens: int | None = None
    """In place of MICRO_BATCH: encode at a time as many texts as have so many tokens between them."""
    epochs: int = 1
    """Passes over the rows."""
    max_steps: int | None = None
    """Stop after so many optimiser steps, however many epochs that is; the schedule ends there too."""
    accumulate: int = 1
    """Batches whose gradients are averaged into one step."""
    learning_rate: float = 2e-5
    """Peak of the learning rate."""
    head_learning_rate: float | None = None
    """Peak for the heads on top of the encoder, which start from nothing; by default the same."""
    weight_decay: float = 0.0
    """AdamW's, on matrices (not on biases and LayerNorm)."""
    beta2: float = 0.999
    """AdamW's second beta; the first is 0.9."""
    warmup: float = 0.1
    """Share of the steps over which the learning rate rises."""
    schedule: Literal["linear", "constant"] = "linear"
    """After the warm-up: falling to 0, or staying."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this norm; 0 leaves them."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 computes encoder and heads in bfloat16, on weights that stay float32."""
    device: str | None = None
    """cpu, cuda, cuda:1 ...; by default CUDA where there is one."""
    seed: int = 1
    """Of the batches' order, dropout, and the heads' start."""
    evaluate_every: int = 100
    """Steps between evaluations; the last step is always evaluated."""
    patience: int | None = None
    """Stop after so many evaluations in a row without a new best; by default never."""
    keep: Literal["best", "last"] = "best"
    """Which weights become OUTPUT/model: those of the best evaluation, or the last step's."""
    checkpoint_every: int = 200
    """Steps between checkpoints; a run killed at any moment resumes from the latest and ends bit-identical."""

    def __post_init__(self) -> None:
        """Refuse values that no run can use, before anything is loaded."""
        at_least = {"batch_size": 1, "epochs": 1, "max_steps": 1, "accumulate": 1, "evaluate_every": 1, "patience": 1}
        at_least |= {"checkpoint_every": 1, "max_length": 3, "max_positives": 1, "max_negatives": 1, "limit": 1}
        at_least |= {"micro_batch": 1, "micro_batch_tokens": 1, "train_max_length": 3, "lora_rank": 1, "projection": 1}
        for name, smallest in at_least.items():
            value = getattr(self, name, None)
            if isinstance(value, int) and value < smallest:
                raise NearfarError(f"{flag(name)} {value}: must be at least {smallest}.")
        if self.micro_batch is not None and self.micro_batch_tokens is not None:
            raise NearfarError(
                "--micro-batch and --micro-batch-tokens: each says how much is encoded at a time; give one."
            )
        for name in ("learning_rate", "head_learning_rate", "temperature", "lora_alpha"):
            value = getattr(self, name, None)
            if value is not None and not 0 < value < float("inf"):
                raise NearfarError(f"{flag(name)} {value}: must be above 0.")
        for name in ("weight_decay", "max_grad_norm", "second_weight", "drift_weight", "mlm_weight"):
            if not 0 <= getattr(self, name, 0) < float("inf"):
                raise NearfarError(f"{flag(name)} {getattr(self, name)}: must be 0 or above.")
        for name in ("warmup", "scl_weight", "beta2", "mlm_probability"):
            if not 0 <= getattr(self, name, 0) <= 1:
                raise NearfarError(f"{flag(name)} {getattr(self, name)}: must be between 0 and 1.")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(RunConfig):
    """What every training of a sentence encoder has beside: its pooling, and the pairs that it is watched on."""

    pooling: str | None = None
    """cls, mean, mean_without_cls, max, first_last, layer:K or layer:K:max; by default the model's own."""
    lora_rank: int | None = None
    """Train low-rank adapters of this rank in place of all weights, and merge them at the end (needs nearfar[lora])."""
    lora_alpha: float = 16.0
    """The adapters are scaled by LORA_ALPHA / LORA_RANK."""
    second: str | None = None
    """A second objective on the same encoder: a method's name, or a TOML file with its method, data and settings."""
    second_weight: float = 0.1
    """What the second objective's loss is multiplied by; the first's counts once."""
    evaluate_on: str = "stsb:dev"
    """Scored pairs that choose the best step: stsb:dev, microworld:dev, or a file with score, sentence1, sentence2."""


def flag(name: str) -> str:
    """The command-line flag of a field."""
    return "--" + name.replace("_", "-")
