"""Tiny downloads in the public formats of the data sets, generated with invented sentences."""

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import nearfar
from nearfar.commands.get_data import GetDataResult

Files = Mapping[str, str | bytes]
"""Path in the download -> content."""


def sentence(number: int) -> str:
    """A sentence with capitals, distinct for each number."""
    return f"The Dog {number} runs in the Park ."


def sts_package(folder: str, subsets: tuple[str, ...], *, prefix: str = "STS", rows: int = 6) -> dict[str, str]:
    """An official package of SemEval's STS task; each third pair has no score."""
    files = {}
    for subset in subsets:
        pairs = [f"{sentence(n)}\tThe Cat of {subset} {n} sleeps ." for n in range(rows)]
        scores = ["" if n % 3 == 2 else f"{n % 5}.5" for n in range(rows)]
        files[f"{folder}/{prefix}.input.{subset}.txt"] = "\n".join(pairs) + "\n"
        files[f"{folder}/{prefix}.gs.{subset}.txt"] = "\n".join(scores) + "\n"
    return files


def stsb(folder: str, *, rows: int = 12) -> dict[str, str]:
    """STS-B as published: a tab-separated file without a header, with further columns in some rows."""
    lines = [
        f'main-captions\tMSRvid\t2012test\t{n:04}\t{n % 6}.000\tA Man {n} said "hi .\tA Person {n} spoke .'
        + ("\tlicence" if n % 2 else "")
        for n in range(rows)
    ]
    return {f"{folder}/sts-{split}.csv": "\n".join(lines) + "\n" for split in ("train", "dev", "test")}


def sick(folder: str, *, rows: int = 12) -> dict[str, str]:
    """SICK as SemEval-2014 Task 1 published it, with Windows line ends."""
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    labels = ("NEUTRAL", "ENTAILMENT", "CONTRADICTION")
    lines = [f"{n}\tA Kid {n} plays\tThe Kid {n} sits\t{1 + n % 5}.0\t{labels[n % 3]}" for n in range(rows)]
    text = "\r\n".join([header, *lines]) + "\r\n"
    return {f"{folder}/SICK_{name}.txt": text for name in ("train", "trial", "test_annotated")}


def classification(*, rows: int = 30) -> dict[str, str | bytes]:
    """SentEval's classification sets, as its script leaves them: latin-1, and an empty line in CR and MPQA."""
    files: dict[str, str | bytes] = {}
    for folder, first, second in (
        ("MR", "rt-polarity.pos", "rt-polarity.neg"),
        ("CR", "custrev.pos", "custrev.neg"),
        ("SUBJ", "subj.objective", "subj.subjective"),
        ("MPQA", "mpqa.pos", "mpqa.neg"),
    ):
        for kind, name in (("good", first), ("bad", second)):
            lines = [f"a {kind} caf\xe9 {n}" for n in range(rows)] + ([""] if folder in ("CR", "MPQA") else [])
            files[f"{folder}/{name}"] = "".join(f"{line}\n" for line in lines).encode("latin-1")
    classes = ("ABBR:abb", "DESC:def", "ENTY:animal", "HUM:ind", "LOC:city", "NUM:dist")
    for name in ("train_5500", "TREC_10"):
        lines = [f"{classes[n % 6]} What is caf\xe9 {n} ?" for n in range(rows)]
        files[f"TREC/{name}.label"] = "".join(f"{line}\n" for line in lines).encode("latin-1")
    for split in ("train", "dev", "test"):
        files[f"SST/binary/sentiment-{split}"] = "".join(f"a film {n}\t{n % 2}\n" for n in range(rows))
        files[f"SST/fine/sentiment-{split}"] = "".join(f"{n % 5} a fine film {n}\n" for n in range(rows))
        files[f"stsa/stsa.binary.{split}"] = "".join(f"{n % 2} a whole film {n}\n" for n in range(rows))
    files |= {f"MRPC/msr_paraphrase_{split}.txt": msrp(rows) for split in ("train", "test")}
    return files


def msrp(rows: int) -> str:
    """The Microsoft paraphrase corpus as published, with a byte order mark."""
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    lines = [f'{n % 2}\t{n}\t{n + 1}\tHe said "yes {n}\tShe said no {n}' for n in range(rows)]
    return "\ufeff" + "\n".join([header, *lines]) + "\n"


