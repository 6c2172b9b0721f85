"""The recipes: which files of a download make which file of the local data folder, how they are read, and written.

Each public form of a file has a recipe: the official package, SentEval's download folder, GLUE's. A file of a download
is recognised by the end of its path, so that an unpacked folder, an archive and a folder of archives are all read.
Numbers of rows are compared with the published ones.

A reader yields the rows of one file of the local data folder, each with where it is: the fields in the order of the
file's columns, with raw white space. The column ``score`` is then checked to be a number from 0 to 5, and ``label`` to
be one of the recipe's labels; a row without a score or label is dropped and counted.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, TypeAlias

from nearfar.commands.get_data.download import Record, SourceFile
from nearfar.data.cells import Location, column_indices, normalize_whitespace, parse_number
from nearfar.data.files import csv_records, decode_lines, json_records
from nearfar.data.named_sets import CONVERSIONS, PUBLISHED_ROWS, Conversion
from nearfar.disk import create_folder, disk_errors, new_file
from nearfar.types import NearfarError
from nearfar.validation import format_value

Row: TypeAlias = tuple[Location, Sequence[str]]
Files: TypeAlias = Sequence[SourceFile]
"""The input files of a recipe."""
_LATIN1 = "latin-1"
_DAMAGED = "It is not the published file; download it again."


def _lines(file: SourceFile, encoding: str = "utf-8") -> Iterator[tuple[Location, str]]:
    with file.open() as stream:
        for number, line in decode_lines(stream.readline, file, encoding=encoding, advice=_DAMAGED):
            yield Location(str(file), number), line.removesuffix("\n").removesuffix("\r")


def _table(
    files: Files, *, fields: Sequence[str | int], separator: str = "\t", splits: int = -1, encoding: str = "utf-8"
) -> Iterator[Row]:
    """Columns of a file without quoting, by the names in its header, or numbers if it has none.

    A line is split at ``separator``, at most ``splits`` times.
    """
    numbers = [column for column in fields if isinstance(column, int)]
    for where, line in _lines(files[0], encoding):
        cells = line.split(separator, splits)
        if not line.strip():
            continue
        if not numbers:
            numbers = column_indices([cell.strip() for cell in cells], [str(name) for name in fields], where)
        elif len(cells) <= max(numbers):
            raise NearfarError(f"{where}: {len(cells)} fields, but at least {max(numbers) + 1} are expected.")
        else:
            yield where, [cells[number] for number in numbers]


def _json(files: Files, *, fields: Sequence[str]) -> Iterator[Row]:
    """The texts under some keys of each JSON object of a file with one per line."""
    with files[0].open() as stream:
        lines = decode_lines(stream.readline, files[0], advice=_DAMAGED)
        for where, record in json_records(str(files[0]), lines=lines):
            texts = [value for value in map(record.get, fields) if isinstance(value, str)]
            if len(texts) < len(fields):
                raise NearfarError(f"{where}: not a JSON object with the texts {', '.join(fields)}.")
            yield where, texts


def _parallel(files: Files) -> Iterator[tuple[tuple[Location, str], ...]]:
    """The lines of several files beside each other. The last line may be empty, and without its end."""
    every = [list(_lines(file)) for file in files]
    short, long = min(every, key=len), max(every, key=len)
    if len(long) - len(short) > 1:
        names = (files[every.index(lines)] for lines in (short, long))
        raise NearfarError("{}: has fewer lines than {}.".format(*names))
    return zip_longest(*every, fillvalue=(Location(str(files[0]), len(long)), ""))


def _semeval(files: Files) -> Iterator[Row]:
    """SemEval STS: ``STS.input.NAME.txt``, two sentences per line, and ``STS.gs.NAME.txt``, a score or nothing."""
    for (where, text), (of_score, score) in _parallel(files):
        sentences = text.split("\t")
        if len(sentences) < 2:
            raise NearfarError(f"{where}: two tab-separated sentences are expected.")
        yield of_score, (score, *sentences[:2])


def _senteval_nli(files: Files) -> Iterator[Row]:
    """SentEval's SNLI: labels, premises and hypotheses in three files, line by line."""
    for (where, label), (_, premise), (_, hypothesis) in _parallel(files):
        yield where, (premise, hypothesis, label)


