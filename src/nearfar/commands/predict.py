"""``nearfar predict``: a file of texts or text pairs -> its rows with labels and probabilities, and their scores."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import PredictConfig
from nearfar.data.files import Location, MissingColumnError, extension, is_plain_text, json_records, read_lines
from nearfar.data.sources import (
    column_names,
    label_field,
    normalize_whitespace,
    open_table,
    parse_number,
    read_columns,
    text_field,
)
from nearfar.disk import check_output_path, path_errors, refuse_existing, refuse_overwriting_inputs, write_text
from nearfar.encoder.precision import check_computing
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.encoder.classifier import Classifier, EmbeddingClassifier
    from nearfar.evaluation.results import EvaluationResult

SUFFIXES = (".tsv", ".csv", ".jsonl")


@dataclass(frozen=True)
class PredictResult:
    """Result of :func:`predict`."""

    rows: int
    """Number of rows."""
    scores: "EvaluationResult | None"
    """How well the predictions agree with the labels of the input; None if it has none."""


@dataclass(frozen=True)
class _Rows:
    """The rows of the input: all columns, the texts with normalised white space, and the labels."""

    columns: dict[str, list[Any]]
    items: list[tuple[str, ...]]
    labels: list[str | float | None] | None = None
    """None where the input has no column of labels; a row may have none too."""


@accepts_settings(PredictConfig)
@path_errors()
def predict(model: str | Path, config: PredictConfig, *, progress: bool = True) -> PredictResult:
    """Write the likeliest label and each label's probability for every row of ``config.input``.

    Settings can be given by name: ``predict("run", input="texts.txt", output="labels.tsv")``; see
    :class:`nearfar.PredictConfig`. The input is a text file with one text per line, where a blank line is an empty text
    so that row i belongs to line i; or a table with one or two ``text_columns``, where an empty field is an error.
    White space of texts is normalised (:func:`nearfar.data.sources.normalize_whitespace`). The output has all columns
    of the input, then ``label`` and ``p_LABEL`` for each label, or ``score`` for a regression model; where the input
    has such a column, its name begins with ``predicted_``. It is written completely or not at all.

    If the input has labels (``label_column``, by default ``label``), the predictions are scored. A label that the
    classifier does not have counts as an error, and rows without a label are left out.

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
    if output.suffix not in SUFFIXES:
        raise NearfarError(f"--output {output}: must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}.")

    check_computing(config.device, config.precision)
    check_output_path(output)
    refuse_overwriting_inputs(output, [config.input])
    refuse_existing([output], overwrite=config.overwrite)
    rows = _read(config.input, config.text_columns, config.label_column)
    if not any(text for row in rows.items for text in row):
        raise NearfarError(f"{config.input}: holds no texts.")

    from nearfar.encoder.classifier import open_classifier

    classifier = open_classifier(str(model), max_length=config.max_length, device=config.device)
    outputs = classifier.predict(rows.items, precision=config.precision, progress=progress)
    columns = dict(rows.columns)
    for name, values in _predicted_columns(classifier.label_names, outputs).items():
        free = name
        while free in columns:
            free = f"predicted_{free}"
        columns[free] = values
    write_text(output, _format_table(output.suffix, list(columns), list(zip(*columns.values(), strict=True))))
    return PredictResult(len(rows.items), _score(classifier, config, rows, outputs, model=str(model)))


def _read(source: str | Path, texts: tuple[str, ...], label: str | None) -> _Rows:
    """All columns of a table, but for those whose name comes twice; of a text file its lines, as ``text``."""
    if len(texts) > 2 or len(set(texts)) < len(texts):
        raise NearfarError(f"--text-columns {' '.join(texts)}: give one column, or two different ones.")
    if is_plain_text(Path(source)):
        for flag, names in (("--text-columns", texts), ("--label-column", (label,) if label else ())):
            if names:
                raise NearfarError(f"{flag} {' '.join(names)}: {source} has one text per line, and no columns.")
        lines = [normalize_whitespace(line) for _, line in read_lines(Path(source), keep_blank=True)]
        return _Rows({"text": lines}, [(line,) for line in lines])
    names = texts or _default_columns(source)
    places, items = [], []
    for where, values in read_columns(source, names):
        places.append(where)
        items.append(tuple(text_field(value, name, where) for name, value in zip(names, values, strict=True)))
    columns = _all_columns(source)
    columns |= {name: [item[place] for item in items] for place, name in enumerate(names)}
    if label is None and "label" not in columns:
        return _Rows(columns, items)
    name = label or "label"
    if name not in columns:
        next(read_columns(source, (name,)), None)  # says which columns there are
    labels = [_label(value, name, where) for where, value in zip(places, columns[name], strict=True)]
    return _Rows(columns, items, labels)


