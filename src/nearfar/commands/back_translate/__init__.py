"""``nearfar back-translate``: sentences -> paraphrases, by translation to another language and back.

The rows are the positive pairs of ``bt`` and ``bt+sg-opt`` (Kim et al. 2021) and, if sampled at a temperature, noisy
training sets as in Gunel et al. 2021. The output is a TSV file with the columns ``sentence``, ``translation`` and
``pivot`` (the text in the other language), one line per distinct sentence in the order of the input. ``OUTPUT.json``
next to it holds the settings and the counts.

Finished blocks are kept in ``OUTPUT.partial`` until the output is complete. A run killed at any moment continues after
them and ends with the same bytes (same machine, same number of threads): the translations of a block depend only on its
sentences, the settings and the seed.

A translation model is any encoder-decoder of transformers: a folder or ``owner/name`` on the Hugging Face Hub, with
safetensors weights. No pickle file is opened and no code from a model repository is run. Generation uses beam search,
or samples from the full softmax at a temperature.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console

from nearfar import disk
from nearfar.commands.back_translate.translator import Translator, load_translator, locate_translator, weights_digest
from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import BackTranslateConfig
from nearfar.data.cells import text_field
from nearfar.data.files import is_known, read_lines
from nearfar.data.paths import as_path
from nearfar.data.sources import read_columns
from nearfar.disk.folders import folder_lock
from nearfar.disk.places import OWN, LocalFolder
from nearfar.disk.work import PLAN, Work, list_changes, refuse_changes
from nearfar.encoder.precision import check_device
from nearfar.evaluation.results import provenance
from nearfar.runtime.progress import progress_bar
from nearfar.types import NearfarError
from nearfar.validation import InvalidValueError, convert

Row: TypeAlias = tuple[str, str, str]
"""Sentence, translation and pivot."""
COLUMNS = ("sentence", "translation", "pivot")
SETTINGS = ("forward", "backward", "beams", "temperature", "seed", "batch_size", "max_length")
"""The settings that determine the output."""
BLOCK = 8
"""Number of batches in a block. Sentences are sorted by length within a block, and saved block by block."""
WORDS = {"sentences": "the number of texts", "digest": "the texts of --input"}
KIND = "back-translation"


@accepts_settings(BackTranslateConfig)
@disk.path_errors()
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
    sampled = config.temperature is not None
    if sampled and config.beams != BackTranslateConfig.beams:
        raise NearfarError(
            f"--beams {config.beams} and --temperature {config.temperature}: use either beam search or sampling; give "
            "one of them."
        )
    check_device(config.device)
    file = _prepare_output(config)
    texts = _read(config.input, config.column)
    settings = {name: getattr(config, name) for name in SETTINGS} | {
        "sentences": len(texts),
        "digest": hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16],
    }
    settings["beams" if sampled else "seed"] = None
    place = LocalFolder(f"{file}.partial")
    with folder_lock(place.shared, what=file, remove_if_empty=True):
        work = Work(place, "nearfar back-translation")
        finished = _finished_rows(file, settings)
        if finished is not None and not work.exists:
            console = Console(stderr=True, soft_wrap=True, emoji=False, quiet=not progress)
            console.print(f"{file}: is already finished ({finished:,} rows); nothing to do.", highlight=False)
            return file
        plan, rows = _translate(file, texts, settings, work, config, progress=progress)
        content = "".join(disk.table_lines(".tsv", COLUMNS, rows))
        counts = {
            "rows": len(rows),
            "empty": len(texts) - len(rows),
            "unchanged": sum(sentence == translation for sentence, translation, _ in rows),
            "bytes": len(content.encode()),
        }
        metadata = {"kind": KIND, **plan, "finished": counts}
        disk.write_text(_metadata_path(file), json.dumps(metadata, indent=2, ensure_ascii=False) + "\n")
        disk.write_text(file, content)
        place.remove(PLAN)  # what is left later is nothing to continue
        disk.remove(place.shared / OWN)
    return file


def _prepare_output(config: BackTranslateConfig) -> Path:
    """The output file, after its folder is created."""
    file = Path(config.output)
    if file.suffix != ".tsv" or file.is_dir():
        raise NearfarError(f"--output {file}: must be a file that ends in .tsv.")
    if file.exists():
        disk.check_regular(file)
    with disk.disk_errors(file.parent):
        disk.create_folder(file.parent)
    for written in (file, _metadata_path(file)):
        disk.refuse_overwriting_inputs(written, [config.input])
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


def _finished_rows(file: Path, settings: Mapping[str, Any]) -> int | None:
    """The number of rows of a finished output; None if there is no output yet.

    Raises:
        NearfarError: the output or its metadata is another program's, is damaged, or has different settings.
    """
    place = _metadata_path(file)
    there = file.exists() and file.stat().st_size > 0
    if not place.exists():
        if there:
            raise NearfarError(
                f"{file}: exists without {place.name}, so it is not from back-translate; choose another --output."
            )
        return None
    again = f"Remove it and {file.name} to start again."
    content = disk.read_json(place, otherwise=again)
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise NearfarError(f"{place}: was not written by nearfar back-translate; choose another --output.")
    try:
        before, counts = (
            convert(content.get("settings"), dict[str, Any]),
            convert(content.get("finished"), dict[str, int]),
        )
        rows, size = counts["rows"], counts["bytes"]
    except (InvalidValueError, KeyError):
        raise NearfarError(f"{place}: is damaged. {again}") from None
    if not there:
        return None
    refuse_changes(file, list_changes(before, settings, WORDS))
    if file.stat().st_size != size:
        raise NearfarError(f"{file}: was changed since it was written; choose another --output.")
    return rows


def _translate(
    file: Path, texts: list[str], settings: dict[str, Any], work: Work, config: BackTranslateConfig, *, progress: bool
) -> tuple[dict[str, Any], list[Row]]:
    """The plan of the work, and the rows of all blocks; those that are not done are translated and saved.

    Raises:
        NearfarError: the work was begun with other settings or weights, or its plan is damaged.
    """
    size, plan = BLOCK * config.batch_size, work.settings()
    if plan is not None:
        if not all(isinstance(plan.get(name), dict) for name in ("settings", "provenance", "weights")):
            raise work.damaged("it has no settings")
        refuse_changes(file, list_changes(plan["settings"], settings, WORDS))
    folders = [locate_translator(config.forward), locate_translator(config.backward)]
    weights = dict(zip(("forward", "backward"), map(weights_digest, folders), strict=True))
    if plan is None:
        plan = {"settings": settings, "provenance": provenance().to_dict(), "weights": weights}
        work.forget_parts()
        work.begin(plan)
    if weights != plan["weights"]:
        raise NearfarError(f"{file}: was started with other weights than its models have now; choose another --output.")
    how: dict[str, Any] = {"max_length": config.max_length, "device": config.device}
    translators = [load_translator(folder, **how) for folder in folders]
    blocks = {f"block-{start // size:06}": texts[start : start + size] for start in range(0, len(texts), size)}
    done: dict[str, list[Row]] = {}
    for name, record in work.records(list(blocks)).items():
        with suppress(InvalidValueError):  # a block with a damaged record is translated again
            done[name] = convert((record or {}).get("rows"), list[Row])
    finished = sum(len(blocks[name]) for name in done)
    with progress_bar("back-translating", len(texts), done=finished, shown=progress, stderr=True) as advance:
        for number, (name, part) in enumerate(blocks.items()):
            if name not in done:
                done[name] = _translate_block(part, number * BLOCK, translators, config, advance)
                work.finish_part(name, {"rows": done[name]})
    return plan, [row for name in blocks for row in done[name]]


def _translate_block(
    texts: list[str],
    first: int,
    translators: Sequence[Translator],
    config: BackTranslateConfig,
    advance: Callable[[int], None],
) -> list[Row]:
    """The rows of a block whose first batch has the number ``first``: those texts that have a translation, in order."""
    by_length = sorted(range(len(texts)), key=lambda position: -len(texts[position]))
    rows: dict[int, Row] = {}
    for start in range(0, len(texts), config.batch_size):
        batch = by_length[start : start + config.batch_size]
        translated = {position: texts[position] for position in batch}
        pivots: dict[int, str] = {}
        for way, translator in zip(("there", "back"), translators, strict=True):
            number = first + start // config.batch_size
            seed = int.from_bytes(hashlib.sha256(f"{config.seed} {number} {way}".encode()).digest()[:8]) >> 1
            how: dict[str, Any] = {"beams": config.beams, "temperature": config.temperature, "seed": seed}
            results = translator.translate(list(translated.values()), **how)
            pivots = translated
            translated = {position: text for position, text in zip(translated, results, strict=True) if text}
        rows |= {position: (texts[position], text, pivots[position]) for position, text in translated.items()}
        advance(len(batch))
    return [rows[position] for position in sorted(rows)]
