"""Token ids of many texts, end to end in one array: in memory, or in a file that the processes of a machine share."""

import os
import platform
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console

Value = TypeVar("Value")
BLOCK = 10_000  # texts tokenised at a time
FILE_THRESHOLD = (
    2**22
)  # characters of all texts: with fewer, each process tokenises in a moment and keeps a few MB in memory
PROGRESS_THRESHOLD = 20_000  # texts that take more than a moment


class BroadcastFromFirst(Protocol):
    """Broadcast the result of ``compute`` in the first process to all.

    See :meth:`nearfar.training.processes.Processes.broadcast_from_first`.

    All processes call it equally often, in the same order.
    """

    def __call__(self, compute: Callable[[], Value], /) -> Value: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class TokenRows(Sequence[list[int]]):
    """The token ids of some texts of a store; those of text i are ``flat[starts[i] : starts[i] + lengths[i]]``."""

    flat: NDArray[Any]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def __len__(self) -> int:
        """How many texts there are."""
        return len(self.lengths)

    @overload
    def __getitem__(self, text: int) -> list[int]: ...

    @overload
    def __getitem__(self, text: slice) -> "TokenRows": ...

    def __getitem__(self, text: int | slice) -> "list[int] | TokenRows":
        """The token ids of one text, or some of the texts."""
        starts, lengths = self.starts[text], self.lengths[text]
        if isinstance(text, slice):
            return TokenRows(self.flat, starts, lengths)
        ids: list[int] = self.flat[starts : starts + lengths].tolist()
        return ids


class TokenStore:
    """Distinct texts and their token ids; ``truncated`` of them were cut.

    Once the texts are many, the ids are in a file that is mapped to memory: the first process tokenises, and the others
    of its machine map the same pages. Those of other machines, and all where there is no /proc, write files of their
    own.

    Args:
        tokenize: texts -> the token ids of each, and how many were cut; the same in all processes.
        vocabulary: how many ids there are.
        broadcast_from_first: how processes that train together tell each other; they read the same texts.
        console: where a bar is shown while many texts are read; nowhere if None or no terminal.
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
        self.offsets = np.zeros(1, dtype=np.int64)  # where in ``flat`` each text begins, and where the last one ends
        self.truncated = 0
        self._tokenize = tokenize
        self._rows: dict[str, int] = {}
        self._broadcast_from_first = broadcast_from_first
        self._console = console
        self._file: IO[bytes] | None = None
        self._share: BroadcastFromFirst = _compute_locally

    def __len__(self) -> int:
        """How many texts there are."""
        return len(self._rows)

    def select(self, texts: Sequence[str]) -> TokenRows:
        """The token ids of these texts, all of which were read."""
        rows = np.fromiter((self._rows[text] for text in texts), dtype=np.int64, count=len(texts))
        starts = self.offsets[rows]
        return TokenRows(self.flat, starts, self.offsets[rows + 1] - starts)

    def read(self, texts: Iterable[str]) -> None:
        """Tokenise those texts that are new.

        Raises:
            NearfarError: the file cannot be written.
        """
        fresh = [text for text in dict.fromkeys(texts) if text not in self._rows]
        if self._file is None and sum(map(len, fresh)) >= FILE_THRESHOLD:
            self._open()
        parts, lengths, truncated = [self.flat], [np.empty(0, dtype=np.int64)], 0

        def append(block: list[str]) -> tuple[NDArray[np.int64], int]:
            ids, cut = self._tokenize(block)
            each = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
            flat = np.fromiter(chain.from_iterable(ids), dtype=self.flat.dtype, count=int(each.sum()))
            if self._file is None:
                parts.append(flat)
            else:
                _write(self._file, flat)
            return each, cut

        with _bar(len(fresh), self._console) as advance:
            for start in range(0, len(fresh), BLOCK):
                block = fresh[start : start + BLOCK]
                each, cut = self._share(partial(append, block))
                lengths.append(each)
                truncated += cut
                advance(len(block))
        self.truncated += truncated
        self.offsets = np.concatenate([self.offsets, self.offsets[-1] + np.concatenate(lengths).cumsum()])
        self._rows.update((text, row) for row, text in enumerate(fresh, start=len(self._rows)))
        if self._file is None:
            self.flat = np.concatenate(parts)
        else:
            mapped = np.memmap(self._file, dtype=self.flat.dtype, mode="r", shape=(int(self.offsets[-1]),))
            self.flat = np.asarray(mapped)

    def _open(self) -> None:
        """Go on in a file, which begins with what has been read.

        It is in the system's folder for temporary files (TMPDIR), which is on this machine, as a run folder need not
        be, and may be written by a dry run. It has no name, so that the system removes it with the last process that
        has it open, also when that is killed; the others find it by the first one's number in /proc.
        """

        def create() -> tuple[str, tuple[str, int, int]]:
            try:
                file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
            except OSError as error:
                raise _refused(error) from error
            self._keep(file)
            _write(file, self.flat)
            return f"/proc/{os.getpid()}/fd/{file.fileno()}", _identity(file.fileno())

        place, identity = self._broadcast_from_first(create)
        self._share = self._broadcast_from_first
        if self._file is None:
            with suppress(OSError):
                if _identity(place) == identity:
                    self._keep(Path(place).open("rb"))  # noqa: SIM115
        if self._file is None:
            create()
            self._share = partial(_compute_on_each, self._broadcast_from_first)

    def _keep(self, file: IO[bytes]) -> None:
        """Leave it open for as long as the store is there."""
        self._file = file
        weakref.finalize(self, file.close)


def _compute_locally(compute: Callable[[], Value]) -> Value:
    return compute()


def _compute_on_each(broadcast_from_first: BroadcastFromFirst, compute: Callable[[], Value]) -> Value:
    broadcast_from_first(compute)  # for which the others wait
    return compute()


def _identity(file: str | int) -> tuple[str, int, int]:
    """Of a file, by its place or number, among those of all machines: a process of the same number may be another."""
    status = os.stat(file)
    return platform.node(), status.st_dev, status.st_ino


def _write(file: IO[bytes], ids: NDArray[Any]) -> None:
    left = memoryview(ids.tobytes())
    try:
        while left:  # a disk that gets full takes a part
            left = left[file.write(left) :]
    except OSError as error:
        raise _refused(error) from error


def _refused(error: OSError) -> NearfarError:
    return NearfarError(
        f"the token ids of the texts cannot be written to a temporary file ({error.strerror}): make room, or name "
        "another folder in the environment variable TMPDIR."
    )


@contextmanager
def _bar(total: int, console: "Console | None") -> Iterator[Callable[[int], None]]:
    """A progress bar where the texts are many; gives what to call with the number of further texts."""
    if console is None or not console.is_terminal or total <= PROGRESS_THRESHOLD:
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("tokenising"), BarColumn(), MofNCompleteColumn(), TextColumn("texts"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("tokenising", total=total)
        yield lambda texts: bar.advance(task, texts)
