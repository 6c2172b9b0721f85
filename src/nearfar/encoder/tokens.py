"""Token ids of many texts, concatenated in one array.

Also texts of random words from a model's vocabulary, to train on where there are no sentences.
"""

import random
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nearfar.disk.rows import GrowingArray, NumberedItems
from nearfar.encoder.weights import locate
from nearfar.runtime.progress import progress_bar
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console
    from transformers import PreTrainedTokenizerBase


TEXTS = 10_000
WORDS = (4, 12)
"""The smallest and the largest number of words in a text."""
MIN_WORDS = 10
"""A vocabulary with fewer words is refused: its texts would be much alike."""
_STARTS_WORD = ("\u0120", "\u2581")
"""What a token at the start of a word begins with in byte-level BPE, and in SentencePiece."""


def vocabulary_texts(model: str) -> list[str]:
    """10,000 texts of 4 to 12 words, each drawn from the whole words of the model's vocabulary, with equal chances.

    They are the same in each run, whatever its seed.

    Raises:
        NearfarError: no such model, a damaged tokenizer, or one with fewer than 10 whole words.
    """
    from nearfar.encoder.pretrained import load_tokenizer

    words = whole_words(load_tokenizer(locate(model)))
    if len(words) < MIN_WORDS:
        problem = f"its vocabulary has {len(words)} whole words, too few to make texts of"
        raise NearfarError(f"{model}: {problem}; {MIN_WORDS} are needed. Name a file of sentences instead.")
    chance = random.Random(1)
    return [" ".join(chance.choices(words, k=chance.randint(*WORDS))) for _ in range(TEXTS)]


def whole_words(tokenizer: "PreTrainedTokenizerBase") -> list[str]:
    """The tokens that are words of two letters or more, in the order of their numbers.

    Where tokens at the start of a word are marked (byte-level BPE, SentencePiece), these are meant; where those inside
    a word are (WordPiece: ##), the others. Words of one letter are left out, unless there are more of them in scripts
    without case than longer words, as in a vocabulary of Chinese characters.
    """
    numbers = range(len(tokenizer))
    tokens = tokenizer.convert_ids_to_tokens(list(numbers))
    marked = sum(token.startswith(_STARTS_WORD) for token in tokens) > len(tokens) / 10
    special = set(tokenizer.all_special_ids)
    starts = [
        number
        for number, token in zip(numbers, tokens, strict=True)
        if number not in special and (token.startswith(_STARTS_WORD) if marked else not token.startswith("##"))
    ]
    words = dict.fromkeys(word for number in starts if (word := str(tokenizer.decode([number])).strip()).isalpha())
    longer = [word for word in words if len(word) > 1]
    characters = [word for word in words if len(word) == 1 and unicodedata.category(word) == "Lo"]
    return [*characters, *longer] if len(characters) > len(longer) else longer


BLOCK = 10_000
"""Texts tokenised per call of the tokenizer."""
AT_ONCE = 2**18
"""Texts that are in memory at once while they are tokenised."""
SHARED_FROM = 2**22
"""Characters of all texts from which one process tokenises for all. Fewer take little time in each."""
PROGRESS_THRESHOLD = 20_000
"""Number of texts above which a progress bar is shown."""


BroadcastFromFirst: TypeAlias = Callable[[Callable[[], Any]], Any]
"""Computes in the first process and returns the result in all, which must make the same calls in the same order.

See :meth:`nearfar.training.processes.Processes.broadcast_from_first`.
"""


Tokenize: TypeAlias = Callable[[Sequence[str]], tuple[Sequence[Sequence[int]], int]]
"""Texts -> the token ids of each, and the number of truncated texts; the same in all processes."""


class LengthGroup(NamedTuple):
    """``num_texts`` neighbouring texts of ``length`` tokens each; ``start`` is the batch's index of the first token."""

    start: int
    num_texts: int
    length: int

    @property
    def span(self) -> slice:
        """The group's tokens within the batch."""
        return slice(self.start, self.start + self.num_texts * self.length)


def group_by_length(lengths: Iterable[int]) -> list[LengthGroup]:
    """Group neighbouring texts of equal length; ``lengths`` are those of concatenated texts, in order."""
    groups: list[LengthGroup] = []
    start = 0
    for length, run in groupby(lengths):
        groups.append(LengthGroup(start, len(list(run)), length))
        start = groups[-1].span.stop
    return groups


