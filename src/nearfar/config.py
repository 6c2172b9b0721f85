"""Every setting of every command, once: these frozen dataclasses are the flags, the TOML keys and the Python API.

A run is ``TrainConfig`` plus what its method adds; each method is one class here, and its defaults are the paper's.
The text below a field is its ``--help``.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar

from nearfar.types import NearfarError

Cap = int | Literal["all"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """What every training run has: the encoder, the rows, the optimiser, and how it is watched."""

    output: str
    """Run folder to create: config, metrics, checkpoint, and the trained model in OUTPUT/model."""
    model: str = "sentence-transformers/all-MiniLM-L6-v2"
    """Encoder to start from: a folder, or owner/name on the hub."""
    pooling: str | None = None
    """cls, mean, mean_without_cls, max, first_last or layer:K; by default the model's own."""
    max_length: int | None = None
    """Tokens kept of a sentence; by default the model's own limit."""
    batch_size: int = 64
    """Rows in a batch."""
    epochs: int = 1
    """Passes over the rows."""
    max_steps: int | None = None
    """Stop after so many optimiser steps, however many epochs that is; the schedule ends there too."""
    accumulate: int = 1
    """Batches whose gradients are averaged into one step."""
    learning_rate: float = 2e-5
    """Peak of the learning rate."""
    head_learning_rate: float | None = None
    """Peak for the classifier on top of the encoder, which starts from nothing; by default the same."""
    weight_decay: float = 0.0
    """AdamW's, on matrices (not on biases and LayerNorm)."""
    warmup: float = 0.1
    """Share of the steps over which the learning rate rises."""
    schedule: Literal["linear", "constant"] = "linear"
    """After the warm-up: falling to 0, or staying."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this norm; 0 leaves them."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 computes the encoder in bfloat16, on weights that stay float32."""
    device: str | None = None
    """cpu, cuda, cuda:1 ...; by default CUDA where there is one."""
    seed: int = 1
    """Of the batches' order, dropout, and the classifier's start."""
    evaluate_on: str = "stsb:dev"
    """Scored pairs that choose the best step: stsb:dev, microworld:dev, or a file with score, sentence1, sentence2."""
    evaluate_every: int = 100
    """Steps between evaluations; the last step is always evaluated."""
    patience: int | None = None
    """Stop after so many evaluations in a row without a new best; by default never."""
    keep: Literal["best", "last"] = "best"
    """Which weights become OUTPUT/model: the best on EVALUATE_ON, or the last step's."""
    checkpoint_every: int = 200
    """Steps between checkpoints; a run killed at any moment resumes from the latest and ends bit-identical."""

    def __post_init__(self) -> None:
        """Refuse values that no run can use, before anything is loaded."""
        at_least = {"batch_size": 1, "epochs": 1, "max_steps": 1, "accumulate": 1, "evaluate_every": 1, "patience": 1}
        at_least |= {"checkpoint_every": 1, "max_length": 3, "max_positives": 1, "max_negatives": 1}
        for name, smallest in at_least.items():
            value = getattr(self, name, None)
            if isinstance(value, int) and value < smallest:
                raise NearfarError(f"{flag(name)} {value}: must be at least {smallest}.")
        for name in ("learning_rate", "head_learning_rate", "temperature"):
            value = getattr(self, name, None)
            if value is not None and not 0 < value < float("inf"):
                raise NearfarError(f"{flag(name)} {value}: must be above 0.")
        for name in ("weight_decay", "max_grad_norm"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise NearfarError(f"{flag(name)} {getattr(self, name)}: must be 0 or above.")
        for name in ("warmup", "scl_weight"):
            if not 0 <= getattr(self, name, 0) <= 1:
                raise NearfarError(f"{flag(name)} {getattr(self, name)}: must be between 0 and 1.")


@dataclass(frozen=True, kw_only=True)
class SbertConfig(TrainConfig):
    """sbert: softmax cross-entropy over (u, v, |u - v|) on NLI rows (Reimers & Gurevych 2019, as run by Liao 2021)."""

    data: tuple[str, ...] = ("snli",)
    """NLI rows: snli, mnli, snli+mnli, snli:dev+test, microworld, or files; several are joined."""
    premise_column: str = "premise"
    """Column of the premise, in files."""
    hypothesis_column: str = "hypothesis"
    """Column of the hypothesis, in files."""
    label_column: str = "label"
    """Column of the label, in files: entailment, neutral, contradiction, or 0, 1, 2."""
    pooling: str | None = "mean_without_cls"
    """cls, mean, mean_without_cls (Liao 2021, section 3), max, first_last or layer:K; 'own' for the model's own."""
    order: Literal["premise", "file", "rows"] = "premise"
    """premise: shuffled, all rows of a premise in one batch; file: as they come (the authors' code); rows: shuffled."""
    head_layers: Literal[1, 2] = 2
    """Linear layers of the classifier: 2 in Liao 2021 (3h, 3h/2, 3; none between), 1 in SBERT."""


@dataclass(frozen=True, kw_only=True)
class SclConfig(SbertConfig):
    """scl: (1 - lambda) cross-entropy + lambda premise-anchored supervised contrastive loss (Liao 2021, eq. 2, 3)."""

    scl_weight: float = 0.3
    """Lambda, the weight of the contrastive loss: best on STS 0.3, on transfer tasks 0.1 (Liao 2021, tables 2, 3)."""
    temperature: float = 1.0
    """Divides the similarities (Liao 2021, section 4.4); with cosine, 0.05 is usual."""
    similarity: Literal["dot", "cosine"] = "dot"
    """dot, as the authors' code has it, or cosine."""
    max_positives: Cap = "all"
    """Entailed hypotheses of an anchor's premise to use, or all."""
    max_negatives: Cap = "all"
    """Other hypotheses of the batch to use, or all."""


@dataclass(frozen=True, kw_only=True)
class AugmentConfig(SbertConfig):
    """augment: scl's pairs as extra labelled rows for cross-entropy alone (the 3p3n and allpalln rows of Liao 2021)."""

    max_positives: Cap = 3
    """Entailed hypotheses of an anchor's premise to use, or all (allpalln)."""
    max_negatives: Cap = 3
    """Other hypotheses of the batch to use, or all (allpalln)."""


METHODS: dict[str, type[TrainConfig]] = {"sbert": SbertConfig, "scl": SclConfig, "augment": AugmentConfig}

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


Config = TypeVar("Config", TrainConfig, EvaluateConfig, CompareConfig, EncodeConfig)


def flag(name: str) -> str:
    """The command-line flag of a field."""
    return "--" + name.replace("_", "-")


def method_of(config: TrainConfig) -> str:
    """The method's name in METHODS."""
    return next(name for name, kind in METHODS.items() if type(config) is kind)


def nearest(name: str, known: Mapping[str, object] | list[str], *, what: str) -> str:
    """A sentence that refuses ``name`` and offers the nearest known one."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}."
    return f"no {what} is called {name!r}. {hint}"


def load_toml(file: str | Path) -> tuple[type[TrainConfig], dict[str, Any]]:
    """Method class and values of a training config file; the values are checked by :func:`build`.

    Raises:
        NearfarError: no such file, no TOML, no or an unknown ``method``.
    """
    try:
        values = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise NearfarError(f"{file}: cannot be read as TOML: {error}") from error
    method = values.pop("method", None)
    if method is None:
        raise NearfarError(f"{file}: lacks the key 'method' (one of {', '.join(METHODS)}).")
    if method not in METHODS:
        raise NearfarError(f"{file}: {nearest(str(method), METHODS, what='method')}")
    return METHODS[method], values


def build(kind: type[Config], values: Mapping[str, Any], *, source: str | Path) -> Config:
    """A config from plain values, types checked.

    Raises:
        NearfarError: an unknown key (with the nearest valid one), a value of the wrong type, or a key that is missing.
    """
    check_keys(kind, values, source=source)
    missing = [field.name for field in fields(kind) if field.default is MISSING and field.name not in values]
    if missing:
        raise NearfarError(f"{source}: lacks {', '.join(missing)}.")
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        raise NearfarError(f"{source}: {first['loc'][0]} = {first['input']!r}: {first['msg']}.") from error


def check_keys(kind: type[Config], values: Mapping[str, Any], *, source: str | Path) -> None:
    """Refuse keys that ``kind`` does not have."""
    names = [field.name for field in fields(kind)]
    for key in values:
        if key not in names:
            raise NearfarError(f"{source}: {nearest(key, names, what='key')}")


def dump_toml(config: TrainConfig) -> str:
    """The resolved config as TOML that :func:`load_toml` reads back; settings left open (None) are left out."""
    import tomli_w

    values = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
    return tomli_w.dumps({"method": method_of(config), **{k: v for k, v in values.items() if v is not None}})
