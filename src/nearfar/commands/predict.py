"""``nearfar predict``: a file of texts or text pairs -> its rows with labels and probabilities, and their scores."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import PredictConfig
from nearfar.data.cells import (
    Location,
    MissingColumnError,
    column_indices,
    find_columns,
    label_field,
    normalize_whitespace,
    parse_number,
    text_field,
)
from nearfar.data.files import extension, is_plain_text, json_records, read_lines
from nearfar.data.labelled import PAIR
from nearfar.data.sources import column_names, open_table, read_columns
from nearfar.disk import TABLES, check_output_file, path_errors, write_table
from nearfar.encoder.classifier import Classifier, EmbeddingClassifier, open_classifier
from nearfar.encoder.precision import check_computing
from nearfar.evaluation.finetuned import finetuned_entry, finetuned_result
from nearfar.evaluation.results import EvaluationResult
from nearfar.runs.folder import CONFIG
from nearfar.settings import read_toml
from nearfar.types import NearfarError

OTHER = "(another label)"


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
    columns, items, labels = _read(config.input, config.text_columns, config.label_column, _columns_of(Path(model)))
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
    labelled = {row: str(label) for row, label in enumerate(labels) if label is not None}
    texts = [items[row] for row in labelled]
    given = list(labelled.values()), outputs[list(labelled)]
    return PredictResult(len(items), _score(classifier, config, texts, *given, model=str(model)))


def _columns_of(run: Path) -> tuple[tuple[str, ...], str]:
    """The columns of texts and of labels that a run was trained on; of another model the usual ones."""
    values = read_toml(run / CONFIG) if (run / CONFIG).is_file() else {}
    text = values.get("text_column")
    texts = (text,) if isinstance(text, str) else tuple(values.get("text_columns") or ("text",))
    return texts, str(values.get("label_column") or "label")


def _read(
    source: str | Path, texts: tuple[str, ...], label: str | None, trained: tuple[tuple[str, ...], str]
) -> tuple[dict[str, list[Any]], list[tuple[str, ...]], list[str | float | None]]:
    """All columns, the texts of each row, and its label, or None; of a text file the lines, as the column ``text``.

    Without names of columns they are those that the model was ``trained`` on, or else the usual ones.
    """
    if len(texts) > 2 or len(set(texts)) < len(texts):
        raise NearfarError(f"--text-columns {' '.join(texts)}: give one column, or two different ones.")
    if is_plain_text(Path(source)):
        if named := texts or (() if label is None else (label,)):
            flag = "--text-columns" if texts else "--label-column"
            raise NearfarError(f"{flag} {' '.join(named)}: {source} has one text per line, and no columns.")
        lines = [normalize_whitespace(line) for _, line in read_lines(Path(source), keep_blank=True)]
        return {"text": lines}, [(line,) for line in lines], []
    every = column_names(open_table(source))
    usual = [find_columns(every, columns) for columns in (trained[0], ("text",), PAIR)]
    names = next((columns for columns in (texts, *usual) if columns), ("text",))
    if not texts and not any(usual):
        try:
            column_indices(every, names, source)
        except MissingColumnError as error:
            raise NearfarError(f"{error} Name the columns of the texts with --text-columns.") from None
    places, items = [], []
    for where, values in read_columns(source, names):
        places.append(where)
        items.append(tuple(text_field(value, name, where) for name, value in zip(names, values, strict=True)))
    columns = _all_columns(source)
    columns |= {name: [item[place] for item in items] for place, name in enumerate(names)}
    if label is not None and label not in columns:
        next(read_columns(source, (label,)), None)  # says which columns there are
    (own,) = find_columns(every, (trained[1],)) or ("label",)
    given = columns.get(label or own, [])
    return columns, items, [_label(value, label, where) for where, value in zip(places, given, strict=False)]


def _all_columns(source: str | Path) -> dict[str, list[Any]]:
    """The values of each column of a table; a key that a JSON line does not have is None there."""
    if extension(Path(source)).removesuffix(".gz") in (".jsonl", ".json"):
        records = [record for _, record in json_records(Path(source))]
        return {name: [record.get(name) for record in records] for record in records for name in record}
    every = column_names(open_table(source))
    names = [name for name in every if every.count(name) == 1]
    rows = [values for _, values in read_columns(source, names)]
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def _label(value: object, column: str | None, where: Location) -> str | float | None:
    """A label, or a score with a fraction; None for an empty field, and for one that is none if nobody named it."""
    if value is None or not str(value).strip():
        return None
    number = parse_number(value)
    try:
        return label_field(value, column or "label", where) if np.isnan(number) or number.is_integer() else number
    except NearfarError:
        if column is not None:
            raise
        return None


def _score(
    classifier: Classifier | EmbeddingClassifier,
    config: PredictConfig,
    texts: Sequence[tuple[str, ...]],
    labels: Sequence[str],
    outputs: np.ndarray,
    *,
    model: str,
) -> EvaluationResult | None:
    """The scores of rows with labels; None if the classifier has none of these labels, or predicts scores."""
    names, task = classifier.label_names, Path(config.input).name
    number_of = {name: number for number, name in enumerate(names)}
    gold = np.array([number_of.get(label, len(names)) if names else parse_number(label) for label in labels])
    unknown = int((gold == len(names)).sum() if names else np.isnan(gold).sum())
    if unknown == len(gold) or (unknown and not names):
        return None
    if unknown:
        names = (*names, OTHER)
        outputs = np.column_stack([outputs, np.full(len(outputs), outputs.min() - 1)])  # is never predicted
    facts = [f"{unknown:,} rows have a label that the classifier does not have"] * bool(unknown)
    entry = finetuned_entry(texts, gold.tolist(), outputs, label_names=names, seed=list(task.encode()))
    origin: dict[str, Any] = {"model": model, "task": task, "settings": asdict(config), "facts": facts}
    return finetuned_result(entry, texts, **origin, dim=outputs.shape[1], seen=classifier.seen)


def _predicted_columns(label_names: Sequence[str], outputs: np.ndarray) -> dict[str, list[str] | list[float]]:
    """The predicted columns and their values in each row."""
    if not label_names:
        return {"score": [round(float(score), 6) for score in outputs[:, 0]]}
    shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True), dtype=np.float64)
    shares = (shifted / shifted.sum(axis=1, keepdims=True)).T
    columns: dict[str, list[str] | list[float]] = {"label": [label_names[best] for best in outputs.argmax(axis=1)]}
    for name, of_label in zip(label_names, shares, strict=True):
        columns[f"p_{name}"] = [round(float(share), 6) for share in of_label]
    return columns
