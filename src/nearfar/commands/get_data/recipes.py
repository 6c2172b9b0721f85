"""The recipes: which files of a download make which file of the local data folder, and how they are read.

Each public form of a file has a recipe: the official package, SentEval's download folder, GLUE's. A file of a download
is recognised by the end of its path, so that an unpacked folder, an archive and a folder of archives are all read.
Numbers of rows are compared with the published ones.

A reader yields the rows of one file of the local data folder: the fields in the order of the file's columns, with raw
white space; None instead marks a row without a label or score, which is dropped and counted.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from nearfar.commands.get_data.download import SourceFile
from nearfar.data.cells import parse_number
from nearfar.data.columns import Location, column_indices
from nearfar.data.files import csv_records, decode_lines, json_records
from nearfar.data.named_sets import CATALOG, UNLABELLED
from nearfar.data.paths import shown
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


_BINARY = _label("0", "1")
_ENTAILMENT = _label("entailment", "not_entailment")
_NLI = _label(*LABEL_NAMES, unlabelled=UNLABELLED)
_TREC = _label("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")


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


Columns: TypeAlias = Callable[[SourceFile, Sequence[str | int]], Iterator[tuple[Location, list[str]]]]


def _any(text: str, _: Location) -> str:
    return text


def _table(*columns: str | int, first: Check = _any, last: Check = _any, read: Columns = _columns) -> Reader:
    """A file with the given columns, in the order of the rows; ``first`` and ``last`` check these fields."""

    def rows(files: Sequence[SourceFile]) -> Iterator[Row]:
        for where, fields in read(files[0], columns):
            row = (first(fields[0], where), *fields[1:-1], last(fields[-1], where))
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
        label = _NLI(written, where)
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
            yield str(_TREC(fine.partition(":")[0], where)), question, fine


def _label_space_text(classes: int) -> Reader:
    """A label, a space and a text per line, labels 0 to ``classes`` - 1 (SST-2 and SST-5 by sentence)."""
    check = _label(*map(str, range(classes)))

    def rows(files: Sequence[SourceFile]) -> Iterator[Row]:
        for where, line in _lines(files[0]):
            label, _, text = line.strip().partition(" ")
            if label:
                yield str(check(label, where)), text

    return rows


_MSRP = ("Quality", "#1 String", "#2 String")


def _glue_paraphrases(files: Sequence[SourceFile], *, dev: bool) -> Iterator[Row]:
    """``mrpc_dev_ids.tsv`` and ``msr_paraphrase_train.txt``: GLUE's dev set is the pairs whose ids are in the first."""
    ids = {(fields[0].strip(), fields[1].strip()) for _, fields in _fields(files[0], 2)}
    for where, (label, *texts, first, second) in _columns(files[1], (*_MSRP, "#1 ID", "#2 ID")):
        if ((first.strip(), second.strip()) in ids) == dev:
            yield str(_BINARY(label, where)), *texts


def _reviews(files: Sequence[SourceFile], *, columns: int) -> Iterator[Row]:
    r"""Amazon and Yelp polarity: CSV of the label (1 negative, 2 positive) and texts, whose line ends are ``\n``."""
    check = _label(_1="0", _2="1")
    with files[0].open() as stream:
        lines = decode_lines(stream.readline, files[0].shown, advice=_DAMAGED)
        for number, fields in csv_records(files[0].shown, lines):
            where = Location(files[0].shown, number)
            if len(fields) != columns:
                raise NearfarError(f"{where}: {len(fields)} fields, but {columns} are expected.")
            yield str(check(fields[0], where)), " ".join(fields[1:]).replace("\\n", " ")


def _plain_text(files: Sequence[SourceFile]) -> Iterator[Row]:
    """One text per line."""
    return ((text,) for _, text in _lines(files[0]))


SCORED = ("score", "sentence1", "sentence2")
PAIR = ("label", "sentence1", "sentence2")
TEXT = ("label", "text")
NLI = ("premise", "hypothesis", "label")


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


def _recipe(target: str, columns: Sequence[str], reader: Reader, *inputs: str) -> Recipe:
    """Make a recipe; in ``inputs``, only ``|``, brackets and ``.*`` are special."""
    patterns = tuple(re.sub(r"\.(?!\*)", r"\.", text) for text in inputs)
    names = tuple(re.sub(r"\(([^|)]*)[^)]*\)", r"\1", text.replace("(.*/)?", "")) for text in inputs)
    return Recipe(target, tuple(columns), reader, patterns, names)


_SEMEVAL_FOLDERS = {
    12: "test-gold",
    13: "test-gs",
    14: "sts-en-test-gs-2014",
    15: "test_evaluation_task2a",
    16: "sts2016-english-with-gs-v1.0",
}
"""Year -> folder in the official package of SemEval's STS task."""


def _semeval(target: str, folder: str, name: str, prefix: str = "STS") -> Recipe:
    inputs = (f"{folder}{prefix}.{kind}.{name}.txt" for kind in ("input", "gs"))
    return _recipe(target, SCORED, _semeval_pairs, *inputs)


