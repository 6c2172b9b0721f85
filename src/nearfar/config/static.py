"""Settings of ``nearfar static``."""

from dataclasses import dataclass

from nearfar.config.bounds import Fraction, Output, Width
from nearfar.config.encoder import ComputeOptions


@dataclass(frozen=True, kw_only=True)
class StaticConfig(ComputeOptions):
    """Make a static encoder of any encoder: one vector for each token, averaged over the tokens of a text.

    It is much faster and less accurate. nearfar train distill --model OUTPUT fits it to the encoder.
    """

    output: Output
    """Folder to write, in the format of sentence-transformers."""
    dim: Width | None = 256
    """Number of principal components to keep, at most the width of MODEL; none for all."""
    sif: Fraction = 1e-4
    """A token of frequency p gets the weight SIF / (SIF + p), where frequencies follow Zipf's law in the order of the
    vocabulary; 0 for equal weights."""
