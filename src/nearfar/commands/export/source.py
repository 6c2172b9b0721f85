"""The model to export: its outputs as nearfar computes them, and the module from which its graph is traced."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nearfar.config.export import ExportConfig
from nearfar.encoder import encoder_folder
from nearfar.encoder.classifier import Classifier, Item
from nearfar.encoder.classifier_folder import backbone_of, read_classifier
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.folder_checks import read_object
from nearfar.encoder.padded_graph import ClassifierGraph, EncoderGraph
from nearfar.encoder.pretrained import opening
from nearfar.encoder.prompts import InferenceSettings
from nearfar.encoder.ragged import uses_token_types
from nearfar.types import NearfarError, Precision

if TYPE_CHECKING:
    from nearfar.encoder.transformers_types import PreTrainedTokenizerBase

Outputs = NDArray[np.float32]
"""Embeddings or logits [items, width]."""
EMBEDDING, LOGITS = "sentence_embedding", "logits"
IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"


@dataclass(frozen=True, kw_only=True)
class Source:
    """An encoder or a classifier to export."""

    graph: nn.Module
    """Token ids, mask (and token types) -> outputs."""
    compute: Callable[[Sequence[Item], Precision], Outputs]
    """The outputs of items as nearfar computes them. Items of an encoder are single texts, without the prompt."""
    config: Any
    """transformers' config of the model."""
    tokenizer: "PreTrainedTokenizerBase"
    inputs: tuple[str, ...]
    output: str
    width: int
    max_length: int
    prompt: str = ""
    """Put before each text before it is tokenised."""
    pooling: str | None = None
    normalized: bool | None = None
    labels: tuple[str, ...] | None = None
    """None for an encoder; empty for regression."""
    inference: InferenceSettings | None = None
    """Of an encoder: its prompts and similarity."""


def open_source(folder: Path, config: ExportConfig) -> Source:
    """Open the model in a folder, in fp32 on the CPU.

    Raises:
        NearfarError: a model that :meth:`nearfar.Encoder.from_pretrained` or
            :meth:`nearfar.Classifier.from_pretrained` refuses; a pooling for a classifier; a pooling that leaves out
            the tokens of prompts.
    """
    if is_classifier(folder):
        if config.pooling is not None:
            raise NearfarError(f"--pooling {config.pooling}: {folder} is a classifier, whose head pools.")
        return _open_classifier(folder, config)
    return _open_encoder(folder, config)


def is_classifier(folder: Path) -> bool:
    """Whether a folder holds a sequence classifier of transformers."""
    if (folder / "modules.json").exists() or not (folder / "config.json").is_file():
        return False
    kinds = read_object(folder / "config.json").get("architectures")
    return isinstance(kinds, list) and any(str(kind).endswith("ForSequenceClassification") for kind in kinds)


def _open_encoder(folder: Path, config: ExportConfig) -> Source:
    encoder = Encoder.from_pretrained(folder, pooling=config.pooling, max_length=config.max_length, device="cpu")
    with opening(folder):
        parts = encoder_folder.read(folder, dtype=torch.float32, pooling=config.pooling)
    if not parts.inference.include_prompt:
        raise NearfarError(
            f"{folder}: its Pooling module leaves out the tokens of prompts (include_prompt false), whose number is "
            "not an input of the graph, so it cannot be exported."
        )

    def compute(items: Sequence[Item], precision: Precision) -> Outputs:
        return encoder.encode([text for (text,) in items], precision=precision)

    return Source(
        graph=EncoderGraph(parts),
        compute=compute,
        config=parts.backbone.config,
        tokenizer=parts.tokenizer,
        inputs=(IDS, MASK),
        output=EMBEDDING,
        width=encoder.dim,
        max_length=encoder.max_length,
        prompt=encoder.resolve_prompt(),
        pooling=encoder.pooling,
        normalized=encoder.normalizes,
        inference=parts.inference,
    )


def _open_classifier(folder: Path, config: ExportConfig) -> Source:
    classifier = Classifier.from_pretrained(folder, max_length=config.max_length, device="cpu")
    with opening(folder):
        parts = read_classifier(folder, label_names=None, regression=False, dropout=None)

    def compute(items: Sequence[Item], precision: Precision) -> Outputs:
        return classifier.predict(items, precision=precision)

    types = (TYPES,) if uses_token_types(backbone_of(parts.model)) else ()
    return Source(
        graph=ClassifierGraph(parts.model),
        compute=compute,
        config=parts.model.config,
        tokenizer=parts.tokenizer,
        inputs=(IDS, MASK, *types),
        output=LOGITS,
        width=max(1, len(classifier.label_names)),
        max_length=classifier.max_length,
        labels=classifier.label_names,
    )
