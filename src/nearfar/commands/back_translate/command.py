"""Sentences -> the same said another way, by way of a second language: what ``nearfar back-translate`` calls.

The rows are the positives of ``bt`` and ``bt+sg-opt`` (Kim et al. 2021) and, sampled at a temperature, noisy training
sets as in Gunel et al. 2021. The output is a TSV file with ``sentence``, ``translation`` and ``pivot`` (the text in
between), one line per distinct sentence in the order of the input; ``OUTPUT.json`` beside it holds the settings and,
at the end, the counts.

The file grows as the work goes on. A run killed at any moment goes on from it and ends with the same bytes (same
machine, same threads): sentences are translated in fixed blocks, each a function of its sentences, the settings and
the seed alone, and a block of which the file may lack a line is done again.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.config import flag
from nearfar.disk import disk_errors, path_errors, read_json, refuse_overwriting_inputs, write_text
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.commands.back_translate.translator import Translator

HEADER = "sentence\ttranslation\tpivot\n"
BEAMS = 5
BLOCK = 8  # batches whose sentences are sorted by length together: less padding, and no more than this is done twice


@path_errors()
def back_translate(
    sentences: Sequence[str] | str | Path,
    output: str | Path,
    *,
    forward: str | Path = "Helsinki-NLP/opus-mt-en-de",
    backward: str | Path = "Helsinki-NLP/opus-mt-de-en",
    beams: int = BEAMS,
    temperature: float | None = None,
    batch_size: int = 32,
    max_length: int = 128,
    seed: int = 1,
    device: str | None = None,
    column: str | None = None,
    progress: bool = True,
) -> Path:
    """Translate each distinct sentence there and back, and write the rows to ``output``, which is returned.

    A sentence whose translation comes out empty, there or back, has no row: ``OUTPUT.json`` counts them as ``empty``.
    Rows whose translation is the sentence itself stay, counted as ``unchanged``.

    Args:
        sentences: the sentences; or a text file with one a line (blank lines are skipped); or, with ``column``, any
            table that :mod:`nearfar.data.sources` reads.
        output: the .tsv file. One that a killed run left is finished, a finished one is left alone.
        forward: translation model into the other language: a folder, or ``owner/name`` on the hub.
        backward: translation model back.
        beams: width of the beam search.
        temperature: instead, sample in both directions at this temperature, without top-k or nucleus.
        batch_size: sentences translated at a time.
        max_length: tokens read of a sentence and written of a translation, at most.
        seed: of the sampling.
        device: cpu, cuda, cuda:1 ...; by default CUDA where there is one.
        column: of the table.
        progress: show a progress bar, and say so where there is nothing to do.

    Raises:
        NearfarError: a setting that makes no sense, no sentences, a model that cannot be had, an ``output`` that this
            function did not make or made with other settings, or a disk that refuses.
    """
    for name, value, least in (
        ("beams", beams, 1),
        ("batch_size", batch_size, 1),
        ("max_length", max_length, 3),
        ("seed", seed, 0),
    ):
        if value < least:
            raise NearfarError(f"{flag(name)} {value}: must be at least {least}.")
    if temperature is not None and not 0 < temperature < float("inf"):
        raise NearfarError(f"--temperature {temperature}: must be above 0.")
    if temperature is not None and beams != BEAMS:
        raise NearfarError(f"--beams {beams} and --temperature {temperature}: search or sample, not both; give one.")
    from nearfar.encoder.device import check_device

    check_device(device)
    file = _prepare_output(output)
    if isinstance(sentences, str | Path):
        for written in (file, _metadata_path(file)):
            refuse_overwriting_inputs(written, [sentences])
    texts = _read(sentences, column)
    settings = {
        "forward": str(forward),
        "backward": str(backward),
        "beams": beams if temperature is None else None,
        "temperature": temperature,
        "seed": None if temperature is None else seed,
        "batch_size": batch_size,
        "max_length": max_length,
        "sentences": len(texts),
        "digest": hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16],
    }
    note = _read_metadata(file, settings)

    from rich.console import Console

    console = Console(stderr=True, soft_wrap=True, emoji=False)
    if note and (finished := note["finished"]) and finished["bytes"] == file.stat().st_size:
        if progress:
            console.print(f"{file}: was finished before ({finished['rows']:,} rows); nothing to do.", highlight=False)
        return file
    block = BLOCK * batch_size
    done = _truncate_to_complete_blocks(file, texts, block) if note else 0
    if not note:
        from nearfar.evaluation.results import provenance

        note = {"kind": "back-translation", "settings": settings, "provenance": provenance()}
    if done < len(texts):
        from nearfar.commands.back_translate.translator import load_translator, locate_translator, weights_digest

        folders = [locate_translator(forward), locate_translator(backward)]
        weights = dict(zip(("forward", "backward"), map(weights_digest, folders), strict=True))
        if done and weights != note["weights"]:
            raise NearfarError(
                f"{file}: was begun with other weights than its models have now; choose another --output."
            )
        there, back = (load_translator(folder, max_length=max_length, device=device) for folder in folders)
        note = note | {"weights": weights, "finished": None}
        _write_metadata(file, note)
        round_trip = partial(_round_trip, there=there, back=back, beams=beams, temperature=temperature, seed=seed)
        _append(file, texts, done, round_trip, batch_size=batch_size, console=console if progress else None)
    _write_metadata(file, note | {"finished": _counts(file, len(texts))})
    return file


def _prepare_output(output: str | Path) -> Path:
    """The output file, its folder made."""
    file = Path(output)
    if file.suffix != ".tsv" or file.is_dir():
        raise NearfarError(f"--output {output}: must be a file that ends in .tsv.")
    with disk_errors(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
    return file


def _read(sentences: Sequence[str] | str | Path, column: str | None) -> list[str]:
    """The distinct sentences, in order, as clean text."""
    from nearfar.data.files import Location, is_known, read_lines
    from nearfar.data.paths import as_path
    from nearfar.data.sources import read_columns, text_field

    if not isinstance(sentences, str | Path):
        if column is not None:
            raise NearfarError(f"--column {column}: is for tables; these are sentences already.")
        texts = [text_field(text, "sentence", Location("sentences", n, "row")) for n, text in enumerate(sentences, 1)]
    elif column is not None:
        texts = [text_field(value, column, where) for where, (value,) in read_columns(sentences, (column,))]
    else:
        source = as_path(sentences)
        if is_known(source):
            raise NearfarError(f"{source}: is a table; name the column which column holds the sentences.")
        texts = [text_field(line, "text", where) for where, line in read_lines(source)]
    if not texts:
        raise NearfarError(f"{sentences if isinstance(sentences, str | Path) else 'sentences'}: holds no texts.")
    return list(dict.fromkeys(texts))


def _metadata_path(file: Path) -> Path:
    return file.with_name(file.name + ".json")


def _write_metadata(file: Path, note: Mapping[str, Any]) -> None:
    write_text(_metadata_path(file), json.dumps(note, indent=2, ensure_ascii=False) + "\n")


def _read_metadata(file: Path, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The note of the file there is, None where there is no file; an error where it is not the one to go on with."""
    place = _metadata_path(file)
    note: Any = None
    if place.exists():
        note = read_json(place, otherwise=f"Remove it and {file.name} to start again.")
        if not isinstance(note, dict) or note.get("kind") != "back-translation":
            raise NearfarError(f"{place}: is something else's file; choose another --output.")
        if not isinstance(note.get("settings"), dict) or not isinstance(note.get("finished") or {}, dict):
            raise NearfarError(f"{place}: is damaged. Remove it and {file.name} to start again.")
    if not file.exists() or file.stat().st_size == 0:
        return None
    if note is None:
        raise NearfarError(
            f"{file}: is there, without the {place.name} of a back-translation; choose another --output."
        )
    before = note["settings"]
    other = [
        f"{key if key in ('sentences', 'digest') else flag(key)} was {before.get(key)}, now {value}"
        for key, value in settings.items()
        if before.get(key) != value
    ]
    if other:
        raise NearfarError(
            f"{file}: was made with other settings: {'; '.join(other)}. Give the same, or choose another --output."
        )
    return note


def _truncate_to_complete_blocks(file: Path, texts: list[str], block: int) -> int:
    """Cut the file after the last block that is surely whole; returns how many sentences are done."""
    lines = file.read_bytes().splitlines(keepends=True)  # of bytes: splits at \n, \r and \r\n alone, and no text has \r
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
    # What follows the last line in its block may have been translated to nothing, or not yet: do the block again.
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
    """Translate the rest and write it block by block."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

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
    """Pivot and translation of each sentence of batch ``number``; both empty where either is."""
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
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").split("\n")[1:-1]]
    unchanged = sum(sentence == translation for sentence, translation, _ in rows)
    return {
        "rows": len(rows),
        "empty": sentences - len(rows),
        "unchanged": unchanged,
        "bytes": file.stat().st_size,
    }
