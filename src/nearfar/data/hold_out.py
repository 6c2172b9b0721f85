"""Split training rows into rows to train on and held-out rows, so that no text is on both sides.

Rows that share a text, as :func:`nearfar.data.fingerprints.normalize_for_hash` normalises it, are connected, and
connected rows stay together. Which groups are held out depends on the texts alone, not on their order or a run's seed,
so that all seeds and methods that train on the same rows hold out the same ones. Half of the held-out anchors are the
dev part, which chooses the best step, the others the test part. Rows that the start has seen in earlier training do not
test it.

A small file is not split but cut into folds: each row tests a model that was trained without its fold.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearfar.data.cells import normalize_whitespace
from nearfar.data.fingerprints import Hashes, among, combine_hashes, connect_rows, normalize_for_hash, text_hashes
from nearfar.data.retrieval import RetrievalTask, task_of_pairs
from nearfar.data.rows import TextData
from nearfar.disk.model_folder import SeenHashes
from nearfar.disk.rows import DiskRows, distinct
from nearfar.types import CONTRADICTION, ENTAILMENT, LABEL_NAMES, NearfarError, ScoredPair

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

WHAT: dict[Kind, str] = {"pairs": "anchors", "nli": "anchors", "labelled": "texts", "scored": "scored pairs"}
"""What is counted."""


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
    rows: list[tuple[str, ...]]
    """One text for each column; the last one is a label or a score, if the rows have one."""
    parts: list[Part]
    """Of each row: dev, which chooses the best step, or test."""
    training: list[tuple[str, ...]]
    """Positives of training rows, which are distractors; or labelled training rows (text, label)."""
    source: str
    training_rows: int
    """Number of rows that are trained on."""
    left_out: int = 0
    """Number of rows that are neither held out nor trained on."""
    folds: tuple[int, ...] = ()
    """The fold of each row, from 1 on, if the rows are tested fold by fold; the run itself is trained on all of them,
    and ``training`` has those that are in no fold."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rows."""
        return COLUMNS[self.kind][: len(self.rows[0])]

    @property
    def metric(self) -> str:
        """The name of the score."""
        return METRICS[self.kind]

    @property
    def texts(self) -> list[str]:
        """All texts of the held-out rows, without hard negatives."""
        return [text for row in self.rows for text in row[: self._width]]

    @property
    def _width(self) -> int:
        """Number of texts of a row, without hard negatives."""
        return 1 if self.kind == "labelled" else 2

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the held-out rows without hard negatives: their texts, labels or scores, and parts.

        It does not depend on the order of the rows. Runs with equal digests hold out the same rows.
        """
        width = 2 if self.kind == "pairs" else None
        parts = zip(self.parts, self.rows, strict=True)
        lines = {"\t".join([part, *map(normalize_for_hash, row[:width])]) for part, row in parts}
        return hashlib.sha256("\n".join([self.kind, *sorted(lines)]).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def texts_of(self, fold: int) -> list[str]:
        """All texts of the rows of a fold, without hard negatives."""
        folds = zip(self.rows, self.folds, strict=True)
        return [text for row, own in folds if own == fold for text in row[: self._width]]

    def folds_of_units(self) -> list[int]:
        """The fold of each query of :meth:`retrieval`, or of each labelled text or scored pair, in their order."""
        if self.kind in ("scored", "labelled"):
            return list(self.folds)
        by_row = zip(self.rows, self.folds, strict=True)
        return list({row[0]: fold for row, fold in by_row if self._is_positive(row)}.values())

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
        searched = rows if part == DEV else [*rows, *self._rows(DEV)]
        own = dict.fromkeys(text for row in searched for text in self._document_texts(row))
        every = dict.fromkeys([*own, *(text for (text,) in self.training)])
        limit = None if documents is None else max(documents, len(own))
        places = {text: place for place, text in enumerate(islice(every, limit))}
        pairs = ((row[0], row[1]) for row in rows if self._is_positive(row))
        return task_of_pairs(pairs, places, {"documents of training rows": len(places) - len(own)})

    def vote(self, part: Part, *, training: int | None = None) -> VoteTask:
        """Labelled texts of a part, to be labelled by their neighbours among up to ``training`` training rows."""
        texts, labels = zip(*self._rows(part), strict=True)
        known = self.training[:training]
        return VoteTask([*texts], [*labels], [text for text, _ in known], [label for _, label in known])

    def pairs(self, part: Part) -> list[ScoredPair]:
        """Scored pairs of a part."""
        return [ScoredPair(first, second, float(score)) for first, second, score in self._rows(part)]

    def text_rows(self, part: Part) -> list[tuple[str, ...]]:
        """The texts of the rows of a part, without labels and scores."""
        return [row if self.kind == "pairs" else row[: self._width] for row in self._rows(part)]

    def _rows(self, part: Part) -> list[tuple[str, ...]]:
        """The rows of a part; in the dev part without hard negatives that are anchors or positives of the test part."""
        rows = [row for row, own in zip(self.rows, self.parts, strict=True) if own == part]
        if part == TEST or self.columns != COLUMNS["pairs"]:
            return rows
        tested = {normalize_for_hash(text) for row in self._rows(TEST) for text in row[:2]}
        return [row[:2] if normalize_for_hash(row[2]) in tested else row for row in rows]

    def _is_positive(self, row: Sequence[str]) -> bool:
        return self.kind != "nli" or row[2] == LABEL_NAMES[ENTAILMENT]

    def _document_texts(self, row: Sequence[str]) -> Sequence[str]:
        """Positive and hard negative."""
        if self.kind == "nli":
            return row[1:2] if row[2] in (LABEL_NAMES[ENTAILMENT], LABEL_NAMES[CONTRADICTION]) else ()
        return row[1:]


SEED = 0
"""Seed of the choice of groups, of all runs."""
SHARE, AT_LEAST, AT_MOST, LARGEST_SHARE = 0.05, 200, 1000, 0.2
"""The default: 5% of the anchors, at least 200 and at most 1,000, but never more than a fifth. A hundred test anchors
find a difference of about six points of MRR, or eleven of accuracy, in 8 of 10 cases."""
FEWEST = 10
"""Number of anchors below which nothing is held out by default, because they measure nothing."""
FOLDS = 5
FEW_ANCHORS = 400
"""Number of anchors, other than labelled texts, below which rows are tested in folds by default."""
MAX_TRAINING_ROWS = 20_000
"""Maximum number of training rows among which held-out rows are searched for."""
_ADVICE = "Name a dev set by --evaluate-on, or hold out nothing by --hold-out 0."


class Split(NamedTuple):
    """Rows to train on, and the held-out rows."""

    rows: TextData
    held_out: HeldOut
    facts: list[str]
    """What was held out, in sentences."""


def kind_of(rows: TextData) -> Kind | None:
    """What held-out rows of this type are; None for plain sentences, and for rows without a measure."""
    width = len(rows.rows[0])
    if rows.targets is None or width == 3:  # triplets may have the scores of a teacher
        return "nli" if rows.is_nli else None if width == 1 else "pairs"
    if width == 1:
        return "labelled"
    return "scored" if width == 2 and not rows.label_names else None


def hold_out(
    rows: TextData, size: float | None = None, *, source: str = "the data", seen: SeenHashes | None = None
) -> Split:
    """Split ``rows``. ``size`` is a share (0 to 0.5) or a number of anchors; None for the default (:data:`SHARE`).

    An anchor is a distinct first text of pairs and triplets, a distinct premise with an entailment, a distinct labelled
    text, or a scored pair. Hard negatives do not connect rows: a training row whose negative is a held-out text is left
    out instead. Of each label, two texts remain.

    ``seen`` are hashes of what the model to start from has seen. The test part has no group with such a text, and the
    dev part first those that chose its step, then others that it was not trained on, so that a run that goes on with
    the same rows tests on the same ones. If fewer would remain than are held out at least, seen rows are held out too,
    and the facts tell their share.

    Raises:
        NearfarError: too few anchors, or rows that are connected so much that too few can be held out.
    """
    kind = kind_of(rows)
    assert kind is not None
    known = _Rows(rows, kind, seen)
    wanted = number_to_hold_out(known.total, size, source=source)
    parts, chosen = known.choose(partial(known.choose_parts, wanted), fewest=min(wanted, FEWEST))
    held = parts > 0
    if chosen < min(wanted, FEWEST if size is None else 2):
        raise NearfarError(
            f"{source}: only {chosen} of {wanted} anchors can be held out, because rows share texts: the largest group "
            f"of connected rows has {known.sizes.max(initial=0):,} of {known.total:,} anchors, and it must stay on one "
            f"side. {_ADVICE}"
        )
    kept = ~held
    if kind == "pairs" and len(rows.rows[0]) == 3:
        hidden = text_hashes(text for row in np.flatnonzero(held).tolist() for text in known.linked[row])
        kept &= ~np.isin(text_hashes(row[2] for row in rows.rows), hidden)
    training = replace(take_rows(rows, np.flatnonzero(kept)), held_out=int((~kept).sum()))
    names: list[Part] = [TEST if part == _TEST else DEV for part in parts[held]]
    left_out, count = int((~kept & ~held).sum()), len(training.rows)
    held_out = known.held_out(held, names, training, source=source, left_out=left_out, training_rows=count)
    dev, test = (f"{known.count(parts == part):,}" for part in (_DEV, _TEST))
    said = f"{dev} {WHAT[kind]} that choose the best step (dev), and {test} that test the result"
    facts = [f"held out: {said}; {len(held_out.rows):,} rows, {count:,} rows to train on"]
    if left_out:
        facts.append(f"{left_out:,} rows are left out, because their negative is a held-out text")
    if chosen < wanted:
        facts.append(f"{wanted:,} were to be held out; more do not fit, because rows share texts or labels are rare")
    return Split(training, held_out, [*facts, *known.seen_facts(parts == _TEST)])


def in_folds(rows: TextData, *, source: str = "the data", seen: SeenHashes | None = None) -> Split | None:
    """Cut ``rows`` into up to :data:`FOLDS` folds with equally many anchors; all of them are trained on.

    Connected rows are in one fold, and of labelled texts each fold has equally many of each label, up to one. The folds
    depend on the texts and labels alone. In no fold are rows without an anchor, a group with over half of the anchors,
    labels that would keep fewer than two texts outside of a fold, and texts that are among ``seen``, the hashes of what
    the model to start from has seen, unless fewer than :data:`FEWEST` anchors would be left.

    None for :data:`FEW_ANCHORS` or more, and for fewer than :data:`FEWEST` that can be tested; both but for labels.

    Raises:
        NearfarError: labelled texts, of which none can be tested.
    """
    kind = kind_of(rows)
    assert kind is not None
    known = _Rows(rows, kind, seen)
    if kind != "labelled" and known.total >= FEW_ANCHORS:
        return None
    folds, tested = known.choose(known.choose_folds, fewest=FEWEST)
    inside = folds > 0
    if kind == "labelled" and not tested:
        raise NearfarError(f"{source}: no label has 3 texts, so none can be tested. --hold-out 0 leaves the test out.")
    if kind != "labelled" and tested < FEWEST:
        return None
    numbers = 1 + np.unique(folds[inside], return_inverse=True)[1]
    outside = take_rows(rows, np.flatnonzero(~inside))
    more = {"source": source, "folds": tuple(numbers.tolist()), "training_rows": len(rows.rows)}
    held_out = known.held_out(inside, [TEST] * len(numbers), outside, **more)
    fact = (
        f"all {len(rows.rows):,} rows are trained on; {tested:,} of {known.total:,} {WHAT[kind]} then test the result "
        f"in {numbers.max()} folds, by {numbers.max()} more trainings, each without a fold"
    )
    return Split(rows, held_out, [fact, *known.seen_facts(inside)])


_DEV, _TEST = 1, 2
"""The numbers of the parts of rows, 0 for those to train on."""


class _Rows:
    """Rows in groups of connected rows, and their anchors, which are what is counted."""

    def __init__(self, data: TextData, kind: Kind, seen: SeenHashes | None) -> None:
        self.data, self.kind = data, kind
        self.linked = _first_texts(data.rows, 2) if kind in ("pairs", "nli") else data.rows
        """The texts of each row by which it is connected with others: all but hard negatives."""
        connected = connect_rows(self.linked)
        self.groups = connected.of_rows
        """The group of each row."""
        count = int(connected.of_texts.max()) + 1
        smallest = np.full(count, np.iinfo(np.uint64).max, dtype=np.uint64)
        np.minimum.at(smallest, connected.of_texts, connected.hashes)
        self.keys = _shuffled(smallest)
        """A hash of each group, by which groups are ordered at random."""
        self.seen = np.zeros(count, dtype=np.int8)
        """What the start has seen of each group: 0 nothing, 1 a text that chose its step, 2 one it trained on."""
        if seen:
            self.seen[connected.of_texts[among(seen.chosen_texts, connected.hashes)]] = 1
            self.seen[connected.of_texts[among(seen.trained_texts, connected.hashes)]] = 2
        self.anchors = np.arange(len(self.linked))
        """The number of each row's anchor; -1 for a row that measures nothing."""
        if kind != "scored":
            first = text_hashes(row[0] for row in self.linked)
            self.anchors = np.searchsorted(distinct(first), first)
        if kind == "nli":
            self.anchors[[row.label != ENTAILMENT for row in data.rows]] = -1
        counted = self.anchors >= 0
        anchors = distinct(self.groups[counted] * len(self.anchors) + self.anchors[counted])
        self.sizes = np.bincount(anchors // len(self.anchors), minlength=count)
        """The number of anchors of each group; an anchor is in one group."""
        self.total = int(self.sizes.sum())
        self.labels: dict[int, set[int]] = defaultdict(set)
        """The labels of each group of labelled texts, which is one text; empty for other rows."""
        for group, label in zip(self.groups.tolist(), data.targets or (), strict=False) if kind == "labelled" else ():
            self.labels[group].add(int(label))

    def count(self, rows: NDArray[np.bool_]) -> int:
        """The number of anchors of some rows."""
        return len(distinct(self.anchors[rows & (self.anchors >= 0)]))

    def held_out(self, rows: NDArray[np.bool_], parts: list[Part], training: TextData, **more: Any) -> HeldOut:
        """Some of the rows as held out, to be searched for among rows of ``training``."""
        fields = _fields(take_rows(self.data, np.flatnonzero(rows)))
        return HeldOut(kind=self.kind, rows=fields, parts=parts, training=_sample(training, self.kind), **more)

    def choose(
        self, assign: Callable[[NDArray[np.int8]], NDArray[np.int64]], *, fewest: int
    ) -> tuple[NDArray[np.int64], int]:
        """The part or fold of each row, 0 for none, and the number of anchors in one; with what was seen if too few."""
        numbers = assign(self.seen)
        if self.count(numbers > 0) < fewest:
            numbers = assign(np.zeros_like(self.seen))
        return numbers, self.count(numbers > 0)

    def seen_facts(self, tested: NDArray[np.bool_]) -> list[str]:
        """What the start has seen of the anchors, and of the rows that test the result."""
        known = self.seen[self.groups] > 0
        share, count = (known & tested).sum() / max(tested.sum(), 1), self.count(known)
        said = f"{count:,} anchors have texts that the model to start from has seen in its training; none of them tests"
        if share:
            said = (
                f"warning: the model to start from has seen {share:.0%} of the test rows in its training, so they test "
                "little; add rows that are new to it, or start from the model that it was trained from"
            )
        return [said] if count else []

    def choose_parts(self, wanted: int, seen: NDArray[np.int8]) -> NDArray[np.int64]:
        """The part of each row, with up to ``wanted`` anchors in dev and test together.

        Groups go to the part that has fewer anchors so far, in the order of their keys, if they fit. What the start has
        seen is no test, and dev last of all what it was trained on.
        """
        left = Counter(label for own in self.labels.values() for label in own)
        part_of_group = np.zeros(len(self.sizes), dtype=np.int64)
        counts = {_DEV: 0, _TEST: 0}

        def fits(group: int) -> bool:
            is_free = not part_of_group[group] and 0 < self.sizes[group] <= wanted - sum(counts.values())
            return bool(is_free) and all(left[label] > 2 for label in self.labels.get(group, ()))

        order = np.argsort(self.keys, kind="stable")
        by_seen = np.concatenate([order[seen[order] == level] for level in (1, 0, 2)])
        candidates = {_DEV: iter(by_seen), _TEST: iter(order[seen[order] == 0])}
        while sum(counts.values()) < wanted:
            part = _DEV if counts[_DEV] <= counts[_TEST] else _TEST
            group = next(filter(fits, candidates[part]), None)
            if group is None:
                break
            left.subtract(self.labels.get(group, ()))
            part_of_group[group], counts[part] = part, counts[part] + int(self.sizes[group])
        return part_of_group[self.groups]

    def choose_folds(self, seen: NDArray[np.int8]) -> NDArray[np.int64]:
        """The fold of each row, from 1 on; 0 for rows that test nothing."""
        tested = (self.sizes > 0) & (2 * self.sizes <= self.total) & (seen == 0)
        first_label = np.zeros(len(self.sizes), dtype=np.int64)
        if self.kind == "labelled":
            first_label[self.groups[::-1]] = np.array(self.data.targets, dtype=np.int64)[::-1]
        folds, anchors_in = np.zeros(len(self.sizes), dtype=np.int64), np.zeros(FOLDS, dtype=np.int64)
        for group in np.lexsort((self.keys, -self.sizes, first_label)):
            if tested[group]:
                folds[group] = 1 + anchors_in.argmin()
                anchors_in[folds[group] - 1] += self.sizes[group]
        for label in set().union(*self.labels.values()):
            members = np.array([group for group, own in self.labels.items() if label in own])
            for fold in range(1, 1 + FOLDS):
                inside = members[folds[members] == fold]
                if len(members) - len(inside) < 2:
                    folds[inside] = 0
        return folds[self.groups]


def without_texts(rows: TextData, held_out: Sequence[str]) -> TextData:
    """The rows that have none of the held-out texts; of a further set of rows."""
    texts = _first_texts(rows.rows, 2) if rows.is_nli else rows.rows
    kept = ~_contain(texts, text_hashes(held_out))
    return rows if kept.all() else take_rows(rows, np.flatnonzero(kept))


def number_to_hold_out(total: int, size: float | None, *, source: str) -> int:
    """Number of anchors to hold out of ``total``; ``size`` is as in :func:`hold_out`.

    Raises:
        NearfarError: there are too few.
    """
    usual = min(max(round(SHARE * total), AT_LEAST), AT_MOST, int(LARGEST_SHARE * total))
    if size is None and usual < FEWEST:
        raise NearfarError(f"{source}: {total} anchors are too few to hold out a fifth of them. {_ADVICE}")
    found = usual if size is None else round(size * total) if size <= 0.5 else int(size)
    if size is not None and not 2 <= found <= total / 2:
        raise NearfarError(
            f"--hold-out {size:g}: {source} has {total:,} anchors; hold out from 2 to {total // 2:,}, or 0."
        )
    return found


def _shuffled(hashes: Hashes) -> Hashes:
    """Hashes of hashes: their order is random, and the same everywhere."""
    return combine_hashes(hashes, np.full(len(hashes), SEED, dtype=np.uint64))


def _fields(rows: TextData) -> list[tuple[str, ...]]:
    """The columns of each row as texts."""
    if rows.is_nli:
        last = [[LABEL_NAMES[row.label]] for row in rows.rows]
    elif rows.label_names:
        last = [[rows.label_names[int(target)]] for target in rows.targets or ()]
    else:
        scores = rows.targets if rows.rows and kind_of(rows) == "scored" else None
        last = [[repr(float(score))] for score in scores] if scores else [[]] * len(rows.rows)
    texts = (row[:2] if rows.is_nli else row for row in rows.rows)
    return [(*map(normalize_whitespace, row), *target) for row, target in zip(texts, last, strict=True)]


def _sample(training: TextData, kind: Kind) -> list[tuple[str, ...]]:
    """Training rows among which held-out rows are searched for: positives, or labelled texts.

    They are distinct, at most :data:`MAX_TRAINING_ROWS`, in a random order that depends on their texts alone.
    """
    if kind == "scored":
        return []
    if kind == "nli":
        training = take_rows(training, np.flatnonzero([row.label == ENTAILMENT for row in training.rows]))
    text = 0 if kind == "labelled" else 1
    sample: dict[tuple[str, ...], None] = {}
    order = np.argsort(_shuffled(text_hashes(row[text] for row in training.rows)), kind="stable")
    for start in range(0, len(order), MAX_TRAINING_ROWS):
        rows = _fields(take_rows(training, order[start : start + MAX_TRAINING_ROWS]))
        sample |= dict.fromkeys(row if kind == "labelled" else row[1:2] for row in rows)
        if len(sample) >= MAX_TRAINING_ROWS:
            break
    return list(sample)[:MAX_TRAINING_ROWS]


def _contain(rows: Sequence[Sequence[str]], hashes: Hashes) -> NDArray[np.bool_]:
    """Which rows have a text with one of the hashes. Shape (rows,)."""
    found = [np.isin(text_hashes(row[column] for row in rows), hashes) for column in range(len(rows[0]))]
    return np.logical_or.reduce(found)


def take_rows(rows: TextData, places: NDArray[np.int64]) -> TextData:
    """The rows at some places, in their order."""
    targets = None if rows.targets is None else [rows.targets[place] for place in places.tolist()]
    if isinstance(rows.rows, DiskRows):
        return replace(rows, rows=rows.rows.take(places), targets=targets)
    return replace(rows, rows=[rows.rows[place] for place in places.tolist()], targets=targets)


def _first_texts(rows: Sequence[Any], width: int) -> Sequence[Any]:
    return rows.first_texts(width) if isinstance(rows, DiskRows) else [row[:width] for row in rows]
