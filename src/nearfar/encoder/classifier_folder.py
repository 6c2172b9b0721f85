"""The folder of a classifier: its model, its labels, and the function that gives the logits of [CLS]."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.encoder import encoder_folder
from nearfar.encoder.exported import GraphBackbone, graph_format, refuse_graph
from nearfar.encoder.folder_checks import LABELS, quoted, read_object, transformer_settings
from nearfar.encoder.pretrained import (
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    check_complete,
    check_vocabulary,
    load_config,
    load_model,
    load_tokenizer,
    opening,
)
from nearfar.encoder.token_batches import evaluating
from nearfar.types import NearfarError

FAMILIES = ("BERT", "RoBERTa", "XLM-R", "CamemBERT", "MPNet", "ELECTRA", "DistilBERT", "DeBERTa", "ModernBERT")
ClsHead: TypeAlias = Callable[[Any, Tensor], Tensor]


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
    label_names: Sequence[str] | None,
    regression: bool,
    dropout: float | None,
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
    lower_case = transformer_settings(inner).lower_case
    if (graph := graph_format(inner)) is not None:
        exported = GraphBackbone(inner, graph, classifier=True)
        tokenizer = load_tokenizer(inner)
        if _choose_labels(folder, exported.labels, label_names, regression) != exported.labels or dropout is not None:
            refuse_graph(exported, "trained")
        length = encoder_folder.choose_length(inner, exported, tokenizer, max_length)
        return ClassifierComponents(exported, tokenizer, exported.labels, length, lambda _, logits: logits[:, 0], False)
    config = load_config(inner, kind="sequence classifier")
    saved = _saved_labels(inner / "config.json", config)
    names = _choose_labels(folder, saved, label_names, regression)
    if names != saved:
        _set_labels(config, names)
    if dropout is not None:
        _set_dropout(config, dropout)
    model = _load(inner, config, has_head=names == saved)
    tokenizer = load_tokenizer(inner)
    check_vocabulary(inner, tokenizer, backbone_of(model))
    length = encoder_folder.choose_length(inner, backbone_of(model), tokenizer, max_length)
    with opening(inner / "config.json"):
        head = find_head(model)
    return ClassifierComponents(model, tokenizer, names, length, head, lower_case)


def backbone_of(model: PreTrainedModel) -> PreTrainedModel:
    """The encoder that the classifier ``model`` is built on."""
    backbone = model.base_model
    assert isinstance(backbone, PreTrainedModel)
    return backbone


def _saved_labels(file: Path, config: PretrainedConfig) -> tuple[str, ...] | None:
    """Labels of the saved head; () for regression; None if the folder has no head that nearfar supports.

    Raises:
        NearfarError: the folder has a supported head with invalid labels.
    """
    kinds = config.architectures or []
    if not any(kind.endswith("ForSequenceClassification") for kind in kinds):
        return None
    if config.problem_type == "multi_label_classification":
        return None
    names = _read_labels(file)
    if config.problem_type == "regression" or len(names) == 1:
        return () if len(names) == 1 else None
    return names


def _read_labels(file: Path) -> tuple[str, ...]:
    """The labels of config.json by number; LABEL_0, LABEL_1 and so on (two by default) if it has no names."""
    settings = read_object(file)
    id2label, count = settings.get("id2label"), settings.get("num_labels")
    if id2label is None:
        return tuple(f"LABEL_{number}" for number in range(2 if count is None else count))
    numbers = {str(number) for number in range(len(id2label))} if isinstance(id2label, dict) else set()
    labels = list(id2label.values()) if isinstance(id2label, dict) else []
    if not labels or id2label.keys() != numbers or not all(isinstance(name, str) for name in labels):
        raise NearfarError(f"{file}: {LABELS}")
    if len(set(labels)) < len(labels):
        raise NearfarError(f"{file}: id2label gives two labels the same name.")
    if count is not None and count != len(labels):
        raise NearfarError(f"{file}: num_labels is {quoted(count)}, but id2label names {len(labels)} labels.")
    return tuple(id2label[str(number)] for number in range(len(labels)))


def _choose_labels(
    folder: Path, saved: tuple[str, ...] | None, label_names: Sequence[str] | None, regression: bool
) -> tuple[str, ...]:
    """The requested labels, else the saved ones; () for regression."""
    if regression and label_names:
        raise NearfarError("a classifier has label_names or is for regression, not both.")
    if isinstance(label_names, str):
        raise NearfarError(f"label_names takes a list of names, not the one string {label_names!r}.")
    if regression or label_names is not None:
        names = tuple(label_names or ())
        if len(names) == 1 or len(set(names)) < len(names):
            raise NearfarError(f"label_names {', '.join(names)}: must be two or more different names.")
        return names
    if saved is None:
        raise NearfarError(f"{folder}: holds no classifier; set label_names or regression.")
    return saved


def _set_labels(config: PretrainedConfig, names: tuple[str, ...]) -> None:
    config.id2label = dict(enumerate(names or ("score",)))
    config.label2id = {name: number for number, name in config.id2label.items()}
    config.problem_type = "single_label_classification" if names else "regression"
    if hasattr(config, "classifier_pooling"):  # ModernBERT's, where it may be "mean"
        config.classifier_pooling = "cls"


def _set_dropout(config: PretrainedConfig, dropout: float) -> None:
    """Set all dropout probabilities of the config: of embeddings, hidden states, attention and the classifier."""
    if not 0 <= dropout < 1:
        raise NearfarError(f"dropout {dropout}: must be in [0, 1).")
    for name in config.to_dict():
        if "dropout" in name:
            setattr(config, name, float(dropout))


def _load(folder: Path, config: PretrainedConfig, *, has_head: bool) -> PreTrainedModel:
    model, info = load_model(folder, config, kind="sequence classifier", dtype=torch.float32)
    mismatched = {str(key if isinstance(key, str) else key[0]) for key in info["mismatched_keys"]}
    absent = {*map(str, info["missing_keys"]), *mismatched}
    prefix = model.base_model_prefix
    check_complete(
        folder,
        info,
        lambda key: has_head or (key.startswith(f"{prefix}.") and not key.startswith(f"{prefix}.pooler.")),
    )
    head_weights = {name for name, _ in model.named_parameters() if not name.startswith(f"{prefix}.")}
    if not has_head and head_weights - absent:  # loaded from a head for other labels or another task
        fresh = type(model)(config)
        for name, module in fresh.named_children():
            if name != prefix:
                setattr(model, name, module)
    return model


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
        first = backbone_of(model)(**arguments).last_hidden_state[:, :1]
        head = next((head for head in HEAD_FUNCTIONS if _reproduces_logits(head, model, first, expected)), None)
    if not torch.isfinite(expected).all():
        raise NearfarError(
            f"{model.config.name_or_path}: its logits are not finite: the weights contain NaN, infinity or too large "
            "numbers. Copy the model again."
        )
    if head is None:
        raise NearfarError(
            f"{type(model).__name__}: its head needs more than [CLS]. Supported architectures: {', '.join(FAMILIES)}."
        )
    return head


def _reproduces_logits(
    head: ClsHead, model: PreTrainedModel, first: Tensor, expected: Float[Tensor, "batch classes"]
) -> bool:
    try:
        logits = head(model, first)
    except (AttributeError, TypeError, IndexError, RuntimeError):  # the head of another architecture
        return False
    return logits.shape == expected.shape and bool((logits - expected).abs().max() <= 1e-4 * expected.abs().max())


HEAD_FUNCTIONS: tuple[ClsHead, ...] = (
    lambda model, first: model.classifier(model.dropout(model.base_model.pooler(first))),  # BERT
    lambda model, first: model.classifier(first),  # RoBERTa, XLM-R, CamemBERT, MPNet, ELECTRA
    lambda model, first: model.classifier(model.dropout(model.pre_classifier(first[:, 0]).relu())),  # DistilBERT
    lambda model, first: model.classifier(model.dropout(model.pooler(first))),  # DeBERTa
    lambda model, first: model.classifier(model.drop(model.head(first[:, 0]))),  # ModernBERT, classifier_pooling "cls"
)
"""Ways of architectures to compute logits from the model and the [CLS] states [batch, 1, dim]."""
