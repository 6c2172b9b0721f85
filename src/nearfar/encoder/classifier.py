"""A classifier: one text, or two in one sequence -> logits, by any encoder of the BERT family and its head on [CLS]."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.encoder import encoder_folder
from nearfar.encoder.classifier_folder import ClassifierComponents, backbone_of, read_classifier, write_classifier
from nearfar.encoder.device import choose_device
from nearfar.encoder.dropout import use_fast_dropout
from nearfar.encoder.encoder import Tokenized, token_budget_batches, warn_truncated
from nearfar.encoder.finite import NotFiniteError, first_non_finite
from nearfar.encoder.fused import use_fused
from nearfar.encoder.pooling import Pooling, pool
from nearfar.encoder.precision import resolve
from nearfar.encoder.pretrained import opening
from nearfar.encoder.ragged import RaggedBatch, choose_route, hidden_states, uses_token_types
from nearfar.encoder.transformers_types import PreTrainedModel
from nearfar.encoder.weights import locate
from nearfar.types import NearfarError, Precision

Item: TypeAlias = tuple[str, ...]
"""One text, or two that are encoded together, with the backbone's own separator and token types."""
CLS = Pooling("cls", (), "cls")


@dataclass(frozen=True)
class TokenizedItems:
    """Token ids of each item, special tokens included, their types where the backbone has some, and who was cut."""

    ids: list[list[int]]
    types: list[list[int]] | None
    is_truncated: list[bool]

    def __len__(self) -> int:
        """How many items there are."""
        return len(self.ids)

    @property
    def truncated(self) -> int:
        """How many items were longer than the maximum length."""
        return sum(self.is_truncated)

    def select(self, rows: Sequence[int]) -> "TokenizedItems":
        """The items of these numbers, in this order: a batch."""
        types = None if self.types is None else [self.types[row] for row in rows]
        return TokenizedItems([self.ids[row] for row in rows], types, [self.is_truncated[row] for row in rows])


