"""``nearfar predict``: a file of texts or text pairs -> a file of labels and probabilities."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import PredictConfig
from nearfar.data.files import MissingColumnError, is_plain_text, read_lines
from nearfar.data.sources import normalize_whitespace, read_columns, text_field
from nearfar.disk import TABLES, check_output_file, path_errors, write_table
from nearfar.encoder.precision import check_computing
from nearfar.types import NearfarError


@accepts_settings(PredictConfig)
@path_errors()
def predict(model: str | Path, config: PredictConfig, *, progress: bool = True) -> int:
    """Write the likeliest label and each label's probability for every row of ``config.input``; returns their number.

    Settings can be given by name: ``predict("run", input="texts.txt", output="labels.tsv")``; see
    :class:`nearfar.PredictConfig`. The input is a text file with one text per line, where a blank line is an empty text
    so that row i belongs to line i; or a table with one or two ``text_columns``, where an empty field is an error.
    White space is normalised (:func:`nearfar.data.sources.normalize_whitespace`). The output has the columns of the
    texts, then ``label`` and ``p_LABEL`` for each label; for a regression model, ``score``. It is written
    completely or not at all.

    Args:
        model: the run folder of a fine-tuned classifier, a model folder, or ``owner/name`` on the Hugging Face Hub.
        config: the settings.
        progress: show a progress bar.

    Raises:
        NearfarError: the input or a column is missing, or has no rows; the output has another suffix, exists, is the
            input or cannot be written; the model is not a classifier.
    """
    output = Path(config.output)
    check_output_file(output, [config.input], overwrite=config.overwrite, suffixes=TABLES)
    check_computing(config.device, config.precision)
    columns, items = _read(config.input, config.text_columns)
    if not any(text for row in items for text in row):
        raise NearfarError(f"{config.input}: holds no texts.")

    from nearfar.encoder.classifier import Classifier

    classifier = Classifier.from_pretrained(str(model), max_length=config.max_length, device=config.device)
    outputs = classifier.predict(items, precision=config.precision, progress=progress)
    names, rows = _predicted_columns(classifier.label_names, outputs)
    table = [(*texts, *predicted) for texts, predicted in zip(items, rows, strict=True)]
    write_table(output, (*columns, *names), table)
    return len(items)


def _read(source: str | Path, columns: tuple[str, ...]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The names of the text columns, and the texts of each row."""
    if len(columns) > 2 or len(set(columns)) < len(columns):
        raise NearfarError(f"--text-columns {' '.join(columns)}: give one column, or two different ones.")
    if is_plain_text(Path(source)):
        if columns:
            raise NearfarError(f"--text-columns {' '.join(columns)}: {source} has one text per line, and no columns.")
        return ("text",), [(normalize_whitespace(line),) for _, line in read_lines(Path(source), keep_blank=True)]
    names = columns or _default_columns(source)
    items = [
        tuple(text_field(value, name, where) for name, value in zip(names, values, strict=True))
        for where, values in read_columns(source, names)
    ]
    return names, items


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


def _predicted_columns(
    label_names: Sequence[str], outputs: "np.ndarray"
) -> tuple[tuple[str, ...], list[tuple[str | float, ...]]]:
    """The names of the predicted columns, and their values in each row."""
    if not label_names:
        return ("score",), [(round(float(score), 6),) for score in outputs[:, 0]]
    shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True), dtype=np.float64)
    probabilities = shifted / shifted.sum(axis=1, keepdims=True)
    rows: list[tuple[str | float, ...]] = [
        (label_names[int(best)], *(round(float(probability), 6) for probability in row))
        for best, row in zip(outputs.argmax(axis=1), probabilities, strict=True)
    ]
    return ("label", *(f"p_{name}" for name in label_names)), rows
