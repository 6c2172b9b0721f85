"""Types of settings: numbers with bounds, and texts that name files.

Upper bounds are far above useful values. They prevent values that would hang, overflow or exhaust memory.
"""

from typing import Annotated, Literal


class Bounds:
    """The range from ``low`` to ``high``, each inclusive unless open. Annotates a number's type.

    >>> Bounds(1, 1000).violation(0), Bounds(1, 1000).violation(2000), Bounds(1, 1000).violation(7)
    ('must be at least 1', 'must be at most 1,000', None)
    """

    __slots__ = ("high", "low", "open_high", "open_low")

    def __init__(self, low: float | None, high: float, *, open_low: bool = False, open_high: bool = False) -> None:
        self.low, self.high, self.open_low, self.open_high = low, high, open_low, open_high

    def violation(self, value: float) -> str | None:
        """Why ``value`` is out of bounds, or None if it is not."""
        low, high = self.low, self.high
        if low is not None and (value <= low if self.open_low else value < low):
            return f"must be above {low}" if self.open_low else f"must be at least {low}"
        if value >= high if self.open_high else value > high:
            return f"must be below {high:,}" if self.open_high else f"must be at most {high:,}"
        return None


class Interval(Bounds):
    """Bounds that messages show as an interval, such as those of a probability."""

    __slots__ = ()

    def violation(self, value: float) -> str | None:
        """Why ``value`` is out of bounds, or None if it is not."""
        if super().violation(value) is None:
            return None
        if not (self.open_low or self.open_high):
            return f"must be between {self.low} and {self.high}"
        return f"must be in {'(' if self.open_low else '['}{self.low}, {self.high}{')' if self.open_high else ']'}"


class ShareOrNumber(Bounds):
    """A share of up to a half, or a number from 2; 0 for none.

    >>> [ShareOrNumber(0, 10**9).violation(value) for value in (0, 0.05, 200, 0.6)]
    [None, None, None, 'must be 0, a share of at most 0.5, or a whole number from 2']
    """

    __slots__ = ()

    def violation(self, value: float) -> str | None:
        """Why ``value`` is neither, or None if it is one of them."""
        if 0 <= value <= 0.5 or (value >= 2 and value == int(value)):
            return super().violation(value)
        return "must be 0, a share of at most 0.5, or a whole number from 2"


class MaxNameLength:
    """Annotates a text that may name a file or folder: file systems allow names of up to 255 bytes."""

    __slots__ = ("longest",)

    def __init__(self, longest: int = 255) -> None:
        self.longest = longest


class NamesModel:
    """Annotates a text that names a model, whose fingerprint belongs to the inputs of a run."""

    __slots__ = ()


class MayBeEmpty:
    """Annotates a text that may be empty."""

    __slots__ = ()


File = Annotated[str, MaxNameLength()]
"""A file, a folder, or a name that may be one."""
Model = Annotated[str, MaxNameLength(), NamesModel()]
"""A model beside the one that is trained: a folder, or a name on the hub."""
Output = Annotated[str, MaxNameLength(230)]
"""A file or folder to write. It is shorter than :data:`File` because temporary files have longer names."""
Prompt = Annotated[str, MayBeEmpty()]
"""A text that is put before other texts, or the name of one; empty for none."""
Count = Annotated[int, Bounds(1, 10**6)]
"""Number of rows in a batch, or of batches in a step."""
Runs = Annotated[int, Bounds(1, 1000)]
"""Number of repeats of a measurement."""
Epochs = Annotated[int, Bounds(1, 10**5)]
Steps = Annotated[int, Bounds(1, 10**9)]
Rows = Annotated[int, Bounds(1, 10**12)]
Length = Annotated[int, Bounds(3, 10**6)]
"""Maximum number of tokens in a text: at least two special tokens and one word."""
Width = Annotated[int, Bounds(1, 2**16)]
"""Width of a head, or rank of an adapter."""
AtLeastTwo = Annotated[int, Bounds(2, 10**12)]
PlotPoints = Annotated[int, Bounds(4, 10**5)]
"""Number of points in a plot."""
PageTexts = Annotated[int, Bounds(2, 50_000)]
"""Number of texts on an explorer page."""
Hidden = Annotated[int, Bounds(0, 2**16)]
"""Number of hidden units; 0 for no hidden layer."""
Folds = Annotated[int, Bounds(2, 10**4)]
Tenacity = Annotated[int, Bounds(0, 10**6)]
"""Number of checks without improvement that early stopping tolerates."""
Beams = Annotated[int, Bounds(1, 100)]
ProcessCount = Annotated[int, Bounds(1, 128)]
Resamples = Annotated[int, Bounds(1, 10**6)]
ResamplesOrNone = Annotated[int, Bounds(0, 10**6)]
Seed = Annotated[int, Bounds(0, 2**63 - 1)]
NumpySeed = Annotated[int, Bounds(0, 2**32 - 1)]
"""A seed for scikit-learn or NumPy's legacy generators."""
Positive = Annotated[float, Bounds(0, 10**6, open_low=True)]
Temperature = Annotated[float, Bounds(1e-8, 10**6)]
"""Objectives divide similarities by it; nearfar.objectives has the same lower bound."""
Weight = Annotated[float, Bounds(0, 10**6)]
Logit = Annotated[float, Bounds(-(10**6), 10**6)]
Epsilon = Annotated[float, Bounds(0, 1, open_low=True)]
LearningRate = Annotated[float, Bounds(0, 10, open_low=True)]
Fraction = Annotated[float, Interval(0, 1)]
OpenFraction = Annotated[float, Interval(0, 1, open_low=True, open_high=True)]
PositiveFraction = Annotated[float, Interval(0, 1, open_low=True)]
BelowOne = Annotated[float, Interval(0, 1, open_high=True)]
HoldOut = Annotated[float, ShareOrNumber(0, 10**9)]
"""A share of the rows, or a number of them."""
Cap = Annotated[int, Bounds(1, 10**9)] | Literal["all"]
"""A maximum number, or all."""
