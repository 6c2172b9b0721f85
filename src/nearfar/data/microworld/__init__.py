"""A generated corpus of a small English world: inference rows, scored pairs, labelled sentences and plain text.

A sentence says a meaning frame (``frames``) in words of a lexicon (``vocabulary``) through a template (``sentences``).
Labels and scores are computed from the frames, never from the words. The test sets have a vocabulary of their own and
templates that occur nowhere else, so that only what was learnt about meaning carries over: that a passive means the
same, that a denial or swapped roles do not, that a rabbit is a bunny's equal and a kind of animal.
"""

from nearfar.data.microworld.generate import Microworld, generate

__all__ = ["Microworld", "generate"]
