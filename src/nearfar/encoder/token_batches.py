"""Tokenised texts, batches of a limited number of tokens, and what is said of texts: truncated, or not finite."""

import warnings
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.encoder.dropout import evaluating
from nearfar.encoder.prompts import SURROGATE
from nearfar.runtime.gpu import start_copy
from nearfar.runtime.progress import progress_bar
from nearfar.types import NearfarError

Key = TypeVar("Key", str, tuple[str, ...])
SHOWN = 60
"""Characters of a text in a message."""


class NotFiniteError(NearfarError):
    """The model's output for a text contains NaN or infinity.

    Args:
        number: the text's number, counted from 0.
        content: the text, or its decoded tokens.
    """

    def __init__(self, number: int, content: str) -> None:
        self.number, self.content = number, content
        shown = content if len(content) <= SHOWN else content[:SHOWN] + "..."
        super().__init__(
            f"text {number} (counted from 0), {shown!r}: the model's output is not finite: its weights or "
            "activations contain NaN or infinity."
        )

    def __reduce__(self) -> tuple[type["NotFiniteError"], tuple[int, str]]:
        """How another process builds the error again."""
        return type(self), (self.number, self.content)


TOKENS_PER_BATCH = 4096
"""Maximum number of tokens in a batch of :meth:`nearfar.Encoder.encode`. Results depend on it only by rounding."""
TEXTS_PER_BLOCK = 2**16
"""Number of distinct texts that :meth:`nearfar.Encoder.encode` tokenises and sorts by length at a time: token ids take
much more memory than texts and vectors."""
TOKENS_PER_BATCH_ON_GPU = 32_768
"""TOKENS_PER_BATCH on a GPU, which needs about as long to start the operations of a small batch as of a large one."""


@dataclass(frozen=True)
class Tokenized:
    """Token ids of texts, or of items of one or two texts, including special tokens."""

    ids: list[list[int]]
    is_truncated: Sequence[bool] = ()
    """Whether each was truncated at the maximum length."""
    prompt_length: int = 0
    """Number of first tokens of each text that pooling leaves out."""
    types: list[list[int]] | None = None
    """Token types of each item; None if the backbone uses none."""

    @property
    def truncated(self) -> int:
        """The number of texts that were truncated."""
        return sum(self.is_truncated)

    def select(self, rows: Sequence[int]) -> "Tokenized":
        """A batch: the token ids and types of the items with these numbers, in this order."""
        types = None if self.types is None else [self.types[row] for row in rows]
        return Tokenized([self.ids[row] for row in rows], (), self.prompt_length, types)


ITEMS_PER_CALL = 2048
"""Texts or pairs tokenised per call: what a tokenizer keeps of each, until the call ends, is larger than token ids."""


def tokenize(
    tokenizer: Any, items: Sequence[Any], *, max_length: int, prompt_length: int = 0, types: bool = False
) -> Tokenized:
    """The token ids of texts and pairs, truncated to ``max_length`` tokens, those of the longer text of a pair first.

    They equal those of transformers' tokenizer, whose backend computes them here without the offsets of tokens in
    texts. A class of tokenizers that prepares texts in a way of its own is called as it is.

    Args:
        tokenizer: a fast one.
        items: texts, and tuples of two texts.
        max_length: maximum number of tokens of an item, including special tokens.
        prompt_length: see :class:`Tokenized`.
        types: also give token types, if the tokenizer has any.
    """
    from transformers import PreTrainedTokenizerFast as Fast

    own = any(getattr(type(tokenizer), name) is not getattr(Fast, name) for name in ("__call__", "_encode_plus"))
    ids, truncated, token_types = list[list[int]](), list[bool](), list[list[int]]()
    for start in range(0, len(items), ITEMS_PER_CALL):
        block = list(items[start : start + ITEMS_PER_CALL])
        batch = tokenizer(block if own else "", truncation=True, max_length=max_length)  # sets the backend's truncation
        encodings = batch.encodings if own else tokenizer.backend_tokenizer.encode_batch_fast(block)
        ids += [encoding.ids for encoding in encodings]
        truncated += [bool(encoding.overflowing) for encoding in encodings]
        token_types += [encoding.type_ids for encoding in encodings] if types else []
    types = types and "token_type_ids" in tokenizer.model_input_names
    return Tokenized(ids, truncated, prompt_length, token_types if types else None)


def check_texts(texts: Sequence[str]) -> None:
    """Check that ``texts`` is a list of strings.

    Raises:
        NearfarError: it is a single string, a mapping, a table or something without an order; or it contains something
            else than strings, or half a surrogate pair; the message names the first.
    """
    if isinstance(texts, str | Mapping | set | frozenset) or hasattr(texts, "columns") or not isinstance(texts, Sized):
        raise NearfarError(f"encode takes a list of texts, not a {type(texts).__name__}: give a list of its texts.")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise NearfarError(f"text {number} is {type(text).__name__}, not a string: {text!r}.")
        if not text.isascii() and SURROGATE.search(text):
            raise NearfarError(f"text {number} holds half a surrogate pair, which is no character: {text[:SHOWN]!r}.")


