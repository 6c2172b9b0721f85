"""The recipes: which files of a download make which file of the local data folder, and how it is written.

Each public form of a file has a recipe: the official package, SentEval's download folder, GLUE's. A file of a download
is recognised by the end of its path, so that an unpacked folder, an archive and a folder of archives are all read.
Numbers of rows are compared with the published ones.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nearfar.commands.get_data import formats as readers
from nearfar.commands.get_data.archives import SourceFile
from nearfar.commands.get_data.formats import Reader
from nearfar.data.how_to_get import PUBLISHED_ROWS
from nearfar.data.named_sets import CATALOG, STS17_TRACKS
from nearfar.data.sources import normalize_whitespace
from nearfar.disk import create_folder, disk_errors, new_file
from nearfar.types import NearfarError

SCORED = ("score", "sentence1", "sentence2")
PAIR = ("label", "sentence1", "sentence2")
TEXT = ("label", "text")
NLI = ("premise", "hypothesis", "label")
_ENTAILMENT = {name: name for name in ("entailment", "not_entailment")}
_BINARY = {"0": "0", "1": "1"}


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


def _semeval(year: int, subset: str) -> Iterable[Recipe]:
    # The official text is preferred: SentEval's script tokenises it, and if it runs twice, its folder has both.
    official = f"{_SEMEVAL_FOLDERS[year]}/"
    senteval = f"(STS{year}-en-test|STS20{year}-en-test|STS20{year}-en-test.zip)/(.*/)?"
    for folder in (official, senteval):
        inputs = (f"{folder}(STS|STS20{year}).{kind}.{subset}.txt" for kind in ("input", "gs"))
        yield _recipe(f"sts/STS{year}/{subset}.tsv", SCORED, readers.semeval, *inputs)


def _spanish(part: str) -> Recipe:
    folder = "(STS2014-es-test|STS2014-es-test.zip|sts-es-test.2014)/(.*/)?"
    inputs = (f"{folder}STS.{kind}.{part}.txt" for kind in ("input", "gs"))
    return _recipe(f"sts/multilingual/STS14.es.{part}.tsv", SCORED, readers.semeval, *inputs)


def _track(languages: str, number: str) -> Recipe:
    inputs = (f"STS.{kind}.track{number}.{languages}.txt" for kind in ("input", "gs"))
    target = f"sts/multilingual/{CATALOG['sts17'].files[languages]}"
    return _recipe(target, SCORED, readers.semeval, *inputs)


def _sts() -> Iterable[Recipe]:
    for year in _SEMEVAL_FOLDERS:
        for subset in CATALOG[f"sts{year}"].splits:
            yield from _semeval(year, subset)
    for part in CATALOG["sts14-es"].files:
        yield _spanish(part)
    for languages, number in STS17_TRACKS.items():
        yield _track(languages, number)
    for split in ("train", "dev", "test"):
        target = f"sts/STSB/{split}.tsv"
        yield _recipe(target, SCORED, readers.sts_benchmark, f"sts-{split}.csv")
        if split != "test":  # GLUE's test set has no scores
            yield _recipe(target, SCORED, readers.glue_stsb, f"STS-B/{split}.tsv")
    for split, name in (("train", "train"), ("dev", "trial"), ("test", "test_annotated")):
        yield _recipe(f"sts/SICK/{split}.tsv", (*SCORED, "label"), readers.sick, f"SICK_{name}.txt")


def _classification() -> Iterable[Recipe]:
    yield _recipe("senteval/MR.tsv", TEXT, readers.polarity, "rt-polarity.pos", "rt-polarity.neg")
    yield _recipe("senteval/CR.tsv", TEXT, readers.polarity, "custrev.pos", "custrev.neg")
    yield _recipe("senteval/SUBJ.tsv", TEXT, readers.polarity, "subj.objective", "subj.subjective")
    yield _recipe("senteval/MPQA.tsv", TEXT, readers.polarity, "mpqa.pos", "mpqa.neg")
    for split, name in (("train", "train_5500"), ("test", "TREC_10")):
        yield _recipe(f"senteval/TREC/{split}.tsv", (*TEXT, "fine_label"), readers.trec, f"{name}.label")
    for split in ("train", "test"):
        yield _recipe(f"senteval/MRPC/{split}.tsv", PAIR, readers.paraphrases, f"msr_paraphrase_{split}.txt")
    for split in ("train", "dev", "test"):
        binary = f"senteval/SST2/{split}.tsv"
        yield _recipe(binary, TEXT, readers.label_space_text(2), f"stsa.binary.{split}")
        phrases = "senteval/SST2/train_phrases.tsv" if split == "train" else binary
        yield _recipe(phrases, TEXT, readers.text_tab_label, f"SST/(binary|Binary)/sentiment-{split}")
        fine = f"(stsa.fine.{split}|SST/(fine|Fine-Grained)/sentiment-{split})"
        yield _recipe(f"senteval/SST5/{split}.tsv", TEXT, readers.label_space_text(5), fine)
    for name, columns in (("amazon", 3), ("yelp", 2)):
        for split in ("train", "test"):
            file = f"{name}_review_polarity_csv/{split}.csv"
            yield _recipe(f"transfer/{name}_polarity/{split}.tsv", TEXT, readers.reviews(columns), file)


def _glue() -> Iterable[Recipe]:
    sst2 = readers.labelled("sentence", labels=_BINARY)
    yield _recipe("senteval/SST2/train_phrases.tsv", TEXT, sst2, "SST-2/train.tsv")
    yield _recipe("glue/SST-2/dev.tsv", TEXT, sst2, "SST-2/dev.tsv")
    rte = readers.labelled("sentence1", "sentence2", labels=_ENTAILMENT)
    qnli = readers.labelled("question", "sentence", labels=_ENTAILMENT)
    for split in ("train", "dev"):
        mrpc = readers.glue_paraphrases(dev=split == "dev")
        yield _recipe(f"glue/MRPC/{split}.tsv", PAIR, mrpc, "mrpc_dev_ids.tsv", "msr_paraphrase_train.txt")
        yield _recipe(f"glue/MRPC/{split}.tsv", PAIR, readers.paraphrases, f"MRPC/{split}.tsv")
        yield _recipe(f"glue/CoLA/{split}.tsv", TEXT, readers.cola, f"CoLA/{split}.tsv")
        yield _recipe(f"glue/RTE/{split}.tsv", PAIR, rte, f"RTE/{split}.tsv")
        yield _recipe(f"glue/QNLI/{split}.tsv", ("label", "question", "sentence"), qnli, f"QNLI/{split}.tsv")


def _nli() -> Iterable[Recipe]:
    for split in ("train", "dev", "test"):
        target = f"nli/SNLI/{split}.tsv"
        yield _recipe(target, NLI, readers.nli_json, f"snli_1.0_{split}.jsonl")
        yield _recipe(target, NLI, readers.senteval_nli, *(f"SNLI/{part}.{split}" for part in ("labels", "s1", "s2")))
    for split in ("train", "dev_matched", "dev_mismatched"):
        target = f"nli/MNLI/{split}.tsv"
        yield _recipe(target, NLI, readers.nli_json, f"multinli_1.0_{split}.jsonl")
        yield _recipe(target, NLI, readers.glue_nli, f"MNLI/{split}.tsv")


RECIPES: tuple[Recipe, ...] = (
    *_sts(),
    *_classification(),
    *_glue(),
    *_nli(),
    _recipe("text/wiki1m_for_simcse.txt", (), readers.plain_text, "wiki1m_for_simcse.txt"),
)
"""All recipes. Where several make the same file, an earlier one has precedence."""


def recipes_for(targets: Iterable[str]) -> list[Recipe]:
    """Return the recipes of some files of the local data folder."""
    wanted = set(targets)
    return [recipe for recipe in RECIPES if recipe.target in wanted]


_OFFICIALLY_CASED = ("sts/STS1", "sts/STSB/")
_OFFICIALLY_LOWER = ("sts/STS14/deft-news.tsv", "sts/STS15/belief.tsv")
"""The files whose official text has upper-case letters, but not SentEval's; and those without them in both."""
EMPTY, UNLABELLED = "with an empty text", "without a label or score"


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
    recipe: Recipe, inputs: Sequence[SourceFile], output: Path, *, record: Callable[[ConvertedFile], None]
) -> ConvertedFile:
    """Write the recipe's file into the folder ``output``, atomically.

    White space is normalised, and rows with an empty text are dropped and counted. ``record`` is called before the file
    gets its name: a file that exists is never without its record.

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
                for _, fields in recipe.reader(inputs):
                    values = None if fields is None else [normalize_whitespace(value) for value in fields]
                    if values is None:
                        dropped[UNLABELLED] += 1
                    elif not all(values):
                        dropped[EMPTY] += 1
                    else:
                        rows += 1
                        lower_case = lower_case and (text := "".join(values[1:])) == text.lower()
                        stream.write("\t".join(values) + "\n")
            shown = tuple(one.shown for one in inputs)
            if not rows:
                raise NearfarError(f"{', '.join(shown)}: no rows for {recipe.target}; the download is incomplete.")
            converted = ConvertedFile(
                file=recipe.target, rows=rows, dropped=dict(dropped), inputs=shown, lower_case=lower_case
            )
            record(converted)
    return converted
