"""Rows -> batches, in a seeded order that can be resumed at any step; each distinct sentence of a batch occurs once."""

import random
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from nearfar.types import NearfarError

WAITING = 4
"""Maximum number of groups that wait, per row of a batch; beyond it, a group joins although its texts repeat."""


def fill_distinct(
    groups: Iterable[Sequence[int]], texts_of: Callable[[int], Iterable[str]], batch_size: int
) -> Iterator[list[int]]:
    """Join groups of rows into batches of at most ``batch_size`` rows, without a text of two groups in one batch.

    Groups are taken in their order. One that shares a text with the batch waits and comes first in the next batch; one
    that does not fit ends the batch, and a group of more than ``batch_size`` rows is a batch by itself. If only waiting
    groups are left, or too many wait (:data:`WAITING`), they fill the batch although texts repeat. No row is dropped,
    and groups of one row fill every batch but the last.

    >>> texts = ["ab", "bc", "cd", "de"]
    >>> list(fill_distinct([[0], [1], [2], [3]], lambda row: texts[row], batch_size=2))
    [[0, 2], [1, 3]]
    >>> list(fill_distinct([[0], [1], [2], [3]], lambda row: "same", batch_size=3))
    [[0, 1, 2], [3]]
    """
    source, returned = iter(groups), deque[Sequence[int]]()

    def take() -> Sequence[int] | None:
        return returned.popleft() if returned else next(source, None)

    group = take()
    while group is not None:
        batch: list[int] = []
        seen: set[str] = set()
        waiting: list[Sequence[int]] = []
        while group is not None and len(batch) < batch_size:
            if batch and len(batch) + len(group) > batch_size:
                break
            own = {text for row in group for text in texts_of(row)}
            if not seen.isdisjoint(own) and len(waiting) < WAITING * batch_size:
                waiting.append(group)
            else:
                batch.extend(group)
                seen |= own
            group = take()
        while group is None and waiting and len(batch) + len(waiting[0]) <= batch_size:
            batch.extend(waiting.pop(0))
        returned.extendleft(reversed([*waiting, *([] if group is None else [group])]))
        yield batch
        group = take()


Item = TypeVar("Item")


