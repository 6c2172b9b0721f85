"""Result files on disk: which paths may be written, what kind a file is, and the fingerprint of scored pairs."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from nearfar import disk
from nearfar.disk import checks
from nearfar.evaluation.results.record import Result
from nearfar.types import NearfarError, ScoredPair

REPLACEABLE_KINDS = ("evaluation", "comparison", "comparisons", "geometry")
"""Kinds of files that the next result replaces without --overwrite."""


def load_result(file: str | Path) -> Result:
    """Read a result file of any kind.

    Raises:
        NearfarError: no such file, invalid JSON, no known kind, or what the model of its kind refuses.
    """
    return Result.load(file)


def fingerprint(rows: Iterable[object]) -> str:
    """Fingerprint of rows in order, each a JSON value: the first 16 digits of the SHA-256 of their lines."""
    return hashlib.sha256("\n".join(map(json.dumps, rows)).encode()).hexdigest()[:16]


def digest(pairs: Iterable[ScoredPair]) -> str:
    """Fingerprint of texts and gold scores in order; equal digests make two files comparable pair by pair."""
    return fingerprint([first, second, float(score)] for first, second, score in pairs)


@checks.path_errors()
def check_output(output: str | Path, *, inputs: Iterable[object] = (), overwrite: bool = False) -> Path:
    """Refuse an output path that could not or should not be written, before hours are spent on its content.

    An existing result file is replaced. Any other file, or a Markdown file without a result file beside it, is
    replaced only with ``overwrite``, and an input never.

    Raises:
        NearfarError: the name does not end in .json; the file or the Markdown file beside it is a folder, an input, or
            not a result; or its folder cannot be made or written to.
    """
    file, inputs = Path(output), list(inputs)
    if file.suffix != ".json":
        raise NearfarError(f"{file}: a result file ends in .json (its Markdown table is written beside it).")
    check_both(file, inputs=inputs)
    if not is_result(file):
        folders = [given for given in inputs if isinstance(given, str | Path) and Path(given).is_dir()]
        for given in folders if file.exists() else ():  # such as the config.json of a model
            if file.resolve().is_relative_to(Path(given).resolve()):
                raise NearfarError(f"--output {file}: is a file of the input {given}; choose another --output.")
        refuse_both(file, "a result file", overwrite=overwrite)
    return file


def check_both(file: Path, *, inputs: Iterable[object] = ()) -> None:
    """Refuse an output file, or the Markdown file beside it, that cannot be written or is an input.

    Raises:
        NearfarError: its folder cannot be made or written to, or one of the files is a folder or an input.
    """
    make_folder(file)
    for written in (file, file.with_suffix(".md")):
        checks.check_output_path(written)
        checks.refuse_overwriting_inputs(written, inputs)


def refuse_both(file: Path, kind: str, *, overwrite: bool) -> None:
    """Refuse to replace a file that is not ``kind``, or the Markdown file beside it, without ``overwrite``.

    Raises:
        NearfarError: one of the files exists.
    """
    checks.refuse_existing([file], overwrite=overwrite, what=f"exists and is not {kind} of nearfar")
    checks.refuse_existing([file.with_suffix(".md")], overwrite=overwrite, what=f"exists without {kind} beside it")


def make_folder(file: Path) -> None:
    """Make the folder of an output file.

    Raises:
        NearfarError: it cannot be made.
    """
    try:
        disk.create_folder(file.parent)
    except OSError as error:
        raise NearfarError(f"--output {file}: its folder {file.parent}: cannot be made ({error.strerror}).") from error


def is_result(file: Path) -> bool:
    """Whether the file is a result file that may be replaced by a new result."""
    try:
        result = disk.read_json(file) if file.is_file() else None
    except NearfarError:
        return False
    return isinstance(result, dict) and type(result.get("schema")) is int and result.get("kind") in REPLACEABLE_KINDS
