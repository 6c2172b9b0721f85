"""The trained models of a study: ``models.csv`` lists the run folder of each trained cell."""

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

from nearfar.commands.study.expand import Cell
from nearfar.commands.study.work import RUN
from nearfar.disk import read_text, write_text
from nearfar.evaluation.render import csv_text
from nearfar.jobs import JobStore
from nearfar.types import NearfarError

MODELS = "models.csv"
MAX_SHOWN = 12
"""Largest number of models that the command prints."""


def write_models(output: Path, cells: Sequence[Cell], store: JobStore) -> None:
    """Write ``models.csv`` into ``output``: row, axes, replicate and run folder of each model that is there.

    A run folder inside ``output`` is written relative to it. Without a model, such as after ``--discard-models``, no
    file is written, and one of before is removed.

    Raises:
        NearfarError: the file cannot be written.
    """
    found = []
    for cell in cells:
        if (training := cell.last_training) is not None and store.is_finished(training):
            run = store.folder(training) / RUN
            if (run / "model").is_dir():
                folder = run if (run / "run.json").is_file() else run / "model"  # of a script
                found.append((cell.row_id, {**cell.coordinates, **cell.replicate}, folder))
    if not found:
        (output / MODELS).unlink(missing_ok=True)
        return
    names = dict.fromkeys(name for _, place, _ in found for name in place)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", *map(csv_text, names), "folder"])
    root = output.absolute()
    for row, place, run in found:
        folder = run.relative_to(root) if run.is_relative_to(root) else run
        writer.writerow([csv_text(row), *(csv_text(str(place.get(name, ""))) for name in names), folder])
    write_text(output / MODELS, text.getvalue())


def model_lines(output: Path) -> list[str]:
    """The models of a study in words, a line for each; only the name of the file if there are many; empty without.

    Raises:
        NearfarError: the file is damaged.
    """
    file = output / MODELS
    if not file.is_file():
        return []
    header, *models = list(csv.reader(io.StringIO(read_text(file)))) or [[]]
    if len(header) < 2 or any(len(one) != len(header) for one in models):
        raise NearfarError(f"{file}: is damaged. Remove it; nearfar study writes it again.")
    if len(models) > MAX_SHOWN:
        return [f"The run folders of the {len(models)} trained models are listed in {file}."]
    lines = ["Trained models, as run folders (also in models.csv):"]
    for row, *labels, folder in models:
        place = ", ".join(f"{name} {label}" for name, label in zip(header[1:-1], labels, strict=True) if label)
        lines.append(f"  {row}{f' ({place})' if place else ''}: {os.path.normpath(output / folder)}")
    return lines
