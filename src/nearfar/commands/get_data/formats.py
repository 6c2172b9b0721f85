"""The public formats of the data sets: each reader yields the rows of one file of the local data folder.

A row is the location and the fields in the order of the file's columns, with raw white space; None instead of the
fields marks a row without a label or score, which is dropped and counted. Below the readers is what they share: lines,
tab-separated fields, CSV and JSON lines, whose errors name file and line.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, zip_longest
from typing import Any, NamedTuple, TypeAlias

from nearfar.commands.get_data.archives import SourceFile
from nearfar.data.files import MAX_LINE_BYTES, Location
from nearfar.data.named_sets import UNLABELLED
from nearfar.data.paths import shown
from nearfar.data.sources import parse_number
from nearfar.types import LABEL_NAMES, NearfarError


class Line(NamedTuple):
    """A line without its end, and where it is."""

    where: Location
    text: str


Row: TypeAlias = tuple[Location, tuple[str, ...] | None]
Reader: TypeAlias = Callable[[Sequence[SourceFile]], Iterator[Row]]
"""From the input files of a recipe to rows."""

LATIN1 = "latin-1"
_BINARY = {"0": "0", "1": "1"}


def semeval(files: Sequence[SourceFile]) -> Iterator[Row]:
    """SemEval STS: ``STS.input.NAME.txt``, two sentences per line, and ``STS.gs.NAME.txt``, a score or nothing."""
    inputs, scores = files
    for (where, text), gold in _same_lines(inputs, scores):
        fields = text.split("\t")
        if len(fields) < 2:
            raise NearfarError(f"{where}: two tab-separated sentences are expected.")
        score = gold.text.strip()
        yield where, (_score(score, gold.where), fields[0], fields[1]) if score else None


def sts_benchmark(files: Sequence[SourceFile]) -> Iterator[Row]:
    """``sts-SPLIT.csv``: genre, file, year, number, score, two sentences, in tab-separated fields without a header."""
    for where, fields in read_fields(files[0], 7):
        yield where, (_score(fields[4], where), fields[5], fields[6])


def glue_stsb(files: Sequence[SourceFile]) -> Iterator[Row]:
    """GLUE's STS-B: columns sentence1, sentence2, score."""
    for where, (first, second, score) in read_columns(files[0], "sentence1", "sentence2", "score"):
        yield where, (_score(score, where), first, second)


def sick(files: Sequence[SourceFile]) -> Iterator[Row]:
    """``SICK_SPLIT.txt`` of SemEval-2014 Task 1: relatedness and entailment of sentence pairs."""
    columns = ("relatedness_score", "sentence_A", "sentence_B", "entailment_judgment")
    judgments = dict.fromkeys(("CONTRADICTION", "NEUTRAL", "ENTAILMENT"))
    labels = {name: name for name in judgments}
    for where, (score, first, second, label) in read_columns(files[0], *columns):
        yield where, (_score(score, where), first, second, _label(label.strip().upper(), labels, where))


def polarity(files: Sequence[SourceFile]) -> Iterator[Row]:
    """Two files of one text per line, latin-1: the first has label 1 (MR, CR, SUBJ, MPQA)."""
    for file, label in zip(files, ("1", "0"), strict=True):
        for where, text in read_lines(file, LATIN1):
            yield where, (label, text)


