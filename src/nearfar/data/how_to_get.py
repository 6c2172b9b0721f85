"""How to get a named data set: its files, their published numbers of rows, and the command that downloads them."""

from pathlib import PurePosixPath

from nearfar.data.named_sets import CATALOG, FINETUNING_TASKS, MIXTURES, PROBE_TASKS
from nearfar.data.public_sources import sources_of


def _files(folder: str, **rows: int) -> dict[str, int]:
    return {f"{folder}/{name.replace('__', '.').replace('_', '-')}.tsv": count for name, count in rows.items()}


PUBLISHED_ROWS: dict[str, int] = {
    **_files("sts/STS12", MSRpar=750, MSRvid=750, SMTeuroparl=459, surprise__OnWN=750, surprise__SMTnews=399),
    **_files("sts/STS13", FNWN=189, headlines=750, OnWN=561),
    **_files("sts/STS14", deft_forum=450, deft_news=300, headlines=750, images=750, OnWN=750, tweet_news=750),
    **_files("sts/STS15", answers_forums=375, answers_students=750, belief=375, headlines=750, images=750),
    **_files("sts/STS16", answer_answer=254, headlines=249, plagiarism=230, postediting=244, question_question=209),
    **_files("sts/STSB", train=5749, dev=1500, test=1379),
    **_files("sts/SICK", train=4500, dev=500, test=4927),
    **{f"sts/multilingual/{name}": 250 for name in CATALOG["sts17"].files.values()},
    "sts/multilingual/STS14.es.wikipedia.tsv": 324,
    "sts/multilingual/STS14.es.news.tsv": 480,
    "nli/SNLI/train.tsv": 549_367,
    "nli/SNLI/dev.tsv": 9842,
    "nli/SNLI/test.tsv": 9824,
    "nli/MNLI/train.tsv": 392_702,
    "nli/MNLI/dev_matched.tsv": 9815,
    "nli/MNLI/dev_mismatched.tsv": 9832,
    **_files("senteval", MR=10_662, CR=3775, SUBJ=10_000, MPQA=10_606),
    **_files("senteval/SST2", train=6920, dev=872, test=1821),
    "senteval/SST2/train_phrases.tsv": 67_349,
    **_files("senteval/SST5", train=8544, dev=1101, test=2210),
    **_files("senteval/TREC", train=5452, test=500),
    **_files("senteval/MRPC", train=4076, test=1725),
    "glue/SST-2/dev.tsv": 872,
    **_files("glue/CoLA", train=8551, dev=1043),
    **_files("glue/MRPC", train=3668, dev=408),
    **_files("glue/RTE", train=2490, dev=277),
    **_files("glue/QNLI", train=104_743, dev=5463),
    **_files("transfer/amazon_polarity", train=3_600_000, test=400_000),
    **_files("transfer/yelp_polarity", train=560_000, test=38_000),
    "text/wiki1m_for_simcse.txt": 1_000_000,
}
"""File in the local data folder -> its published number of rows. NLI rows without a label are not counted.

SentEval counts empty lines, which nearfar drops: 4 in CR, 3 in MPQA.
"""


def files_of(name: str) -> tuple[str, ...]:
    """Return the files of a named set, as paths in the local data folder: of all its splits.

    A set that has no public source has only the files that its row in the catalog names.
    """
    entry = CATALOG[name]
    if entry.files:
        return tuple(str(PurePosixPath(entry.folder, file)) for file in entry.files.values())
    public = [file for file in PUBLISHED_ROWS if str(PurePosixPath(file).parent) == entry.folder]
    own = [f"{entry.folder}/{split}.tsv" for split in entry.splits]
    return tuple(dict.fromkeys([*public, *own]))


def sets_of(name: str) -> tuple[str, ...]:
    """Return the named sets of a set, a mixture, a probe task or a fine-tuning task; of a spec, its name is used.

    >>> sets_of("snli+mnli:dev"), sets_of("sick-e"), sets_of("sst2"), sets_of("nowhere")
    (('snli', 'mnli'), ('sickr',), ('sst2',), ())
    """
    head = name.partition(":")[0]
    if head in CATALOG:
        return (head,)
    if head in MIXTURES:
        return MIXTURES[head]
    if head in PROBE_TASKS:
        return (PROBE_TASKS[head].spec.partition(":")[0],)
    if head in FINETUNING_TASKS:
        task = FINETUNING_TASKS[head]
        specs = [spec for spec in (task.source, task.test, task.validation) if spec]
        return tuple(dict.fromkeys(spec.partition(":")[0] for spec in specs))
    return ()


WITH_SUBSETS = ("sts12", "sts13", "sts14", "sts15", "sts16")
"""The STS sets that have subsets."""


def how_to_get(name: str) -> str:
    """Return one sentence per named set of ``name``: a set, a mixture, a task, or a spec of one (``snli:dev``).

    For another name (a file, a hub data set) it says to check the name.

    >>> how_to_get("mr")
    'nearfar get-data mr downloads it.'
    """
    names = sets_of(name)
    if not names:
        return f"{name} is not a named data set: check the path, or the name of the hub data set."
    spec = name.partition(":")[2]
    return " ".join(_advice(one, spec) for one in names)


def _advice(name: str, splits: str) -> str:
    entry = CATALOG[name]
    if not is_public(name, splits):
        wanted = splits.split("+") if splits else entry.splits
        if entry.hub and set(wanted) <= set(entry.hub_splits):
            return f"The hub has it as {entry.hub}; it is downloaded on first use."
        return entry.advice or "No public source of it is known: save it as the file above, or name another split."
    text = f"nearfar get-data {name} downloads it"
    if name in WITH_SUBSETS and not splits:
        return f"{text} with its subsets, which the hub copy {entry.hub} lacks and the aggregates mean and wmean need."
    return f"{text}."


def is_public(name: str, splits: str = "") -> bool:
    """Whether ``nearfar get-data`` can download a named set or, with ``splits`` (``dev+test``), these splits of it."""
    entry = CATALOG[name]
    wanted = splits.split("+") if splits else list(entry.splits)
    if "all" in wanted and not entry.files:
        wanted = list(entry.splits)
    files = [f"{entry.folder}/{entry.files.get(split, f'{split}.tsv')}".removeprefix("/") for split in wanted]
    return all(file in files_of(name) and sources_of(file) for file in files)
