"""Bag of words: a binary vector with one dimension for each word of the texts, the baseline of SemEval-2017 Task 1.

The cosine of two such vectors is n(a, b) / sqrt(n(a) n(b)), n the number of distinct words of a text, or common to two
texts. Words are lower-cased runs of letters and digits, and single punctuation marks. Cer et al. 2017 use the
tokenizers of treebanks. On the tracks of SemEval-2017 this gives Pearson 59.95 (Arabic), 71.17 (Spanish) and 72.68
(English); published are 60.45, 71.17 and 72.78 (Kim et al. 2021, Table 3).

The dimensions are the words of the texts of one call. Cosines do not depend on them, so nothing is fitted.
"""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nearfar.types import NearfarError

WORD = re.compile(r"\w+|[^\w\s]")
MAX_NUMBERS = 5 * 10**8
"""Maximum size of the matrix: 2 GB."""


def words_of(text: str) -> set[str]:
    """The distinct words of a text.

    >>> sorted(words_of("The dog, the Dog!"))
    ['!', ',', 'dog', 'the']
    """
    return set(WORD.findall(text.lower()))


def bag_of_words(texts: Sequence[str]) -> NDArray[np.float32]:
    """Binary vectors of the words of ``texts`` [texts, words]; a text without words has a zero vector.

    Raises:
        NearfarError: the texts have so many distinct words that the matrix does not fit into 2 GB.
    """
    words = [words_of(text) for text in texts]
    column = {word: number for number, word in enumerate(sorted(set().union(*words)))}
    if len(texts) * len(column) > MAX_NUMBERS:
        raise NearfarError(
            f"bow: {len(texts)} texts with {len(column)} distinct words need {4 * len(texts) * len(column) / 1e9:.0f} "
            "GB; it is for tasks with fewer texts, such as those of similarity."
        )
    vectors = np.zeros((len(texts), max(1, len(column))), dtype=np.float32)
    for row, each in zip(vectors, words, strict=True):
        row[[column[word] for word in each]] = 1
    return vectors
