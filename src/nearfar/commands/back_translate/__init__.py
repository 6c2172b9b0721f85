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
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nearfar import disk
from nearfar.commands.back_translate.translator import Translator, load_translator, locate_translator
from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import BackTranslateConfig
from nearfar.data.cells import normalize_whitespace
from nearfar.data.lines import read_texts
from nearfar.disk import checks
from nearfar.disk.folders import folder_lock
from nearfar.disk.places import OWN, LocalFolder
from nearfar.disk.work import Work, list_changes, refuse_changes
from nearfar.encoder.precision import check_device
from nearfar.evaluation.results import provenance
from nearfar.runs.fingerprints import fingerprint_model
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
WORDS = {"sentences": "the number of texts", "digest": "the texts of --input", "weights": "the files of the models"}


@dataclass(frozen=True, kw_only=True)
class _Record:
    """The content of ``OUTPUT.json``."""

    kind: Literal["back-translation"] = "back-translation"
    settings: dict[str, Any]
    provenance: dict[str, Any]
    finished: dict[str, int]
    """How many rows the output has, and how many sentences have none or are unchanged."""


@accepts_settings(BackTranslateConfig)
@checks.path_errors()
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
    texts = list(dict.fromkeys(filter(None, map(normalize_whitespace, read_texts(config.input, config.column)))))
    if not texts:
        raise NearfarError(f"{config.input}: holds no texts.")
    folders = [locate_translator(name) for name in (config.forward, config.backward)]
    settings = {name: getattr(config, name) for name in SETTINGS} | {
        "sentences": len(texts),
        "digest": hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16],
        "weights": [fingerprint_model(folder) for folder in folders],
    }
    settings["beams" if sampled else "seed"] = None
    place = LocalFolder(f"{file}.partial")
    with folder_lock(place.shared, what=file, remove_if_empty=True):
        work = Work(place, "nearfar back-translation")
        finished = _finished_settings(file)
        before = work.settings() if finished is None else finished
        if before is not None:
            refuse_changes(file, list_changes(before, settings, WORDS))
        if finished is not None:
            if progress:
                sys.stderr.write(f"{file}: is already finished; nothing to do.\n")
            return file
        if before is None:
            work.begin(settings)
        rows = _translate(texts, folders, work, config, progress=progress)
        unchanged = sum(sentence == translation for sentence, translation, _ in rows)
        counts = {"rows": len(rows), "empty": len(texts) - len(rows), "unchanged": unchanged}
        record = _Record(settings=settings, provenance=provenance().to_dict(), finished=counts)
        disk.write_text(_record_path(file), json.dumps(asdict(record), indent=2, ensure_ascii=False) + "\n")
        disk.write_table(file, COLUMNS, rows)
        disk.remove(place.shared / OWN)
    return file


def _prepare_output(config: BackTranslateConfig) -> Path:
    """The output file, after its folder is created."""
    file = Path(config.output)
    if file.suffix != ".tsv" or file.is_dir():
        raise NearfarError(f"--output {file}: must be a file that ends in .tsv.")
    with disk.disk_errors(file.parent):
        disk.create_folder(file.parent)
    for written in (file, _record_path(file)):
        if written.exists():
            disk.check_regular(written)
        checks.refuse_overwriting_inputs(written, [config.input])
    return file


def _record_path(file: Path) -> Path:
    return file.with_name(file.name + ".json")


def _finished_settings(file: Path) -> dict[str, Any] | None:
    """The settings of a finished output; None if there is none.

    Raises:
        NearfarError: the output or its record is another program's, or the record is damaged.
    """
    path = _record_path(file)
    if not path.exists():
        if file.exists():
            raise NearfarError(
                f"{file}: exists without {path.name}, so it is not from back-translate; choose another --output."
            )
        return None
    again = f"Remove it and {file.name} to start again, or choose another --output."
    try:
        record = convert(disk.read_json(path, otherwise=again), _Record)
    except InvalidValueError as error:
        raise NearfarError(f"{path}: is damaged, or not of nearfar back-translate ({error}). {again}") from None
    return record.settings if file.exists() else None


def _translate(
    texts: list[str], folders: Sequence[Path], work: Work, config: BackTranslateConfig, *, progress: bool
) -> list[Row]:
    """The rows of all blocks; those that are not done are translated and saved."""
    translators = [load_translator(folder, max_length=config.max_length, device=config.device) for folder in folders]
    size = BLOCK * config.batch_size
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
    return [row for name in blocks for row in done[name]]


def _translate_block(
    texts: list[str],
    first: int,
    translators: Sequence[Translator],
    config: BackTranslateConfig,
    advance: Callable[[int], None],
) -> list[Row]:
    """The rows of a block whose first batch has the number ``first``: those texts that have a translation, in order."""
    longest_first = sorted(texts, key=len, reverse=True)
    rows: dict[str, Row] = {}
    for number, start in enumerate(range(0, len(texts), config.batch_size), start=first):
        batch = longest_first[start : start + config.batch_size]
        written: list[tuple[str, ...]] = [(text,) for text in batch]
        for way, translator in zip(("there", "back"), translators, strict=True):
            seed = int.from_bytes(hashlib.sha256(f"{config.seed} {number} {way}".encode()).digest()[:8]) >> 1
            how: dict[str, Any] = {"beams": config.beams, "temperature": config.temperature, "seed": seed}
            translations = translator.translate([row[-1] for row in written], **how)
            written = [(*row, text) for row, text in zip(written, translations, strict=True) if text]
        rows |= {text: (text, translation, pivot) for text, pivot, translation in written}
        advance(len(batch))
    return [rows[text] for text in texts if text in rows]
