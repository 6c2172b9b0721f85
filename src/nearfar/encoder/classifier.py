"""The public Classifier: a text, or a pair in one sequence -> logits, by any BERT-like encoder and a head on [CLS].

Model and head are transformers' own classes for sequence classification, so that any tool can open a saved folder. A
folder with a classifier for the requested labels is loaded completely. From any other folder, only the backbone is
loaded, including a trained pooler, and the head is initialised anew.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor, nn

from nearfar.disk import apply_umask, write_bytes
from nearfar.disk.model_folder import SeenHashes, read_seen, write_seen
from nearfar.encoder import encoder_folder, pretrained
from nearfar.encoder.dropout import evaluating, use_fast_dropout
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.exported import GraphBackbone, graph_format, refuse_graph
from nearfar.encoder.folder_checks import (
    TRANSFORMER_SETTINGS,
    transformer_settings,
    write_json,
)
from nearfar.encoder.pooling import Pooling, pool
from nearfar.encoder.precision import choose_device, resolve
from nearfar.encoder.pretrained import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, opening
from nearfar.encoder.ragged import RaggedBatch, choose_route, hidden_states, uses_token_types
from nearfar.encoder.token_batches import Tokenized, compute_distinct
from nearfar.encoder.weights import locate
from nearfar.types import NearfarError, Precision

Item: TypeAlias = tuple[str, ...]
"""One text, or a pair that is encoded in one sequence with the backbone's separator and token types."""
HEAD_FILE = "nearfar_head.safetensors"
CLS = Pooling("cls", (), "cls")


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


