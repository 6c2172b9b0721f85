"""``nearfar back-translate``: sentences -> paraphrases, by translation to another language and back.

The rows are the positive pairs of ``bt`` and ``bt+sg-opt`` (Kim et al. 2021) and, if sampled at a temperature, noisy
training sets as in Gunel et al. 2021. The output is a TSV file with the columns ``sentence``, ``translation`` and
``pivot`` (the text in the other language), one line per distinct sentence in the order of the input. ``OUTPUT.json``
next to it holds the settings and, at the end, the counts.

The file grows block by block. A run killed at any moment resumes from it and ends with the same bytes (same machine,
same number of threads): the translations of a block depend only on its sentences, the settings and the seed, and an
incomplete block is translated again.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import BackTranslateConfig
from nearfar.data.files import is_known, read_lines
from nearfar.data.paths import as_path
from nearfar.data.sources import read_columns, text_field
from nearfar.disk import (
    check_regular,
    create_folder,
    disk_errors,
    path_errors,
    read_bytes,
    read_json,
    read_text,
    refuse_overwriting_inputs,
    write_text,
)
from nearfar.disk.work import list_changes, refuse_changes
from nearfar.encoder.precision import check_device
from nearfar.evaluation.results import provenance
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.commands.back_translate.translator import Translator

HEADER = "sentence\ttranslation\tpivot\n"
BEAMS = BackTranslateConfig.beams
BLOCK = 8
"""Number of batches in a block. Sentences are sorted by length within a block, and saved block by block."""


@accepts_settings(BackTranslateConfig)
@path_errors()
def back_translate(config: BackTranslateConfig, *, progress: bool = True) -> Path:
    """Translate each distinct sentence of ``config.input`` there and back; returns the path of the output.

    Settings can be given by name: ``back_translate(input="sentences.txt", output="pairs.tsv")``; see
    :class:`nearfar.BackTranslateConfig`. Blank lines of a text file are skipped. A sentence whose translation is empty,
    in either direction, gets no row; ``OUTPUT.json`` counts these as ``empty``. Rows whose translation equals the
    sentence are kept and counted as ``unchanged``. An unfinished output is resumed; a finished one stays as it is.

    Args:
        config: the settings.
        progress: show a progress bar, and a message if the output is already finished.

    Raises:
        NearfarError: --beams together with --temperature; no sentences; a model that cannot be found; an output that
            this function did not write or wrote with different settings; a file that cannot be written.
    """
    if config.temperature is not None and config.beams != BEAMS:
        raise NearfarError(
            f"--beams {config.beams} and --temperature {config.temperature}: use either beam search or sampling; give "
            "one of them."
        )

    check_device(config.device)
    file = _prepare_output(config.output)
    for written in (file, _metadata_path(file)):
        refuse_overwriting_inputs(written, [config.input])
    texts = _read(config.input, config.column)
    settings = {
        "forward": config.forward,
        "backward": config.backward,
        "beams": config.beams if config.temperature is None else None,
        "temperature": config.temperature,
        "seed": None if config.temperature is None else config.seed,
        "batch_size": config.batch_size,
        "max_length": config.max_length,
        "sentences": len(texts),
        "digest": hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16],
    }
    metadata = _read_metadata(file, settings)

    console = Console(stderr=True, soft_wrap=True, emoji=False)
    if metadata and (finished := metadata["finished"]) and finished["bytes"] == file.stat().st_size:
        if progress:
            console.print(f"{file}: is already finished ({finished['rows']:,} rows); nothing to do.", highlight=False)
        return file
    done = _truncate_to_complete_blocks(file, texts, BLOCK * config.batch_size) if metadata else 0
    if not metadata:
        metadata = {"kind": "back-translation", "settings": settings, "provenance": provenance().to_dict()}
    if done < len(texts):
        from nearfar.commands.back_translate.translator import load_translator, locate_translator, weights_digest

        folders = [locate_translator(config.forward), locate_translator(config.backward)]
        weights = dict(zip(("forward", "backward"), map(weights_digest, folders), strict=True))
        if done and weights != metadata["weights"]:
            raise NearfarError(
                f"{file}: was started with other weights than its models have now; choose another --output."
            )
        there, back = (
            load_translator(folder, max_length=config.max_length, device=config.device) for folder in folders
        )
        metadata = metadata | {"weights": weights, "finished": None}
        _write_metadata(file, metadata)
        round_trip = partial(
            _round_trip,
            there=there,
            back=back,
            beams=config.beams,
            temperature=config.temperature,
            seed=config.seed,
        )
        _append(file, texts, done, round_trip, batch_size=config.batch_size, console=console if progress else None)
    _write_metadata(file, metadata | {"finished": _counts(file, len(texts))})
    return file


def _prepare_output(output: str) -> Path:
    """The output file, after its folder is created."""
    file = Path(output)
    if file.suffix != ".tsv" or file.is_dir():
        raise NearfarError(f"--output {output}: must be a file that ends in .tsv.")
    if file.exists():
        check_regular(file)
    with disk_errors(file.parent):
        create_folder(file.parent)
    return file


def _read(source: str, column: str | None) -> list[str]:
    """The distinct sentences of a file, in order."""
    if column is not None:
        texts = [text_field(value, column, where) for where, (value,) in read_columns(source, (column,))]
    elif is_known(as_path(source)):
        raise NearfarError(f"{source}: is a table; name the column with the sentences by --column.")
    else:
        texts = [text_field(line, "text", where) for where, line in read_lines(as_path(source))]
    if not texts:
        raise NearfarError(f"{source}: holds no texts.")
    return list(dict.fromkeys(texts))


def _metadata_path(file: Path) -> Path:
    return file.with_name(file.name + ".json")


def _write_metadata(file: Path, metadata: Mapping[str, Any]) -> None:
    write_text(_metadata_path(file), json.dumps(metadata, indent=2, ensure_ascii=False) + "\n")


def _read_metadata(file: Path, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The metadata of an output to resume; None if there is no output yet.

    Raises:
        NearfarError: the output or its metadata is another program's, is damaged, or has different settings.
    """
    place = _metadata_path(file)
    metadata: Any = None
    if place.exists():
        metadata = read_json(place, otherwise=f"Remove it and {file.name} to start again.")
        if not isinstance(metadata, dict) or metadata.get("kind") != "back-translation":
            raise NearfarError(f"{place}: was not written by nearfar back-translate; choose another --output.")
        finished = metadata.get("finished", {})
        counts = [finished.get(name) for name in ("rows", "bytes")] if isinstance(finished, dict) else [finished]
        is_valid = finished is None or all(type(count) is int for count in counts)
        if not isinstance(metadata.get("settings"), dict) or not is_valid:
            raise NearfarError(f"{place}: is damaged. Remove it and {file.name} to start again.")
    if not file.exists() or file.stat().st_size == 0:
        return None
    if metadata is None:
        raise NearfarError(
            f"{file}: exists without {place.name}, so it is not from back-translate; choose another --output."
        )
    words = {"sentences": "the number of texts", "digest": "the texts of --input"}
    refuse_changes(file, list_changes(metadata["settings"], settings, words))
    return metadata


