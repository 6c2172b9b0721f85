"""Which labelled rows validate, test and train: the splits of the papers, drawn by label and seed.

GLUE does not publish the labels of its test sets, so papers make splits of their own:

=========  ====================================  ================================================  ====================
splits     test rows                             validation rows                                   source
=========  ====================================  ================================================  ====================
few-shot   half of GLUE's validation set         500 rows of the other half, or all of it if it    Gunel et al. 2021,
                                                 is smaller                                        Tables 2 and 3
full       GLUE's validation set                 training rows, as many as test rows               the same, Table 5
held-out   GLUE's validation set                 500 training rows                                 nearfar
10-90      the last 90% of GLUE's validation     its first 10%                                     Kim et al. 2021,
           set                                                                                     Table 10
=========  ====================================  ================================================  ====================

All draws are stratified by label and depend on a fixed seed only, not on the sample of training rows. Training rows
that are held out are never trained on. With fewer than twice as many training rows as validation rows, a tenth of the
training rows is held out instead.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

from nearfar.data.labelled import Split
from nearfar.data.named_sets import FINETUNING_TASKS
from nearfar.types import NearfarError, Splits

VALIDATION_ROWS = 500
"""Default number of validation rows, except in full splits (Gunel et al. 2021)."""


def default_splits(name_or_file: str, *, sampled: bool) -> Splits:
    """What ``auto`` means for a task: the protocol of Gunel et al. (2021) for GLUE tasks, else held-out.

    ``sampled``: whether a sample of the training rows is drawn.
    """
    named = FINETUNING_TASKS.get(name_or_file.partition(":")[0])
    if named is None or not named.glue:
        return "held-out"
    return "few-shot" if sampled else "full"


class Drawing(NamedTuple):
    """Draws rows by a seed, stratified by label unless their targets are scores."""

    seed: int
    labelled: bool

    @property
    def words(self) -> str:
        """How the rows are drawn."""
        return f"drawn by seed {self.seed}{', stratified by label' if self.labelled else ''}"

    def strata(self, rows: Split) -> list[int]:
        """The label of each row."""
        return [int(target) for target in rows.targets] if self.labelled else [0] * len(rows.targets)

    def hold_out(self, rows: Split, count: int, part: str, title: str) -> tuple[Split, Split]:
        """The remaining rows and those held out for a part, both in their original order.

        Raises:
            NearfarError: no row can be held out.
        """
        held_out = set(hold_out(self.strata(rows), count, seed=f"{self.seed} {part}"))
        if not held_out:
            raise NearfarError(f"{title}: too few rows to hold some out for {part}; name other data for {part}.")
        remaining = [index for index in range(len(rows.texts)) if index not in held_out]
        return pick(rows, remaining), pick(rows, sorted(held_out))

    def hold_out_validation(self, train: Split, title: str, *, count: int | None) -> tuple[Split, Split, str]:
        """The remaining training rows; ``count`` validation rows, by default 500, drawn from them; and how, in words.

        Raises:
            NearfarError: no row can be held out.
        """
        wanted, rows = count or VALIDATION_ROWS, len(train.texts)
        held_out = wanted if rows >= 2 * wanted else max(1, rows // 10)
        remaining, validation = self.hold_out(train, held_out, "validation", title)
        tenth = f" (a tenth: {rows:,} rows are too few for {wanted:,})" if held_out < wanted else ""
        return remaining, validation, f"of train, {self.words}{tenth}"

    def divide_test(
        self, tested: Split, title: str, *, splits: Splits, count: int | None
    ) -> tuple[Split, str, Split, str]:
        """The validation and the test rows of ``few-shot`` and ``10-90``, each with how, from the rows of a test set.

        Raises:
            NearfarError: too few rows for both parts.
        """
        rows = len(tested.texts)
        if splits == "10-90":
            if rows < 10:
                raise NearfarError(f"{title}: --splits 10-90 needs at least 10 rows, but there are {rows}.")
            first, last = pick(tested, range(rows // 10)), pick(tested, range(rows // 10, rows))
            return first, f"the first 10% of {title}", last, f"the last 90% of {title}"
        other, test = self.hold_out(tested, max(1, rows // 2), "test", title)
        wanted = min(count or VALIDATION_ROWS, len(other.texts))
        chosen = draw(self.strata(other), wanted, balanced=False, seed=f"{self.seed} validation")
        half = f"half of {title}, {self.words}"
        return pick(other, chosen), f"of the other {half}", test, half


def pick(rows: Split, indices: Sequence[int]) -> Split:
    """The rows with these indices, in this order."""
    return Split([rows.texts[index] for index in indices], [rows.targets[index] for index in indices])


def draw(
    targets: Sequence[int], count: int, *, balanced: bool, seed: int | str, label_names: Sequence[str] = ()
) -> list[int]:
    """Return the indices of ``count`` rows, drawn without replacement, in ascending order: a few-shot sample.

    With ``balanced`` all labels have the same number of rows; if ``count`` is not a multiple of the number of labels,
    randomly chosen labels have one more. Otherwise labels keep their proportions in ``targets``
    (:func:`largest_remainder`), with at least one row each. Gunel et al. (2021) draw ten samples each of 20, 100 and
    1,000 rows for their few-shot results, and 20 rows of each of two labels for those of Table 7.

    The sample is a function of the arguments; neighbouring seeds give independent samples. ``label_names`` are for
    messages.

    Raises:
        NearfarError: ``count`` is below the number of labels or above the number of rows, or a label has too few rows
            for its share of a balanced sample.

    >>> targets = [0, 0, 0, 0, 0, 0, 1, 1, 1]
    >>> [sum(targets[row] for row in draw(targets, 6, balanced=balanced, seed=1)) for balanced in (True, False)]
    [3, 2]
    """
    rows_of = _rows_of(targets)
    if not len(rows_of) <= count <= len(targets):
        raise NearfarError(f"A sample has from {len(rows_of)} (the labels) to {len(targets)} rows (all), not {count}.")
    generator = random.Random(f"{seed}")
    sizes = [1 if balanced else len(rows) for rows in rows_of.values()]
    shares = largest_remainder(sizes, count, generator)
    for index, (label, rows) in enumerate(rows_of.items()):
        if shares[index] == 0:
            shares[shares.index(max(shares))] -= 1
            shares[index] = 1
        if shares[index] > len(rows):
            name = repr(label_names[label]) if label_names else str(label)
            raise NearfarError(f"The label {name} has {len(rows)} rows, but a balanced sample needs {shares[index]}.")
    return _sample(list(rows_of.values()), shares, generator)


def hold_out(targets: Sequence[int], count: int, *, seed: int | str) -> list[int]:
    """Return the indices of ``count`` rows to hold out, in ascending order, stratified by label.

    The only row of a label is never held out, and at most half of all other rows are, so that each label keeps at least
    one. The held-out rows may lack a rare label. Returns an empty list if no label has two rows.
    """
    groups = [rows for rows in _rows_of(targets).values() if len(rows) > 1]
    sizes = [len(rows) for rows in groups]
    generator = random.Random(f"{seed}")
    return _sample(groups, largest_remainder(sizes, min(count, sum(sizes) // 2), generator), generator)


def largest_remainder(sizes: Sequence[int], count: int, generator: random.Random) -> list[int]:
    """Apportion ``count`` in proportion to ``sizes`` by the largest remainder method; the shares add up to ``count``.

    Each share is count x size / sum of sizes, rounded down; the rest goes, one each, to the largest fractions, with
    ties broken at random. If ``count`` is at most the sum, no share exceeds its size.

    >>> largest_remainder([60, 30, 11], 10, random.Random("1"))
    [6, 3, 1]
    """
    total = sum(sizes)
    shares = [count * size // total for size in sizes]
    order = generator.sample(range(len(sizes)), len(sizes))  # the sort is stable, so this order breaks ties
    by_fraction = sorted(order, key=lambda index: count * sizes[index] % total, reverse=True)
    for index in by_fraction[: count - sum(shares)]:
        shares[index] += 1
    return shares


def _rows_of(targets: Sequence[int]) -> dict[int, list[int]]:
    rows_of: dict[int, list[int]] = {label: [] for label in sorted(set(targets))}
    for row, label in enumerate(targets):
        rows_of[label].append(row)
    return rows_of


def _sample(groups: Sequence[Sequence[int]], shares: Sequence[int], generator: random.Random) -> list[int]:
    return sorted(row for rows, share in zip(groups, shares, strict=True) for row in generator.sample(rows, share))
