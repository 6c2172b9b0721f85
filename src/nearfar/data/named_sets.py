"""The one table of named data: each data set's files and hub copy, and the tasks that are defined on the sets.

A new data set is a row of :data:`CATALOG`; to probe or to fine-tune on it, also a row of :data:`PROBE_TASKS` or
:data:`FINETUNING_TASKS`. Everything else reads these tables: loading (:mod:`nearfar.data.catalog`), the suites of
``nearfar evaluate``, ``nearfar finetune``, ``nearfar env`` and the lists in error messages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from nearfar.types import LABEL_NAMES

Metric: TypeAlias = Literal["accuracy", "matthews", "accuracy_f1", "pearson_spearman"]
RowKind: TypeAlias = Literal["pairs", "scored", "labelled"]
"""Pairs of texts, scored pairs, or labelled texts: kinds of rows that a named set can have beside its own."""


@dataclass(frozen=True, kw_only=True)
class NamedSet:
    """A data set with a name: where its files are, and what the name alone means."""

    folder: str
    """Folder in the local data folder, with one TSV file per split or subset, or with :attr:`files`."""
    splits: tuple[str, ...]
    """The splits that the name alone means; for an STS set with several subsets, these."""
    hub: str | None = None
    """The hub data set with the same rows, ``owner/name`` or ``owner/name/config``."""
    hub_splits: Mapping[str, str] = field(default_factory=dict)
    """Split here -> split on the hub, or several: ``train+validation``. A split ``all`` holds the rows of all
    ``splits`` without distinction."""
    scale: tuple[float, float] | None = None
    """Lowest and highest gold score; only STS sets have one."""
    advice: str = ""
    """What to do if the files are missing and have no public source (:mod:`nearfar.data.how_to_get`)."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Split -> file name, for a set whose files are not named by split; such a set has no other splits."""
    sentences: tuple[str, ...] = ("text",)
    """The columns that hold sentences, for loaders that need only sentences."""
    hub_columns: Mapping[str, str] = field(default_factory=dict)
    """Column of the hub copy -> column of the local files, where they differ."""
    hub_text: tuple[str, ...] = ()
    """Columns of the hub copy that are joined by a space to the column ``text``."""
    hub_labels: Mapping[str, str] = field(default_factory=dict)
    """Label of the hub copy -> label of the local files, where they differ."""
    in_sts_suite: bool = False
    """Whether ``nearfar evaluate --suite sts`` includes it."""
    without: tuple[str, ...] = ()
    """Named sets of scored pairs whose pairs are left out of this one, in either order of the sentences."""
    pairs: bool = False
    """Whether the two :attr:`sentences` of a row are a pair with the same meaning."""
    captions_by: str | None = None
    """Column with the image of a caption. Pairs are captions of the same image, in consecutive rows."""
    parts_by: str | None = None
    """Column that divides one file into splits, in their order in :attr:`files` after ``all``: the second has the last
    fifth of the column's values, at most 1,000; the first the others; the third as many before the second's, which are
    also in the first."""
    packaged: bool = False
    """Whether its files are a part of this package: :attr:`folder` is beside this module."""
    kinds: "Mapping[RowKind, NamedSet]" = field(default_factory=dict)
    """Kind of rows -> the set that a loader of this kind reads under the same name."""

    def of_kind(self, kind: RowKind | None) -> "NamedSet":
        """Return the set that a loader of rows of ``kind`` reads; None means this set's own rows."""
        return self if kind is None else self.kinds.get(kind, self)


class ProbeTask(NamedTuple):
    """A transfer task of ``nearfar evaluate``: a classifier or regression trained on frozen embeddings."""

    spec: str
    """Name in :data:`nearfar.data.named_sets.CATALOG` with its splits: all; train, test; or train, dev, test."""
    labels: tuple[str, ...] = ()
    """The labels in the order of their numbers; empty for a task with scores (learned relatedness)."""
    columns: tuple[str, ...] = ("text",)
    in_suite: bool = True
    """Whether ``nearfar evaluate --suite transfer`` includes it."""


