"""Token ids of many texts, concatenated in one array: in memory, or in a file shared by the processes of a machine.

Also texts of random words from a model's vocabulary, to train on where there are no sentences.
"""

import os
import platform
import random
import tempfile
import unicodedata
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nearfar.encoder.weights import locate
from nearfar.runtime.progress import draws_bars, progress_bar
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
        raise NearfarError(
            f"{model}: its vocabulary has {len(words)} whole words, too few to make texts of; {MIN_WORDS} are needed. "
            "Name a file of sentences instead, or for training without them a method, as in nearfar train info-nce."
        )
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


Value = TypeVar("Value")
BLOCK = 10_000
"""Texts tokenised per call of the tokenizer."""
FILE_THRESHOLD = 2**22
"""Characters of all texts from which token ids go to a file. Fewer take a few MB and little time in each process."""
PROGRESS_THRESHOLD = 20_000
"""Number of texts above which a progress bar is shown."""


class BroadcastFromFirst(Protocol):
    """Call ``compute`` in the first process and return its result in all processes.

    All processes must make the same calls in the same order. See
    :meth:`nearfar.training.processes.Processes.broadcast_from_first`.
    """

    def __call__(self, compute: Callable[[], Value], /) -> Value: ...  # noqa: D102


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
        return cls(
            flat, lengths.cumsum() - lengths, lengths, np.full(len(ids), prompt_length) if prompt_length else None
        )

    def __len__(self) -> int:
        """The number of texts."""
        return len(self.lengths)

    @overload
    def __getitem__(self, text: int) -> list[int]: ...

    @overload
    def __getitem__(self, text: slice) -> "TokenRows": ...

    def __getitem__(self, text: int | slice) -> "list[int] | TokenRows":
        """The token ids of one text, or a slice of the texts."""
        starts, lengths = self.starts[text], self.lengths[text]
        if isinstance(text, slice):
            prompts = self.prompt_lengths
            return TokenRows(self.flat, starts, lengths, None if prompts is None else prompts[text])
        ids: list[int] = self.flat[starts : starts + lengths].tolist()
        return ids


