"""A file of texts or pairs -> a file of labels and probabilities: what ``nearfar predict`` calls."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.disk import check_output_path, path_errors, refuse_existing, refuse_overwriting_inputs, write_text
from nearfar.types import NearfarError, Precision

if TYPE_CHECKING:
    import numpy as np

SUFFIXES = (".tsv", ".csv", ".jsonl")


@path_errors()
def predict_file(
    model: str,
    source: str | Path,
    output: str | Path,
    *,
    text_columns: Sequence[str] = (),
    max_length: int | None = None,
    precision: Precision = "auto",
    device: str | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> int:
    """Write, for each row of ``source`` in its order, its texts, the likeliest label and each label's probability.

    ``source`` is a text file with one text a line (a blank line is an empty text, so that row i belongs to line i), or
    a table with the one or two ``text_columns``, by default ``text``, or ``sentence1`` and ``sentence2``; there an
    empty field is an error. White space is normalised (:func:`nearfar.data.sources.normalize_whitespace`). ``output``
    is a .tsv, .csv or .jsonl file, written atomically, with the texts and the columns ``label`` and ``p_LABEL``, or
    ``score`` for a regression. An existing file is replaced only with ``overwrite``. Returns the number of rows.

    Raises:
        NearfarError: no such file or column, no rows, an output of another kind, that exists, is the input or cannot be
            written, a model that is no classifier.
    """
    output_path = Path(output)
    if output_path.suffix not in SUFFIXES:
        raise NearfarError(f"--output {output}: must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}.")
    from nearfar.encoder.device import check_device
    from nearfar.encoder.precision import check_precision

    check_device(device)
    check_precision(precision)
    check_output_path(output_path)
    refuse_overwriting_inputs(output_path, [source])
    refuse_existing([output_path], overwrite=overwrite)
    columns, items = _read(source, tuple(text_columns))
    if not any(text for row in items for text in row):
        raise NearfarError(f"{source}: holds no texts.")

    from nearfar.encoder.classifier import Classifier

    classifier = Classifier.from_pretrained(model, max_length=max_length, device=device)
    outputs = classifier.predict(items, precision=precision, progress=progress)
    names, rows = _rows(classifier.label_names, outputs)
    write_text(
        output_path,
        _written(output_path.suffix, (*columns, *names), [(*a, *b) for a, b in zip(items, rows, strict=True)]),
    )
    return len(items)


def _read(source: str | Path, columns: tuple[str, ...]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Names of the text columns, and the texts of each row."""
    from nearfar.data.files import is_plain_text, read_lines
    from nearfar.data.sources import normalize_whitespace, read_columns, text_field

    if len(columns) > 2 or len(set(columns)) < len(columns):
        raise NearfarError(f"--text-columns {' '.join(columns)}: a row has one text, or two of different columns.")
    if is_plain_text(Path(source)):
        if columns:
            raise NearfarError(f"--text-columns {' '.join(columns)}: {source} has one text a line, and no columns.")
        return ("text",), [(normalize_whitespace(line),) for _, line in read_lines(Path(source), keep_blank=True)]
    names = columns or _default_columns(source)
    items = [
        tuple(text_field(value, name, where) for name, value in zip(names, values, strict=True))
        for where, values in read_columns(source, names)
    ]
    return names, items


def _default_columns(source: str | Path) -> tuple[str, ...]:
    """``text`` or, where the first row has none, ``sentence1`` and ``sentence2``."""
    from nearfar.data.files import MissingColumnError
    from nearfar.data.sources import read_columns

    try:
        next(read_columns(source, ("text",)), None)
    except MissingColumnError as error:
        try:
            next(read_columns(source, ("sentence1", "sentence2")), None)
        except MissingColumnError:
            raise NearfarError(f"{error} The columns of the texts are named by --text-columns.") from None
        return ("sentence1", "sentence2")
    return ("text",)


def _rows(label_names: Sequence[str], outputs: "np.ndarray") -> tuple[tuple[str, ...], list[tuple[str | float, ...]]]:
    """Names of the predicted columns, and their values in each row."""
    import numpy as np

    if not label_names:
        return ("score",), [(round(float(score), 6),) for score in outputs[:, 0]]
    shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True), dtype=np.float64)
    shares = shifted / shifted.sum(axis=1, keepdims=True)
    rows: list[tuple[str | float, ...]] = [
        (label_names[int(best)], *(round(float(share), 6) for share in row))
        for best, row in zip(outputs.argmax(axis=1), shares, strict=True)
    ]
    return ("label", *(f"p_{name}" for name in label_names)), rows


def _written(suffix: str, names: Sequence[str], rows: Sequence[Sequence[str | float]]) -> str:
    if suffix == ".jsonl":
        return "".join(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)
    if suffix == ".tsv":  # without quoting, as all .tsv files here; texts hold no tabs or line ends
        return "".join("\t".join(map(str, row)) + "\n" for row in (names, *rows))
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows((names, *rows))
    return stream.getvalue()
