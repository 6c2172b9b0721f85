"""Blocks of texts -> blocks of vectors, for any number of texts: a thread tokenises the next block during encoding."""

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from nearfar.encoder.encoder import Encoder
from nearfar.encoder.finite import NotFiniteError
from nearfar.encoder.token_batches import Tokenized

Item = TypeVar("Item")


class TokenBlock(NamedTuple):
    """A block of texts, of which each distinct one is tokenised once; ``start`` is the number of its first text.

    Texts are deduplicated only within a block. Across blocks, the last bits of a vector would depend on whether the run
    was interrupted.
    """

    start: int
    rows: NDArray[np.intp]
    """Index of each text among the distinct texts."""
    tokenized: Tokenized

    def with_global_number(self, error: NotFiniteError) -> NotFiniteError:
        """The error with the text's number among all texts, from its number among the block's distinct texts."""
        return NotFiniteError(self.start + int((self.rows == error.number).argmax()), error.content)

    def expand_distinct(self, vectors: Float[np.ndarray, "distinct dim"]) -> Float[np.ndarray, "texts dim"]:
        """The vectors of all texts of the block, from those of the distinct texts."""
        return vectors if len(self.rows) == len(vectors) else vectors[self.rows]


Encoded: TypeAlias = Generator[tuple[TokenBlock, Float[np.ndarray, "distinct dim"]], None, None]
"""Blocks with the vectors of their distinct texts."""


def tokenize_blocks(
    encoder: Encoder, blocks: Iterable[tuple[int, list[str]]], *, prompt: str | None = None
) -> Iterator[TokenBlock]:
    """Tokenise blocks of texts, given as (start, texts), in a thread that is one block ahead.

    ``prompt`` is put before each text; by default it is the model's default prompt.
    """
    return prefetch(_tokenize(encoder, start, texts, prompt) for start, texts in blocks)


def encode_blocks(
    encoder: Encoder,
    blocks: Iterable[TokenBlock],
    *,
    normalize: bool = False,
    dimensions: int | None = None,
    bf16: bool = False,
    on_batch: Callable[[int], None] | None = None,
) -> Encoded:
    """Encode block after block; the vectors equal those of :meth:`Encoder.encode`.

    Raises:
        NotFiniteError: a vector is not finite.
    """
    for block in blocks:
        ids, prompt_length = block.tokenized.ids, block.tokenized.prompt_length
        try:
            vectors = encoder.encode_tokens(
                ids,
                prompt_length=prompt_length,
                normalize=normalize,
                dimensions=dimensions,
                bf16=bf16,
                on_batch=on_batch,
            )
        except NotFiniteError as error:
            raise block.with_global_number(error) from None
        yield block, vectors


def prefetch(items: Iterator[Item]) -> Iterator[Item]:
    """The same items; a thread computes the next one while the caller uses the current one."""
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(_next, items)
        while ready := following.result():
            following = thread.submit(_next, items)
            yield ready[0]


def _next(items: Iterator[Item]) -> tuple[Item] | None:
    for item in items:
        return (item,)
    return None


def _tokenize(encoder: Encoder, start: int, texts: list[str], prompt: str | None) -> TokenBlock:
    distinct = {text: index for index, text in enumerate(dict.fromkeys(texts))}
    rows = np.fromiter((distinct[text] for text in texts), dtype=np.intp, count=len(texts))
    return TokenBlock(start, rows, encoder.tokenize(list(distinct), prompt=prompt))
