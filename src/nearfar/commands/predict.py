"""``nearfar predict``: a file of texts or text pairs -> its rows with labels and probabilities, and their scores."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import PredictConfig
from nearfar.data import cells
from nearfar.data.files import is_plain_text, read_lines
from nearfar.data.labelled import PAIR
from nearfar.data.sources import column_names, open_table
from nearfar.disk import TABLES, write_table
from nearfar.disk.checks import check_output_file, path_errors
from nearfar.encoder.classifier import Classifier, EmbeddingClassifier, open_classifier
from nearfar.encoder.precision import check_computing
from nearfar.evaluation.finetuned import finetuned_entry, finetuned_result
from nearfar.evaluation.results import EvaluationResult
from nearfar.runs.folder import CONFIG
from nearfar.settings import read_toml
from nearfar.types import NearfarError

OTHER = "(another label)"
Items: TypeAlias = list[tuple[str, ...]]
"""One or two texts of each row."""
Labels: TypeAlias = list[str | float | None]
"""The label or score of each row; None where there is none."""
Outputs: TypeAlias = NDArray[np.floating]
"""Logits or scores [rows, labels or 1]."""


@dataclass(frozen=True)
class PredictResult:
    """Result of :func:`predict`."""

    rows: int
    """Number of rows."""
    scores: EvaluationResult | None
    """How well the predictions agree with the labels of the input; None if it has none."""


@accepts_settings(PredictConfig)
@path_errors()
def predict(model: str | Path, config: PredictConfig, *, progress: bool = True) -> PredictResult:
    """Write the likeliest label and each label's probability for every row of ``config.input``.

    Settings can be given by name: ``predict("run", input="texts.txt", output="labels.tsv")``; see
    :class:`nearfar.PredictConfig`. The input is a text file with one text per line, where a blank line is an empty text
    so that row i belongs to line i; or a table with one or two ``text_columns``, where an empty field is an error.
    White space of texts is normalised (:func:`nearfar.data.cells.normalize_whitespace`). The output has all columns
    of the input, then ``label`` and ``p_LABEL`` for each label, or ``score`` for a regression model; where the input
    has such a column, its name begins with ``predicted_``. It is written completely or not at all.

    If the input has labels (``label_column``, by default ``label``), the predictions are scored. A label that the
    classifier does not have counts as an error unless all are such; rows without a label are left out.

    Args:
        model: the run folder of ``nearfar finetune``, or of ``nearfar train`` on labelled texts; a model folder, or
            ``owner/name`` on the Hugging Face Hub.
        config: the settings.
        progress: show a progress bar.

    Raises:
        NearfarError: the input or a column is missing, or has no rows; the output has another suffix, exists, is the
            input or cannot be written; the model is not a classifier.
    """
    output = Path(config.output)
    check_output_file(output, [config.input], overwrite=config.overwrite, suffixes=TABLES)
    check_computing(config.device, config.precision)
    columns, items, labels = _read(config, Path(model))
    if not any(text for row in items for text in row):
        raise NearfarError(f"{config.input}: holds no texts.")

    classifier = open_classifier(str(model), max_length=config.max_length, device=config.device)
    outputs = classifier.predict(items, precision=config.precision, progress=progress)
    for name, values in _predicted_columns(classifier.label_names, outputs).items():
        free = name
        while free in columns:
            free = f"predicted_{free}"
        columns[free] = values
    write_table(output, list(columns), zip(*columns.values(), strict=True))
    scores = _score(classifier, config, items, labels, outputs)
    return PredictResult(len(items), None if scores is None else replace(scores, model=str(model)))


def _read(config: PredictConfig, run: Path) -> tuple[dict[str, list[Any]], Items, Labels]:
    """All columns, the texts of each row, and its label, or None; of a text file the lines, as the column ``text``.

    Without names of columns they are those that the ``run`` was trained on, or else the usual ones.
    """
    source, texts, label = config.input, config.text_columns, config.label_column
    if len(texts) > 2 or len(set(texts)) < len(texts):
        raise NearfarError(f"--text-columns {' '.join(texts)}: give one column, or two different ones.")
    if is_plain_text(Path(source)):
        if texts or label is not None:
            raise NearfarError(f"--text-columns and --label-column: {source} has one text per line, and no columns.")
        lines = [cells.normalize_whitespace(line) for _, line in read_lines(Path(source), keep_blank=True)]
        return {"text": lines}, [(line,) for line in lines], []
    table = open_table(source)
    every = column_names(table)
    trained = read_toml(run / CONFIG) if (run / CONFIG).is_file() else {}
    own = tuple(trained.get("text_columns") or (str(trained.get("text_column", "text")),))
    usual = (cells.find_columns(every, columns) for columns in (own, ("text",), PAIR))
    names = texts or next((columns for columns in usual if columns), ("text",))
    known = cells.find_columns(every, (str(trained.get("label_column") or "label"),)) or ("label",)
    target = known[0] if label is None else label
    required = names if label is None else (*names, label)
    others = [name for name in every if every.count(name) == 1 and name not in required]
    columns: dict[str, list[Any]] = {name: [] for name in every if every.count(name) == 1 or name in required}
    items, labels = [], []
    for where, values in table.rows(required, optional=others):
        row: dict[str, Any] = dict(zip((*required, *others), values, strict=True))
        row |= {name: cells.text_field(row[name], name, where) for name in names}
        for name, column in columns.items():
            column.append(row[name])
        items.append(tuple(row[name] for name in names))
        labels.append(_label(row.get(target), label, where))
    return columns, items, labels


def _label(value: object, column: str | None, where: cells.Location) -> str | float | None:
    """A label, or a score with a fraction; None for an empty field, and for one that is none if nobody named it."""
    if cells.is_blank(value):
        return None
    number = cells.parse_number(value)
    try:
        return cells.label_field(value, column or "label", where) if np.isnan(number) or number.is_integer() else number
    except NearfarError:
        if column is not None:
            raise
        return None


def _score(
    classifier: Classifier | EmbeddingClassifier, config: PredictConfig, items: Items, labels: Labels, outputs: Outputs
) -> EvaluationResult | None:
    """The scores of rows with labels; None if the classifier has none of these labels, or predicts scores."""
    names, task = classifier.label_names, Path(config.input).name
    labelled = {row: str(label) for row, label in enumerate(labels) if label is not None}
    texts, outputs = [items[row] for row in labelled], outputs[list(labelled)]
    known = {name: number for number, name in enumerate(names)}
    gold = np.array(
        [known.get(label, len(names)) if names else cells.parse_number(label) for label in labelled.values()]
    )
    unknown = int((gold == len(names)).sum() if names else np.isnan(gold).sum())
    if unknown == len(gold) or (unknown and not names):
        return None
    if unknown:
        names = (*names, OTHER)
        outputs = np.column_stack([outputs, np.full(len(outputs), outputs.min() - 1)])  # is never predicted
    facts = [f"{unknown:,} rows have a label that the classifier does not have"] * bool(unknown)
    entry = finetuned_entry(texts, gold.tolist(), outputs, label_names=names, seed=list(task.encode()))
    origin: dict[str, Any] = {"model": "", "task": task, "settings": asdict(config), "facts": facts}
    return finetuned_result(entry, texts, **origin, dim=outputs.shape[1], seen=classifier.seen)


def _predicted_columns(label_names: Sequence[str], outputs: Outputs) -> dict[str, list[Any]]:
    """The predicted columns and their values in each row."""
    if not label_names:
        return {"score": np.round(outputs[:, 0].astype(np.float64), 6).tolist()}
    columns: dict[str, list[Any]] = {"label": [label_names[best] for best in outputs.argmax(axis=1)]}
    shares = np.round(softmax(outputs.astype(np.float64), axis=1), 6)
    return columns | {f"p_{name}": of_label.tolist() for name, of_label in zip(label_names, shares.T, strict=True)}