class TokenStore:
    """Distinct texts and their token ids; ``truncated`` is the number of texts that were truncated.

    Above :data:`FILE_THRESHOLD` characters, the ids are in a memory-mapped file: the first process tokenises, and the
    other processes of its machine map the same pages. Processes on other machines, and all processes on systems without
    /proc, write files of their own.

    Args:
        tokenize: texts -> the token ids of each, and the number of truncated texts; the same in all processes.
        vocabulary: size of the vocabulary.
        broadcast_from_first: communication between the processes that train together; all of them read the same texts.
        console: shows a progress bar while many texts are tokenised; none if None or not a terminal.
    """

    def __init__(
        self,
        tokenize: Callable[[Sequence[str]], tuple[Sequence[Sequence[int]], int]],
        *,
        vocabulary: int,
        broadcast_from_first: BroadcastFromFirst,
        console: "Console | None" = None,
    ) -> None:
        self.flat: NDArray[Any] = np.empty(0, dtype=np.uint16 if vocabulary <= 2**16 else np.int32)
        self.offsets = np.zeros(1, dtype=np.int64)  # start of each text in ``flat``, and the end of the last one
        self.truncated = 0
        self._tokenize = tokenize
        self._rows: dict[str, int] = {}
        self._broadcast_from_first = broadcast_from_first
        self._console = console
        self._file: IO[bytes] | None = None
        self._run_block: BroadcastFromFirst = _compute_locally

    def __len__(self) -> int:
        """The number of distinct texts."""
        return len(self._rows)

    def select(self, texts: Sequence[str]) -> TokenRows:
        """The token ids of these texts, all of which must have been read."""
        rows = np.fromiter((self._rows[text] for text in texts), dtype=np.int64, count=len(texts))
        starts = self.offsets[rows]
        return TokenRows(self.flat, starts, self.offsets[rows + 1] - starts)

    def read(self, texts: Iterable[str]) -> None:
        """Tokenise the texts that are not in the store yet.

        Raises:
            NearfarError: the file cannot be written.
        """
        fresh = [text for text in dict.fromkeys(texts) if text not in self._rows]
        if self._file is None and sum(map(len, fresh)) >= FILE_THRESHOLD:
            self._open_file()
        parts, lengths, truncated = [self.flat], [np.empty(0, dtype=np.int64)], 0

        def append(block: list[str]) -> tuple[NDArray[np.int64], int]:
            ids, block_truncated = self._tokenize(block)
            rows = TokenRows.of(ids, dtype=self.flat.dtype)
            if self._file is None:
                parts.append(rows.flat)
            else:
                _write(self._file, rows.flat)
            return rows.lengths, block_truncated

        terminal = self._console is not None and draws_bars(self._console)
        shown = terminal and len(fresh) > PROGRESS_THRESHOLD
        with progress_bar("tokenising", len(fresh), shown=shown, console=self._console) as advance:
            for start in range(0, len(fresh), BLOCK):
                block = fresh[start : start + BLOCK]
                block_lengths, block_truncated = self._run_block(partial(append, block))
                lengths.append(block_lengths)
                truncated += block_truncated
                advance(len(block))
        self.truncated += truncated
        self.offsets = np.concatenate([self.offsets, self.offsets[-1] + np.concatenate(lengths).cumsum()])
        self._rows.update((text, row) for row, text in enumerate(fresh, start=len(self._rows)))
        if self._file is None:
            self.flat = np.concatenate(parts)
        else:
            mapped = np.memmap(self._file, dtype=self.flat.dtype, mode="r", shape=(int(self.offsets[-1]),))
            self.flat = np.asarray(mapped)

    def _open_file(self) -> None:
        """Move to a file, which starts with the ids read so far.

        The file is in the system's temporary folder (TMPDIR): unlike a run folder, it is local to the machine, and a
        dry run may write to it. The file is unlinked, so that the system removes it when the last process that has it
        open ends or is killed. The other processes open it through /proc/PID/fd of the first process.
        """

        def create() -> tuple[str, tuple[str, int, int]]:
            try:
                file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
            except OSError as error:
                raise _write_error(error) from error
            self._hold(file)
            _write(file, self.flat)
            return f"/proc/{os.getpid()}/fd/{file.fileno()}", _identity(file.fileno())

        place, identity = self._broadcast_from_first(create)
        self._run_block = self._broadcast_from_first
        if self._file is None:
            with suppress(OSError):
                if _identity(place) == identity:
                    self._hold(Path(place).open("rb"))  # noqa: SIM115
        if self._file is None:
            create()
            self._run_block = self._compute_on_each

    def _compute_on_each(self, compute: Callable[[], Value]) -> Value:
        self._broadcast_from_first(compute)  # the other processes wait for this call
        return compute()

    def _hold(self, file: IO[bytes]) -> None:
        """Keep the file open as long as the store exists."""
        self._file = file
        weakref.finalize(self, file.close)


def _compute_locally(compute: Callable[[], Value]) -> Value:
    return compute()


def _identity(file: str | int) -> tuple[str, int, int]:
    """Identify a file, given by path or descriptor, across machines, where another process may have the same PID."""
    status = os.stat(file)
    return platform.node(), status.st_dev, status.st_ino


def _write(file: IO[bytes], ids: NDArray[Any]) -> None:
    left = memoryview(ids.tobytes())
    try:
        while left:  # when the disk is nearly full, a write may be partial
            left = left[file.write(left) :]
    except OSError as error:
        raise _write_error(error) from error


def _write_error(error: OSError) -> NearfarError:
    return NearfarError(
        f"the token ids of the texts cannot be written to a temporary file ({error.strerror}): free disk space, or set "
        "the environment variable TMPDIR to another folder."
    )
