"""What a setting may be, declared in its field's type: bounds of numbers, and texts that name files.

The caps are absurd but safe: above them a run would hang, overflow or fill the memory, and nobody needs to pass them.
"""

from typing import Annotated, Literal


class Bounds:
    """From ``low`` to ``high``, each included unless it is open; a mark on a number's type.

    >>> Bounds(1, 1000).violation(0), Bounds(1, 1000).violation(2000), Bounds(1, 1000).violation(7)
    ('must be at least 1', 'must be at most 1,000', None)
    """

    __slots__ = ("high", "low", "open_high", "open_low")

    def __init__(self, low: float | None, high: float, *, open_low: bool = False, open_high: bool = False) -> None:
        self.low, self.high, self.open_low, self.open_high = low, high, open_low, open_high

    def violation(self, value: float) -> str | None:
        """Why ``value`` is outside, or None."""
        low, high = self.low, self.high
        if low is not None and (value <= low if self.open_low else value < low):
            return f"must be above {low}" if self.open_low else f"must be at least {low}"
        if value >= high if self.open_high else value > high:
            return f"must be below {high:,}" if self.open_high else f"must be at most {high:,}"
        return None


class Interval(Bounds):
    """Bounds that a message names both, as they are short: a share, a probability."""

    __slots__ = ()

    def violation(self, value: float) -> str | None:
        """Why ``value`` is outside, or None."""
        if super().violation(value) is None:
            return None
        if not (self.open_low or self.open_high):
            return f"must be between {self.low} and {self.high}"
        return f"must be in {'(' if self.open_low else '['}{self.low}, {self.high}{')' if self.open_high else ']'}"


class MaxNameLength:
    """A mark on a text that names a file or folder, or may: file systems take names of 255 bytes at most."""

    __slots__ = ("longest",)

    def __init__(self, longest: int = 255) -> None:
        self.longest = longest


File = Annotated[str, MaxNameLength()]
"""A file, a folder, or a name that is looked up as one too."""
Output = Annotated[str, MaxNameLength(230)]
"""What is written; while it is, files beside it have longer names."""
Count = Annotated[int, Bounds(1, 10**6)]
"""Rows of a batch, or batches of a step."""
Runs = Annotated[int, Bounds(1, 1000)]
"""Of a study, for each setting."""
Epochs = Annotated[int, Bounds(1, 10**5)]
Steps = Annotated[int, Bounds(1, 10**9)]
Rows = Annotated[int, Bounds(1, 10**12)]
Length = Annotated[int, Bounds(3, 10**6)]
"""Tokens of a text: two special ones and a word."""
Width = Annotated[int, Bounds(1, 2**16)]
"""Of a head or an adapter."""
AtLeastTwo = Annotated[int, Bounds(2, 10**12)]
PlotPoints = Annotated[int, Bounds(4, 10**5)]
"""Points of a plot."""
Hidden = Annotated[int, Bounds(0, 2**16)]
"""Units, or none."""
Folds = Annotated[int, Bounds(2, 10**4)]
Beams = Annotated[int, Bounds(1, 100)]
ProcessCount = Annotated[int, Bounds(1, 128)]
Resamples = Annotated[int, Bounds(1, 10**6)]
ResamplesOrNone = Annotated[int, Bounds(0, 10**6)]
Seed = Annotated[int, Bounds(0, 2**63 - 1)]
NumpySeed = Annotated[int, Bounds(0, 2**32 - 1)]
"""Where scikit-learn or NumPy's older generators take it."""
Positive = Annotated[float, Bounds(0, 10**6, open_low=True)]
Weight = Annotated[float, Bounds(0, 10**6)]
Logit = Annotated[float, Bounds(-(10**6), 10**6)]
LearningRate = Annotated[float, Bounds(0, 10, open_low=True)]
Fraction = Annotated[float, Interval(0, 1)]
OpenFraction = Annotated[float, Interval(0, 1, open_low=True, open_high=True)]
BelowOne = Annotated[float, Interval(0, 1, open_high=True)]
Cap = Annotated[int, Bounds(1, 10**9)] | Literal["all"]
"""At most so many, or all."""
