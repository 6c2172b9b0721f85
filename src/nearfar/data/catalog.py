"""Where each named data set lives: a local data folder first, else the hub; never another set in its place.

A data set is named by a *spec*:

==============================  ====================================================================================
``snli``, ``sts12``             a named set; alone, the split or subsets that people mean by it (:data:`CATALOG`)
``snli:dev``, ``snli:dev+test`` some of its splits, or subsets (``sts12:MSRpar``)
``mr``, ``wiki``                a named set that is one file, without splits
``path/to/rows.tsv``            a file, or a folder written by ``datasets``' ``save_to_disk`` (``folder:validation``)
``hub:owner/name:train``        a hub data set, ``hub:owner/name/config:train`` where it has several configs; ``hub:``
                                may be left out where no file has that name
==============================  ====================================================================================

The local folder is what the environment variable ``NEARFAR_DATA`` names: it has ``nli/SNLI/dev.tsv``,
``sts/STS12/MSRpar.tsv`` and so on. A named set wins over a file of the same name; write ``./snli`` for the file.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from nearfar.data import files, hub
from nearfar.data.sources import Table, open_table
from nearfar.types import NearfarError


@dataclass(frozen=True, kw_only=True)
class NamedSet:
    """A data set that has a name here: where it is, and what its name alone means."""

    folder: str
    """Under the local data folder; it has one TSV for each split or subset, or :attr:`files`."""
    splits: tuple[str, ...]
    """The splits (or subsets, where an STS set has several) that the name alone means."""
    hub: str | None = None
    hub_splits: Mapping[str, str] = field(default_factory=dict)
    """Split here -> split there. The split ``all``, where there is one, holds all of ``splits``, not told apart."""
    scale: tuple[float, float] | None = None
    """Lowest and highest gold score."""
    advice: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    """Split -> file, of a set whose files are not named by their splits; it then has no others."""
    sentences: tuple[str, ...] = ("text",)
    """The columns that hold the sentences of the set, when no more than sentences is asked for."""


_SEMEVAL_SCALE = (0.0, 5.0)
_PAIR = ("sentence1", "sentence2")
_NO_SICK_TEST = (
    "No hub copy of the official test split is known (mteb/sickr-sts mixes all 9,927 pairs; that is sickr-full). "
    "SemEval-2014 Task 1 publishes it as SICK_test_annotated.txt: save it as the file above, with the columns score, "
    "sentence1 and sentence2."
)
_NO_LABELLED = (
    "No hub copy is known here. Save it as the file above, or name another file or hub data set: any with the columns "
    "text and label will do."
)
_NO_PAIRS = (
    "No hub copy is known here. Save it as the file above, with the columns label (1: paraphrase), sentence1 and "
    "sentence2."
)
_NO_TEXT = "It is on no hub. Name a file of your own instead, with one sentence a line."
_NO_WIKI1M = (
    "It is not fetched from the hub, where it is one file among others of princeton-nlp/datasets-for-simcse: download "
    "wiki1m_for_simcse.txt from there once, and save it as the file above or name the file itself."
)
_NO_FLICKR8K = "No hub copy is known here. Save the captions as the file above, with the columns image and caption."


STS17_TRACKS = {"ar-ar": "1", "ar-en": "2", "es-es": "3", "es-en": "4a", "en-en": "5"}
"""SemEval-2017 Task 1: languages of the two sentences, and the number of the track."""
_NO_STS17 = (
    "SemEval-2017 Task 1 publishes it (STS2017.eval and STS2017.gs): save a track as the file above, with the columns "
    "score, sentence1 and sentence2; or name two languages of a hub copy, as in "
    "hub:mteb/sts17-crosslingual-sts/es-en:test."
)
_NO_STS14_ES = (
    "SemEval-2014 Task 10 publishes it for Spanish: save it as the file above, with the columns score, sentence1 and "
    "sentence2."
)


def _semeval(year: int, *subsets: str) -> NamedSet:
    return NamedSet(
        folder=f"sts/STS{year}",
        splits=subsets,
        hub=f"mteb/sts{year}-sts",
        hub_splits={"all": "test"},
        scale=_SEMEVAL_SCALE,
        sentences=_PAIR,
    )


def _one_file(path: str, advice: str, *sentences: str) -> NamedSet:
    folder, _, name = path.rpartition("/")
    return NamedSet(
        folder=folder, splits=("all",), files={"all": name}, advice=advice, sentences=sentences or ("text",)
    )


_STSB = NamedSet(
    folder="sts/STSB",
    splits=("test",),
    hub="mteb/stsbenchmark-sts",
    hub_splits={"train": "train", "dev": "validation", "test": "test"},
    scale=_SEMEVAL_SCALE,
    sentences=_PAIR,
)
CATALOG: Mapping[str, NamedSet] = {
    "snli": NamedSet(
        folder="nli/SNLI",
        splits=("train",),
        hub="stanfordnlp/snli",
        hub_splits={"train": "train", "dev": "validation", "test": "test"},
        sentences=("premise", "hypothesis"),
    ),
    "mnli": NamedSet(
        folder="nli/MNLI",
        splits=("train",),
        hub="nyu-mll/multi_nli",
        hub_splits={
            "train": "train",
            "dev_matched": "validation_matched",
            "dev_mismatched": "validation_mismatched",
        },
        sentences=("premise", "hypothesis"),
    ),
    "sts12": _semeval(12, "MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "sts13": _semeval(13, "FNWN", "headlines", "OnWN"),  # SMT is left out, as in SentEval: its licence forbids copies
    "sts14": _semeval(14, "deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "sts15": _semeval(15, "answers-forums", "answers-students", "belief", "headlines", "images"),
    "sts16": _semeval(16, "answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
    "sts17": NamedSet(
        folder="sts/multilingual",
        splits=tuple(STS17_TRACKS),
        files={track: f"STS17.track{number}.{track}.tsv" for track, number in STS17_TRACKS.items()},
        scale=_SEMEVAL_SCALE,
        advice=_NO_STS17,
        sentences=_PAIR,
    ),
    "sts14-es": NamedSet(
        folder="sts/multilingual",
        splits=("wikipedia", "news"),
        files={part: f"STS14.es.{part}.tsv" for part in ("wikipedia", "news")},
        scale=_SEMEVAL_SCALE,
        advice=_NO_STS14_ES,
        sentences=_PAIR,
    ),
    "stsb": _STSB,
    "stsb-text": replace(_STSB, splits=("train", "dev", "test")),  # the text that Kim et al. 2021 train on
    "sickr": NamedSet(folder="sts/SICK", splits=("test",), scale=(1.0, 5.0), advice=_NO_SICK_TEST, sentences=_PAIR),
    "sickr-full": NamedSet(
        folder="sts/SICK",
        splits=("train", "dev", "test"),
        hub="mteb/sickr-sts",
        hub_splits={"all": "test"},
        scale=(1.0, 5.0),
        sentences=_PAIR,
    ),
    "trec": NamedSet(folder="senteval/TREC", splits=("train",), advice=_NO_LABELLED),
    "sst2": NamedSet(folder="senteval/SST2", splits=("train",), advice=_NO_LABELLED),
    "sst5": NamedSet(folder="senteval/SST5", splits=("train",), advice=_NO_LABELLED),
    "mrpc": NamedSet(folder="senteval/MRPC", splits=("train",), advice=_NO_PAIRS, sentences=_PAIR),
    "mr": _one_file("senteval/MR.tsv", _NO_LABELLED),
    "cr": _one_file("senteval/CR.tsv", _NO_LABELLED),
    "subj": _one_file("senteval/SUBJ.tsv", _NO_LABELLED),
    "mpqa": _one_file("senteval/MPQA.tsv", _NO_LABELLED),
    "sentences": _one_file("text/sentences.txt.gz", _NO_TEXT),
    "wiki": _one_file("text/wiki.txt", _NO_TEXT),
    "wiki1m": _one_file("text/wiki1m_for_simcse.txt", _NO_WIKI1M),
    "flickr8k": _one_file("text/flickr8k_captions.tsv", _NO_FLICKR8K, "caption"),
}
MIXTURES: Mapping[str, tuple[str, ...]] = {"snli+mnli": ("snli", "mnli")}


@dataclass(frozen=True)
class Found:
    """One table that a spec names: ``name`` is its split, its subset or its file's stem."""

    name: str
    table: Table
    scale: tuple[float, float] | None = None
    sentences: tuple[str, ...] | None = None
    """The columns that hold its sentences, where it is a named set."""


