"""The recipes: which files of a download make which file of the local data folder, how they are read, and written.

Each public form of a file has a recipe: the official package, SentEval's download folder, GLUE's. A file of a download
is recognised by the end of its path, so that an unpacked folder, an archive and a folder of archives are all read.
Numbers of rows are compared with the published ones.

A reader yields the rows of one file of the local data folder: the fields in the order of the file's columns, with raw
white space; None instead marks a row without a label or score, which is dropped and counted.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from nearfar.commands.get_data.download import Record, SourceFile
from nearfar.data.cells import Location, column_indices, normalize_whitespace, parse_number
from nearfar.data.files import csv_records, decode_lines, json_records
from nearfar.data.named_sets import CONVERSIONS, PUBLISHED_ROWS, UNLABELLED
from nearfar.data.paths import shown
from nearfar.disk import create_folder, disk_errors, new_file
from nearfar.types import LABEL_NAMES, NearfarError

Row: TypeAlias = tuple[str, ...] | None
Reader: TypeAlias = Callable[[Sequence[SourceFile]], Iterator[Row]]
"""From the input files of a recipe to rows."""
Check: TypeAlias = Callable[[str, Location], str | None]
"""Returns the label or score that a field means, None if the row has none; raises NearfarError for another value."""
_LATIN1 = "latin-1"
_DAMAGED = "It is not the published file; download it again."


def _score(text: str, where: Location) -> str:
    if not 0 <= parse_number(text) <= 5:
        raise NearfarError(f"{where}: {shown(text)} is not a score from 0 to 5.")
    return text.strip()


def _label(*names: str, unlabelled: Collection[str] = (), upper: bool = False, **written: str) -> Check:
    """Check that a label is one of ``names``; those in ``written`` are followed by the name that they mean."""
    labels = {name: name for name in names} | {name.removeprefix("_"): label for name, label in written.items()}

    def check(text: str, where: Location) -> str | None:
        label = text.strip().upper() if upper else text.strip()
        if label in unlabelled:
            return None
        if label not in labels:
            raise NearfarError(f"{where}: the label {shown(label)} is not one of {', '.join(labels)}.")
        return labels[label]

    return check


CHECKS: dict[str, Check] = {
    "any": lambda text, _: text,
    "score": _score,
    "binary": _label("0", "1"),
    "entailment": _label("entailment", "not_entailment"),
    "nli": _label(*LABEL_NAMES, unlabelled=UNLABELLED),
    "sick": _label("CONTRADICTION", "NEUTRAL", "ENTAILMENT", upper=True),
    "trec": _label("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"),
    "review": _label(_1="0", _2="1"),
}
"""Name in ``named_sets.toml`` -> check of a field."""


def _lines(file: SourceFile, encoding: str = "utf-8") -> Iterator[tuple[Location, str]]:
    with file.open() as stream:
        for number, line in decode_lines(stream.readline, file.shown, encoding=encoding, advice=_DAMAGED):
            yield Location(file.shown, number), line.removesuffix("\n").removesuffix("\r")


def _fields(file: SourceFile, count: int = 1) -> Iterator[tuple[Location, list[str]]]:
    """The tab-separated fields of each line that is not blank, without quoting; a line may have more than ``count``."""
    for where, line in _lines(file):
        if line.strip():
            fields = line.split("\t")
            if len(fields) < count:
                raise NearfarError(f"{where}: {len(fields)} tab-separated fields, but at least {count} are expected.")
            yield where, fields


def _columns(file: SourceFile, columns: Sequence[str | int]) -> Iterator[tuple[Location, list[str]]]:
    """Columns of a tab-separated file, by their names in its header, or by their numbers if it has none."""
    numbers = [column for column in columns if isinstance(column, int)]
    names = [column for column in columns if isinstance(column, str)]
    for where, fields in _fields(file, 1 + max(numbers, default=0)):
        if not numbers:
            numbers = column_indices([name.strip() for name in fields], names, where)
        elif len(fields) <= max(numbers):
            raise NearfarError(f"{where}: {len(fields)} tab-separated fields, too few for its header.")
        else:
            yield where, [fields[number] for number in numbers]
    if not numbers:
        raise NearfarError(f"{file.shown}: is empty; its first line should name the columns {', '.join(names)}.")


def _json_columns(file: SourceFile, columns: Sequence[str | int]) -> Iterator[tuple[Location, list[str]]]:
    """The texts under some keys of each JSON object of a file with one per line."""
    with file.open() as stream:
        lines = decode_lines(stream.readline, file.shown, advice=_DAMAGED)
        for where, record in json_records(file.shown, lines=lines):
            texts = [value for value in map(record.get, map(str, columns)) if isinstance(value, str)]
            if len(texts) < len(columns):
                raise NearfarError(f"{where}: not a JSON object with the texts {', '.join(map(str, columns))}.")
            yield where, texts


def _table(fields: Sequence[str | int], *, first: str = "any", last: str = "any", json: bool = False) -> Reader:
    """A file with the given columns, in the order of the rows; ``first`` and ``last`` name checks of these fields."""
    read, check_first, check_last = _json_columns if json else _columns, CHECKS[first], CHECKS[last]

    def rows(files: Sequence[SourceFile]) -> Iterator[Row]:
        for where, texts in read(files[0], fields):
            row = (check_first(texts[0], where), *texts[1:-1], check_last(texts[-1], where))
            yield None if None in row else tuple(map(str, row))

    return rows


def _same_lines(*files: SourceFile, add_last: bool = False) -> Iterator[list[tuple[Location, str]]]:
    """The lines of several files beside each other. With ``add_last``, an empty last line may lack in all but one."""
    every = [list(_lines(file)) for file in files]
    count = len(every[0])
    for file, lines in zip(files[1:], every[1:], strict=True):
        if add_last and len(lines) == count - 1:
            lines.append((Location(file.shown, count), ""))
        extra = any(line.strip() for _, line in lines[count:])
        if len(lines) < count or extra:
            short, long = (files[0], file) if extra else (file, files[0])
            raise NearfarError(f"{short.shown}: has fewer lines than {long.shown}.")
    return map(list, zip(*every, strict=False))


def _semeval_pairs(files: Sequence[SourceFile]) -> Iterator[Row]:
    """SemEval STS: ``STS.input.NAME.txt``, two sentences per line, and ``STS.gs.NAME.txt``, a score or nothing."""
    for (where, text), (of_score, score) in _same_lines(*files, add_last=True):  # the last pair may have no score
        fields = text.split("\t")
        if len(fields) < 2:
            raise NearfarError(f"{where}: two tab-separated sentences are expected.")
        yield (_score(score, of_score), fields[0], fields[1]) if score.strip() else None


def _senteval_nli(files: Sequence[SourceFile]) -> Iterator[Row]:
    """SentEval's SNLI: labels, premises and hypotheses in three files, line by line."""
    for (where, written), (_, premise), (_, hypothesis) in _same_lines(*files):
        label = CHECKS["nli"](written, where)
        yield None if label is None else (premise, hypothesis, label)


