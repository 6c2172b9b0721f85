"""The public Classifier: a text, or a pair in one sequence -> logits, by any BERT-like encoder and a head on [CLS].

Model and head are transformers' own classes for sequence classification, so that any tool can open a saved folder. A
folder with a classifier for the requested labels is loaded completely. From any other folder, only the backbone is
loaded, including a trained pooler, and the head is initialised anew.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor, nn

from nearfar.disk import apply_umask, write_bytes
from nearfar.disk.model_folder import SeenHashes, read_seen, write_seen
from nearfar.encoder import pretrained
from nearfar.encoder.classifier_folder import ClassifierComponents, read_classifier
from nearfar.encoder.dropout import use_fast_dropout
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.exported import refuse_graph
from nearfar.encoder.folder_checks import TRANSFORMER_SETTINGS, write_json
from nearfar.encoder.pooling import Pooling, pool
from nearfar.encoder.precision import choose_device, resolve
from nearfar.encoder.pretrained import PreTrainedModel, opening
from nearfar.encoder.ragged import RaggedBatch, choose_route, hidden_states, uses_token_types
from nearfar.encoder.token_batches import Tokenized, compute_distinct, tokenize
from nearfar.encoder.weights import locate
from nearfar.types import NearfarError, Precision

Item: TypeAlias = tuple[str, ...]
"""One text, or a pair that is encoded in one sequence with the backbone's separator and token types."""
HEAD_FILE = "nearfar_head.safetensors"
CLS = Pooling("cls", (), "cls")


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
            label_names: names of the classes; () for a regression, which has one output and no labels. By default those
                of the saved classifier.
            dropout: probability of all dropout in the model; by default the model's own.
            max_length: maximum number of tokens per item, including special tokens; by default the model's limit.
            device: by default CUDA if available, else the CPU.

        Raises:
            NearfarError: the machine has no such device; the weights are not found or damaged; there are fewer than two
                labels; dropout is outside [0, 1); ``max_length`` is over the model's limit; the architecture's head
                needs more than [CLS] (the message lists those that work).
        """
        target, folder = choose_device(device), locate(model)
        with opening(folder):
            parts = read_classifier(folder, label_names=label_names, dropout=dropout, max_length=max_length)
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
        texts = [item if len(item) == 2 else item[0] for item in items]  # the tokenizer takes a mixture
        return tokenize(self.tokenizer, texts, max_length=length, types=self._uses_types)

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
        pretrained.save_transformer(folder, self.model.save_pretrained, self.tokenizer, max_length=self.max_length)
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
