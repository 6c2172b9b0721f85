"""Batches without repeated texts, as far as possible: a group of rows that repeats a text waits for a later batch."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

WAITING = 4
"""Maximum number of groups that wait, per row of a batch; beyond it, a group joins although its texts repeat."""


def fill_distinct(
    groups: Iterable[Sequence[int]], texts_of: Callable[[int], Iterable[str]], batch_size: int
) -> list[list[int]]:
    """Join groups of rows into batches of at most ``batch_size`` rows, without a text of two groups in one batch.

    Groups are taken in their order. One that shares a text with the batch waits and comes first in the next batch; one
    that does not fit ends the batch, and a group of more than ``batch_size`` rows is a batch by itself. If only waiting
    groups are left, or too many wait (:data:`WAITING`), they fill the batch although texts repeat. No row is dropped,
    and groups of one row fill every batch but the last.

    >>> texts = ["ab", "bc", "cd", "de"]
    >>> fill_distinct([[0], [1], [2], [3]], lambda row: texts[row], batch_size=2)
    [[0, 2], [1, 3]]
    >>> fill_distinct([[0], [1], [2], [3]], lambda row: "same", batch_size=3)
    [[0, 1, 2], [3]]
    """
    pending = deque(groups)
    batches: list[list[int]] = []
    while pending:
        batch: list[int] = []
        seen: set[str] = set()
        waiting: list[Sequence[int]] = []
        full = False
        while pending and not full:
            group = pending.popleft()
            if batch and len(batch) + len(group) > batch_size:
                pending.appendleft(group)
                break
            own = {text for row in group for text in texts_of(row)}
            if not seen.isdisjoint(own) and len(waiting) < WAITING * batch_size:
                waiting.append(group)
                continue
            batch.extend(group)
            seen |= own
            full = len(batch) >= batch_size
        if not pending:
            while waiting and len(batch) + len(waiting[0]) <= batch_size:
                batch.extend(waiting.pop(0))
        pending.extendleft(reversed(waiting))
        batches.append(batch)
    return batches