def senteval(folder: str = "data/downstream") -> dict[str, str | bytes]:
    """SentEval's data folder with every set."""
    files: dict[str, str | bytes] = {f"{folder}/{name}": text for name, text in classification().items()}
    for year, subsets in SUBSETS.items():
        files |= sts_package(f"{folder}/STS/STS{year}-en-test", subsets)
    return files | stsb(f"{folder}/STS/STSBenchmark") | sick(f"{folder}/SICK")


SUBSETS = {
    12: ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    13: ("FNWN", "headlines", "OnWN"),
    14: ("deft-forum", "deft-news", "headlines", "OnWN", "images", "tweet-news"),
    15: ("answers-forums", "answers-students", "belief", "headlines", "images"),
    16: ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}


def glue(*, rows: int = 20) -> dict[str, str]:
    """The files of GLUE's archives."""
    files = {}
    entailment = ("entailment", "not_entailment")
    nli = ("neutral", "entailment", "contradiction")
    for split in ("train", "dev"):
        files[f"CoLA/{split}.tsv"] = "".join(
            f'gj04\t{n % 2}\t{"*" * (n % 2)}\tThey "drank {n} .\n' for n in range(rows)
        )
        files[f"SST-2/{split}.tsv"] = "sentence\tlabel\n" + "".join(f"a phrase {n} \t{n % 2}\n" for n in range(rows))
        lines = [f"{n}\tDana {n} ran .\tDana moved {n} .\t{entailment[n % 2]}\n" for n in range(rows)]
        files[f"RTE/{split}.tsv"] = "index\tsentence1\tsentence2\tlabel\n" + "".join(lines)
        files[f"QNLI/{split}.tsv"] = "index\tquestion\tsentence\tlabel\n" + "".join(lines)
        lines = [f"{n}\tg\tf\t2012\t{n}\tnone\tnone\tA Man {n}\tA Boy {n}\t{n % 6}.0\n" for n in range(rows)]
        header = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        files[f"STS-B/{split}.tsv"] = header + "".join(lines)
    files |= {f"MRPC/{split}.tsv": msrp(rows) for split in ("train", "dev")}
    for split in ("train", "dev_matched", "dev_mismatched"):
        lines = [f"{n}\tfiction\tIt rains {n} .\tIt is wet {n} .\t{nli[n % 3]}\n" for n in range(rows)]
        files[f"MNLI/{split}.tsv"] = "index\tgenre\tsentence1\tsentence2\tgold_label\n" + "".join(lines)
    return files


def nli_json(prefix: str, splits: tuple[str, ...], *, rows: int = 20) -> dict[str, str]:
    """SNLI or MultiNLI as published; each fourth row has no gold label."""
    labels = ("entailment", "neutral", "contradiction", "-")
    texts = {"sentence1": "A Dog {}\tran.", "sentence2": "An Animal {} ran."}
    records = [
        {"gold_label": labels[n % 4], "pairID": "x"} | {key: text.format(n) for key, text in texts.items()}
        for n in range(rows)
    ]
    text = "".join(json.dumps(record) + "\n" for record in records)
    return {f"{prefix}/{prefix}_{split}.jsonl": text for split in splits}


def reviews(name: str, columns: int, *, rows: int = 20) -> dict[str, str]:
    """Amazon or Yelp polarity as published: quoted CSV."""
    texts = ['"Great ""book"""', '"It was good.\\nReally, it was."'][2 - (columns - 1) :]
    lines = [",".join([f'"{1 + n % 2}"', *(text[:-1] + f' {n}"' for text in texts)]) + "\n" for n in range(rows)]
    return {f"{name}_review_polarity_csv/{split}.csv": "".join(lines) for split in ("train", "test")}


def write_folder(folder: Path, files: Files) -> Path:
    """Write the files."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def zip_of(files: Files) -> bytes:
    """A ZIP archive of the files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tar_of(files: Files, mode: str = "w:gz") -> bytes:
    """A tar archive of the files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            raw = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    return buffer.getvalue()


def convert(folder: Path, files: Files, *names: str) -> GetDataResult:
    """Write the files into the folder, and convert them."""
    result: GetDataResult = nearfar.get_data(names, source=write_folder(folder, files))
    return result