class FinetuningTask(NamedTuple):
    """A task of ``nearfar finetune``."""

    source: str
    """Name in :data:`nearfar.data.named_sets.CATALOG`; its split ``train`` is trained on."""
    test: str | None
    """Spec of the test rows; None holds out a fifth of the training rows."""
    columns: tuple[str, ...]
    label_names: tuple[str, ...]
    """The labels in the order of their numbers; empty for a task with scores."""
    metric: Metric = "accuracy"
    """``accuracy_f1``: F1 of the label with number 1, as in GLUE."""
    label_aliases: Mapping[str, str | None] | None = None
    """Label in the data, in addition to the names -> name; None drops the row. By default the numbers are aliases."""
    note: str = "GLUE's validation set, as the labels of its test set are not published"
    validation: str | None = None
    """Spec of the validation rows; None holds out training rows."""
    label_column: str = "label"
    glue: bool = False
    """Whether ``test`` is GLUE's validation set; then ``--splits auto`` follows Gunel et al. (2021)."""


UNLABELLED = ("", "-", "-1")
"""How NLI sets mark a row whose annotators disagreed: SNLI's files by ``-``, its hub copy by -1, others by nothing."""

_SEMEVAL_SCALE = (0.0, 5.0)
_PAIR = ("sentence1", "sentence2")
_NO_LABELLED = (
    "No public source of it is known. Save it as the file above, or name another file or hub data set with the columns "
    "text and label."
)
_NO_TEXT = "Name a file of your own instead, with one sentence per line."
_NO_FLICKR8K = "Save the captions as the file above, with the columns image and caption."
_NO_REVIEWS = (
    "It is a sample without a public source. Use the full set {full} (nearfar get-data {full}), or name another file "
    "or hub data set with the columns text and label."
)


STS17_TRACKS = {"ar-ar": "1", "ar-en": "2", "es-es": "3", "es-en": "4a", "en-en": "5"}
"""SemEval-2017 Task 1: languages of the two sentences -> number of the track."""


def _semeval(year: int, *subsets: str) -> NamedSet:
    return NamedSet(
        folder=f"sts/STS{year}",
        splits=subsets,
        hub=f"mteb/sts{year}-sts",
        hub_splits={"all": "test"},
        scale=_SEMEVAL_SCALE,
        sentences=_PAIR,
        in_sts_suite=True,
    )


def _glue(folder: str, config: str, *sentences: str, hub_columns: Mapping[str, str] | None = None) -> NamedSet:
    # The hub's test splits are omitted: GLUE does not publish their labels, and the hub has -1 instead.
    return NamedSet(
        folder=f"glue/{folder}",
        splits=("train",),
        hub=f"nyu-mll/glue/{config}",
        hub_splits={"train": "train", "dev": "validation"},
        sentences=sentences,
        hub_columns=hub_columns or {},
    )


def _one_file(path: str, advice: str = "", sentences: str = "text", captions_by: str | None = None) -> NamedSet:
    folder, _, name = path.rpartition("/")
    return NamedSet(
        folder=folder,
        splits=("all",),
        files={"all": name} | ({} if captions_by is None else {"train": name, "test": name, "dev": name}),
        parts_by=captions_by,
        advice=advice,
        sentences=(sentences,),
        captions_by=captions_by,
    )


def _packaged(files: Mapping[str, str], sentences: tuple[str, ...], **options: Any) -> NamedSet:
    """A set of the files in ``data/microworld``; its name alone means the first of them."""
    return NamedSet(
        folder="microworld",
        splits=(next(iter(files)),),
        files={split: f"{name}.gz" for split, name in files.items()},
        sentences=sentences,
        packaged=True,
        advice="It is a part of nearfar: install nearfar again.",
        **options,
    )


