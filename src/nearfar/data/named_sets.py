"""The one table of named data: each data set's files and hub copy, and the tasks that are defined on the sets.

A new data set is a row of :data:`CATALOG`; to probe or to fine-tune on it, also a row of :data:`PROBE_TASKS` or
:data:`FINETUNING_TASKS`. Everything else reads these tables: loading (:mod:`nearfar.data.catalog`), the suites of
``nearfar evaluate``, ``nearfar finetune``, ``nearfar env`` and the lists in error messages.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nearfar.data.catalog_types import FinetuningTask, NamedSet, ProbeTask
from nearfar.types import LABEL_NAMES

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
"""The name of texts of random words of a model's vocabulary (:mod:`nearfar.encoder.vocabulary`)."""
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
    "sickr-learned": ProbeTask("sickr:train+dev+test"),
    "stsb-learned": ProbeTask("stsb:train+dev+test"),
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
