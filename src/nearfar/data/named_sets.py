"""The data sets that have a name here: their files in the local data folder, and their copies on the hub.

How they are found is in :mod:`nearfar.data.catalog`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


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
    hub_columns: Mapping[str, str] = field(default_factory=dict)
    """Column of the hub's copy -> its name in the files here, where the two differ."""


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
_NO_REVIEWS = (
    "The hub's copies are larger, and not this sample. Save yours as the file above, or name another file or hub data "
    "set: any with the columns text and label will do."
)


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


def _glue(folder: str, config: str, *sentences: str, hub_columns: Mapping[str, str] | None = None) -> NamedSet:
    # The hub's test splits are left out: GLUE keeps their labels to itself, and -1 stands in their place.
    return NamedSet(
        folder=f"glue/{folder}",
        splits=("train",),
        hub=f"nyu-mll/glue/{config}",
        hub_splits={"train": "train", "dev": "validation"},
        sentences=sentences,
        hub_columns=hub_columns or {},
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
    "cola": _glue("CoLA", "cola", "text", hub_columns={"sentence": "text"}),
    "rte": _glue("RTE", "rte", *_PAIR),
    "qnli": _glue("QNLI", "qnli", "question", "sentence"),
    "sst2-glue": replace(  # trains on phrases, as SentEval does; SentEval's SST-2 is sst2
        _glue("", "sst2", "text", hub_columns={"sentence": "text"}),
        folder="",
        files={"train": "senteval/SST2/train_phrases.tsv", "dev": "glue/SST-2/dev.tsv"},
    ),
    "amazon5": NamedSet(folder="transfer/amazon5", splits=("train",), advice=_NO_REVIEWS),
    "yelp5": NamedSet(folder="transfer/yelp5", splits=("train",), advice=_NO_REVIEWS),
    "sentiment-labelled": NamedSet(  # Kotzias et al. 2015: a thousand sentences of each
        folder="transfer/sentiment_labelled", splits=("amazon_cells", "yelp", "imdb"), advice=_NO_LABELLED
    ),
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
