"""The anchors, the documents that can be negatives, and for each anchor the documents that never are."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from nearfar.data.fingerprints import normalize_for_hash


class Candidates(NamedTuple):
    """Distinct anchors and documents, and how the pairs refer to them."""

    anchors: list[str]
    documents: list[str]
    """The distinct positives in the order of the pairs, then the texts of the corpus that are not among them."""
    anchor_of: Int64[np.ndarray, " pairs"]
    """Position of each pair's anchor."""
    positive_of: Int64[np.ndarray, " pairs"]
    """Position of each pair's positive among the documents."""
    starts: NDArray[np.int64]
    """Anchor i never has the documents ``excluded[starts[i] : starts[i + 1]]`` as negatives."""
    excluded: Int64[np.ndarray, " entries"]

    @property
    def most_positives(self) -> int:
        """The largest number of positives of an anchor."""
        pairs = np.unique(np.stack([self.anchor_of, self.positive_of], axis=1), axis=0)
        return int(np.bincount(pairs[:, 0]).max())

    def excluded_of(self, first: int, last: int) -> tuple[Int64[np.ndarray, " entries"], Int64[np.ndarray, " entries"]]:
        """The excluded documents of the anchors ``first`` to ``last - 1``: positions from ``first``, and documents."""
        counts = np.diff(self.starts[first : last + 1])
        return np.repeat(np.arange(last - first), counts), self.excluded[self.starts[first] : self.starts[last]]


def gather(pairs: Sequence[Sequence[str]], corpus: Sequence[str]) -> Candidates:
    """Collect the candidates of pairs (anchor, positive) and further documents.

    Excluded for an anchor are its positives, the positives of equal anchors, and all documents that equal one of these
    or the anchor. Texts are equal here if they have the same letters and digits in any case
    (:func:`nearfar.data.fingerprints.normalize_for_hash`).
    """
    anchors = {text: number for number, text in enumerate(dict.fromkeys(pair[0] for pair in pairs))}
    texts = dict.fromkeys(pair[1] for pair in pairs)
    texts.update(dict.fromkeys(corpus))
    documents = {text: number for number, text in enumerate(texts)}
    equal: dict[str, list[int]] = {}
    for text, number in documents.items():
        equal.setdefault(normalize_for_hash(text), []).append(number)
    never: dict[str, set[int]] = {}
    for anchor, positive in pairs:
        key = normalize_for_hash(anchor)
        if key not in never:
            never[key] = set(equal.get(key, ()))
        never[key].update(equal[normalize_for_hash(positive)])
    lists = [sorted(never[normalize_for_hash(anchor)]) for anchor in anchors]
    return Candidates(
        list(anchors),
        list(documents),
        np.array([anchors[pair[0]] for pair in pairs], dtype=np.int64),
        np.array([documents[pair[1]] for pair in pairs], dtype=np.int64),
        np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64),
        np.array([number for one in lists for number in one], dtype=np.int64),
    )
