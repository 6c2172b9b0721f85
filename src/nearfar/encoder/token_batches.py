"""Tokenised texts, batches of a limited number of tokens, and what is said of texts: truncated, or not finite."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console

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


def first_non_finite(vectors: Float[Tensor, "texts dim"], numbers: Sequence[int]) -> int | None:
    """The lowest of ``numbers`` whose vector is not finite, where ``numbers[i]`` is the number of vector i.

    None if all vectors are finite.
    """
    if vectors.isfinite().all():
        return None
    non_finite = torch.where(~vectors.isfinite().all(dim=1))[0]
    return min(numbers[index] for index in non_finite.tolist())


TOKENS_PER_BATCH = 4096
"""Maximum number of tokens in a batch of :meth:`nearfar.Encoder.encode`. Results depend on it only by rounding."""
TEXTS_PER_BLOCK = 2**16
"""Number of distinct texts that :meth:`nearfar.Encoder.encode` tokenises and sorts by length at a time: token ids take
much more memory than texts and vectors."""
TOKENS_PER_BATCH_ON_GPU = 32_768
"""TOKENS_PER_BATCH on a GPU, which needs about as long to start the operations of a small batch as of a large one."""


class Tokenized(NamedTuple):
    """Token ids of each text, including special tokens, and the number of texts truncated at the maximum length."""

    ids: list[list[int]]
    truncated: int
    prompt_length: int = 0
    """Number of first tokens of each text that pooling leaves out."""


def check_texts(texts: Sequence[str]) -> None:
    """Check that ``texts`` is a list of strings.

    Raises:
        NearfarError: it is a single string, or contains something else than strings; the message names the first.
    """
    if isinstance(texts, str):
        raise NearfarError("encode takes a list of texts, not one string: encode([text]).")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise NearfarError(f"text {number} is {type(text).__name__}, not a string: {text!r}.")


def warn_truncated(truncated: int, texts: int, limit: int) -> None:
    """Warn once if distinct texts were longer than ``limit`` tokens."""
    if truncated:
        warnings.warn(truncation_message(truncated, texts, limit), stacklevel=4)


def truncation_message(truncated: int, texts: int, limit: int) -> str:
    """The warning that texts were truncated."""
    return f"{truncated} of {texts} distinct texts are longer than {limit} tokens and were truncated."


def token_budget_batches(token_ids: list[list[int]], *, device: torch.device, progress: bool) -> Iterator[list[int]]:
    """Split the texts, longest first, into batches with the maximum number of tokens for ``device``.

    Gives text numbers.
    """
    limit = TOKENS_PER_BATCH_ON_GPU if device.type == "cuda" else TOKENS_PER_BATCH
    order = sorted(range(len(token_ids)), key=lambda text: -len(token_ids[text]))
    batches: list[list[int]] = []
    tokens = limit + 1
    for text in order:
        tokens += len(token_ids[text])
        if tokens > limit:
            batches.append([])
            tokens = len(token_ids[text])
        batches[-1].append(text)
    with progress_bar("encoding", len(token_ids), shown=progress) as advance:
        for batch in batches:
            yield batch
            advance(len(batch))


@contextmanager
def progress_bar(
    what: str, texts: int, *, shown: bool, console: "Console | None" = None
) -> Iterator[Callable[[int], None]]:
    """A progress bar for ``texts`` texts, if it is shown; yields a function that takes the number of texts done."""
    if not shown:
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("texts"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=texts)
        yield lambda done: bar.advance(task, done)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block, which has no dropout; the module's own mode afterwards."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)