def trec(files: Sequence[SourceFile]) -> Iterator[Row]:
    """``LABEL:fine question`` per line, latin-1."""
    classes = {name: name for name in ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")}
    for where, text in read_lines(files[0], LATIN1):
        if not text.strip():
            continue
        fine, _, question = text.strip().partition(" ")
        yield where, (_label(fine.partition(":")[0], classes, where), question, fine)


def text_tab_label(files: Sequence[SourceFile]) -> Iterator[Row]:
    """SentEval's binary SST: a text, a tab, a label per line, without a header."""
    for where, fields in read_fields(files[0], 2):
        yield where, (_label(fields[1].strip(), _BINARY, where), fields[0])


def label_space_text(classes: int) -> Reader:
    """A label, a space and a text per line, labels 0 to ``classes`` - 1 (SST-2 and SST-5 by sentence)."""
    labels = {str(number): str(number) for number in range(classes)}

    def read(files: Sequence[SourceFile]) -> Iterator[Row]:
        for where, line in read_lines(files[0]):
            if line.strip():
                label, _, text = line.strip().partition(" ")
                yield where, (_label(label, labels, where), text)

    return read


def paraphrases(files: Sequence[SourceFile]) -> Iterator[Row]:
    """``msr_paraphrase_SPLIT.txt``: Quality (1: paraphrase), two ids, two sentences."""
    for where, (label, first, second) in read_columns(files[0], "Quality", "#1 String", "#2 String"):
        yield where, (_label(label.strip(), _BINARY, where), first, second)


def glue_paraphrases(*, dev: bool) -> Reader:
    """``mrpc_dev_ids.tsv`` and ``msr_paraphrase_train.txt``: GLUE's dev set is the pairs whose ids are in the first."""

    def read(files: Sequence[SourceFile]) -> Iterator[Row]:
        ids = {(fields[0].strip(), fields[1].strip()) for _, fields in read_fields(files[0], 2)}
        columns = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
        for where, (label, first_id, second_id, first, second) in read_columns(files[1], *columns):
            if ((first_id.strip(), second_id.strip()) in ids) == dev:
                yield where, (_label(label.strip(), _BINARY, where), first, second)

    return read


def cola(files: Sequence[SourceFile]) -> Iterator[Row]:
    """CoLA: source, label, the author's mark, sentence, without a header."""
    for where, fields in read_fields(files[0], 4):
        yield where, (_label(fields[1].strip(), _BINARY, where), fields[3])


def labelled(*columns: str, labels: Mapping[str, str]) -> Reader:
    """A tab-separated file with the column ``label`` and columns of texts; yields the label, then the texts."""

    def read(files: Sequence[SourceFile]) -> Iterator[Row]:
        for where, (label, *texts) in read_columns(files[0], "label", *columns):
            yield where, (_label(label.strip(), labels, where), *texts)

    return read


def nli_json(files: Sequence[SourceFile]) -> Iterator[Row]:
    """SNLI's and MultiNLI's JSON lines; rows without a gold label are dropped."""
    for where, (label, premise, hypothesis) in read_json_lines(files[0], "gold_label", "sentence1", "sentence2"):
        yield where, _nli(label, premise, hypothesis, where)


def glue_nli(files: Sequence[SourceFile]) -> Iterator[Row]:
    """GLUE's MNLI: columns sentence1, sentence2, gold_label."""
    for where, (label, premise, hypothesis) in read_columns(files[0], "gold_label", "sentence1", "sentence2"):
        yield where, _nli(label, premise, hypothesis, where)


def senteval_nli(files: Sequence[SourceFile]) -> Iterator[Row]:
    """SentEval's SNLI: labels, premises and hypotheses in three files, line by line."""
    labels, premises, hypotheses = files
    rest = [line.text for line in read_lines(hypotheses)]
    for number, (label, premise) in enumerate(_same_lines(labels, premises)):
        if number >= len(rest):
            raise NearfarError(f"{hypotheses.shown}: has fewer lines than {labels.shown}.")
        yield label.where, _nli(label.text.strip(), premise.text, rest[number], label.where)


def reviews(columns: int) -> Reader:
    r"""Amazon and Yelp polarity: CSV of the label (1 negative, 2 positive) and texts, whose line ends are ``\n``."""

    def read(files: Sequence[SourceFile]) -> Iterator[Row]:
        for where, (label, *texts) in read_csv(files[0], columns):
            text = " ".join(texts).replace("\\n", " ")
            yield where, (_label(label.strip(), {"1": "0", "2": "1"}, where), text)

    return read


def plain_text(files: Sequence[SourceFile]) -> Iterator[Row]:
    """One text per line."""
    for where, text in read_lines(files[0]):
        yield where, (text,)


def _same_lines(first: SourceFile, second: SourceFile) -> Iterator[tuple[Line, Line]]:
    for left, right in zip_longest(read_lines(first), _with_last_empty(second)):
        if left is None and (right is None or not right.text.strip()):
            return
        if left is None or right is None:
            short, long = (first, second) if left is None else (second, first)
            raise NearfarError(f"{short.shown}: has fewer lines than {long.shown}.")
        yield left, right


def _with_last_empty(file: SourceFile) -> Iterator[Line]:
    # An empty last line, that of a pair without a score, may lack its line end.
    number = 0
    for line in read_lines(file):
        number = line.where.number
        yield line
    yield from chain([Line(Location(file.shown, number + 1), "")])


def _nli(label: str, premise: str, hypothesis: str, where: Location) -> tuple[str, ...] | None:
    if label in UNLABELLED:
        return None
    return premise, hypothesis, _label(label, {name: name for name in LABEL_NAMES}, where)


def _label(label: str, labels: Mapping[str, str], where: Location) -> str:
    if label not in labels:
        raise NearfarError(f"{where}: the label {shown(label)} is not one of {', '.join(labels)}.")
    return labels[label]


def _score(text: str, where: Location) -> str:
    score = parse_number(text)
    if not 0 <= score <= 5:
        raise NearfarError(f"{where}: {shown(text)} is not a score from 0 to 5.")
    return text.strip()


def read_lines(file: SourceFile, encoding: str = "utf-8") -> Iterator[Line]:
    r"""Yield the lines of a file, which end in ``\n`` or ``\r\n``; a byte order mark is dropped.

    Raises:
        NearfarError: a damaged file, a line that is too long, or one that is not in the encoding.
    """
    with file.open() as stream:
        for number, raw in enumerate(iter(partial(stream.readline, MAX_LINE_BYTES + 1), b""), 1):
            where = Location(file.shown, number)
            if len(raw) > MAX_LINE_BYTES:
                raise NearfarError(f"{where}: the line is longer than {MAX_LINE_BYTES / 2**20:g} MiB.")
            try:
                text = raw.decode("utf-8-sig" if number == 1 and encoding == "utf-8" else encoding)
            except UnicodeDecodeError as error:
                raise NearfarError(
                    f"{where}: not {encoding.upper()} (byte {error.start + 1} of the line is "
                    f"0x{raw[error.start]:02x}). It is not the published file; download it again."
                ) from None
            yield Line(where, text.removesuffix("\n").removesuffix("\r"))


def read_fields(file: SourceFile, count: int) -> Iterator[tuple[Location, list[str]]]:
    """Yield the tab-separated fields of each line that is not blank, without quoting; a line may have more fields.

    Raises:
        NearfarError: as :func:`read_lines`, or a line with fewer than ``count`` fields.
    """
    for where, text in read_lines(file):
        if not text.strip():
            continue
        fields = text.split("\t")
        if len(fields) < count:
            raise NearfarError(f"{where}: {len(fields)} tab-separated fields, but at least {count} are expected.")
        yield where, fields


def read_columns(file: SourceFile, *columns: str) -> Iterator[tuple[Location, list[str]]]:
    """Yield the named columns of a tab-separated file with a header, without quoting.

    Raises:
        NearfarError: as :func:`read_lines`, an empty file, a missing column, or a line with too few fields.
    """
    indices: list[int] = []
    for where, fields in read_fields(file, 1):
        if not indices:
            indices = column_indices(where, fields, columns)
            continue
        if len(fields) <= max(indices):
            raise NearfarError(f"{where}: {len(fields)} tab-separated fields, too few for its header.")
        yield where, [fields[index] for index in indices]
    if not indices:
        raise NearfarError(f"{file.shown}: is empty; its first line should name the columns {', '.join(columns)}.")


def column_indices(where: Location, header: Sequence[str], columns: Sequence[str]) -> list[int]:
    """Return the index of each column in the header."""
    names = [name.strip() for name in header]
    for column in columns:
        if column not in names:
            raise NearfarError(f"{where}: no column {column!r}; its header is {shown(' | '.join(names), most=200)}.")
    return [names.index(column) for column in columns]


def read_csv(file: SourceFile, count: int) -> Iterator[tuple[Location, list[str]]]:
    """Yield the records of a quoted CSV file without a header, each of ``count`` fields.

    Raises:
        NearfarError: as :func:`read_lines`, or a record that is not well-formed or has another number of fields.
    """
    csv.field_size_limit(MAX_LINE_BYTES)
    reader = csv.reader((f"{line.text}\n" for line in read_lines(file)), strict=True)
    start = 1
    try:
        for fields in reader:
            where = Location(file.shown, start)
            if fields and len(fields) != count:
                raise NearfarError(f"{where}: {len(fields)} fields, but {count} are expected.")
            if fields:
                yield where, fields
            start = reader.line_num + 1
    except csv.Error as error:
        raise NearfarError(f"{Location(file.shown, start)}: not well-formed CSV: {error}.") from None


def read_json_lines(file: SourceFile, *keys: str) -> Iterator[tuple[Location, list[str]]]:
    """Yield the values of ``keys``, texts, in each JSON object of a file with one per line.

    Raises:
        NearfarError: as :func:`read_lines`, a line that is not a JSON object, or one without a text for each key.
    """
    for where, text in read_lines(file):
        if not text.strip():
            continue
        try:
            record: Any = json.loads(text)
        except (ValueError, RecursionError):
            raise NearfarError(f"{where}: not a JSON object.") from None
        values = [record.get(key) for key in keys] if isinstance(record, dict) else []
        texts = [value for value in values if isinstance(value, str)]
        if len(texts) < len(keys):
            raise NearfarError(f"{where}: not a JSON object with the texts {', '.join(keys)}.")
        yield where, texts
