"""What the evaluations of all tasks share: the averages that papers report, and the vectors of the texts.

An average is given where a result has all of its tasks. Texts are encoded in one call or per task.
"""

from collections.abc import Iterable, Mapping, Sequence
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
    texts: int
    """Number of distinct texts that were encoded."""
    dim: int | None
    """Width of an embedding; None where nothing was encoded."""


class TextEmbeddings(NamedTuple):
    """The vectors of some texts."""

    rows: Mapping[str, int]
    """Text -> its row."""
    vectors: NDArray[Any]
    nonfinite: frozenset[str]
    """The texts whose vectors are not finite in float32."""
    failure: str | None = None
    """Why there are no vectors."""

    def failure_reason(self, texts: Iterable[str]) -> str | None:
        """Why a task with these texts cannot be scored, if it cannot."""
        broken = [text for text in dict.fromkeys(texts) if text in self.nonfinite] if self.nonfinite else []
        if self.failure or not broken:
            return self.failure
        return f"the vectors of {len(broken)} of its texts hold NaN or infinity; the first is that of {broken[0]!r}"


ROWS_PER_BLOCK = 16_384
"""Number of vectors that are checked or scaled at once."""
NO_EMBEDDINGS = TextEmbeddings({}, np.zeros((0, 0), dtype=np.float32), frozenset())


def encoded_size(embedded: Iterable[TextEmbeddings]) -> tuple[int, int | None]:
    """The number of distinct texts, and the width of their vectors; None without vectors."""
    known = list(embedded)
    texts = {text for one in known for text in one.rows}
    return len(texts), max((one.vectors.shape[1] for one in known), default=0) or None


def embed_tasks(encode: Encode, tasks: Mapping[str, Sequence[str]], *, per_task: bool) -> dict[str, TextEmbeddings]:
    """The vectors of each task's texts, encoded in one call for all tasks.

    With ``per_task``, ``encode`` is called once per task, for baselines that are fitted on the texts of a task. If it
    raises for one task, only that task has no vectors.

    Raises:
        NearfarError: ``encode`` does not return one vector of numbers per text.
    """
    if not per_task:
        together = embed(encode, list(dict.fromkeys(text for texts in tasks.values() for text in texts)))
        return dict.fromkeys(tasks, together)
    embedded: dict[str, TextEmbeddings] = {}
    for task, texts in tasks.items():
        try:
            embedded[task] = embed(encode, list(dict.fromkeys(texts)))
        except NearfarError as error:
            embedded[task] = NO_EMBEDDINGS._replace(failure=str(error).rstrip("."))
    return embedded


def embed(encode: Encode, texts: list[str], *, texts_per_call: int | None = None) -> TextEmbeddings:
    """The vectors that ``encode`` returns for distinct ``texts``; it is not called without texts.

    With ``texts_per_call`` they are encoded in blocks, into one new matrix in float32.

    Raises:
        NearfarError: it does not return one vector of numbers per text.
    """
    if not texts:
        return NO_EMBEDDINGS
    size = texts_per_call or len(texts)
    vectors = NO_EMBEDDINGS.vectors
    for start in range(0, len(texts), size):
        block = texts[start : start + size]
        found = np.asarray(encode(block))
        check_vectors(found, len(block))
        if start == 0:
            vectors = np.empty((len(texts), found.shape[1]), dtype=np.float32) if texts_per_call else found
        if texts_per_call:
            with np.errstate(over="ignore"):
                vectors[start : start + size] = found
    nonfinite: set[str] = set()
    for start in range(0, len(texts), ROWS_PER_BLOCK):
        with np.errstate(over="ignore"):
            rows = vectors[start : start + ROWS_PER_BLOCK].astype(np.float32, copy=False)
        nonfinite |= {texts[start + row] for row in np.flatnonzero(~np.isfinite(rows).all(axis=1)).tolist()}
    return TextEmbeddings({text: row for row, text in enumerate(texts)}, vectors, frozenset(nonfinite))


def check_vectors(vectors: NDArray[Any], texts: int) -> None:
    """Refuse what an encode function returned for this number of texts, unless it is one vector of numbers per text.

    Raises:
        NearfarError: another shape, or an array of something else than numbers.
    """
    if vectors.ndim != 2 or len(vectors) != texts or vectors.dtype.kind not in "fiu":
        raise NearfarError(
            f"encode returned {vectors.dtype} of shape {vectors.shape} for {texts} texts; "
            f"it must return one vector of numbers per text, [{texts}, dim]."
        )
