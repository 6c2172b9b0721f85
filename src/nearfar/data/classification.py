"""Data to fine-tune classifiers on: tasks of GLUE, reviews, and one's own labelled texts, each in three parts.

========  ======================================  ==========================================================
task      rows; labels, or scores                 train; test
========  ======================================  ==========================================================
sst2      text; negative, positive                GLUE's (phrases too); GLUE's validation set
cola      text; unacceptable, acceptable          GLUE's; GLUE's validation set
mrpc      pair; different, paraphrase             the official 4,076 pairs; the official 1,725
rte       pair; entailment, not_entailment        GLUE's; GLUE's validation set
qnli      question, sentence; labels as rte       GLUE's; GLUE's validation set
mnli      premise, hypothesis; entailment,        GLUE's; GLUE's matched validation set
          neutral, contradiction
stsb      pair; scores, 0 to 5                    official; official, and so is the validation set
amazon2   text; negative, positive                reviews with 1-2 and 4-5 stars; likewise
yelp2     text; negative, positive                reviews with 1-2 and 4-5 stars; a fifth of them
========  ======================================  ==========================================================

GLUE keeps the labels of its test sets to itself. As in Gunel et al. (2021), its *validation* set is the test set here,
and 500 training rows with the label distribution of the training set are the validation set; scores on GLUE's
leaderboard are others. A train split other than ``train`` stands after a colon: ``mnli:train_20k_nyu``. Reviews with 3
stars are left out, as they were from the polarity sets of Zhang et al. (2015); the labelled *sentences* of
``sentiment-labelled:yelp``, picked for being clear, are no substitute for reviews, so that ``yelp2`` holds out its own.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from nearfar.data.label_counts import label_summary
from nearfar.data.labelled import Reader, Split, infer_reader
from nearfar.data.nli import UNLABELLED
from nearfar.data.sampling import hold_out
from nearfar.types import LABEL_NAMES, NearfarError

Metric: TypeAlias = Literal["accuracy", "matthews", "accuracy_f1", "pearson_spearman"]


@dataclass(frozen=True, kw_only=True)
class ClassificationTask:
    """A task to fine-tune for and to test on."""

    name: str
    train: Split
    validation: Split
    test: Split
    label_names: tuple[str, ...]
    """The name of each label's number; empty where targets are scores."""
    metric: Metric
    """``accuracy_f1``: F1 of the label numbered 1, as in GLUE."""
    sources: tuple[str, ...]
    """What train, validation and test are, for people to read."""
    labels: tuple[str, ...] = ()
    """Labels with their counts, before rows are held out, and which are rare (:mod:`nearfar.data.label_counts`)."""


class _TaskDefinition(NamedTuple):
    source: str
    """Set in the catalog."""
    test: str | None
    """Spec in the catalog; None: a fifth of train."""
    columns: tuple[str, ...]
    label_names: tuple[str, ...]
    metric: Metric = "accuracy"
    label_aliases: Mapping[str, str | None] | None = None
    """Label as it is written, besides by name -> its name; None: left out. By default, the numbers of the labels."""
    note: str = "GLUE's validation set, as the labels of its test set are not published"
    validation: str | None = None
    label_column: str = "label"

    def reader(self, name: str) -> Reader:
        numbers: dict[str, int | None] = {label: number for number, label in enumerate(self.label_names)}
        if self.label_aliases is None:
            numbers |= {str(number): number for number in range(len(self.label_names))}
        else:
            numbers |= {
                written: None if label is None else numbers[label] for written, label in self.label_aliases.items()
            }
        return Reader(
            columns=self.columns,
            label_column=self.label_column,
            label_names=self.label_names,
            labels=numbers,
            label_source=f"those of {name}",
        )


