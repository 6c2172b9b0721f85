"""Blocks of texts -> blocks of vectors, for any number of texts. A thread tokenises the next block during encoding."""

from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import starmap
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from nearfar.encoder.encoder import Encoder
from nearfar.encoder.prompts import Role
from nearfar.encoder.token_batches import NotFiniteError, Tokenized

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
    encoder: Encoder, blocks: Iterable[tuple[int, list[str]]], *, role: Role | None = None
) -> Iterator[TokenBlock]:
    """Tokenise blocks of texts, given as (start, texts), in a thread that is one block ahead.

    Prompt and maximum length are those of the ``role`` of the texts.
    """
    prompt, max_length = encoder.prompt_of(role), encoder.length_of(role)

    def tokenize(start: int, texts: list[str]) -> TokenBlock:
        distinct = {text: index for index, text in enumerate(dict.fromkeys(texts))}
        rows = np.fromiter((distinct[text] for text in texts), dtype=np.intp, count=len(texts))
        return TokenBlock(start, rows, encoder.tokenize(list(distinct), prompt=prompt, max_length=max_length))

    return prefetch(starmap(tokenize, blocks))


def encode_blocks(encoder: Encoder, blocks: Iterable[TokenBlock], **settings: Any) -> Encoded:
    """Encode block after block by :meth:`Encoder.encode_tokens`; the vectors equal those of :meth:`Encoder.encode`.

    Raises:
        NotFiniteError: a vector is not finite.
    """
    for block in blocks:
        tokens = block.tokenized
        try:
            vectors = encoder.encode_tokens(tokens.ids, prompt_length=tokens.prompt_length, **settings)
        except NotFiniteError as error:
            raise block.with_global_number(error) from None
        yield block, vectors


def prefetch(items: Iterator[Item]) -> Iterator[Item]:
    """The same items, none of them None; a thread computes the next one while the caller uses the current one.

    Its end does not wait for the thread: after an error, the garbage collector may close it at a moment when another
    thread starts, and each would wait for the other.
    """
    thread = ThreadPoolExecutor(1)
    try:
        following = thread.submit(lambda: next(items, None))
        while (item := following.result()) is not None:
            following = thread.submit(lambda: next(items, None))
            yield item
    finally:
        thread.shutdown(wait=False)