class Classifier(nn.Module):
    """A backbone and its family's classification head on [CLS].

    The head is the one of transformers (for BERT: pooler, dropout, linear). :meth:`cls` and :meth:`head` are its two
    halves, for an objective on the representation beside one on the logits (Gunel et al. 2021, section 3).

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
        self._head = parts.head
        self._types = uses_token_types(self.backbone)
        use_fast_dropout(self.model)
        use_fused(self.model)
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
        """Open a saved classifier, or put a new head on any encoder, from a folder or by its hub name.

        Weights are looked for as by :meth:`nearfar.Encoder.from_pretrained` and are float32 whatever the file holds.
        A head that was saved for the same labels, in the same order, is kept. Otherwise it starts anew: drawn by
        torch's global generator as its family does, but for a pooler that the encoder has.

        Args:
            model: a folder, or ``owner/name`` on the hub: a sentence-transformers model, a transformers encoder, or a
                classifier.
            label_names: the names of the classes; by default those that the classifier was saved with.
            regression: one output, and no labels.
            dropout: probability of every dropout there is; by default the model's own.
            max_length: tokens kept of an item, special tokens included; by default the model's own limit.
            device: where to compute; by default CUDA where there is one, else the CPU.

        Raises:
            NearfarError: no such device; no weights to be had, or damaged ones; no labels, or one; dropout outside
                [0, 1); a length over the model's own; a family whose head needs more than [CLS], naming those that
                work.
        """
        place = choose_device(device)
        folder = locate(model)
        with opening(folder):
            parts = read_classifier(folder, label_names=label_names, regression=regression, dropout=dropout)
        if max_length is not None:
            length = encoder_folder.check_length(max_length, backbone_of(parts.model), parts.tokenizer)
            parts = parts._replace(max_length=length)
        with opening(folder / "config.json"):
            classifier = cls(parts)
        classifier.to(place).eval()
        return classifier

    @property
    def backbone(self) -> PreTrainedModel:
        """The encoder inside, of which BERT's pooler counts as a part."""
        return backbone_of(self.model)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.model.device

    def tokenize(self, items: Sequence[Item], *, max_length: int | None = None) -> TokenizedItems:
        """Items -> token ids, at most ``max_length`` each, or :attr:`max_length` where that is None or less.

        A pair is laid out as the tokenizer does, with its separators and, where it gives any, token types; of too
        long a pair the longer text is cut first.

        Raises:
            NearfarError: something among the items is no tuple of one or two strings (says which); a length that
                leaves no room for a pair.
        """
        _check_items(items)
        length = min(max_length or self.max_length, self.max_length)
        ids: list[list[int]] = [[] for _ in items]
        types: list[list[int]] = [[] for _ in items]
        cut = [False] * len(items)
        typed = self._types
        for texts in (1, 2):
            rows = [row for row, item in enumerate(items) if len(item) == texts]
            if not rows:
                continue
            special = self.tokenizer.num_special_tokens_to_add(pair=texts == 2)
            if length < special + texts:
                raise NearfarError(f"max_length {length}: a pair takes at least {special + texts} tokens here.")
            columns = ([items[row][text] for row in rows] for text in range(texts))
            batch = self.tokenizer(*columns, truncation="longest_first", max_length=length, return_attention_mask=False)
            typed = typed and "token_type_ids" in batch
            for place, (row, encoding) in enumerate(zip(rows, batch.encodings or [], strict=True)):
                ids[row], cut[row] = batch["input_ids"][place], bool(encoding.overflowing)
                types[row] = batch["token_type_ids"][place] if typed else []
        return TokenizedItems(ids, types if typed else None, cut)

    def cls(self, tokens: TokenizedItems) -> Float[Tensor, "batch dim"]:
        """The last hidden state of each item's first token, before any pooler, with gradient, in the caller's order."""
        batch = RaggedBatch.pack(tokens.ids, types=tokens.types, device=self.device)
        return batch.restore_order(pool(hidden_states(self.backbone, batch, self.route), batch, CLS))

    def head(self, cls: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch classes"]:
        """Logits of what :meth:`cls` gave, with the family's dropout and layers between, in the head's precision."""
        return self._head(self.model, cls[:, None].to(self.model.dtype))

    def forward(self, tokens: TokenizedItems) -> Float[Tensor, "batch classes"]:
        """Logits with gradient, in the caller's order; a single number each in regression."""
        return self.head(self.cls(tokens))

    @torch.inference_mode()
    def predict(
        self, items: Sequence[Item], *, precision: Precision = "auto", progress: bool = False
    ) -> Float[np.ndarray, "items classes"]:
        """Logits as float32 [items, classes], in the order of ``items``; [items, 1] in regression.

        Each distinct item is computed once, without dropout. Items over the maximum length are cut, with one warning
        that counts them.

        Args:
            items: any number of tuples of one or two strings, none included.
            precision: ``fp32``, ``bf16``, or ``auto``, which is bf16 where that is native and fp32 elsewhere.
            progress: show a progress bar.

        Raises:
            NearfarError: something among the items is no tuple of one or two strings, or gets logits that are not
                finite (says which); an unknown precision.
        """
        _check_items(items)
        bf16 = resolve(precision, self.device) == "bf16"
        distinct = {item: place for place, item in enumerate(dict.fromkeys(items))}
        tokens = self.tokenize(list(distinct))
        warn_truncated(Tokenized(tokens.ids, tokens.truncated), self.max_length)
        logits = np.empty((len(distinct), max(1, len(self.label_names))), dtype=np.float32)
        was_training = self.training
        self.eval()
        try:
            for rows in token_budget_batches(tokens.ids, progress=progress):
                with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=bf16):
                    batch = self(tokens.select(rows)).float()
                if (non_finite := first_non_finite(batch, rows)) is not None:
                    item = list(distinct)[non_finite]
                    raise NotFiniteError(list(items).index(item), " / ".join(item))
                logits[rows] = batch.cpu().numpy()
        finally:
            self.train(was_training)
        return logits[[distinct[item] for item in items]]

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a folder that ``AutoModelForSequenceClassification`` opens and that gives the same logits there."""
        parts = ClassifierComponents(self.model, self.tokenizer, self.label_names, self.max_length, self._head)
        write_classifier(Path(folder), parts)


def _check_items(items: Sequence[Item]) -> None:
    """Raise NearfarError for the first that is no tuple of one or two strings."""
    for number, item in enumerate(items):
        if not isinstance(item, tuple) or len(item) not in (1, 2) or not all(isinstance(text, str) for text in item):
            raise NearfarError(f"item {number} is no tuple of one or two strings: {item!r}.")
