"""``nearfar dedup``: groups of similar texts in a file, by exact search; one row of each group is kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from nearfar.commands.dedup.result import DedupResult, histogram
from nearfar.commands.dedup.rows import InputRows, copy_rows, extension, read_rows
from nearfar.commands.dedup.search import encode_texts, group_texts, nearest_others
from nearfar.commands.encode.output import output_lock
from nearfar.commands.encode.work_folder import WorkFolder, check_new
from nearfar.commands.mine.table import check_table_suffix, write_table
from nearfar.config.calls import accepts_settings
from nearfar.config.mining import DedupConfig
from nearfar.data.lines import SourceChangedError
from nearfar.data.paths import as_path, file_version
from nearfar.disk import check_output_path, path_errors, refuse_overwriting_inputs
from nearfar.encoder.precision import check_computing, resolve
from nearfar.runs.fingerprints import fingerprint_model, fingerprint_rows
from nearfar.types import NearfarError

GROUP_COLUMNS = ("group", "kept", "line", "similarity", "text")
_WORDS = {"model_files": "the model's weights or settings", "texts": "the texts of --input"}


@accepts_settings(DedupConfig)
@path_errors()
def dedup(config: DedupConfig, *, progress: bool = True) -> DedupResult:
    """Write ``config.input`` without near-duplicates to ``config.output``, or measure how similar its texts are.

    Settings can be given by name: ``dedup(model="runs/first", input="texts.txt", output="kept.txt", threshold=0.95)``;
    see :class:`nearfar.DedupConfig`. Rows with equal texts (after white space is normalised) are one text. Texts i and
    j are connected if the cosine of their embeddings is at least ``threshold``; groups are the connected components, so
    two texts of a group may be less similar than the threshold if a chain of similar texts connects them. One row of
    each group is kept, unchanged and in the order of the file, with all its columns.

    All pairs are compared, in blocks: pairs above the threshold are merged into the groups at once, and memory does
    not grow with their number. Vectors and the nearest neighbours are kept in ``OUTPUT.partial`` until the output is
    complete. Without ``threshold`` nothing else is written, and a second call with ``threshold`` and ``resume`` does
    not encode again.

    Args:
        config: the settings.
        progress: show progress bars.

    Raises:
        NearfarError: the input, its column or the model is missing or unusable; an output has another format, exists,
            is the input or cannot be written; an interrupted run exists and ``resume`` is not set, or it had other
            inputs; the input changes while it is read.
    """
    source = as_path(config.input)
    _check_outputs(config, source)
    check_computing(config.device, config.precision)
    before = file_version(source)
    rows = read_rows(source, config.column)

    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.weights import locate

    folder = locate(config.model)
    encoder = Encoder.from_pretrained(folder, **config.opening)
    settings = {
        "model_files": fingerprint_model(folder),
        "texts": fingerprint_rows(rows.texts),
        "pooling": encoder.pooling,
        "max_length": encoder.max_length,
        "prompt": encoder.resolve_prompt(),
        "precision": resolve(config.precision, config.device),
    }
    with _work_folder(config, settings) as work:
        vectors = encode_texts(work, encoder, rows.texts, config, progress=progress)
        near = nearest_others(work, vectors, encoder.device, progress=progress)
        bins = histogram(rows.texts, near.scores, near.ids)
        if config.threshold is None:
            return DedupResult(len(rows.lines), len(rows.texts), bins, None, None, None, None)
        groups = group_texts(work, vectors, near, config.threshold, encoder.device, progress=progress)
        group_of = groups[rows.text_of]
        kept = _choose(rows, group_of, config.keep)
        if config.output is not None:
            copy_rows(source, work.path / "rows", rows.lines[kept], rows.lines)
            if file_version(source) != before:
                raise SourceChangedError(
                    f"{source}: changed while it was read. Remove {work.path}, and start again when it no longer "
                    "changes."
                )
        if config.groups is not None:
            listed = _list_groups(rows, group_of, kept, vectors)
            write_table(work.path / "groups", Path(config.groups).suffix, GROUP_COLUMNS, listed)
        made = {"groups": config.groups, "rows": config.output}
        work.finish({work.path / name: Path(file) for name, file in made.items() if file is not None})
    sizes = np.bincount(group_of)
    counts = (len(kept), int((sizes > 1).sum()), int(sizes.max()))
    return DedupResult(len(rows.lines), len(rows.texts), bins, config.threshold, *counts)


def _check_outputs(config: DedupConfig, source: Path) -> None:
    """Raise an error now if a file cannot be written."""
    outputs = {}
    if config.output is not None:
        outputs["--output"] = Path(config.output)
        if extension(outputs["--output"]) != extension(source):
            raise NearfarError(
                f"--output {config.output}: must have the format of --input {source}; end its name in "
                f"{extension(source)}."
            )
    if config.groups is not None:
        outputs["--groups"] = Path(config.groups)
        check_table_suffix(Path(config.groups), "--groups")
    for flag, output in outputs.items():
        check_output_path(output, flag=flag)
        refuse_overwriting_inputs(output, [source], flag=flag)
    if outputs:
        check_new(outputs, resume=config.resume, overwrite=config.overwrite)


@contextmanager
def _work_folder(config: DedupConfig, settings: dict[str, object]) -> Iterator[WorkFolder]:
    """The folder ``OUTPUT.partial``, locked; without a file to write, a temporary folder."""
    output = config.output or config.groups
    if output is None:
        with TemporaryDirectory(prefix="nearfar-") as folder, output_lock(Path(folder) / "dedup"):
            yield WorkFolder(Path(folder) / "dedup", settings, _WORDS)
        return
    with output_lock(Path(output)):
        yield WorkFolder(Path(output), settings, _WORDS, resume=config.resume)


def _choose(rows: InputRows, group_of: NDArray[np.int64], keep: str) -> Int64[np.ndarray, " kept"]:
    """The positions of the rows to keep, one of each group, in the order of the file."""
    if keep == "first":
        return np.sort(np.unique(group_of, return_index=True)[1])
    lengths = np.array([len(text) for text in rows.texts], dtype=np.int64)[rows.text_of]
    order = np.lexsort((np.arange(len(group_of)), -lengths, group_of))  # of equally long texts the first
    return np.sort(order[np.unique(group_of[order], return_index=True)[1]])


def _list_groups(
    rows: InputRows, group_of: NDArray[np.int64], kept: NDArray[np.int64], vectors: NDArray[np.float32]
) -> Iterator[tuple[int, str, int, float, str]]:
    """The rows of each group of at least two, with their cosine to the row that is kept."""
    kept_in = {int(group_of[row]): int(row) for row in kept}
    order = np.argsort(group_of, kind="stable")
    starts = np.flatnonzero(np.diff(group_of[order], prepend=-1))
    number = 0
    for members in np.split(order, starts[1:]):
        if len(members) < 2:
            continue
        number += 1
        best = kept_in[int(group_of[members[0]])]
        for row in members:
            text = rows.text_of[row]
            similarity = 1.0 if text == rows.text_of[best] else float(vectors[text] @ vectors[rows.text_of[best]])
            yield number, "yes" if row == best else "no", int(rows.lines[row]), round(similarity, 6), rows.texts[text]
