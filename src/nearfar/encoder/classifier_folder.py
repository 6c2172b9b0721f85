"""Reads the folder of a classifier: its labels, its backbone, and a head that is there or new."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor

from nearfar.encoder import encoder_folder, pretrained
from nearfar.encoder.dropout import evaluating, set_dropout
from nearfar.encoder.exported import GraphBackbone, graph_format, refuse_graph
from nearfar.encoder.folder_checks import transformer_settings
from nearfar.encoder.pretrained import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, opening
from nearfar.types import NearfarError

FAMILIES = ("BERT", "RoBERTa", "XLM-R", "CamemBERT", "MPNet", "ELECTRA", "DistilBERT", "DeBERTa", "ModernBERT")

ClsHead: TypeAlias = Callable[[Any, Tensor], Tensor]
HEAD_FUNCTIONS: tuple[ClsHead, ...] = (
    lambda model, first: model.classifier(model.dropout(model.base_model.pooler(first))),  # BERT
    lambda model, first: model.classifier(first),  # RoBERTa, XLM-R, CamemBERT, MPNet, ELECTRA
    lambda model, first: model.classifier(model.dropout(model.pre_classifier(first[:, 0]).relu())),  # DistilBERT
    lambda model, first: model.classifier(model.dropout(model.pooler(first))),  # DeBERTa
    lambda model, first: model.classifier(model.drop(model.head(first[:, 0]))),  # ModernBERT, classifier_pooling "cls"
)
"""Ways of architectures to compute logits from the model and the [CLS] states [batch, 1, dim]."""


class ClassifierComponents(NamedTuple):
    """The parts of a classifier. Empty ``label_names`` mean regression; ``head``: [batch, 1, dim] -> logits.

    ``lower_case``: whether texts are lower-cased before the tokenizer, whatever the folder of the tokenizer says.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    label_names: tuple[str, ...]
    max_length: int
    head: ClsHead
    lower_case: bool


def read_classifier(
    folder: Path,
    *,
    label_names: Sequence[str] | None = None,
    dropout: float | None = None,
    max_length: int | None = None,
) -> ClassifierComponents:
    """Open a classifier, its exported graph, a sentence-transformers folder or a transformers encoder, in float32.

    Missing weights of the head are initialised as the architecture does, by torch's global generator.

    Raises:
        NearfarError: no labels are given and the folder has none; the labels are invalid; weights are missing,
            truncated or of another architecture; the architecture's head needs more than [CLS]; ``max_length`` is over
            the model's limit; an exported graph is to have another head.
    """
    inner = encoder_folder.transformer_folder(folder)
    settings = transformer_settings(inner, classifier=True)
    if (graph := graph_format(inner)) is not None:
        exported = GraphBackbone(inner, graph, classifier=True)
        tokenizer = pretrained.load_tokenizer(inner)
        if _choose_labels(folder, exported.labels, label_names) != exported.labels or dropout is not None:
            refuse_graph(exported, "trained")
        length = encoder_folder.choose_length(inner, settings, exported, tokenizer, max_length)
        return ClassifierComponents(exported, tokenizer, exported.labels, length, lambda _, logits: logits[:, 0], False)
    config = pretrained.load_config(inner, kind="sequence classifier")
    saved = _saved_labels(inner / "config.json", config)
    names = _choose_labels(folder, saved, label_names)
    if names != saved:
        config.id2label = dict(enumerate(names or ("score",)))
        config.label2id = {name: number for number, name in config.id2label.items()}
        config.problem_type = "single_label_classification" if names else "regression"
        if hasattr(config, "classifier_pooling"):  # ModernBERT's, where it may be "mean"
            config.classifier_pooling = "cls"
    model = _load(inner, config, has_head=names == saved)
    if dropout is not None:
        set_dropout(model, dropout)
    tokenizer = pretrained.load_tokenizer(inner)
    backbone = cast(PreTrainedModel, model.base_model)
    pretrained.check_vocabulary(inner, tokenizer, backbone)
    length = encoder_folder.choose_length(inner, settings, backbone, tokenizer, max_length)
    with opening(inner / "config.json"):
        head = find_head(model)
    return ClassifierComponents(model, tokenizer, names, length, head, settings.do_lower_case)


def _saved_labels(file: Path, config: PretrainedConfig) -> tuple[str, ...] | None:
    """Labels of the saved head by number; () for regression; None if the folder has no head that nearfar supports.

    Without names they are LABEL_0, LABEL_1 and so on, two by default.

    Raises:
        NearfarError: the folder has a supported head with invalid labels.
    """
    if not _is_classifier(config) or config.problem_type == "multi_label_classification":
        return None
    numbered: Mapping[int, Any] = dict(cast(Any, config.id2label))
    names: tuple[Any, ...] = tuple(numbered.get(number) for number in range(len(numbered)))
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise NearfarError(f'{file}: id2label must name each label by its number, from "0" on, each differently.')
    if len(names) == 1:
        return ()
    return None if config.problem_type == "regression" else names


def _choose_labels(folder: Path, saved: tuple[str, ...] | None, label_names: Sequence[str] | None) -> tuple[str, ...]:
    """The requested labels, else the saved ones; () for regression."""
    names = saved if label_names is None else tuple(label_names)
    if names is None:
        raise NearfarError(f"{folder}: holds no classifier; set label_names.")
    if isinstance(label_names, str) or len(names) == 1 or len(set(names)) < len(names):
        raise NearfarError(f"label_names {label_names!r}: must be a list of two or more different names.")
    return names


def _load(folder: Path, config: PretrainedConfig, *, has_head: bool) -> PreTrainedModel:
    """The model: with its saved head, or with a new one, and perhaps a new pooler, on a complete backbone."""
    kind = "sequence classifier"
    prefix = f"{pretrained.MODELS[kind]._model_mapping[type(config)].base_model_prefix}."

    def required(name: str) -> bool:
        return has_head or (name.startswith(prefix) and not name.startswith(f"{prefix}pooler."))

    model: PreTrainedModel = pretrained.load_model(folder, config, kind=kind, required=required)
    if not has_head and _is_classifier(config):  # weights of a head for other labels or another task were loaded
        for name, module in type(model)(config).named_children():
            if f"{name}." != prefix:
                setattr(model, name, module)
    return model


def _is_classifier(config: PretrainedConfig) -> bool:
    return any(kind.endswith("ForSequenceClassification") for kind in config.architectures or [])


def find_head(model: PreTrainedModel) -> ClsHead:
    """Find the function that computes logits from the [CLS] states [batch, 1, dim] alone.

    Each of :data:`HEAD_FUNCTIONS` is tried on a few synthetic tokens; the first that gives the model's logits is
    returned.

    Raises:
        NearfarError: none gives the model's logits, or these are not finite.
    """
    ids = torch.arange(5, device=model.device)[None] % model.config.vocab_size
    with evaluating(model), torch.no_grad():
        arguments = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        expected = model(**arguments).logits
        if not torch.isfinite(expected).all():
            raise NearfarError(f"{model.config.name_or_path}: its logits are not finite. Copy the model again.")
        first = model.base_model(**arguments).last_hidden_state[:, :1]
        for head in HEAD_FUNCTIONS:
            with suppress(AttributeError, TypeError, IndexError, RuntimeError):  # the head of another architecture
                logits = head(model, first)
                if logits.shape == expected.shape and (logits - expected).norm() <= 1e-4 * expected.norm():
                    return head
    raise NearfarError(
        f"{type(model).__name__}: its head needs more than [CLS]. Supported architectures: {', '.join(FAMILIES)}."
    )