def _truncate_to_complete_blocks(file: Path, texts: list[str], block: int) -> int:
    """Truncate the file after the last block known to be complete; returns the number of sentences done."""
    lines = read_bytes(file).splitlines(keepends=True)  # on bytes, splits only at \n, \r and \r\n
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    place_of = {text.encode(): place for place, text in enumerate(texts)}
    places: list[int] = []
    for number, line in enumerate(lines[1:], start=2):
        place = place_of.get(line.split(b"\t")[0], -1)
        if line.count(b"\t") != 2 or place <= (places[-1] if places else -1):
            raise NearfarError(f"{file}, line {number}: was changed since it was written; choose another --output.")
        places.append(place)
    if lines and lines[0] != HEADER.encode():
        raise NearfarError(f"{file}, line 1: was changed since it was written; choose another --output.")
    # Later sentences of the block may have empty translations or be missing: translate the block again.
    done = places[-1] + 1 if places else 0
    if done < len(texts):
        done -= done % block
    kept = sum(place < done for place in places)
    with disk_errors(file):
        os.truncate(file, sum(map(len, lines[: kept + 1])))
    return done


def _append(
    file: Path,
    texts: list[str],
    done: int,
    round_trip: "Callable[[list[str], int], list[tuple[str, str]]]",
    *,
    batch_size: int,
    console: Any,
) -> None:
    """Translate the remaining sentences and append them block by block."""
    block = BLOCK * batch_size
    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress("back-translating", *columns, console=console, disable=console is None) as bar:
        task = bar.add_task("", total=len(texts), completed=done)
        for start in range(done, len(texts), block):
            part = texts[start : start + block]
            by_length = sorted(range(len(part)), key=lambda place: -len(part[place]))
            rows: dict[int, tuple[str, str]] = {}
            for first in range(0, len(part), batch_size):
                batch = by_length[first : first + batch_size]
                translated = round_trip([part[place] for place in batch], (start + first) // batch_size)
                rows |= dict(zip(batch, translated, strict=True))
                bar.advance(task, len(batch))
            lines = [f"{part[place]}\t{back}\t{pivot}\n" for place, (pivot, back) in sorted(rows.items()) if back]
            with disk_errors(file), file.open("ab") as stream:
                stream.write("".join(lines if stream.tell() else [HEADER, *lines]).encode())
                stream.flush()
                os.fsync(stream.fileno())


def _round_trip(
    batch: list[str],
    number: int,
    *,
    there: "Translator",
    back: "Translator",
    beams: int,
    temperature: float | None,
    seed: int,
) -> list[tuple[str, str]]:
    """Pivot and translation of each sentence of batch ``number``; both are empty if either is."""
    seeds = [hashlib.sha256(f"{seed} {number} {way}".encode()).digest()[:8] for way in ("there", "back")]
    first, second = (int.from_bytes(digest) >> 1 for digest in seeds)
    pivots = there.translate(batch, beams=beams, temperature=temperature, seed=first)
    kept = [place for place, pivot in enumerate(pivots) if pivot]
    translations = back.translate([pivots[place] for place in kept], beams=beams, temperature=temperature, seed=second)
    rows = [("", "")] * len(batch)
    for place, translation in zip(kept, translations, strict=True):
        if translation:
            rows[place] = (pivots[place], translation)
    return rows


def _counts(file: Path, sentences: int) -> dict[str, int]:
    rows = [line.split("\t") for line in read_text(file).split("\n")[1:-1]]
    unchanged = sum(sentence == translation for sentence, translation, _ in rows)
    return {
        "rows": len(rows),
        "empty": sentences - len(rows),
        "unchanged": unchanged,
        "bytes": file.stat().st_size,
    }
