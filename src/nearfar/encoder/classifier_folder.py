"""A transformers model for sequence classification: opened from any encoder's folder, and its head run on [CLS].

Model and head are transformers' own classes, so that what is saved is a folder that every tool opens. A folder that
holds a classifier for the labels asked for is opened whole. Any other gives its backbone, a trained pooler included,
and the head starts anew.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.disk import apply_umask
from nearfar.encoder import encoder_folder
from nearfar.encoder.folder_checks import check_vocabulary, read_object
from nearfar.encoder.pretrained import check_complete, load_config, load_model, load_tokenizer, opening, quiet
from nearfar.encoder.transformers_types import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from nearfar.types import NearfarError

FAMILIES = ("BERT", "RoBERTa", "XLM-R", "CamemBERT", "MPNet", "ELECTRA", "DistilBERT", "DeBERTa", "ModernBERT")
ClsHead: TypeAlias = Callable[[Any, Tensor], Tensor]


class ClassifierComponents(NamedTuple):
    """What a classifier is made of. No ``label_names`` is regression; ``head`` takes [batch, 1, dim] to logits."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    label_names: tuple[str, ...]
    max_length: int
    head: ClsHead


def read_classifier(
    folder: Path, *, label_names: Sequence[str] | None, regression: bool, dropout: float | None
) -> ClassifierComponents:
    """Open a classifier, a sentence-transformers folder or a plain transformers encoder, in float32.

    Weights that are missing of the head are drawn by torch's global generator as the family does.

    Raises:
        NearfarError: no labels are given and the folder has none; labels that are none; weights that are missing,
            truncated or of another architecture; a family whose head needs more than [CLS].
    """
    inner = encoder_folder.transformer_folder(folder)
    config = load_config(inner, kind="sequence classifier")
    saved = _saved_labels(inner / "config.json", config)
    names = _wanted_labels(folder, saved, label_names, regression)
    if names != saved:
        _name_labels(config, names)
    if dropout is not None:
        _set_dropout(config, dropout)
    model = _load(inner, config, has_head=names == saved)
    tokenizer = load_tokenizer(inner)
    check_vocabulary(inner, tokenizer, backbone_of(model))
    length = encoder_folder.default_max_length(inner, backbone_of(model), tokenizer)
    with opening(inner / "config.json"):
        head = find_head(model)
    return ClassifierComponents(model, tokenizer, names, length, head)


def write_classifier(folder: Path, parts: ClassifierComponents) -> None:
    """Save model and tokenizer, which remembers ``max_length``, so that transformers' own classes give our logits."""
    limit = parts.tokenizer.model_max_length
    parts.tokenizer.model_max_length = parts.max_length
    try:
        with quiet():
            parts.model.save_pretrained(folder)
            parts.tokenizer.save_pretrained(folder)
    finally:
        parts.tokenizer.model_max_length = limit
    for file in folder.glob("model*.safetensors"):
        apply_umask(file)  # safetensors lets nobody but the owner read what it writes


def backbone_of(model: PreTrainedModel) -> PreTrainedModel:
    """The encoder that the classifier ``model`` is built on."""
    backbone = model.base_model
    assert isinstance(backbone, PreTrainedModel)
    return backbone


def _saved_labels(file: Path, config: PretrainedConfig) -> tuple[str, ...] | None:
    """The labels of the head that the config speaks of: none of regression; None where there is no head of ours.

    Raises:
        NearfarError: it has a head of ours, but no proper labels.
    """
    kinds = config.architectures or []
    if not any(kind.endswith("ForSequenceClassification") for kind in kinds):
        return None
    if config.problem_type == "multi_label_classification":
        return None
    names = _names(file)
    if config.problem_type == "regression" or len(names) == 1:
        return () if len(names) == 1 else None
    return names


def _names(file: Path) -> tuple[str, ...]:
    """The labels of config.json in the order of their numbers; two without names where it names none."""
    settings = read_object(file)
    named, count = settings.get("id2label"), settings.get("num_labels")
    if named is None:
        return tuple(f"LABEL_{number}" for number in range(2 if count is None else count))
    numbers = {str(number) for number in range(len(named))} if isinstance(named, dict) else set()
    labels = list(named.values()) if isinstance(named, dict) else []
    if not labels or named.keys() != numbers or not all(isinstance(name, str) for name in labels):
        raise NearfarError(f'{file}: id2label must name each label by its number, from "0" on, as a string.')
    if len(set(labels)) < len(labels):
        raise NearfarError(f"{file}: id2label gives two labels the same name.")
    if count is not None and count != len(labels):
        raise NearfarError(f"{file}: num_labels is {count!r}, but id2label names {len(labels)} labels.")
    return tuple(named[str(number)] for number in range(len(labels)))