def token_positions(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each token's position in its own text, of concatenated texts of these lengths."""
    return np.arange(lengths.sum()) - np.repeat(lengths.cumsum() - lengths, lengths)


@dataclass(frozen=True, eq=False)
class TokenRows(Sequence[list[int]]):
    """The token ids of some texts of a store: text i is ``flat[starts[i] : starts[i] + lengths[i]]``.

    ``prompt_lengths`` are the numbers of first tokens of each text that pooling leaves out; None for none.
    """

    flat: NDArray[Any]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    prompt_lengths: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, ids: Sequence[Sequence[int]], *, prompt_length: int = 0, dtype: DTypeLike = np.int64) -> "TokenRows":
        """Rows with these token ids, concatenated in an array of this type, and a prompt of the same length."""
        lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
        flat = np.fromiter(chain.from_iterable(ids), dtype=dtype, count=int(lengths.sum()))
        prompts = np.full(len(ids), prompt_length) if prompt_length else None
        return cls(flat, lengths.cumsum() - lengths, lengths, prompts)

    def __len__(self) -> int:
        """The number of texts."""
        return len(self.lengths)

    def __getitem__(self, text: Any) -> Any:
        """The token ids of one text."""
        return self.flat[self.starts[text] : self.starts[text] + self.lengths[text]].tolist()


class TokenStore:
    """Distinct texts and their token ids; ``truncated`` is the number of texts that were truncated.

    From :data:`SHARED_FROM` characters on, the first of several processes tokenises for all. A text is known by its
    hash (:class:`nearfar.disk.rows.NumberedItems`), so the texts themselves need not be in memory.

    Args:
        tokenize: computes the token ids.
        vocabulary: size of the vocabulary.
        broadcast_from_first: communication between the processes that train together; all of them read the same texts.
        console: shows a progress bar while many texts are tokenised; none if None or not a terminal.
    """

    def __init__(
        self,
        tokenize: Tokenize,
        *,
        vocabulary: int,
        broadcast_from_first: BroadcastFromFirst,
        console: "Console | None",
    ) -> None:
        self._ids = GrowingArray(np.uint16 if vocabulary <= 2**16 else np.int32)
        self._offsets = GrowingArray(np.int64)  # start of each text among the ids, and the end of the last one
        self._offsets.append(np.zeros(1, dtype=np.int64))
        self.truncated = 0
        self._tokenize = tokenize
        self._texts = NumberedItems()
        self._broadcast_from_first = broadcast_from_first
        self._console = console

    def __len__(self) -> int:
        """The number of distinct texts."""
        return len(self._texts)

    @property
    def flat(self) -> NDArray[Any]:
        """The token ids of all texts."""
        return self._ids.numbers

    @property
    def offsets(self) -> NDArray[np.int64]:
        """The start of each text among the token ids, and the end of the last one."""
        return self._offsets.numbers

    def select(self, texts: Sequence[str]) -> TokenRows:
        """The token ids of these texts, all of which must have been read."""
        rows = self._texts.numbers(texts)
        starts, ends = self.offsets[rows], self.offsets[rows + 1]
        return TokenRows(self.flat, starts, ends - starts)

    def read(self, texts: Iterable[str]) -> None:
        """Tokenise the texts that are not in the store yet.

        Raises:
            NearfarError: the file cannot be written.
        """
        fresh = filter(self._texts.add, texts)
        while block := list(islice(fresh, AT_ONCE)):
            self._append(block)

    def _append(self, texts: Sequence[str]) -> None:
        """Tokenise texts, and append their token ids."""
        shared = sum(map(len, texts)) >= SHARED_FROM
        parts: list[tuple[NDArray[Any], NDArray[np.int64], int]] = []

        def tokenize(block: Sequence[str]) -> tuple[NDArray[Any], NDArray[np.int64], int]:
            ids, block_truncated = self._tokenize(block)
            rows = TokenRows.of(ids, dtype=self.flat.dtype)
            return rows.flat, rows.lengths, block_truncated

        shown = self._console is not None and len(texts) > PROGRESS_THRESHOLD
        with progress_bar("tokenising", len(texts), shown=shown, console=self._console) as advance:
            for start in range(0, len(texts), BLOCK):
                block = texts[start : start + BLOCK]
                compute = partial(tokenize, block)
                parts.append(self._broadcast_from_first(compute) if shared else compute())
                advance(len(block))
        flat, lengths, truncated = zip(*parts, strict=True)
        self.truncated += sum(truncated)
        self._offsets.append(len(self.flat) + np.concatenate(lengths).cumsum())
        self._ids.append(*flat)
