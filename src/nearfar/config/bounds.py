"""Types of settings: numbers with bounds, and texts that name files.

Upper bounds are far above useful values. They prevent values that would hang, overflow or exhaust memory.
"""

import re
from collections.abc import Callable
from typing import Annotated, Literal

from msgspec import Meta

MAX_PATH_BYTES = 4095


def check_text(text: str) -> str | None:
    """Why a text cannot be a setting, or None."""
    if not text or text.isspace():
        return "must not be empty"
    if "\0" in text:
        return "must not hold a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "must be UTF-8 text"
    return None


def _named(longest: int) -> Callable[[str], str | None]:
    """The check of a text that may name a file or folder, whose names have at most ``longest`` bytes."""

    def check(text: str) -> str | None:
        if problem := check_text(text):
            return problem
        if any(len(part.encode()) > longest for part in text.split("/")):
            return f"has a name of over {longest} bytes; choose a shorter one"
        if len(text.encode()) > MAX_PATH_BYTES:
            return f"is a path of over {MAX_PATH_BYTES:,} bytes; choose a shorter one"
        return None

    return check


_SHARD = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})")


def _shard(text: str) -> str | None:
    found = _SHARD.fullmatch(text)
    if found and int(found[1]) <= int(found[2]):
        return None
    return "must be NUMBER/COUNT, with a number from 1 to COUNT, as in 3/40"


def shard_numbers(shard: str | None) -> tuple[int, int]:
    """``3/40``, a valid :data:`Shard`, as (3, 40); (1, 1) without shards."""
    number, count = (shard or "1/1").split("/")
    return int(number), int(count)


def _share_or_number(value: float) -> str | None:
    if 0 <= value <= 0.5 or (value >= 2 and value == int(value)):
        return None
    return "must be 0, a share of at most 0.5, or a whole number from 2"


File = Annotated[str, Meta(extra={"check": _named(255)})]
"""A file, a folder, or a name that may be one: file systems allow names of up to 255 bytes."""
ThresholdFile = Annotated[
    str, Meta(extra={"check": lambda value: _named(255)(value) if isinstance(value, str) else None})
]
"""A file of nearfar threshold, where a number may stand in its place."""
Model = Annotated[str, Meta(extra={"check": _named(255), "names_model": True})]
"""A model beside the one that is trained: a folder, or a name on the hub. Its fingerprint belongs to the inputs of a
run."""
Output = Annotated[str, Meta(extra={"check": _named(230)})]
"""A file or folder to write. It is shorter than :data:`File` because temporary files have longer names."""
Prompt = Annotated[str, Meta(extra={"check": lambda text: check_text(text) if text else None})]
"""A text that is put before other texts, or the name of one; empty for none."""
Shard = Annotated[str, Meta(extra={"check": _shard})]
"""One of the equal shares of a command's work: its number and how many there are, as in 3/40."""
Count = Annotated[int, Meta(ge=1, le=10**6)]
"""Number of rows in a batch, or of batches in a step."""
Runs = Annotated[int, Meta(ge=1, le=1000)]
"""Number of repeats of a measurement."""
Epochs = Annotated[int, Meta(ge=1, le=10**5)]
Steps = Annotated[int, Meta(ge=1, le=10**9)]
RowCount = Annotated[int, Meta(ge=1, le=10**12)]
Length = Annotated[int, Meta(ge=3, le=10**6)]
"""Maximum number of tokens in a text: at least two special tokens and one word."""
Overlap = Annotated[int, Meta(ge=0, le=10**6)]
"""Number of tokens that two passages of a text share."""
Width = Annotated[int, Meta(ge=1, le=2**16)]
"""Width of a head, or rank of an adapter."""
AtLeastTwo = Annotated[int, Meta(ge=2, le=10**12)]
PlotPoints = Annotated[int, Meta(ge=4, le=10**5)]
"""Number of points in a plot."""
PageTexts = Annotated[int, Meta(ge=2, le=50_000)]
"""Number of texts on an explorer page."""
Hidden = Annotated[int, Meta(ge=0, le=2**16)]
"""Number of hidden units; 0 for no hidden layer."""
Folds = Annotated[int, Meta(ge=2, le=10**4)]
Tenacity = Annotated[int, Meta(ge=0, le=10**6)]
"""Number of checks without improvement that early stopping tolerates."""
Beams = Annotated[int, Meta(ge=1, le=100)]
ProcessCount = Annotated[int, Meta(ge=1, le=128)]
Resamples = Annotated[int, Meta(ge=2, le=10**6)]
ResamplesOrNone = Annotated[int, Meta(ge=0, le=10**6)]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
NumpySeed = Annotated[int, Meta(ge=0, le=2**32 - 1)]
"""A seed for scikit-learn or NumPy's legacy generators."""
Positive = Annotated[float, Meta(gt=0, le=10**6)]
Temperature = Annotated[float, Meta(ge=1e-8, le=10**6)]
"""Objectives divide similarities by it; nearfar.objectives has the same lower bound."""
Weight = Annotated[float, Meta(ge=0, le=10**6)]
Points = Annotated[float, Meta(ge=0, le=100)]
"""A difference of scores x 100."""
Logit = Annotated[float, Meta(ge=-(10**6), le=10**6)]
Epsilon = Annotated[float, Meta(gt=0, le=1)]
LearningRate = Annotated[float, Meta(gt=0, le=10)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
OpenFraction = Annotated[float, Meta(gt=0, lt=1)]
PositiveFraction = Annotated[float, Meta(gt=0, le=1)]
BelowOne = Annotated[float, Meta(ge=0, lt=1)]
HoldOut = Annotated[float, Meta(ge=-(10**9), le=10**9, extra={"check": _share_or_number})]
"""A share of the rows, or a number of them."""
Cap = Annotated[int, Meta(ge=1, le=10**9)] | Literal["all"]
"""A maximum number, or all."""
