"""Held-out rows, and the tasks that they make: retrieval, a nearest-neighbour vote, or scored pairs."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from nearfar.data.fingerprints import normalize_for_hash
from nearfar.data.retrieval_task import RetrievalTask
from nearfar.types import CONTRADICTION, ENTAILMENT, LABEL_NAMES, ScoredPair

Kind: TypeAlias = Literal["pairs", "nli", "labelled", "scored"]
Part: TypeAlias = Literal["dev", "test"]
DEV: Part = "dev"
TEST: Part = "test"
COLUMNS: dict[Kind, tuple[str, ...]] = {
    "pairs": ("anchor", "positive", "negative"),
    "nli": ("premise", "hypothesis", "label"),
    "labelled": ("text", "label"),
    "scored": ("sentence1", "sentence2", "score"),
}
"""The columns of rows; pairs have no negative."""
METRICS: dict[Kind, str] = {"pairs": "mrr@10", "nli": "mrr@10", "labelled": "accuracy", "scored": "spearman"}
"""The score of held-out rows: of pairs and NLI rows the mean reciprocal rank of the positive among the first 10."""


class VoteTask(NamedTuple):
    """Labelled texts, and labelled training texts whose nearest ones vote for the label."""

    texts: list[str]
    labels: list[str]
    training_texts: list[str]
    training_labels: list[str]


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Rows that a run does not train on, and the training rows among which they are searched for."""

    kind: Kind
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    """One text for each column; the last one is a label or a score, if the rows have one."""
    parts: list[Part]
    """Of each row: dev, which chooses the best step, or test."""
    training: list[tuple[str, ...]]
    """Positives of training rows, which are distractors; or labelled training rows (text, label)."""
    source: str
    seed: int
    training_rows: int
    """Number of rows that are trained on."""
    left_out: int = 0
    """Number of rows that are neither held out nor trained on."""

    @property
    def metric(self) -> str:
        """The name of the score."""
        return METRICS[self.kind]

    @property
    def texts(self) -> list[str]:
        """All texts of the held-out rows, without hard negatives."""
        width = 1 if self.kind == "labelled" else 2
        return [text for row in self.rows for text in row[:width]]

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the held-out rows without hard negatives: their texts, labels or scores, and parts.

        It does not depend on the order of the rows. Runs with equal digests hold out the same rows.
        """
        width = 2 if self.kind == "pairs" else len(self.columns)
        lines = {
            "\t".join([part, *map(normalize_for_hash, row[:width])])
            for part, row in zip(self.parts, self.rows, strict=True)
        }
        return hashlib.sha256("\n".join([self.kind, *sorted(lines)]).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def anchors(self, part: Part) -> int:
        """Number of distinct queries, labelled texts or scored pairs of a part."""
        rows = self._rows(part)
        return len(rows) if self.kind == "scored" else len({row[0] for row in rows if self._is_positive(row)})

    def retrieval(self, part: Part, *, documents: int | None = None) -> RetrievalTask:
        """Search for the positives of the anchors of a part (pairs, NLI rows).

        Documents are the distinct positives and hard negatives (contradictions) of the part, for the test part those of
        all held-out rows, then positives of training rows until there are ``documents``. A query that is a document too
        does not find itself.
        """
        rows = self._rows(part)
        places: dict[str, int] = {}
        for row in rows if part == DEV else [*rows, *self._rows(DEV)]:
            for text in self._document_texts(row):
                places.setdefault(text, len(places))
        own = len(places)
        for (text,) in self.training:
            if documents is not None and len(places) >= documents:
                break
            places.setdefault(text, len(places))
        relevant: dict[str, dict[int, int]] = {}
        for row in rows:
            if self._is_positive(row):
                relevant.setdefault(row[0], {})[places[row[1]]] = 1
        return RetrievalTask(
            queries=list(relevant),
            documents=list(places),
            relevant=list(relevant.values()),
            query_ids=list(map(str, range(len(relevant)))),
            document_ids=list(map(str, range(len(places)))),
            counts={"documents of training rows": len(places) - own},
            main="mrr@10",
            excluded={number: places[text] for number, text in enumerate(relevant) if text in places},
        )

    def vote(self, part: Part, *, training: int | None = None) -> VoteTask:
        """Labelled texts of a part, to be labelled by their neighbours among up to ``training`` training rows."""
        rows, known = self._rows(part), self.training[:training]
        return VoteTask(
            [text for text, _ in rows], [label for _, label in rows], [text for text, _ in known], [x for _, x in known]
        )

    def pairs(self, part: Part) -> list[ScoredPair]:
        """Scored pairs of a part."""
        return [ScoredPair(first, second, float(score)) for first, second, score in self._rows(part)]

    def text_rows(self, part: Part) -> list[tuple[str, ...]]:
        """The texts of the rows of a part, without labels and scores."""
        width = {"labelled": 1, "pairs": None}.get(self.kind, 2)
        return [row[:width] for row in self._rows(part)]

    def _rows(self, part: Part) -> list[tuple[str, ...]]:
        return [row for row, own in zip(self.rows, self.parts, strict=True) if own == part]

    def _is_positive(self, row: Sequence[str]) -> bool:
        return self.kind != "nli" or row[2] == LABEL_NAMES[ENTAILMENT]

    def _document_texts(self, row: Sequence[str]) -> Sequence[str]:
        """Positive and hard negative."""
        if self.kind == "nli":
            return row[1:2] if row[2] in (LABEL_NAMES[ENTAILMENT], LABEL_NAMES[CONTRADICTION]) else ()
        return row[1:]