def _polarity(files: Sequence[SourceFile]) -> Iterator[Row]:
    """Two files of one text per line, latin-1: the first has label 1 (MR, CR, SUBJ, MPQA)."""
    for file, label in zip(files, ("1", "0"), strict=True):
        for _, text in _lines(file, _LATIN1):
            yield label, text


def _trec(files: Sequence[SourceFile]) -> Iterator[Row]:
    """``LABEL:fine question`` per line, latin-1."""
    for where, line in _lines(files[0], _LATIN1):
        fine, _, question = line.strip().partition(" ")
        if fine:
            yield str(CHECKS["trec"](fine.partition(":")[0], where)), question, fine


def _label_space_text(classes: int) -> Reader:
    """A label, a space and a text per line, labels 0 to ``classes`` - 1 (SST-2 and SST-5 by sentence)."""
    check = _label(*map(str, range(classes)))

    def rows(files: Sequence[SourceFile]) -> Iterator[Row]:
        for where, line in _lines(files[0]):
            label, _, text = line.strip().partition(" ")
            if label:
                yield str(check(label, where)), text

    return rows


def _glue_paraphrases(files: Sequence[SourceFile], *, dev: bool) -> Iterator[Row]:
    """``mrpc_dev_ids.tsv`` and ``msr_paraphrase_train.txt``: GLUE's dev set is the pairs whose ids are in the first."""
    ids = {(fields[0].strip(), fields[1].strip()) for _, fields in _fields(files[0], 2)}
    for where, (label, *texts, first, second) in _columns(
        files[1], ("Quality", "#1 String", "#2 String", "#1 ID", "#2 ID")
    ):
        if ((first.strip(), second.strip()) in ids) == dev:
            yield str(CHECKS["binary"](label, where)), *texts


def _reviews(files: Sequence[SourceFile], *, width: int) -> Iterator[Row]:
    r"""Amazon and Yelp polarity: CSV of the label (1 negative, 2 positive) and texts, whose line ends are ``\n``."""
    with files[0].open() as stream:
        lines = decode_lines(stream.readline, files[0].shown, advice=_DAMAGED)
        for number, fields in csv_records(files[0].shown, lines):
            where = Location(files[0].shown, number)
            if len(fields) != width:
                raise NearfarError(f"{where}: {len(fields)} fields, but {width} are expected.")
            yield str(CHECKS["review"](fields[0], where)), " ".join(fields[1:]).replace("\\n", " ")


def _plain_text(files: Sequence[SourceFile]) -> Iterator[Row]:
    """One text per line."""
    return ((text,) for _, text in _lines(files[0]))


READERS: dict[str, Callable[..., Reader]] = {
    "semeval": lambda: _semeval_pairs,
    "table": _table,
    "senteval-nli": lambda: _senteval_nli,
    "polarity": lambda: _polarity,
    "trec": lambda: _trec,
    "label-space-text": _label_space_text,
    "glue-paraphrases": partial(partial, _glue_paraphrases),
    "reviews": partial(partial, _reviews),
    "text": lambda: _plain_text,
}
"""Name in ``named_sets.toml`` -> a function that makes the reader of its settings."""