def find(spec: str) -> list[Found]:
    """Return the tables that ``spec`` names (module docstring), each split or subset in the order asked for.

    Raises:
        NearfarError: a table is in none of its places. The message names each place tried, what is there, and what
            to do.

    """
    name = spec.partition(":")[0]
    if name in MIXTURES:
        return [found for member in MIXTURES[name] for found in _find_named(member, parse(spec)[1])]
    if name in CATALOG:
        return _find_named(*parse(spec))
    return _find_unnamed(spec)


def parse(spec: str) -> tuple[str, tuple[str, ...]]:
    """Split ``name:split+split`` into the name and its splits (none where the name stands alone)."""
    name, colon, rest = spec.partition(":")
    return name, _splits(rest, spec) if colon else ()


def _splits(names: str, spec: str) -> tuple[str, ...]:
    splits = tuple(names.split("+"))
    if "" in splits or len(set(splits)) < len(splits):
        raise NearfarError(f"{spec}: after the colon, name each split once, as in snli:dev or snli:dev+test.")
    return splits


def check_splits(name: str, asked: Sequence[str], there: Sequence[str]) -> None:
    """Raise unless each split asked for is there."""
    for split in asked:
        if split not in there:
            raise NearfarError(f"{name} has no split {split!r}. It has: {', '.join(there)}.")