def truncation_message(truncated: int, texts: int, limit: int) -> str:
    """The warning that texts were truncated."""
    return f"{truncated} of {texts} distinct texts are longer than {limit} tokens and were truncated."


def token_budget_batches(token_ids: Sequence[Sequence[int]], *, device: torch.device) -> list[list[int]]:
    """The texts, longest first, in batches with the maximum number of tokens for ``device``, by their numbers."""
    limit = TOKENS_PER_BATCH_ON_GPU if device.type == "cuda" else TOKENS_PER_BATCH
    batches: list[list[int]] = []
    tokens = limit + 1
    for text in sorted(range(len(token_ids)), key=lambda text: -len(token_ids[text])):
        tokens += len(token_ids[text])
        if tokens > limit:
            batches.append([])
            tokens = len(token_ids[text])
        batches[-1].append(text)
    return batches


def compute_batches(
    module: Any,
    tokens: Tokenized,
    compute: Callable[[Tokenized], Float[Tensor, "texts ..."]],
    shape: tuple[int, ...],
    *,
    bf16: bool = False,
    describe: Callable[[int], str] | None,
    on_batch: Callable[[int], object] | None = None,
) -> Float[np.ndarray, "texts ..."]:
    """The outputs of ``compute`` for all texts, batch by batch without dropout, in the order of ``tokens``.

    Args:
        module: what computes, an encoder or a classifier; it is in evaluation mode meanwhile.
        tokens: of the texts.
        compute: tokens of a batch -> one output for each text.
        shape: of an output.
        bf16: compute under autocast, if the backbone can.
        describe: number of a text -> the content that an error names; None to keep outputs that are not finite.
        on_batch: gets the number of texts of each batch.

    Raises:
        NotFiniteError: an output is not finite.
    """
    from nearfar.encoder.ragged import bf16_runs  # imports transformers

    outputs, device = np.empty((len(tokens.ids), *shape), dtype=np.float32), module.device
    bf16 = bf16 and bf16_runs(module.backbone, module.route)
    started: list[tuple[list[int], Callable[[], Tensor]]] = []

    def finish(*, but: int) -> None:
        """Keep the outputs of all batches that were started, but for the last ones."""
        while len(started) > but:
            batch, copied = started.pop(0)
            output = copied()
            if describe is not None and not output.isfinite().all():
                non_finite = (~output.isfinite().flatten(1).all(dim=1)).nonzero().flatten().tolist()
                number = min(batch[index] for index in non_finite)
                raise NotFiniteError(number, describe(number))
            outputs[batch] = output.numpy()
            if on_batch:
                on_batch(len(batch))

    with evaluating(module):
        for batch in token_budget_batches(tokens.ids, device=device):
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
                output = compute(tokens.select(batch)).float()
            started.append((batch, start_copy(output)))
            finish(but=int(device.type == "cuda"))  # a GPU computes the next batch meanwhile
        finish(but=0)
    return outputs


def compute_distinct(
    module: Any,
    items: Sequence[Key],
    tokenize: Callable[[list[Key]], Tokenized],
    compute: Callable[[Tokenized], Float[Tensor, "items ..."]],
    shape: tuple[int, ...],
    *,
    max_length: int | None = None,
    bf16: bool = False,
    progress: bool = False,
    check_finite: bool = True,
) -> Float[np.ndarray, "items ..."]:
    """The outputs of ``compute`` for all items, [items, *shape], in their order; each distinct item is computed once.

    One warning counts the truncated items.

    Args:
        module: what computes, an encoder or a classifier.
        items: texts, or tuples of texts.
        tokenize: a block of items -> their tokens.
        compute: tokens of a batch -> one output for each item.
        shape: of an output.
        max_length: the number of tokens that ``tokenize`` keeps, by default that of the module.
        bf16: compute under autocast, if the backbone can.
        progress: show a progress bar.
        check_finite: whether an output must be finite.

    Raises:
        NotFiniteError: an output is not finite.
    """
    distinct = {item: index for index, item in enumerate(dict.fromkeys(items))}
    ordered, truncated = list(distinct), 0
    outputs = np.empty((len(ordered), *shape), dtype=np.float32)
    describe = str if check_finite else None
    with progress_bar("encoding", len(ordered), shown=progress) as advance:
        for start in range(0, len(ordered), TEXTS_PER_BLOCK):
            block = ordered[start : start + TEXTS_PER_BLOCK]
            tokens = tokenize(block)
            truncated += tokens.truncated
            try:
                outputs[start : start + len(block)] = compute_batches(
                    module, tokens, compute, shape, bf16=bf16, describe=describe, on_batch=advance
                )
            except NotFiniteError as error:
                item = block[error.number]
                content = item if isinstance(item, str) else " / ".join(item)
                raise NotFiniteError(list(items).index(item), content) from None
    if truncated:
        warnings.warn(truncation_message(truncated, len(ordered), max_length or module.max_length), stacklevel=4)
    return outputs if len(ordered) == len(items) else outputs[[distinct[item] for item in items]]