def _sts() -> Iterable[Recipe]:
    for year, official in _SEMEVAL_FOLDERS.items():
        senteval = f"(STS{year}-en-test|STS20{year}-en-test|STS20{year}-en-test.zip)/(.*/)?"
        for subset in CATALOG[f"sts{year}"].splits:
            # The official text is preferred: SentEval's script tokenises it, and if it runs twice, its folder has both.
            for folder in (f"{official}/", senteval):
                yield _semeval(f"sts/STS{year}/{subset}.tsv", folder, subset, f"(STS|STS20{year})")
    for part, name in CATALOG["sts14-es"].files.items():
        folder = "(STS2014-es-test|STS2014-es-test.zip|sts-es-test.2014)/(.*/)?"
        yield _semeval(f"sts/multilingual/{name}", folder, part)
    for name in CATALOG["sts17"].files.values():
        yield _semeval(f"sts/multilingual/{name}", "", name.removeprefix("STS17.").removesuffix(".tsv"))
    for split in ("train", "dev", "test"):
        target = f"sts/STSB/{split}.tsv"
        yield _recipe(target, SCORED, _table(4, 5, 6, first=_score), f"sts-{split}.csv")
        if split != "test":  # GLUE's test set has no scores
            yield _recipe(target, SCORED, _table(*SCORED, first=_score), f"STS-B/{split}.tsv")
    sick = _table(
        *("relatedness_score", "sentence_A", "sentence_B", "entailment_judgment"),
        first=_score,
        last=_label("CONTRADICTION", "NEUTRAL", "ENTAILMENT", upper=True),
    )
    for split, name in (("train", "train"), ("dev", "trial"), ("test", "test_annotated")):
        yield _recipe(f"sts/SICK/{split}.tsv", (*SCORED, "label"), sick, f"SICK_{name}.txt")


def _classification() -> Iterable[Recipe]:
    yield _recipe("senteval/MR.tsv", TEXT, _polarity, "rt-polarity.pos", "rt-polarity.neg")
    yield _recipe("senteval/CR.tsv", TEXT, _polarity, "custrev.pos", "custrev.neg")
    yield _recipe("senteval/SUBJ.tsv", TEXT, _polarity, "subj.objective", "subj.subjective")
    yield _recipe("senteval/MPQA.tsv", TEXT, _polarity, "mpqa.pos", "mpqa.neg")
    for split, name in (("train", "train_5500"), ("test", "TREC_10")):
        yield _recipe(f"senteval/TREC/{split}.tsv", (*TEXT, "fine_label"), _trec, f"{name}.label")
    for split in ("train", "test"):
        paraphrases = _table(*_MSRP, first=_BINARY)
        yield _recipe(f"senteval/MRPC/{split}.tsv", PAIR, paraphrases, f"msr_paraphrase_{split}.txt")
    for split in ("train", "dev", "test"):
        binary = f"senteval/SST2/{split}.tsv"
        yield _recipe(binary, TEXT, _label_space_text(2), f"stsa.binary.{split}")
        phrases = "senteval/SST2/train_phrases.tsv" if split == "train" else binary
        yield _recipe(phrases, TEXT, _table(1, 0, first=_BINARY), f"SST/(binary|Binary)/sentiment-{split}")
        fine = f"(stsa.fine.{split}|SST/(fine|Fine-Grained)/sentiment-{split})"
        yield _recipe(f"senteval/SST5/{split}.tsv", TEXT, _label_space_text(5), fine)
    for name, columns in (("amazon", 3), ("yelp", 2)):
        for split in ("train", "test"):
            file = f"{name}_review_polarity_csv/{split}.csv"
            yield _recipe(f"transfer/{name}_polarity/{split}.tsv", TEXT, partial(_reviews, columns=columns), file)


def _glue() -> Iterable[Recipe]:
    sst2 = _table("label", "sentence", first=_BINARY)
    yield _recipe("senteval/SST2/train_phrases.tsv", TEXT, sst2, "SST-2/train.tsv")
    yield _recipe("glue/SST-2/dev.tsv", TEXT, sst2, "SST-2/dev.tsv")
    for split in ("train", "dev"):
        mrpc = partial(_glue_paraphrases, dev=split == "dev")
        yield _recipe(f"glue/MRPC/{split}.tsv", PAIR, mrpc, "mrpc_dev_ids.tsv", "msr_paraphrase_train.txt")
        yield _recipe(f"glue/MRPC/{split}.tsv", PAIR, _table(*_MSRP, first=_BINARY), f"MRPC/{split}.tsv")
        yield _recipe(f"glue/CoLA/{split}.tsv", TEXT, _table(1, 3, first=_BINARY), f"CoLA/{split}.tsv")
        for name, columns in (("RTE", PAIR), ("QNLI", ("label", "question", "sentence"))):
            table = _table(*columns, first=_ENTAILMENT)
            yield _recipe(f"glue/{name}/{split}.tsv", columns, table, f"{name}/{split}.tsv")


def _nli() -> Iterable[Recipe]:
    columns = ("sentence1", "sentence2", "gold_label")
    json = _table(*columns, last=_NLI, read=_json_columns)
    for split in ("train", "dev", "test"):
        target = f"nli/SNLI/{split}.tsv"
        yield _recipe(target, NLI, json, f"snli_1.0_{split}.jsonl")
        yield _recipe(target, NLI, _senteval_nli, *(f"SNLI/{part}.{split}" for part in ("labels", "s1", "s2")))
    for split in ("train", "dev_matched", "dev_mismatched"):
        target = f"nli/MNLI/{split}.tsv"
        yield _recipe(target, NLI, json, f"multinli_1.0_{split}.jsonl")
        yield _recipe(target, NLI, _table(*columns, last=_NLI), f"MNLI/{split}.tsv")


RECIPES: tuple[Recipe, ...] = (
    *_sts(),
    *_classification(),
    *_glue(),
    *_nli(),
    _recipe("text/wiki1m_for_simcse.txt", (), _plain_text, "wiki1m_for_simcse.txt"),
)
"""All recipes. Where several make the same file, an earlier one has precedence."""


def recipes_for(targets: Iterable[str]) -> list[Recipe]:
    """Return the recipes of some files of the local data folder."""
    wanted = set(targets)
    return [recipe for recipe in RECIPES if recipe.target in wanted]
