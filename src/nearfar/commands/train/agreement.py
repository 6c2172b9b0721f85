"""What chooses the step of distillation without scored pairs: how well the student agrees with its teacher.

Sentences are held out, and all pairs of them are the measure: Spearman's correlation between the student's and the
teacher's cosines. Which sentences are held out depends on the texts alone, as in :mod:`nearfar.data.hold_out`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.commands.train.dev import DevSet, Measured
from nearfar.data.fingerprints import text_hashes
from nearfar.data.hold_out import number_to_hold_out, take_rows
from nearfar.data.rows import TextData
from nearfar.types import NearfarError, Precision

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder

NAME = "the held-out sentences"


class HeldOutSentences(NamedTuple):
    """Sentences to train on, and held-out ones."""

    rows: TextData
    texts: list[str]


def hold_out_sentences(rows: TextData, size: float | None, *, source: str) -> HeldOutSentences:
    """Hold out a share (0 to 0.5) or a number of sentences; None for the default number.

    Raises:
        NearfarError: there are too few sentences.
    """
    hashes = text_hashes(text for (text,) in rows.rows)
    wanted = number_to_hold_out(len(rows.rows), size, source=source)
    chosen = hashes <= np.sort(hashes)[wanted - 1]  # texts that differ only in case or white space share a hash
    kept = take_rows(rows, np.flatnonzero(~chosen).tolist())
    assert isinstance(kept, TextData)
    texts = [rows.rows[place][0] for place in np.flatnonzero(chosen)]
    return HeldOutSentences(replace(kept, held_out=len(texts)), texts)


def agreement_dev(texts: Sequence[str], teacher: str) -> DevSet:
    """The held-out sentences as a dev set, scored by their agreement with ``teacher``."""
    upper = np.triu_indices(len(texts), 1)

    def cosines(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
        found: NDArray[np.float32] = (unit @ unit.T)[upper]
        return found

    @cache
    def targets(device: str, precision: Precision) -> NDArray[np.float32]:
        from nearfar.encoder.encoder import Encoder

        return cosines(Encoder.from_pretrained(teacher, device=device).encode(texts, precision=precision))

    def measure(encoder: "Encoder", precision: Precision) -> Measured:
        from nearfar.evaluation.correlation import spearman, undefined_reason

        vectors = encoder.encode(texts, precision=precision, check_finite=False)

        def score() -> float:
            expected, found = targets(str(encoder.device), precision), cosines(vectors)
            if (reason := undefined_reason(expected, found)) is not None:
                raise NearfarError(f"{NAME}: no correlation to choose the best step by: {reason}.")
            return spearman(expected, found)

        return Measured(score, vectors)

    count = f"{len(texts):,} sentences, Spearman of the student's cosines with the teacher's"
    facts = [f"dev set: {count}; these sentences are not trained on"]
    rows = [(text,) for text in texts]
    return DevSet(name=NAME, shown=NAME, metric="spearman", measure=measure, rows=rows, facts=facts, count=count)