@dataclass(frozen=True)
class Recipe:
    """How to make a file of the local data folder."""

    target: str
    """Its path in the local data folder."""
    columns: tuple[str, ...]
    """Its columns; empty for plain text."""
    reader: Reader
    inputs: tuple[str, ...]
    """One pattern for each file that the reader needs: a regular expression for the end of its path."""
    examples: tuple[str, ...]
    """The names of these files, for messages."""

    def find(self, files: Iterable[SourceFile]) -> list[SourceFile] | None:
        """Return its input files among ``files``, or None if one of them is missing.

        Of several copies, the one with the shortest path is used, and for further inputs the one in the same folder.
        """
        found: list[SourceFile] = []
        for pattern in self.inputs:
            matching = [file for file in files if re.search(f"(?:^|/){pattern}$", file.path)]
            if not matching:
                return None
            near = found[0].parent if found else None
            found.append(min(matching, key=lambda file: (file.parent != near, len(file.path), file.path)))
        return found


def _recipes() -> Iterator[Recipe]:
    for row in CONVERSIONS:
        reader = READERS[row.reader](**row.settings)
        for values in zip(*row.each.values(), strict=True) if row.each else [()]:
            named = dict(zip(row.each, values, strict=True))
            inputs = [text.format_map(named) for text in row.inputs]
            patterns = tuple(re.sub(r"\.(?!\*)", r"\.", text) for text in inputs)
            names = tuple(re.sub(r"\(([^|)]*)[^)]*\)", r"\1", text.replace("(.*/)?", "")) for text in inputs)
            yield Recipe(row.target.format_map(named), row.columns, reader, patterns, names)


RECIPES: tuple[Recipe, ...] = tuple(_recipes())
"""All recipes. Where several make the same file, an earlier one has precedence."""


def recipes_for(targets: Iterable[str]) -> list[Recipe]:
    """Return the recipes of some files of the local data folder."""
    wanted = set(targets)
    return [recipe for recipe in RECIPES if recipe.target in wanted]


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
    def published(self) -> int | None:
        """The published number of rows."""
        return PUBLISHED_ROWS.get(self.file)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about a number of rows that is not the published one, and about text that is not the official one.

        Dropped empty texts count as rows.
        """
        found = []
        if self.published not in (None, self.rows, self.rows + self.dropped.get(EMPTY, 0)):
            found.append(
                f"{self.file}: {self.rows:,} rows, but {self.published:,} are published. The source may be incomplete."
            )
        if self.lower_case and self.file.startswith(_OFFICIALLY_CASED) and self.file not in _OFFICIALLY_LOWER:
            found.append(
                f"{self.file}: all of its text is in lower case, as SentEval's script tokenises it. For the official "
                "text, on which most published scores are computed, convert the official package."
            )
        return tuple(found)


def plan(files: Sequence[SourceFile], targets: Collection[str]) -> dict[str, tuple[Recipe, list[SourceFile]]]:
    """Return the recipe and the inputs of each of ``targets`` that can be made from ``files``."""
    planned: dict[str, tuple[Recipe, list[SourceFile]]] = {}
    for recipe in recipes_for(targets):
        inputs = None if recipe.target in planned else recipe.find(files)
        if inputs is not None:
            planned[recipe.target] = recipe, inputs
    return planned


def convert(
    recipe: Recipe, inputs: Sequence[SourceFile], output: Path, record: Record, **origin: str | None
) -> ConvertedFile:
    """Write the recipe's file into the folder ``output``, atomically.

    White space is normalised, and rows with an empty text are dropped and counted. The file is recorded, with its
    ``origin``, before it gets its name: a file that exists is never without its record.

    Raises:
        NearfarError: an input is damaged or not in its published format (with file and line), there is no row, or the
            disk cannot be written. An existing file is then unchanged.
    """
    file = output / recipe.target
    dropped: Counter[str] = Counter()
    rows, lower_case = 0, True
    with disk_errors(file):
        create_folder(file.parent)
        with new_file(file) as temporary:
            with temporary.open("w", encoding="utf-8", newline="\n") as stream:
                if recipe.columns:
                    stream.write("\t".join(recipe.columns) + "\n")
                for fields in recipe.reader(inputs):
                    values = None if fields is None else [normalize_whitespace(value) for value in fields]
                    if values is None:
                        dropped[NO_LABEL] += 1
                    elif not all(values):
                        dropped[EMPTY] += 1
                    else:
                        rows += 1
                        lower_case = lower_case and (text := "".join(values[1:])) == text.lower()
                        stream.write("\t".join(values) + "\n")
            sources = tuple(source.shown for source in inputs)
            if not rows:
                raise NearfarError(f"{', '.join(sources)}: no rows for {recipe.target}; the download is incomplete.")
            converted = ConvertedFile(
                file=recipe.target, rows=rows, dropped=dict(dropped), inputs=sources, lower_case=lower_case
            )
            entry = {name: value for name, value in asdict(converted).items() if name != "file"}
            record.add("files", recipe.target, {**origin, **entry})
    return converted
