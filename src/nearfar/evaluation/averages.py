"""The averages over tasks that papers report, by name; each is given where a result has all of its tasks."""

from collections.abc import Mapping

SEMEVAL = ("sts12", "sts13", "sts14", "sts15", "sts16")
SIMILARITY_AVERAGES: Mapping[str, tuple[str, ...]] = {
    "seven tasks, SICK-R test": (*SEMEVAL, "stsb", "sickr"),
    "seven tasks, SICK-R full": (*SEMEVAL, "stsb", "sickr-full"),
    "STS12 to STS16": SEMEVAL,
}
"""SimCSE's, with SICK-R's 4,927 test pairs; MTEB's, with all 9,927; and that of Liao 2021 (table 2), whose aggregate is
``wmean``."""

_BEFORE_SST, _AFTER_SST = ("mr", "cr", "subj", "mpqa"), ("trec", "mrpc")
TRANSFER_AVERAGES: Mapping[str, tuple[str, ...]] = {
    "SimCSE's seven": (*_BEFORE_SST, "sst2-phrases", *_AFTER_SST),
    "seven tasks, SST-2 sentences": (*_BEFORE_SST, "sst2", *_AFTER_SST),
    "Liao's eight": (*_BEFORE_SST, "sst2-phrases", "sst5", *_AFTER_SST),
    "eight tasks, SST-2 sentences": (*_BEFORE_SST, "sst2", "sst5", *_AFTER_SST),
}
"""Averages of accuracies. SimCSE (table E.1), SBERT and Kim et al. 2021 (table 4) report the first, Liao 2021 (table 3)
the third. They train SST-2 on SentEval's 67,349 phrases, ``sst2-phrases``; with the 6,920 sentences an average has
another name."""