def _polarity(files: Files) -> Iterator[Row]:
    """Two files of one text per line, latin-1: the first has label 1 (MR, CR, SUBJ, MPQA)."""
    for file, label in zip(files, ("1", "0"), strict=True):
        yield from ((where, (label, text)) for where, text in _lines(file, _LATIN1))


def _trec(files: Files) -> Iterator[Row]:
    """``LABEL:fine question`` per line, latin-1."""
    for where, (fine, question) in _table(files, fields=(0, 1), separator=" ", splits=1, encoding=_LATIN1):
        yield where, (fine.partition(":")[0], question, fine)


def _glue_paraphrases(files: Files, *, dev: bool) -> Iterator[Row]:
    """``mrpc_dev_ids.tsv`` and ``msr_paraphrase_train.txt``: GLUE's dev set is the pairs whose ids are in the first."""
    ids = {(first.strip(), second.strip()) for _, (first, second) in _table(files[:1], fields=(0, 1))}
    columns = ("Quality", "#1 String", "#2 String", "#1 ID", "#2 ID")
    for where, (*row, first, second) in _table(files[1:], fields=columns):
        if ((first.strip(), second.strip()) in ids) == dev:
            yield where, row


def _reviews(files: Files, *, width: int) -> Iterator[Row]:
    r"""Amazon and Yelp polarity: CSV of the label (1 negative, 2 positive) and texts, whose line ends are ``\n``."""
    with files[0].open() as stream:
        for number, cells in csv_records(str(files[0]), decode_lines(stream.readline, files[0], advice=_DAMAGED)):
            where = Location(str(files[0]), number)
            if len(cells) != width:
                raise NearfarError(f"{where}: {len(cells)} fields, but {width} are expected.")
            yield where, (cells[0], " ".join(cells[1:]).replace("\\n", " "))


def _text(files: Files) -> Iterator[Row]:
    """One text per line."""
    return ((where, (text,)) for where, text in _lines(files[0]))


_READERS: tuple[Callable[..., Iterator[Row]], ...] = (
    *(_semeval, _table, _json, _senteval_nli, _polarity, _trec, _glue_paraphrases, _reviews, _text),
)
READERS = {reader.__name__[1:].replace("_", "-"): reader for reader in _READERS}
"""Name in ``named_sets.toml`` -> a function of the input files and the settings there."""


def _named(recipe: Conversion) -> Iterator[Conversion]:
    for values in zip(*recipe.each.values(), strict=True) if recipe.each else [()]:
        named = dict(zip(recipe.each, values, strict=True))
        inputs = tuple(text.format_map(named) for text in recipe.inputs)
        yield replace(recipe, target=recipe.target.format_map(named), inputs=inputs)


RECIPES = tuple(chain.from_iterable(map(_named, CONVERSIONS)))
"""The recipe of each file, its names filled in. Where several make the same file, an earlier one has precedence."""


def examples(targets: Collection[str]) -> str:
    """Name files that some files of the local data folder are made from, for messages."""
    made = [" and ".join(recipe.inputs).replace("(.*/)?", "") for recipe in RECIPES if recipe.target in targets]
    return ", or ".join(re.sub(r"\(([^|)]*)[^)]*\)", r"\1", inputs) for inputs in made[:3]) or "no public download"


def plan(files: Files, targets: Collection[str]) -> dict[str, tuple[Conversion, Files]]:
    """Return the recipe and the inputs of each of ``targets`` that can be made from ``files``."""
    planned: dict[str, tuple[Conversion, Files]] = {}
    for recipe in RECIPES:
        if recipe.target in targets and recipe.target not in planned and (inputs := _inputs(recipe, files)):
            planned[recipe.target] = recipe, inputs
    return planned


def _inputs(recipe: Conversion, files: Files) -> list[SourceFile]:
    """The input files of a recipe among ``files``; none if one of them is missing.

    Of several copies, the one with the shortest path is used, and for further inputs the one in the same folder.
    """
    inputs: list[SourceFile] = []
    for text in recipe.inputs:
        pattern = re.compile("(?:^|/)" + re.sub(r"\.(?!\*)", r"\.", text) + "$")
        matching = [file for file in files if pattern.search(file.path)]
        if not matching:
            return []
        near = inputs[0].parent if inputs else None
        inputs.append(min(matching, key=lambda file: (file.parent != near, len(file.path), file.path)))
    return inputs