def _find_named(name: str, asked: tuple[str, ...]) -> list[Found]:
    entry = CATALOG[name]
    if entry.files:
        check_splits(name, asked, list(entry.files))
    splits = asked or entry.splits
    root = os.environ.get("NEARFAR_DATA")
    folder = Path(root).expanduser() / entry.folder if root else None
    paths = {split: folder / _file_name(entry, split) for split in splits} if folder else {}
    local = {split: path for split, path in paths.items() if path.is_file()}
    if "all" in entry.hub_splits and not asked and len(local) < len(splits):
        return [_find_on_hub(name, "all", folder, missing=[split for split in splits if split not in local])]
    return [
        Found(split, open_table(local[split]), entry.scale, entry.sentences)
        if split in local
        else _find_on_hub(name, split, folder, missing=[split])
        for split in splits
    ]


def _file_name(entry: NamedSet, split: str) -> str:
    return entry.files.get(split, f"{split}.tsv")


def _find_on_hub(name: str, split: str, folder: Path | None, *, missing: Sequence[str]) -> Found:
    entry = CATALOG[name]
    if entry.hub is None:
        tried = entry.advice if split in entry.splits else "No hub copy of that split is known."
    elif split not in entry.hub_splits:
        tried = f"The hub data set {entry.hub} has no such split; it has: {', '.join(entry.hub_splits)}."
    else:
        try:
            table = open_table(f"hub:{entry.hub}", split=entry.hub_splits[split])
            return Found(split, table, entry.scale, entry.sentences)
        except NearfarError as error:
            tried = f"{error} Go online once to fetch it into the cache, or set NEARFAR_DATA to a folder that has it."
    if folder is None:
        local, instead = "NEARFAR_DATA is not set, so no local folder was searched.", ""
    else:
        there = [] if entry.files else sorted(path.stem for path in folder.glob("*.tsv"))
        names = ", ".join(str(folder / _file_name(entry, split)) for split in missing)
        local = f"Not there: {names}{'' if folder.is_dir() else ' (nor the folder)'}."
        instead = f" What is there: {name}:{'+'.join(there)}." if there else ""
    title = name if entry.files else f"{name}:{'+'.join(missing)}"
    raise NearfarError(f"{title} was not found.\n  {local}{instead}\n  {tried}")


def _find_unnamed(spec: str) -> list[Found]:
    path = Path(spec).expanduser()
    if path.exists():
        return [Found(files.stem(path), open_table(path))]
    head, colon, rest = spec.rpartition(":")  # the last colon: a path may have others
    if colon and Path(head).expanduser().exists():
        return _open_splits(head, _splits(rest, spec))
    name, colon, rest = spec.removeprefix("hub:").partition(":")  # the first colon: train[:1000] has another
    splits = _splits(rest, spec) if colon else ()
    if spec.startswith("hub:"):
        return _open_splits(f"hub:{name}", splits)
    _check_hub_name(name)
    try:
        return _open_splits(f"hub:{name}", splits)
    except NearfarError as error:
        raise NearfarError(f"{name}: no such file or folder.\n  {error}") from error


def _open_splits(source: str, splits: tuple[str, ...]) -> list[Found]:
    if not splits:
        return [Found(source.rpartition("/")[2], open_table(source))]
    return [Found(split, open_table(source, split=split)) for split in splits]


def _check_hub_name(name: str) -> None:
    # A mistyped path or name is a mistake to report at once, not a question to the hub.
    path = Path(name)
    known = files.is_known(path) or files.is_plain_text(path)
    if path.name == name and not known:
        close = get_close_matches(name, [*CATALOG, *MIXTURES], n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise NearfarError(
            f"{name}: neither a file nor a named data set.{hint} Named: {', '.join([*CATALOG, *MIXTURES])} and "
            "microworld; a hub data set is owner/name."
        )
    if known or path.parent.is_dir() or not hub.NAME.fullmatch(name):
        raise files.no_such_file(path)
