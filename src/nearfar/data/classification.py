"""Data for fine-tuning classifiers: GLUE tasks, reviews, and own labelled texts, each split into train, dev and test.

========  ======================================  ==========================================================
task      rows; labels, or scores                 train; test
========  ======================================  ==========================================================
sst2      text; negative, positive                GLUE's (phrases too); GLUE's validation set
cola      text; unacceptable, acceptable          GLUE's; GLUE's validation set
mrpc      pair; different, paraphrase             the official 4,076 pairs; the official 1,725
mrpc-glue the same                                GLUE's 3,668 pairs; GLUE's validation set, the other 408
rte       pair; entailment, not_entailment        GLUE's; GLUE's validation set
qnli      question, sentence; labels as rte       GLUE's; GLUE's validation set
mnli      premise, hypothesis; entailment,        GLUE's; GLUE's matched validation set
          neutral, contradiction
stsb      pair; scores, 0 to 5                    official; official, and so is the validation set
amazon2   text; negative, positive                reviews with 1-2 and 4-5 stars; likewise
yelp2     text; negative, positive                reviews with 1-2 and 4-5 stars; a fifth of them
========  ======================================  ==========================================================

GLUE does not publish the labels of its test sets. Its *validation* set is the test set here, or is divided into
validation and test rows (:mod:`nearfar.data.draws`); scores are not comparable with GLUE's leaderboard.
Another training split is named after a colon: ``mnli:train_20k_nyu``. Reviews with 3 stars are dropped, as in the
polarity sets of Zhang et al. (2015), which are the tasks ``amazon-polarity`` and ``yelp-polarity``. The labelled
*sentences* of ``sentiment-labelled:yelp`` were selected for being clear and do not represent reviews, so ``yelp2``
holds out its own test set.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from nearfar.data.draws import Drawing
from nearfar.data.labelled import Reader, Split, infer_reader, label_summary
from nearfar.data.named_sets import FINETUNING_TASKS, FinetuningTask, Metric
from nearfar.types import NearfarError, Splits


@dataclass(frozen=True, kw_only=True)
class ClassificationTask:
    """A fine-tuning task: its training, validation and test rows."""

    name: str
    """Of what is tested: the test file, if one is named."""
    train: Split
    validation: Split
    test: Split
    label_names: tuple[str, ...]
    """The label names in the order of their numbers; empty for a task with scores."""
    metric: Metric
    """``accuracy_f1``: F1 of the label with number 1, as in GLUE."""
    splits: Splits = "held-out"
    """The protocol of the validation and test rows; never ``auto``."""
    sources: tuple[str, ...]
    """One description each of train, validation and test, for display."""
    labels: tuple[str, ...] = ()
    """Label counts before rows are held out (:func:`nearfar.data.labelled.label_summary`)."""

    @property
    def pairs(self) -> bool:
        """Whether rows have two texts."""
        return len(self.train.texts[0]) == 2


def load_classification(
    name_or_file: str,
    *,
    validation: str | None = None,
    test: str | None = None,
    splits: Splits = "held-out",
    validation_rows: int | None = None,
    seed: int = 0,
    text_columns: Sequence[str] | None = None,
    label_column: str = "label",
    limit: int | None = None,
) -> ClassificationTask:
    """Return a task by name (module docstring), or own data: a file or hub data set (:mod:`nearfar.data.catalog`).

    Own data has the columns ``text`` and ``label``, or ``sentence1``, ``sentence2`` and ``label``, or the columns in
    ``text_columns`` (one or two) and ``label_column``. Labels are strings or integers; they are numbered in numeric
    order if all are integers, else in text order. If any label has a fraction (``3.5``), they are *scores*, for
    regression.

    ``validation`` and ``test`` name other data for these splits, with the same columns and labels. Without ``test``,
    named tasks have a test set, or a stratified fifth of the training rows is held out, by ``seed`` (for ``yelp2``
    independent of the seed). Without ``validation``, ``splits`` says which rows are validation and test rows, and
    ``validation_rows`` how many (:mod:`nearfar.data.classification`; ``auto`` is ``held-out`` here).

    The only row of a label stays in train. ``limit`` then keeps the first rows of train; validation and test do not
    depend on it. White space is normalised as in :func:`nearfar.data.cells.text_field`.

    Raises:
        NearfarError: ``splits`` that divide a test set where there is none, or that need no ``validation``; data that
            cannot be found or read, missing columns; an empty text, a label that is not in the
            task or in the training data, a score that is not a number or is off the scale (each with file and line);
            a split without rows, a label without a training row, labels or scores that are all equal; the same data
            for train and another split.
    """
    splits = "held-out" if splits == "auto" else splits
    specs = {"validation": validation, "test": test}
    reader, metric, specs = _choose_parts(name_or_file, specs, text_columns, label_column)
    named = FINETUNING_TASKS.get(name_or_file.partition(":")[0])
    if splits != "held-out" and (specs["test"] is None or specs["validation"]):
        reason = f"its validation rows are {specs['validation']}" if specs["test"] else "it has no test set of its own"
        raise NearfarError(f"--splits {splits}: does not apply to {name_or_file}: {reason}. Use held-out splits.")
    train, title = reader.read(str(specs["training"]))
    counts = Counter(reader.label_names[int(target)] for target in train.targets) if reader.label_names else Counter()
    drawing = Drawing(seed, bool(reader.label_names))
    if specs["test"] is None:
        own = drawing._replace(seed=0 if named else seed)
        train, tested = own.hold_out(train, max(1, len(train.texts) // 5), "test", title)
        tested_title = f"a fifth of train, {own.words}"
    else:
        tested, tested_title = reader.read(specs["test"])
        tested_title += f" ({named.note})" if named and named.note and not test else ""
    if specs["validation"]:
        validated, validated_title = reader.read(specs["validation"])
    elif splits in ("few-shot", "10-90"):
        validated, validated_title, tested, tested_title = drawing.divide_test(
            tested, tested_title, splits=splits, count=validation_rows
        )
    else:
        count = validation_rows or (len(tested.texts) if splits == "full" else None)
        train, validated, validated_title = drawing.hold_out_validation(train, title, count=count)
    train = Split(train.texts[:limit], train.targets[:limit])
    _check_train(train, title, reader, limit)
    known = set(train.texts)
    parts = ("train", title, train), ("validation", validated_title, validated), ("test", tested_title, tested)
    return ClassificationTask(
        name=test or name_or_file,
        train=train,
        validation=validated,
        test=tested,
        label_names=reader.label_names,
        metric=metric,
        splits=splits,
        sources=tuple(map(_part_summary, parts, (set(), known, known))),
        labels=tuple(label_summary({name: counts[name] for name in reader.label_names})),
    )


def _choose_parts(
    name_or_file: str, given: dict[str, str | None], text_columns: Sequence[str] | None, label_column: str
) -> tuple[Reader, Metric, dict[str, str | None]]:
    """How rows are read, and the specs of training, validation and test rows, no two of which are the same."""
    name, _, split = name_or_file.partition(":")
    named, specs = FINETUNING_TASKS.get(name), {"training": name_or_file, **given}
    if named is None:
        reader = infer_reader(name_or_file, text_columns, label_column)
        metric: Metric = "accuracy" if reader.label_names else "pearson_spearman"
    elif text_columns is not None or label_column != "label":
        raise NearfarError(f"{name} is a named task with fixed columns; remove the column settings.")
    else:
        reader, metric = _reader(name, named), named.metric
        specs["training"] = f"{named.source}:{split or 'train'}"
        specs["validation"] = given["validation"] or named.validation
        specs["test"] = given["test"] or named.test
    for (one, spec), (other, second) in combinations(specs.items(), 2):
        if spec is not None and spec == second:
            raise NearfarError(f"{spec} is named both for {one} and for {other}; name other data for one of them.")
    return reader, metric, specs


def _reader(name: str, task: FinetuningTask) -> Reader:
    """Return the reader of a named task; ``name`` is the task's, for error messages."""
    numbers = {label: number for number, label in enumerate(task.label_names)}
    aliases: dict[str, int | None] = {str(number): number for number in numbers.values()}
    if task.label_aliases is not None:
        aliases = {alias: numbers[label] if label else None for alias, label in task.label_aliases.items()}
    return Reader(task.columns, task.label_column, task.label_names, f"those of {name}", aliases)


def _check_train(train: Split, title: str, reader: Reader, limit: int | None) -> None:
    targets = set(train.targets)
    more = "" if limit is None else f" Only the first {limit} training rows are kept: keep more, or draw a sample."
    for number, name in enumerate(reader.label_names):
        if number not in targets:
            raise NearfarError(f"{title}: no training row has the label {name!r}.{more}")
    if len(targets) < 2:
        score = train.targets[0]
        raise NearfarError(f"{title}: every score is {score:g}; there is nothing to learn from equal scores.{more}")


def _part_summary(part: tuple[str, str, Split], train: set[tuple[str, ...]]) -> str:
    name, title, rows = part
    overlap = sum(texts in train for texts in rows.texts)
    more = f", {overlap:,} of them with texts that are also in train" if overlap else ""
    return f"{name}: {title}: {len(rows.texts):,} rows{more}"