_TEXT, _PAIR = ("text",), ("sentence1", "sentence2")
_SENTIMENT = ("negative", "positive")
_ENTAILMENT = ("entailment", "not_entailment")  # in GLUE's order, as all labels here
_STARS = {"1": "negative", "2": "negative", "3": None, "4": "positive", "5": "positive"}
_NLI = {str(number): name for number, name in enumerate(LABEL_NAMES)} | {mark: None for mark in UNLABELLED if mark}
_MRPC = "the official test set, whose labels are published; GLUE's validation set is a part of train"
_MATCHED = "GLUE's matched validation set, as the labels of its test sets are not published"
_TASKS: Mapping[str, _TaskDefinition] = {
    "sst2": _TaskDefinition("sst2-glue", "sst2-glue:dev", _TEXT, _SENTIMENT),
    "cola": _TaskDefinition("cola", "cola:dev", _TEXT, ("unacceptable", "acceptable"), "matthews"),
    "mrpc": _TaskDefinition("mrpc", "mrpc:test", _PAIR, ("different", "paraphrase"), "accuracy_f1", note=_MRPC),
    "rte": _TaskDefinition("rte", "rte:dev", _PAIR, _ENTAILMENT),
    "qnli": _TaskDefinition("qnli", "qnli:dev", ("question", "sentence"), _ENTAILMENT),
    "mnli": _TaskDefinition(
        "mnli", "mnli:dev_matched", ("premise", "hypothesis"), LABEL_NAMES, label_aliases=_NLI, note=_MATCHED
    ),
    "stsb": _TaskDefinition(
        "stsb",
        "stsb:test",
        _PAIR,
        (),
        "pearson_spearman",
        note="the official test set",
        validation="stsb:dev",
        label_column="score",
    ),
    "amazon2": _TaskDefinition("amazon5", "amazon5:test", _TEXT, _SENTIMENT, label_aliases=_STARS, note=""),
    "yelp2": _TaskDefinition("yelp5", None, _TEXT, _SENTIMENT, label_aliases=_STARS, note=""),
}
TASKS = tuple(_TASKS)


