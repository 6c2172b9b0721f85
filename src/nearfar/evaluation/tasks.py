"""What the evaluations of all tasks share: the averages that papers report, and the vectors of the texts.

An average is given where a result has all of its tasks. Texts are encoded task by task.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearfar.types import Encode, NearfarError

SEMEVAL = ("sts12", "sts13", "sts14", "sts15", "sts16")
SIMILARITY_AVERAGES: Mapping[str, tuple[str, ...]] = {
    "seven tasks, SICK-R test": (*SEMEVAL, "stsb", "sickr"),
    "seven tasks, SICK-R full": (*SEMEVAL, "stsb", "sickr-full"),
    "STS12 to STS16": SEMEVAL,
}
"""SimCSE's, with SICK-R's 4,927 test pairs; MTEB's, with all 9,927; and that of Liao 2021 (table 2), whose aggregate is
``wmean``."""

_BEFORE_SST, _AFTER_SST = ("mr", "cr", "subj", "mpqa"), ("trec", "mrpc")
TRANSFER_AVERAGES: Mapping[str, tuple[str, ...]] = {
    "SimCSE's seven": (*_BEFORE_SST, "sst2-phrases", *_AFTER_SST),
    "seven tasks, SST-2 sentences": (*_BEFORE_SST, "sst2", *_AFTER_SST),
    "Liao's eight": (*_BEFORE_SST, "sst2-phrases", "sst5", *_AFTER_SST),
    "eight tasks, SST-2 sentences": (*_BEFORE_SST, "sst2", "sst5", *_AFTER_SST),
}
"""Averages of accuracies. SimCSE (table E.1), SBERT and Kim et al. 2021 (table 4) report the first, Liao 2021 (table 3)
the third. They train SST-2 on SentEval's 67,349 phrases, ``sst2-phrases``; with the 6,920 sentences an average has
another name."""


Task = TypeVar("Task")
Average = TypeVar("Average")


class ScoredTasks(NamedTuple, Generic[Task, Average]):
    """Scores on tasks of one kind: parts of an evaluation result."""

    tasks: dict[str, Task]
    averages: dict[str, Average]
    unavailable: dict[str, str]
    """Task -> why it has no score."""
    dim: int | None
    """Width of an embedding; None where nothing was encoded."""


class TextEmbeddings(NamedTuple):
    """The vectors of the texts of a task."""

    rows: Mapping[str, int]
    """Text -> its row."""
    vectors: NDArray[Any]
    failure: str | None = None
    """Why the task cannot be scored: there are no vectors, or one is not finite in float32."""


def widest(embedded: Iterable[TextEmbeddings]) -> int | None:
    """The width of the vectors; None without vectors."""
    return max((one.vectors.shape[1] for one in embedded), default=0) or None


def embed(encode: Encode, texts: Iterable[str], *, texts_per_call: int | None = None) -> TextEmbeddings:
    """The vectors that ``encode`` returns for the distinct ``texts``; it is not called without texts.

    With ``texts_per_call`` they are encoded in blocks, into a matrix in float32. An error of ``encode``, such as of a
    baseline that cannot be fitted to these texts, is the reason why there are no vectors.

    Raises:
        NearfarError: it does not return one vector of numbers per text.
    """
    texts = list(dict.fromkeys(texts))
    size, vectors, broken = texts_per_call or len(texts), np.zeros((0, 0), dtype=np.float32), []
    for start in range(0, len(texts), size or 1):
        block = texts[start : start + size]
        try:
            encoded = np.asarray(encode(block))
        except NearfarError as error:
            return TextEmbeddings({}, vectors[:0], str(error).rstrip("."))
        if encoded.ndim != 2 or len(encoded) != len(block) or encoded.dtype.kind not in "fiu":
            raise NearfarError(
                f"encode returned {encoded.dtype} of shape {encoded.shape} for {len(block)} texts; "
                f"it must return one vector of numbers per text, [{len(block)}, dim]."
            )
        if start == 0:
            kind = np.float32 if texts_per_call else encoded.dtype
            vectors = np.empty((len(texts), encoded.shape[1]), dtype=kind)
        with np.errstate(over="ignore"):
            vectors[start : start + size] = encoded
            finite = np.isfinite(encoded.astype(np.float32, copy=False)).all(axis=1)
        broken += [block[row] for row in np.flatnonzero(~finite)]
    what = f"the vectors of {len(broken)} of its texts hold NaN or infinity; the first is that of " if broken else None
    return TextEmbeddings({text: row for row, text in enumerate(texts)}, vectors, what and f"{what}{broken[0]!r}")