class Classifier(nn.Module):
    """A backbone and its architecture's classification head on [CLS].

    The head is that of transformers (for BERT: pooler, dropout, linear). :meth:`cls` and :meth:`head` are the two parts
    of :meth:`forward`, so that one objective can use the representation and another the logits (Gunel et al. 2021,
    section 3).

    Example:
        >>> from nearfar.encoder.classifier import Classifier
        >>> name = "sentence-transformers/all-MiniLM-L6-v2"
        >>> classifier = Classifier.from_pretrained(name, label_names=("yes", "no"))  # doctest: +SKIP
        >>> classifier.predict([("Does a dog run?", "A dog runs.")]).shape  # doctest: +SKIP
        (1, 2)
    """

    def __init__(self, parts: ClassifierComponents) -> None:
        super().__init__()
        self.model = parts.model
        self.tokenizer = parts.tokenizer
        self.label_names = parts.label_names
        self.max_length = parts.max_length
        self.seen: SeenHashes | None = None
        """Hashes of the texts and pairs that made the model, saved with it; None where they are not known."""
        self._head, self.lower_case = parts.head, parts.lower_case
        self._uses_types = uses_token_types(self.backbone)
        use_fast_dropout(self.model)
        self.route = choose_route(self.backbone)

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path,
        *,
        label_names: Sequence[str] | None = None,
        regression: bool = False,
        dropout: float | None = None,
        max_length: int | None = None,
        device: str | None = None,
    ) -> "Classifier":
        """Open a saved classifier, or add a new head to any encoder, from a folder or by its hub name.

        Weights are found as by :meth:`nearfar.Encoder.from_pretrained` and are float32 whatever dtype the file has. A
        head that was saved for the same labels in the same order is kept. Otherwise a new head is initialised as its
        architecture does, by torch's global generator; a pooler of the encoder is kept.

        Args:
            model: a folder, or ``owner/name`` on the hub: a sentence-transformers model, a transformers encoder, a
                classifier, or a classifier's graph of ``nearfar export``, which its runtime computes on the CPU.
            label_names: names of the classes; by default those of the saved classifier.
            regression: one output and no labels.
            dropout: probability of all dropout in the model; by default the model's own.
            max_length: maximum number of tokens per item, including special tokens; by default the model's limit.
            device: by default CUDA if available, else the CPU.

        Raises:
            NearfarError: the machine has no such device; the weights are not found or damaged; there are fewer than two
                labels; dropout is outside [0, 1); ``max_length`` is over the model's limit; the architecture's head
                needs more than [CLS] (the message lists those that work).
        """
        target = choose_device(device)
        folder = locate(model)
        with opening(folder):
            parts = read_classifier(
                folder, label_names=label_names, regression=regression, dropout=dropout, max_length=max_length
            )
        with opening(folder / "config.json"):
            classifier = cls(parts)
        classifier.seen = read_seen(folder)
        classifier.to(target).eval()
        return classifier

    @property
    def backbone(self) -> PreTrainedModel:
        """The encoder inside the classifier, including BERT's pooler."""
        return cast(PreTrainedModel, self.model.base_model)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.model.device

    def tokenize(self, items: Sequence[Item], *, max_length: int | None = None) -> Tokenized:
        """Items -> token ids, truncated to ``max_length`` tokens or to :attr:`max_length`, whichever is smaller.

        The tokenizer joins the texts of a pair with its separators and, if it has any, token types. Tokens are removed
        from the longer text of a pair first.

        Raises:
            NearfarError: an item is not a tuple of one or two strings (the message names it); the length is too small
                for a pair.
        """
        _check_items(items)
        length = min(max_length or self.max_length, self.max_length)
        shortest = self.tokenizer.num_special_tokens_to_add(pair=True) + 2
        if length < shortest and any(len(item) == 2 for item in items):
            raise NearfarError(f"max_length {length}: a pair needs at least {shortest} tokens.")
        if not items:
            return Tokenized([])
        texts: list[Any] = [item if len(item) == 2 else item[0] for item in items]  # the tokenizer takes a mixture
        batch = self.tokenizer(texts, truncation="longest_first", max_length=length, return_attention_mask=False)
        truncated = [bool(encoding.overflowing) for encoding in batch.encodings or []]
        return Tokenized(batch["input_ids"], truncated, types=batch.get("token_type_ids") if self._uses_types else None)

    def cls(self, tokens: Tokenized) -> Float[Tensor, "batch dim"]:
        """The last hidden state of each item's first token, before any pooler, with gradient, in the caller's order."""
        batch = RaggedBatch.pack(tokens.ids, types=tokens.types, device=self.device)
        return batch.restore_order(pool(hidden_states(self.backbone, batch, self.route), batch, CLS))

    def head(self, cls: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch classes"]:
        """Logits from the output of :meth:`cls`, in the head's dtype; includes the architecture's dropout."""
        return self._head(self.model, cls[:, None].to(self.model.dtype))

    def forward(self, tokens: Tokenized) -> Float[Tensor, "batch classes"]:
        """Logits with gradient, in the caller's order; [batch, 1] in regression."""
        return self.head(self.cls(tokens))

    @torch.inference_mode()
    def predict(
        self, items: Sequence[Item], *, precision: Precision = "auto", progress: bool = False
    ) -> Float[np.ndarray, "items classes"]:
        """Logits as float32 [items, classes], in the order of ``items``; [items, 1] in regression.

        Each distinct item is computed once, without dropout. Items over the maximum length are truncated, with one
        warning that counts them.

        Args:
            items: any number of tuples of one or two strings; the list may be empty.
            precision: ``fp32``, ``bf16``, or ``auto``: bf16 where it is native, else fp32.
            progress: show a progress bar.

        Raises:
            NearfarError: an item is not a tuple of one or two strings, or its logits are not finite (the message names
                it); the precision is unknown.
        """
        _check_items(items)
        bf16, width = resolve(precision, self.device) == "bf16", max(1, len(self.label_names))
        return compute_distinct(self, items, self.tokenize, self, (width,), bf16=bf16, progress=progress)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a folder that ``AutoModelForSequenceClassification`` opens, with the same logits.

        The tokenizer's maximum length is :attr:`max_length`, so that transformers truncates as nearfar does.

        Raises:
            NearfarError: it is an exported graph.
        """
        refuse_graph(self.model, "saved")
        pretrained.save_transformer(folder, self.model, self.tokenizer, max_length=self.max_length)
        for file in Path(folder).glob("model*.safetensors"):
            apply_umask(file)  # safetensors writes files that only the owner can read
        if self.lower_case:  # tokenizers that transformers builds from their vocabulary forget it
            write_json(Path(folder) / TRANSFORMER_SETTINGS[0], {"do_lower_case": True})
        write_seen(Path(folder), self.seen)


@dataclass(frozen=True)
class EmbeddingClassifier:
    """A sentence encoder and a linear classifier of its embeddings, as ``nearfar train`` makes them of labelled texts.

    Its folder is that of the encoder, with the file :data:`HEAD_FILE`. Logits are W x + b, with x of length 1.
    """

    encoder: Encoder
    label_names: tuple[str, ...]
    weight: Float[np.ndarray, "classes dim_and_bias"]

    @property
    def seen(self) -> SeenHashes | None:
        """Hashes of the texts that made the encoder; None where they are not known."""
        return self.encoder.seen

    def predict(
        self, items: Sequence[Item], *, precision: Precision = "auto", progress: bool = False
    ) -> Float[np.ndarray, "items classes"]:
        """Logits as float32, as :meth:`Classifier.predict`.

        Raises:
            NearfarError: an item is not a tuple of one string; an embedding is not finite.
        """
        _check_items(items)
        if any(len(item) == 2 for item in items):
            raise NearfarError("this classifier labels single texts, not pairs; nearfar finetune trains one for pairs.")
        texts = [item[0] for item in items]
        vectors = self.encoder.encode(texts, normalize=True, precision=precision, progress=progress)
        return vectors @ self.weight[:, :-1].T + self.weight[:, -1]

    def save_head(self, folder: Path) -> None:
        """Write the labels and the weights into the folder of the encoder."""
        tensors = {"weight": np.ascontiguousarray(self.weight, dtype=np.float32)}  # others are saved in wrong order
        write_bytes(folder / HEAD_FILE, save(tensors, {"labels": json.dumps(self.label_names)}))


def open_classifier(
    model: str | Path, *, max_length: int | None = None, device: str | None = None
) -> Classifier | EmbeddingClassifier:
    """Open what ``nearfar finetune`` or ``nearfar train`` made of labelled rows, or any sequence classifier.

    Raises:
        NearfarError: as :meth:`Classifier.from_pretrained` and :meth:`nearfar.Encoder.from_pretrained`; a damaged head.
    """
    file = locate(model) / HEAD_FILE
    if not file.exists():
        return Classifier.from_pretrained(model, max_length=max_length, device=device)
    encoder = Encoder.from_pretrained(model, max_length=max_length, device=device)
    try:
        with safe_open(file, framework="numpy") as tensors:
            names, weight = tuple(json.loads(tensors.metadata()["labels"])), tensors.get_tensor("weight")
        if weight.shape != (len(names), encoder.dim + 1):
            raise ValueError(f"weights of shape {weight.shape} for {len(names)} labels and {encoder.dim} dimensions")
    except (SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
        raise NearfarError(f"{file}: is damaged ({error}). Copy the model again.") from None
    return EmbeddingClassifier(encoder, names, weight)


def _check_items(items: Sequence[Item]) -> None:
    """Raise NearfarError for the first item that is not a tuple of one or two strings."""
    for number, item in enumerate(items):
        if not isinstance(item, tuple) or len(item) not in (1, 2) or not all(isinstance(text, str) for text in item):
            raise NearfarError(f"item {number} is not a tuple of one or two strings: {item!r}.")


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
    settings = transformer_settings(inner)
    if (graph := graph_format(inner)) is not None:
        exported = GraphBackbone(inner, graph, classifier=True)
        tokenizer = pretrained.load_tokenizer(inner)
        if _choose_labels(folder, exported.labels, label_names, regression) != exported.labels or dropout is not None:
            refuse_graph(exported, "trained")
        length = encoder_folder.choose_length(inner, settings, exported, tokenizer, max_length)
        return ClassifierComponents(exported, tokenizer, exported.labels, length, lambda _, logits: logits[:, 0], False)
    config = pretrained.load_config(inner, kind="sequence classifier")
    saved = _saved_labels(inner / "config.json", config)
    names = _choose_labels(folder, saved, label_names, regression)
    if names != saved:
        config.id2label = dict(enumerate(names or ("score",)))
        config.label2id = {name: number for number, name in config.id2label.items()}
        config.problem_type = "single_label_classification" if names else "regression"
        if hasattr(config, "classifier_pooling"):  # ModernBERT's, where it may be "mean"
            config.classifier_pooling = "cls"
    if dropout is not None and not 0 <= dropout < 1:
        raise NearfarError(f"dropout {dropout}: must be in [0, 1).")
    for name in config.to_dict() if dropout is not None else ():  # of embeddings, hidden states, attention and head
        if "dropout" in name:
            setattr(config, name, float(dropout or 0))
    model = _load(inner, config, has_head=names == saved)
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


def _choose_labels(
    folder: Path, saved: tuple[str, ...] | None, label_names: Sequence[str] | None, regression: bool
) -> tuple[str, ...]:
    """The requested labels, else the saved ones; () for regression."""
    if regression and label_names:
        raise NearfarError("a classifier has label_names or is for regression, not both.")
    names = () if regression else saved if label_names is None else tuple(label_names)
    if names is None:
        raise NearfarError(f"{folder}: holds no classifier; set label_names or regression.")
    if isinstance(label_names, str) or len(names) == 1 or len(set(names)) < len(names):
        raise NearfarError(f"label_names {label_names!r}: must be a list of two or more different names.")
    return names


def _load(folder: Path, config: PretrainedConfig, *, has_head: bool) -> PreTrainedModel:
    """The model: with its saved head, or with a new one, and perhaps a new pooler, on a complete backbone."""
    model, absent = pretrained.load_model(folder, config, kind="sequence classifier", dtype=torch.float32)
    prefix = f"{model.base_model_prefix}."

    def required(name: str) -> bool:
        return has_head or (name.startswith(prefix) and not name.startswith(f"{prefix}pooler."))

    pretrained.check_complete(folder, absent, required)
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


HEAD_FUNCTIONS: tuple[ClsHead, ...] = (
    lambda model, first: model.classifier(model.dropout(model.base_model.pooler(first))),  # BERT
    lambda model, first: model.classifier(first),  # RoBERTa, XLM-R, CamemBERT, MPNet, ELECTRA
    lambda model, first: model.classifier(model.dropout(model.pre_classifier(first[:, 0]).relu())),  # DistilBERT
    lambda model, first: model.classifier(model.dropout(model.pooler(first))),  # DeBERTa
    lambda model, first: model.classifier(model.drop(model.head(first[:, 0]))),  # ModernBERT, classifier_pooling "cls"
)
"""Ways of architectures to compute logits from the model and the [CLS] states [batch, 1, dim]."""