def _all_columns(source: str | Path) -> dict[str, list[Any]]:
    """The values of each column of a table; a key that a JSON line does not have is None there."""
    if extension(Path(source)).removesuffix(".gz") in (".jsonl", ".json"):
        records = [record for _, record in json_records(Path(source))]
        return {name: [record.get(name) for record in records] for record in records for name in record}
    every = column_names(open_table(source))
    names = [name for name in every if every.count(name) == 1]
    rows = [values for _, values in read_columns(source, names)]
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def _label(value: object, name: str, where: Location) -> str | float | None:
    """A label, or a number with a fraction; None for an empty field."""
    number = parse_number(value)
    if value is None or value != value or not str(value).strip():  # noqa: PLR0124  (NaN)
        return None
    return label_field(value, name, where) if np.isnan(number) or number.is_integer() else number


def _score(
    classifier: "Classifier | EmbeddingClassifier",
    config: PredictConfig,
    rows: _Rows,
    outputs: "np.ndarray",
    *,
    model: str,
) -> "EvaluationResult | None":
    """The scores of the rows that have a label."""
    labelled = [row for row, label in enumerate(rows.labels or []) if label is not None]
    if rows.labels is None or not labelled:
        return None
    from nearfar.evaluation.finetuned import finetuned_entry, finetuned_result

    names, given = list(classifier.label_names), [rows.labels[row] for row in labelled]
    gold = [parse_number(label) for label in given]
    if names:
        names += sorted({str(label) for label in given} - set(names))
        gold = [names.index(str(label)) for label in given]
    elif np.isnan(gold).any():
        raise NearfarError(f"{config.input}: the model predicts scores, but a label is no number; see --label-column.")
    never = np.full((len(labelled), len(names) - len(classifier.label_names)), outputs.min() - 1, dtype=np.float32)
    texts = [rows.items[row] for row in labelled]
    task = Path(config.input).name
    entry = finetuned_entry(
        texts, gold, np.hstack([outputs[labelled], never]), label_names=names, seed=[0, *task.encode()]
    )
    unlabelled = len(rows.items) - len(labelled)
    return finetuned_result(
        entry,
        texts,
        model=model,
        task=task,
        settings=asdict(config) | {"seed": None},
        facts=[f"{unlabelled:,} rows have no label and are left out"] * bool(unlabelled),
        dim=outputs.shape[1],
        seen=classifier.seen,
    )


def _default_columns(source: str | Path) -> tuple[str, ...]:
    """``text``, or ``sentence1`` and ``sentence2`` if the table has no column ``text``."""
    try:
        next(read_columns(source, ("text",)), None)
    except MissingColumnError as error:
        try:
            next(read_columns(source, ("sentence1", "sentence2")), None)
        except MissingColumnError:
            raise NearfarError(f"{error} Name the columns of the texts with --text-columns.") from None
        return ("sentence1", "sentence2")
    return ("text",)


def _predicted_columns(label_names: Sequence[str], outputs: "np.ndarray") -> dict[str, list[str] | list[float]]:
    """The predicted columns and their values in each row."""
    if not label_names:
        return {"score": [round(float(score), 6) for score in outputs[:, 0]]}
    shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True), dtype=np.float64)
    probabilities = shifted / shifted.sum(axis=1, keepdims=True)
    columns: dict[str, list[str] | list[float]] = {"label": [label_names[best] for best in outputs.argmax(axis=1)]}
    for name, shares in zip(label_names, probabilities.T, strict=True):
        columns[f"p_{name}"] = [round(float(share), 6) for share in shares]
    return columns


def _format_table(suffix: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    if suffix == ".jsonl":
        lines = (json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, default=str) for row in rows)
        return "".join(f"{line}\n" for line in lines)
    written = [["" if value is None else str(value) for value in row] for row in (names, *rows)]
    if suffix == ".tsv":  # no quoting, so that a field has no tabs and line breaks
        return "".join("\t".join(map(_one_field, row)) + "\n" for row in written)
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(written)
    return stream.getvalue()


def _one_field(text: str) -> str:
    return normalize_whitespace(text) if any(mark in text for mark in "\t\n\r") else text