def sample_balanced_batches(
    classes: Mapping[float, Sequence[int]], batch_size: int, steps: int, generator: random.Random
) -> list[list[int]]:
    """Return the row indices of each of ``steps`` batches.

    A batch holds ``batch_size // len(classes)`` rows of each class or, if that is below 2, two rows of each of
    ``batch_size // 2`` classes. Classes, and the rows of each class, are drawn from shuffled lists, which are used up
    before they are shuffled again. No row occurs twice in a batch; a class with fewer rows than its share contributes
    all of them.
    """
    share = max(2, batch_size // len(classes))
    labels = _CyclicSampler(list(classes), generator)
    samplers = {label: _CyclicSampler(rows, generator) for label, rows in classes.items()}
    return [
        [row for label in labels.draw(batch_size // share) for row in samplers[label].draw(share)] for _ in range(steps)
    ]


class _CyclicSampler(Generic[Item]):
    """Draws items in shuffled order, over and over; no item occurs twice in one draw."""

    def __init__(self, items: Sequence[Item], generator: random.Random) -> None:
        self._items, self._generator = items, generator
        self._left: list[Item] = []

    def draw(self, count: int) -> list[Item]:
        """Return ``count`` different items, or all items if there are fewer."""
        count = min(count, len(self._items))
        drawn, self._left = self._left[:count], self._left[count:]
        if len(drawn) < count:
            reshuffled = list(self._items)
            self._generator.shuffle(reshuffled)
            added = [item for item in reshuffled if item not in drawn][: count - len(drawn)]
            self._left = [item for item in reshuffled if item not in added]
            drawn += added
        return drawn


Order: TypeAlias = Literal["premise", "file", "rows"]


@dataclass(frozen=True)
class TextBatch:
    """Rows of a batch, as indices into its distinct sentences; equal texts have equal indices."""

    sentences: list[str]
    """The distinct texts, in order of first appearance."""
    columns: tuple[list[int], ...]
    """For each column (text; anchor, positive, negative; premise, hypothesis), the index of each row's text."""
    targets: list[Any]
    """Label or score of each row; empty without targets."""
    rows: list[int]
    """Index of each row in ``TextBatches.texts``."""


@dataclass(frozen=True)
class TextBatches:
    """The batches of every epoch, a pure function of the fields below and the epoch number.

    ``texts`` are rows of one text each, or pairs, or triplets; ``targets`` their labels or scores. Orders:

    - ``rows``: rows are shuffled each epoch and split into batches of ``batch_size``. A remainder of fewer than
      ``min_batch_size`` rows joins the previous batch, because a contrastive loss needs other rows. Regression and NLI
      rows may set ``min_batch_size`` to 1.
    - ``file``: the same with the rows in their given order, never shuffled (the code of Liao 2021).
    - ``premise``: all rows with the same first text share a batch. Premises are shuffled each epoch and fill one batch
      after the other up to ``batch_size`` rows; a premise that does not fit starts the next batch. A premise with more
      than ``batch_size`` rows is a batch by itself.

    No row is dropped. With ``distinct_texts`` no two rows, or premises, of a batch share a text, as far as possible
    (:mod:`nearfar.data.batching`).

    With ``balanced`` the targets are labels, and each batch holds the same number of texts of each class
    (:mod:`nearfar.data.batching`). An epoch has as many batches as without it, but some rows of a large class may not
    occur, and those of a small class repeatedly. Rows that repeat a text of their class count once.

    Raises NearfarError for a batch size below ``min_batch_size``, with ``balanced`` below 4, or above the number of
    rows.

    >>> rows = [("a", "b"), ("c", "b"), ("d", "a"), ("e", "f"), ("g", "h")]
    >>> [len(batch.rows) for batch in TextBatches(rows, batch_size=2).epoch(0)]
    [2, 3]
    >>> next(TextBatches(rows[:2], batch_size=2, seed=1).epoch(0)).columns
    ([0, 2], [1, 1])
    >>> rows = [("p", "a"), ("q", "b"), ("p", "c")]
    >>> TextBatches(rows, batch_size=2, order="premise").steps(epoch=0)
    2
    """

    texts: Sequence[tuple[str, ...]]
    batch_size: int = 64  # Liao 2021, section 4.2
    seed: int = 0
    targets: Sequence[float] | None = None
    balanced: bool = False
    min_batch_size: int = 2
    distinct_texts: bool = False
    order: Order = "rows"

    def __post_init__(self) -> None:
        if not self.texts:
            raise NearfarError("there are no rows to train on")
        lowest = max(self.min_batch_size, 4 if self.balanced else 1)
        if not lowest <= self.batch_size <= len(self.texts):
            why = ": two texts of each of two classes" if self.balanced else ": a contrastive loss needs other rows"
            raise NearfarError(
                f"--batch-size is {self.batch_size}, but must be from {lowest} to the number of rows, "
                f"{len(self.texts)}{why if self.batch_size < lowest > 1 else ''}"
            )

    def steps(self, epoch: int) -> int:
        """Return the number of batches of this epoch; with order ``premise`` it varies slightly between epochs."""
        if self.order == "premise":
            return len(self._plan(epoch))
        full, rest = divmod(len(self.texts), self.batch_size)
        return full + (rest > 0 if self.balanced else rest >= self.min_batch_size)

    def total_steps(self, epochs: int) -> int:
        """Return the exact number of batches of epochs 0 .. ``epochs`` - 1 in total."""
        return sum(map(self.steps, range(epochs))) if self.order == "premise" else epochs * self.steps(0)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[TextBatch]:
        """Yield the batches of one epoch, starting at its step ``start``."""
        for batch in self._plan(epoch)[start:]:
            rows = list(map(int, batch))
            numbers: dict[str, int] = {}
            indices = [[numbers.setdefault(text, len(numbers)) for text in self.texts[row]] for row in rows]
            targets = [] if self.targets is None else [self.targets[row] for row in rows]
            yield TextBatch(list(numbers), tuple(map(list, zip(*indices, strict=True))), targets, rows)

    @cached_property
    def classes(self) -> dict[float, list[int]]:
        """Label -> the first row index of each distinct text with that label, in order of appearance."""
        first_rows: dict[float, dict[tuple[str, ...], int]] = {}
        for number, label in enumerate(self.targets or ()):
            first_rows.setdefault(label, {}).setdefault(self.texts[number], number)
        return {label: list(rows.values()) for label, rows in first_rows.items()}

    @cached_property
    def premises(self) -> list[list[int]]:
        """The row indices of each distinct first text, texts and rows in order of appearance."""
        groups: dict[str, list[int]] = {}
        for number, row in enumerate(self.texts):
            groups.setdefault(row[0], []).append(number)
        return list(groups.values())

    def _plan(self, epoch: int) -> Sequence[Iterable[int]]:
        """Return the row indices of each batch of the epoch."""
        # A string seed is hashed with SHA-512, so the streams of neighbouring seeds and epochs are independent.
        generator = random.Random(f"{self.seed} {epoch}")
        if self.balanced:
            return sample_balanced_batches(self.classes, self.batch_size, self.steps(epoch), generator)
        if self.order == "premise":
            groups = self.premises.copy()
            generator.shuffle(groups)
            texts_of: Callable[[int], Iterable[str]] = self.texts.__getitem__ if self.distinct_texts else lambda _: ()
            return list(fill_distinct(groups, texts_of, self.batch_size))
        rows = array("i", range(len(self.texts)))  # four bytes a row, of which there may be many
        if self.order == "rows":
            generator.shuffle(rows)
        if self.distinct_texts:
            batches = fill_distinct(([row] for row in rows), self.texts.__getitem__, self.batch_size)
            rows = array("i", chain.from_iterable(batches))
        cuts = [step * self.batch_size for step in range(1, self.steps(epoch))]
        return np.split(np.frombuffer(rows, dtype=np.intc), cuts)
