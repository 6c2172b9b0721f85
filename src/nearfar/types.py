"""The few types that several rooms share, and the one legend of tensor axes.

Axes, as they appear in signatures such as ``Float[Tensor, "pairs dim"]``:

=============  ==========================================================
batch          texts in a batch, in the caller's order
tokens         all real tokens of a batch, one text after the other, no padding
layers         hidden layers, 0 being the embedding layer
dim            width of a hidden state or an embedding
pairs          rows (premise, hypothesis) of an NLI batch
anchors        rows of an objective that has one value per anchor
candidates     vectors that an anchor is compared with
features       what a classifier reads of a pair: three times dim
classes        labels of a classifier
negatives      hard negatives of a batch, one vector each
masked         tokens that were masked, and are to be guessed
vocabulary     words of a tokenizer
items          what a method has represented: a sentence, or one of its dropout draws
views          layers of the frozen copy that guide
vectors        embeddings of any role
values         losses, one for each vector
=============  ==========================================================
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np

ENTAILMENT, NEUTRAL, CONTRADICTION = 0, 1, 2
LABEL_NAMES = ("entailment", "neutral", "contradiction")
Resolved: TypeAlias = Literal["fp32", "bf16"]
"""What is computed in."""
Precision: TypeAlias = Literal["auto", "fp32", "bf16"]
"""What may be asked for; :func:`nearfar.encoder.precision.resolve` says what auto is."""


class NliRow(NamedTuple):
    """One natural language inference row; ``label`` indexes :data:`LABEL_NAMES`."""

    premise: str
    hypothesis: str
    label: int


class ScoredPair(NamedTuple):
    """Two texts and how similar people (or a generator) say they are; the scale is the data set's own."""

    first: str
    second: str
    score: float


Encode: TypeAlias = "Callable[[Sequence[str]], np.ndarray]"
"""Anything that turns texts into a float array [texts, dim]; all that evaluation asks of a model."""


class NearfarError(Exception):
    """A mistake that the user can mend. The command line prints its message alone and exits with 2."""