_OFFICIALLY_CASED = ("sts/STS1", "sts/STSB/")
_OFFICIALLY_LOWER = ("sts/STS14/deft-news.tsv", "sts/STS15/belief.tsv")
"""The files whose official text has upper-case letters, but not SentEval's; and those without them in both."""
EMPTY, NO_LABEL = "with an empty text", "without a label or score"


@dataclass(frozen=True, kw_only=True)
class ConvertedFile:
    """A file that was written to the local data folder."""

    file: str
    """Its path in the local data folder."""
    rows: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Why rows were dropped -> how many."""
    inputs: tuple[str, ...] = ()
    """The files of the download that it was made from."""
    lower_case: bool = False
    """Whether no text has an upper-case letter."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about a number of rows that is not the published one, and about text that is not the official one.

        Dropped empty texts count as rows.
        """
        warnings, published = [], PUBLISHED_ROWS.get(self.file)
        if published not in (None, self.rows, self.rows + self.dropped.get(EMPTY, 0)):
            warnings.append(
                f"{self.file}: {self.rows:,} rows, but {published:,} are published. The source may be incomplete."
            )
        if self.lower_case and self.file.startswith(_OFFICIALLY_CASED) and self.file not in _OFFICIALLY_LOWER:
            warnings.append(
                f"{self.file}: all of its text is in lower case, as SentEval's script tokenises it. For the official "
                "text, on which most published scores are computed, convert the official package."
            )
        return tuple(warnings)


def convert(recipe: Conversion, inputs: Files, output: Path, record: Record, **origin: str | None) -> ConvertedFile:
    """Write the recipe's file into the folder ``output``, atomically.

    White space is normalised, and rows with an empty text are dropped and counted. The file is recorded, with its
    ``origin``, before it gets its name: a file that exists is never without its record.

    Raises:
        NearfarError: an input is damaged or not in its published format (with file and line), there is no row, or the
            disk cannot be written. An existing file is then unchanged.
    """
    file, names = output / recipe.target, tuple(map(str, inputs))
    dropped: Counter[str] = Counter()
    rows, lower_case = 0, True
    with disk_errors(file):
        create_folder(file.parent)
        with new_file(file) as temporary:
            with temporary.open("w", encoding="utf-8", newline="\n") as stream:
                if recipe.columns:
                    stream.write("\t".join(recipe.columns) + "\n")
                for where, raw in READERS[recipe.reader](inputs, **recipe.settings):
                    values = [normalize_whitespace(value) for value in raw]
                    if why := _missing(recipe, values, where):
                        dropped[why] += 1
                        continue
                    rows += 1
                    lower_case = lower_case and (text := "".join(values[1:])) == text.lower()
                    stream.write("\t".join(values) + "\n")
            if not rows:
                raise NearfarError(f"{', '.join(names)}: no rows for {recipe.target}; the download is incomplete.")
            found: dict[str, Any] = {"rows": rows, "dropped": dict(dropped), "inputs": names, "lower_case": lower_case}
            record.add("files", recipe.target, {**origin, **found})
    return ConvertedFile(file=recipe.target, **found)


def _missing(recipe: Conversion, values: list[str], where: Location) -> str | None:
    """What a row lacks, for which it is dropped; its label is then as it is called here, and its score a number."""
    for position, (column, value) in enumerate(zip(recipe.columns, values, strict=False)):
        if column == "score" and value and not 0 <= parse_number(value) <= 5:
            raise NearfarError(f"{where}: {format_value(value)} is not a score from 0 to 5.")
        if column == "label":
            if value not in recipe.labels:
                known = ", ".join(text for text, label in recipe.labels.items() if label)
                raise NearfarError(f"{where}: the label {format_value(value)} is not one of {known}.")
            values[position] = recipe.labels[value]
        if column in ("score", "label") and not values[position]:
            return NO_LABEL
    return None if all(values) else EMPTY
