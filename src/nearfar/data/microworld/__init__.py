"""A generated corpus of a small English world: inference rows, scored pairs, labelled sentences and plain text.

A sentence expresses a semantic frame (``frames``) by a template (``sentences``), with the words of a lexicon
(``training_words`` or ``held_out_words``). Labels and scores are computed from the frames, never from the words. The
test sets have their own vocabulary and templates, so that only knowledge of meaning generalises: that the passive has
the same meaning, and that negation or swapped roles do not.
"""

from nearfar.data.microworld.generate import Microworld, generate
from nearfar.data.microworld.paraphrases import ParaphrasePair, paraphrase_pairs

__all__ = ["Microworld", "ParaphrasePair", "generate", "paraphrase_pairs"]