def _wanted_labels(
    folder: Path, saved: tuple[str, ...] | None, label_names: Sequence[str] | None, regression: bool
) -> tuple[str, ...]:
    if regression and label_names:
        raise NearfarError("a classifier has label_names or is for regression, not both.")
    if isinstance(label_names, str):
        raise NearfarError(f"label_names takes a list of names, not the one string {label_names!r}.")
    if regression or label_names is not None:
        names = tuple(label_names or ())
        if len(names) == 1 or len(set(names)) < len(names):
            raise NearfarError(f"label_names {', '.join(names)}: takes two or more different names.")
        return names
    if saved is None:
        raise NearfarError(f"{folder}: holds no classifier, so label_names (or regression) must say what to predict.")
    return saved


def _name_labels(config: PretrainedConfig, names: tuple[str, ...]) -> None:
    config.id2label = dict(enumerate(names or ("score",)))
    config.label2id = {name: number for number, name in config.id2label.items()}
    config.problem_type = "single_label_classification" if names else "regression"
    if hasattr(config, "classifier_pooling"):  # ModernBERT's, where it may be "mean"
        config.classifier_pooling = "cls"


def _set_dropout(config: PretrainedConfig, dropout: float) -> None:
    """Every probability of dropout that the family has: of embeddings, hidden states, attention and the classifier."""
    if not 0 <= dropout < 1:
        raise NearfarError(f"dropout {dropout}: must be in [0, 1).")
    for name in config.to_dict():
        if "dropout" in name:
            setattr(config, name, float(dropout))


def _load(folder: Path, config: PretrainedConfig, *, has_head: bool) -> PreTrainedModel:
    model, info = load_model(folder, config, kind="sequence classifier", dtype=torch.float32)
    misshapen = {str(key if isinstance(key, str) else key[0]) for key in info["mismatched_keys"]}
    absent = {*map(str, info["missing_keys"]), *misshapen}
    prefix = model.base_model_prefix
    check_complete(
        folder,
        info,
        lambda key: has_head or (key.startswith(f"{prefix}.") and not key.startswith(f"{prefix}.pooler.")),
    )
    own = {name for name, _ in model.named_parameters() if not name.startswith(f"{prefix}.")}
    if not has_head and own - absent:  # a head for other labels or another task, under the names of ours
        fresh = type(model)(config)
        for name, module in fresh.named_children():
            if name != prefix:
                setattr(model, name, module)
    return model


def find_head(model: PreTrainedModel) -> ClsHead:
    """How to run the head of ``model`` on the [CLS] states [batch, 1, dim] alone.

    Each way that a family has is tried on a few made-up tokens, and the one that gives the model's own logits is it.

    Raises:
        NearfarError: none does.
    """
    ids = torch.arange(5, device=model.device)[None] % model.config.vocab_size
    was_training = model.training
    model.eval()
    with torch.no_grad():
        arguments = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        expected = model(**arguments).logits
        first = backbone_of(model)(**arguments).last_hidden_state[:, :1]
        found = next((way for way in HEAD_FUNCTIONS if _reproduces_logits(way, model, first, expected)), None)
    model.train(was_training)
    if found is None:
        raise NearfarError(
            f"{type(model).__name__}: its head cannot be run on [CLS] alone. Families that work: {', '.join(FAMILIES)}."
        )
    return found


def _reproduces_logits(
    way: ClsHead, model: PreTrainedModel, first: Tensor, expected: Float[Tensor, "batch classes"]
) -> bool:
    try:
        logits = way(model, first)
    except (AttributeError, TypeError, IndexError, RuntimeError):  # another family's
        return False
    return logits.shape == expected.shape and bool((logits - expected).abs().max() <= 1e-4 * expected.abs().max())


def _with_pooler_of_backbone(model: Any, first: Tensor) -> Tensor:
    """BERT."""
    return model.classifier(model.dropout(model.base_model.pooler(first)))


def _with_classifier_alone(model: Any, first: Tensor) -> Tensor:
    """RoBERTa, XLM-R, CamemBERT, MPNet, ELECTRA."""
    return model.classifier(first)


def _with_pre_classifier(model: Any, first: Tensor) -> Tensor:
    """DistilBERT."""
    return model.classifier(model.dropout(model.pre_classifier(first[:, 0]).relu()))


def _with_own_pooler(model: Any, first: Tensor) -> Tensor:
    """DeBERTa."""
    return model.classifier(model.dropout(model.pooler(first)))


def _with_prediction_head(model: Any, first: Tensor) -> Tensor:
    """ModernBERT, where its config says that it pools by [CLS]."""
    return model.classifier(model.drop(model.head(first[:, 0])))


HEAD_FUNCTIONS: tuple[ClsHead, ...] = (
    _with_pooler_of_backbone,
    _with_classifier_alone,
    _with_pre_classifier,
    _with_own_pooler,
    _with_prediction_head,
)