def load_classification(
    name_or_file: str,
    *,
    validation: str | None = None,
    test: str | None = None,
    validation_rows: int = 500,  # Gunel et al. 2021
    seed: int = 0,
    text_columns: Sequence[str] | None = None,
    label_column: str = "label",
    limit: int | None = None,
) -> ClassificationTask:
    """Return a task by its name (module docstring), or one's own data: a file or hub data set, named as in the catalog.

    One's own data has the columns ``text`` and ``label``, or ``sentence1``, ``sentence2`` and ``label``, or those that
    ``text_columns`` (one or two) and ``label_column`` name. Labels are strings or integers, numbered by value where all
    are integers, else as text. They are *scores*, to be predicted by regression, where one has a fraction (``3.5``).
    ``microworld`` gives its generated sentences by kind of activity.

    ``validation`` and ``test`` name other data for these parts, with the same columns and labels. Where there is none

    - for test, a fifth of the training rows is held out, by ``seed``, labels in their proportions; that of ``yelp2`` is
      the same whatever the seed;
    - for validation, ``validation_rows`` of those that are left are drawn likewise; where fewer than twice as many are
      left, a tenth of them.

    A label's only row stays in train. ``limit`` then keeps the first so many training rows: validation and test do not
    depend on it. Texts are tidied as :func:`nearfar.data.sources.text_field` says.

    Raises:
        NearfarError: data that cannot be found or read, columns that it does not have; an empty text, a label that the
            task or the training data does not have, a score that is no number or off the scale (each with file and
            line); a part without rows, a label without a training row, labels or scores that are all equal; data named
            for training and for another part.
    """
    _check_counts(validation_rows, limit)
    name, _, split = name_or_file.partition(":")
    named, spec = _TASKS.get(name), name_or_file
    if named is None:
        reader = infer_reader(spec, text_columns, label_column)
        metric: Metric = "accuracy" if reader.label_names else "pearson_spearman"
        test_note, test_seed = "", seed
    else:
        if text_columns is not None or label_column != "label":
            raise NearfarError(f"{name} knows its own columns; name none.")
        reader, metric = named.reader(name), named.metric
        spec = f"{named.source}:{split or 'train'}"
        test_note, test_seed = f" ({named.note})" if named.note and not test else "", 0
        test, validation = test or named.test, validation or named.validation
    for one, first, other, second in (
        ("training", spec, "test", test),
        ("training", spec, "validation", validation),
        ("validation", validation, "test", test),
    ):
        if first is not None and first == second:
            raise NearfarError(f"{first} is named for {one} and for {other}; name other data for one of them.")

    train, title = reader.read(spec)
    counts = Counter(int(target) for target in train.targets) if reader.label_names else Counter()
    labels = label_summary({name: counts[number] for number, name in enumerate(reader.label_names)}) if counts else []
    stratified = ", labels in their proportions" if reader.label_names else ""
    if test is None:
        train, tested = _take_out(train, max(1, len(train.texts) // 5), f"{test_seed} test", title, reader)
        tested_title = f"a fifth of train, drawn by seed {test_seed}{stratified}"
    else:
        tested, tested_title = reader.read(test)
    if validation is None:
        rows = len(train.texts)
        count = validation_rows if rows >= 2 * validation_rows else max(1, rows // 10)
        train, validated = _take_out(train, count, f"{seed} validation", title, reader)
        tenth = f" (a tenth, as {rows:,} rows are too few for {validation_rows:,})" if count < validation_rows else ""
        validated_title = f"of train, drawn by seed {seed}{stratified}{tenth}"
    else:
        validated, validated_title = reader.read(validation)
    train = Split(train.texts[:limit], train.targets[:limit])
    _check_train(train, title, reader, limit)
    known = set(train.texts)
    return ClassificationTask(
        name=name_or_file,
        train=train,
        validation=validated,
        test=tested,
        label_names=reader.label_names,
        metric=metric,
        sources=(
            _part_summary("train", title, train, set()),
            _part_summary("validation", validated_title, validated, known),
            _part_summary("test", tested_title + test_note, tested, known),
        ),
        labels=tuple(labels),
    )


def _check_counts(validation_rows: int, limit: int | None) -> None:
    for number, what in ((validation_rows, "The number of validation rows"), (limit, "The limit of training rows")):
        if number is not None and number < 1:
            raise NearfarError(f"{what} is {number}, but must be at least 1.")


def _take_out(rows: Split, count: int, seed: str, title: str, reader: Reader) -> tuple[Split, Split]:
    """Return the rows that stay and those that are taken out, both in their order."""
    strata = [int(target) for target in rows.targets] if reader.label_names else [0] * len(rows.targets)
    out = set(hold_out(strata, count, seed=seed))
    if not out:
        part = seed.rpartition(" ")[2]
        raise NearfarError(f"{title}: too few rows to hold some out for {part}; name other data for {part}.")
    stay = [place for place in range(len(strata)) if place not in out]
    return _pick(rows, stay), _pick(rows, sorted(out))


def _pick(rows: Split, places: Sequence[int]) -> Split:
    return Split([rows.texts[place] for place in places], [rows.targets[place] for place in places])


def _check_train(train: Split, title: str, reader: Reader, limit: int | None) -> None:
    there = set(train.targets)
    more = "" if limit is None else f" Only {limit} training rows are kept: keep more, or draw a sample."
    for number, name in enumerate(reader.label_names):
        if number not in there:
            raise NearfarError(f"{title}: no training row has the label {name!r}.{more}")
    if len(there) < 2:
        score = train.targets[0]
        raise NearfarError(f"{title}: every score is {score:g}; there is nothing to learn from equal scores.{more}")


def _part_summary(part: str, title: str, rows: Split, train: set[tuple[str, ...]]) -> str:
    count = f"{len(rows.texts):,} rows"
    again = sum(texts in train for texts in rows.texts)
    return f"{part}: {title}: {count}" + (f", {again:,} of them with texts that train has too" if again else "")
