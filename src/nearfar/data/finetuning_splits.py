"""Validation and test rows of a fine-tuning task, by the protocol of a paper.

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

from collections.abc import Sequence
from typing import NamedTuple

from nearfar.data.labelled import Split
from nearfar.data.named_sets import FINETUNING_TASKS
from nearfar.data.sampling import draw, hold_out
from nearfar.types import NearfarError, Splits

VALIDATION_ROWS = 500
"""Default number of validation rows, except in full splits (Gunel et al. 2021)."""


class Part(NamedTuple):
    """Rows of one part, and where they come from, for display."""

    rows: Split
    source: str


def default_splits(name_or_file: str, *, sampled: bool) -> Splits:
    """What ``auto`` means for a task: the protocol of Gunel et al. (2021) for GLUE tasks, else held-out.

    ``sampled``: whether a sample of the training rows is drawn.
    """
    named = FINETUNING_TASKS.get(name_or_file.partition(":")[0])
    if named is None or not named.glue:
        return "held-out"
    return "few-shot" if sampled else "full"


def hold_out_rows(rows: Split, count: int, seed: str, title: str, *, labelled: bool) -> tuple[Split, Split]:
    """The remaining rows and the held-out rows, both in their original order.

    Raises:
        NearfarError: no row can be held out.
    """
    held_out = set(hold_out(_strata(rows, labelled=labelled), count, seed=seed))
    if not held_out:
        part = seed.partition(" ")[2]
        raise NearfarError(f"{title}: too few rows to hold some out for {part}; name other data for {part}.")
    remaining = [index for index in range(len(rows.texts)) if index not in held_out]
    return pick(rows, remaining), pick(rows, sorted(held_out))


def hold_out_validation(
    train: Split, title: str, *, splits: Splits, count: int | None, test_rows: int, seed: int, labelled: bool
) -> tuple[Split, Part]:
    """The remaining training rows, and the validation rows that are drawn from them.

    ``count`` defaults to the number of test rows in full splits, else to 500.

    Raises:
        NearfarError: no row can be held out.
    """
    wanted = count or (test_rows if splits == "full" else VALIDATION_ROWS)
    rows = len(train.texts)
    held_out = wanted if rows >= 2 * wanted else max(1, rows // 10)
    remaining, validation = hold_out_rows(train, held_out, f"{seed} validation", title, labelled=labelled)
    as_many = ", as many as test rows" if splits == "full" and held_out == test_rows and count is None else ""
    tenth = f" (a tenth: {rows:,} rows are too few for {wanted:,})" if held_out < wanted else ""
    return remaining, Part(validation, f"of train, drawn by seed {seed}{_stratified(labelled)}{as_many}{tenth}")


def divide_test(
    tested: Split, title: str, *, splits: Splits, count: int | None, seed: int, labelled: bool
) -> tuple[Part, Part]:
    """The validation and the test rows of ``few-shot`` and ``10-90``, both from the rows of a test set.

    Raises:
        NearfarError: too few rows for both parts.
    """
    rows = len(tested.texts)
    if splits == "10-90":
        if rows < 10:
            raise NearfarError(f"{title}: --splits 10-90 needs at least 10 rows, but there are {rows}.")
        first = range(rows // 10)
        last = range(rows // 10, rows)
        return Part(pick(tested, first), f"the first 10% of {title}"), Part(
            pick(tested, last), f"the last 90% of {title}"
        )
    drawn = f", drawn by seed {seed}{_stratified(labelled)}"
    other, test = hold_out_rows(tested, max(1, rows // 2), f"{seed} test", title, labelled=labelled)
    wanted = count or VALIDATION_ROWS
    if wanted >= len(other.texts):
        small = f" (it is too small for {wanted:,} rows)" if wanted > len(other.texts) else ""
        validation = Part(other, f"the other half of {title}{small}")
    else:
        chosen = draw(_strata(other, labelled=labelled), wanted, balanced=False, seed=f"{seed} validation")
        validation = Part(pick(other, chosen), f"of the other half of {title}{drawn}")
    return validation, Part(test, f"half of {title}{drawn}")


def pick(rows: Split, indices: Sequence[int]) -> Split:
    """The rows with these indices, in this order."""
    return Split([rows.texts[index] for index in indices], [rows.targets[index] for index in indices])


def _strata(rows: Split, *, labelled: bool) -> list[int]:
    return [int(target) for target in rows.targets] if labelled else [0] * len(rows.targets)


def _stratified(labelled: bool) -> str:
    return ", stratified by label" if labelled else ""