_STSB = NamedSet(
    folder="sts/STSB",
    splits=("test",),
    hub="mteb/stsbenchmark-sts",
    hub_splits={"train": "train", "dev": "validation", "test": "test"},
    scale=_SEMEVAL_SCALE,
    sentences=_PAIR,
    in_sts_suite=True,
)
_TESTED = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
_SICK = NamedSet(
    folder="sts/SICK",
    splits=("test",),
    scale=(1.0, 5.0),
    sentences=_PAIR,
    in_sts_suite=True,
)
CATALOG: dict[str, NamedSet] = {
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
    "sts13": _semeval(13, "FNWN", "headlines", "OnWN"),  # without SMT, as in SentEval: its licence forbids copies
    "sts14": _semeval(14, "deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "sts15": _semeval(15, "answers-forums", "answers-students", "belief", "headlines", "images"),
    "sts16": _semeval(16, "answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
    "sts17": NamedSet(
        folder="sts/multilingual",
        splits=tuple(STS17_TRACKS),
        files={track: f"STS17.track{number}.{track}.tsv" for track, number in STS17_TRACKS.items()},
        scale=_SEMEVAL_SCALE,
        sentences=_PAIR,
    ),
    "sts14-es": NamedSet(
        folder="sts/multilingual",
        splits=("wikipedia", "news"),
        files={part: f"STS14.es.{part}.tsv" for part in ("wikipedia", "news")},
        scale=_SEMEVAL_SCALE,
        sentences=_PAIR,
    ),
    "stsb": _STSB,
    "stsb-text": replace(
        _STSB, splits=("train", "dev", "test"), in_sts_suite=False
    ),  # the text that Kim et al. 2021 train on
    "stsb-clean": replace(  # to train on, or to choose by, before a test on the seven STS tasks
        _STSB,
        splits=("train",),
        files={"train": "train.tsv", "dev": "dev.tsv"},
        hub_splits={"train": "train", "dev": "validation"},
        without=_TESTED,
        in_sts_suite=False,
    ),
    "sickr": _SICK,
    "sickr-full": replace(_SICK, splits=("train", "dev", "test"), hub="mteb/sickr-sts", hub_splits={"all": "test"}),
    "sickr-clean": replace(  # as stsb-clean
        _SICK,
        splits=("train",),
        files={"train": "train.tsv", "dev": "dev.tsv"},
        without=_TESTED,
        in_sts_suite=False,
    ),
    "trec": NamedSet(folder="senteval/TREC", splits=("train",)),
    "trec-parts": NamedSet(  # to choose settings by, before a test on trec:test
        folder="senteval/TREC",
        splits=("train",),
        files={"train": "train.tsv", "dev": "train.tsv"},
        parts_by="text",
    ),
    "sst2": NamedSet(
        folder="senteval/SST2",
        splits=("train",),
        hub="SetFit/sst2",
        hub_splits={"train": "train", "dev": "validation", "test": "test"},
    ),
    "sst5": NamedSet(
        folder="senteval/SST5",
        splits=("train",),
        hub="SetFit/sst5",
        hub_splits={"train": "train", "dev": "validation", "test": "test"},
    ),
    "mrpc": NamedSet(  # GLUE's validation set is a part of the official training set, and its test labels are public
        folder="senteval/MRPC",
        splits=("train",),
        hub="nyu-mll/glue/mrpc",
        hub_splits={"train": "train+validation", "test": "test"},
        hub_labels={"not_equivalent": "0", "equivalent": "1"},
        sentences=_PAIR,
    ),
    "cola": _glue("CoLA", "cola", "text", hub_columns={"sentence": "text"}),
    "mrpc-glue": _glue("MRPC", "mrpc", *_PAIR),  # mrpc has the official split
    "rte": _glue("RTE", "rte", *_PAIR),
    "qnli": _glue("QNLI", "qnli", "question", "sentence"),
    "sst2-glue": replace(  # trains on phrases; sst2 has SentEval's sentences
        _glue("", "sst2", "text", hub_columns={"sentence": "text"}),
        folder="",
        files={"train": "senteval/SST2/train_phrases.tsv", "dev": "glue/SST-2/dev.tsv"},
    ),
    "amazon5": NamedSet(
        folder="transfer/amazon5", splits=("train",), advice=_NO_REVIEWS.format(full="amazon-polarity")
    ),
    "yelp5": NamedSet(folder="transfer/yelp5", splits=("train",), advice=_NO_REVIEWS.format(full="yelp-polarity")),
    "amazon-polarity": NamedSet(  # Zhang et al. 2015: 1-2 stars are negative, 4-5 positive; the title is put first
        folder="transfer/amazon_polarity",
        splits=("train",),
        hub="fancyzhx/amazon_polarity",
        hub_splits={"train": "train", "test": "test"},
        hub_text=("title", "content"),
        hub_labels={"negative": "0", "positive": "1"},
    ),
    "yelp-polarity": NamedSet(
        folder="transfer/yelp_polarity",
        splits=("train",),
        hub="fancyzhx/yelp_polarity",
        hub_splits={"train": "train", "test": "test"},
        hub_labels={"1": "0", "2": "1"},
    ),
    "sentiment-labelled": NamedSet(  # Kotzias et al. 2015, 1,000 sentences per subset
        folder="transfer/sentiment_labelled", splits=("amazon_cells", "yelp", "imdb"), advice=_NO_LABELLED
    ),
    "mr": replace(
        _one_file("senteval/MR.tsv"),
        hub="cornell-movie-review-data/rotten_tomatoes",
        hub_splits={"all": "train+validation+test"},
        hub_labels={"neg": "0", "pos": "1"},
    ),
    "cr": _one_file("senteval/CR.tsv"),
    "subj": replace(
        _one_file("senteval/SUBJ.tsv"),
        hub="SetFit/subj",
        hub_splits={"all": "train+test"},
        hub_labels={"0": "1", "1": "0"},  # there 1 is subjective
    ),
    "mpqa": _one_file("senteval/MPQA.tsv"),
    "sentences": _one_file("text/sentences.txt.gz", _NO_TEXT),
    "wiki": _one_file("text/wiki.txt", _NO_TEXT),
    "wiki1m": _one_file("text/wiki1m_for_simcse.txt"),
    "flickr8k": _one_file("text/flickr8k_captions.tsv", _NO_FLICKR8K, "caption", captions_by="image"),
    "microworld": _packaged(  # generated by studies/microworld/write.py
        {"train": "nli-train.tsv", "test": "nli-test.tsv"},
        ("premise", "hypothesis"),
        kinds={
            "pairs": _packaged(
                {"train": "pairs-train.tsv", "test": "pairs-test.tsv"}, ("anchor", "positive"), pairs=True
            ),
            "scored": _packaged({"test": "scored-test.tsv", "dev": "scored-dev.tsv"}, _PAIR, scale=_SEMEVAL_SCALE),
            "labelled": _packaged({"all": "labelled.tsv"}, ("text",)),
        },
    ),
    "microworld-text": _packaged({"all": "text.txt"}, ("text",)),
    "microworld-paraphrases": _packaged({"all": "paraphrases.tsv"}, ("anchor", "positive"), pairs=True),
}
VOCABULARY = "vocabulary"
"""The name of texts of random words of a model's vocabulary (:mod:`nearfar.encoder.tokens`)."""
OWN = "own"
"""The name of the texts of a run's own rows, as sentences beside these rows."""
MIXTURES: Mapping[str, tuple[str, ...]] = {"snli+mnli": ("snli", "mnli")}
"""Name -> the sets that it means together."""

_BINARY = ("0", "1")
_TREC = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
PROBE_TASKS: dict[str, ProbeTask] = {
    "mr": ProbeTask("mr", _BINARY),
    "cr": ProbeTask("cr", _BINARY),
    "subj": ProbeTask("subj", _BINARY),
    "mpqa": ProbeTask("mpqa", _BINARY),
    "sst2": ProbeTask("sst2:train+dev+test", _BINARY),
    "sst2-phrases": ProbeTask("sst2:train_phrases+dev+test", _BINARY, in_suite=False),  # ten times the rows of sst2
    "sst5": ProbeTask("sst5:train+dev+test", ("0", "1", "2", "3", "4")),
    "trec": ProbeTask("trec:train+test", _TREC),
    "trec-dev": ProbeTask("trec-parts:train+dev", _TREC, in_suite=False),  # parts of the training questions
    "mrpc": ProbeTask("mrpc:train+test", _BINARY, _PAIR),
    "sick-e": ProbeTask("sickr:train+dev+test", ("CONTRADICTION", "NEUTRAL", "ENTAILMENT"), _PAIR),
    "sickr-learned": ProbeTask("sickr:train+dev+test", columns=_PAIR),
    "stsb-learned": ProbeTask("stsb:train+dev+test", columns=_PAIR),
}

_TEXT = ("text",)
_SENTIMENT = ("negative", "positive")
_ENTAILMENT = ("entailment", "not_entailment")  # in GLUE's order, as all labels of GLUE tasks
_STARS = {"1": "negative", "2": "negative", "3": None, "4": "positive", "5": "positive"}
_NLI = {str(number): name for number, name in enumerate(LABEL_NAMES)} | {mark: None for mark in UNLABELLED if mark}
_PARAPHRASE = ("different", "paraphrase")
_MRPC_LABELS = {"0": "different", "1": "paraphrase", "not_equivalent": "different", "equivalent": "paraphrase"}
_MRPC = "the official test set, whose labels are published; GLUE's validation set is a part of train"
_MATCHED = "GLUE's matched validation set, as the labels of its test sets are not published"
FINETUNING_TASKS: dict[str, FinetuningTask] = {
    "sst2": FinetuningTask("sst2-glue", "sst2-glue:dev", _TEXT, _SENTIMENT, glue=True),
    "cola": FinetuningTask("cola", "cola:dev", _TEXT, ("unacceptable", "acceptable"), "matthews", glue=True),
    "mrpc": FinetuningTask("mrpc", "mrpc:test", _PAIR, _PARAPHRASE, "accuracy_f1", note=_MRPC),
    "mrpc-glue": FinetuningTask(
        "mrpc-glue", "mrpc-glue:dev", _PAIR, _PARAPHRASE, "accuracy_f1", label_aliases=_MRPC_LABELS, glue=True
    ),
    "rte": FinetuningTask("rte", "rte:dev", _PAIR, _ENTAILMENT, glue=True),
    "qnli": FinetuningTask("qnli", "qnli:dev", ("question", "sentence"), _ENTAILMENT, glue=True),
    "mnli": FinetuningTask(
        "mnli", "mnli:dev_matched", ("premise", "hypothesis"), LABEL_NAMES, label_aliases=_NLI, note=_MATCHED, glue=True
    ),
    "stsb": FinetuningTask(
        "stsb",
        "stsb:test",
        _PAIR,
        (),
        "pearson_spearman",
        note="the official test set",
        validation="stsb:dev",
        label_column="score",
    ),
    "amazon2": FinetuningTask("amazon5", "amazon5:test", _TEXT, _SENTIMENT, label_aliases=_STARS, note=""),
    "yelp2": FinetuningTask("yelp5", None, _TEXT, _SENTIMENT, label_aliases=_STARS, note=""),
    "amazon-polarity": FinetuningTask("amazon-polarity", "amazon-polarity:test", _TEXT, _SENTIMENT, note=""),
    "yelp-polarity": FinetuningTask("yelp-polarity", "yelp-polarity:test", _TEXT, _SENTIMENT, note=""),
}


def suite_tasks(suite: str) -> tuple[str, ...]:
    """Return the names of a suite's tasks: ``sts``, ``transfer``, or ``all`` for both, in the order of the tables.

    >>> suite_tasks("sts")
    ('sts12', 'sts13', 'sts14', 'sts15', 'sts16', 'stsb', 'sickr', 'sickr-full')
    """
    sts = tuple(name for name, entry in CATALOG.items() if entry.in_sts_suite) if suite != "transfer" else ()
    transfer = tuple(name for name, task in PROBE_TASKS.items() if task.in_suite) if suite != "sts" else ()
    return (*sts, *transfer)
