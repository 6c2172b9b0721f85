"""A generated corpus of a small English world: inference rows, scored pairs, labelled sentences and plain text.

A sentence says a meaning frame (``frames``) through a template (``sentences``), in the words of a lexicon
(``training_words`` or ``held_out_words``). Labels and scores are computed from the frames, never from the words. The
test sets have a vocabulary of their own and templates that occur nowhere else, so that only what was learnt about
meaning carries over: that the passive means the same, that a denial or swapped roles do not.
"""

from nearfar.data.microworld.generate import Microworld, generate

__all__ = ["Microworld", "generate"]
