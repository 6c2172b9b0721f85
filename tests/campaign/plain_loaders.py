"""Plain loaders of rows, labels, sentences and BEIR folders, by the rules of docs/guides/data.md."""

import json
import math
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.campaign.plain_readers import RefusedError, UnclearError, json_lines, lines, rows, text_of, tsv


def normalized(text: str) -> str:
    """Each run of white space and control characters as one space, none at the ends."""
    spaced = "".join(" " if unicodedata.category(one) == "Cc" or one.isspace() else one for one in text)
    return " ".join(part for part in spaced.split(" ") if part)


def text(value: Any) -> str:
    """A field that must be a text."""
    if not isinstance(value, str) or not normalized(value):
        raise RefusedError("empty or not text")
    if any(unicodedata.category(one) == "Cs" for one in value):
        raise RefusedError("half a surrogate pair")
    return normalized(value)


_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def number(value: Any) -> float:
    """A finite number, or a text that contains one."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        if type(value).__name__ != "Decimal":
            raise RefusedError("not a number")
        value = str(value)
    if isinstance(value, str) and not _DECIMAL.fullmatch(value.strip()):
        raise RefusedError("not a number")
    try:
        found = float(value)
    except OverflowError:
        raise RefusedError("too large") from None
    if not math.isfinite(found):
        raise RefusedError("not finite")
    return found


MISSING = {"", "nan", "NaN", "-nan", "-NaN", "null", "NULL", "None", "NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "NaT"}


def label(value: Any) -> str:
    """The name of a label: a string or an integer; true and false in any case; not what marks a missing value."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value) or value != int(value):
            raise RefusedError("a number with a fraction, or a missing value")
        return str(int(value))
    if not isinstance(value, str):
        raise UnclearError("a label of another type")
    name = normalized(value)
    if name in MISSING:
        raise RefusedError("a missing value")
    if any(unicodedata.category(one) == "Cs" for one in name):
        raise RefusedError("half a surrogate pair")
    if name.lower() in ("true", "false"):
        return name.lower()
    if re.fullmatch(r"-?[0-9]{1,300}(\.0*)?", name):
        return str(int(name.partition(".")[0]))
    if "." in name and _DECIMAL.fullmatch(name):
        raise RefusedError("a number with a fraction")
    return name


def nli(path: Path) -> list[tuple[str, str, int]]:
    """Rows with a premise, a hypothesis and a label; those without a label are dropped."""
    names = {"entailment": 0, "neutral": 1, "contradiction": 2, "0": 0, "1": 1, "2": 2}
    found = []
    for premise, hypothesis, value in rows(path, ("premise", "hypothesis", "label")):
        if value is not None and not isinstance(value, (str, int, float)):
            raise UnclearError("a label of another type")
        name = "" if value is None else normalized(str(value)).lower()
        if _DECIMAL.fullmatch(name) and math.isfinite(float(name)) and float(name) == int(float(name)):
            name = str(int(float(name)))
        if (
            isinstance(value, bool)
            or (isinstance(value, float) and math.isnan(value))
            or name in ("nan", "none", "null")
        ):
            raise UnclearError("a label that may mean a missing one")
        if name in ("", "-", "-1"):
            continue
        if name not in names:
            raise RefusedError(f"label {name}")
        found.append((text(premise), text(hypothesis), names[name]))
    if not found:
        raise RefusedError("no rows")
    return found


def scored(path: Path) -> list[tuple[str, str, float]]:
    """Pairs of sentences with a score."""
    found = [
        (text(first), text(second), number(score))
        for first, second, score in rows(path, ("sentence1", "sentence2", "score"))
    ]
    if not found:
        raise RefusedError("no rows")
    return found


def labelled(path: Path) -> list[tuple[str, str]]:
    """Texts with a label."""
    found = [(text(one), label(name)) for one, name in rows(path, ("text", "label"))]
    if not found:
        raise RefusedError("no rows")
    if len({name for _, name in found}) < 2 or len({one for one, _ in found}) < 2:
        raise UnclearError("one label, or one text", found)
    texts_of: dict[str, set[str]] = {}
    for one, name in found:
        texts_of.setdefault(name, set()).add(one)
    if any(len(texts) < 2 for texts in texts_of.values()):
        raise UnclearError("a label with one text", found)
    return found


def tuples(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Rows of related texts; repeated ones, and those with the same text twice, are dropped."""
    found = [tuple(map(text, row)) for row in rows(path, columns)]
    kept = [row for row in dict.fromkeys(found) if len(set(row)) == len(row)]
    if not kept or len({one for row in kept for one in row}) < 2 or len(kept) < 2:
        raise UnclearError("fewer than two rows", kept)
    return kept


def sentences(path: Path) -> list[str]:
    """Distinct sentences: the lines of a text file that are not blank, or the column text."""
    if path.name.removesuffix(".gz").endswith(".txt"):
        found = [text(line) for line in lines(path) if line.strip()]
    else:
        found = [text(one) for (one,) in rows(path, ("text",))]
    kept = list(dict.fromkeys(found))
    if len(kept) < 2:
        raise UnclearError("fewer than two sentences", kept)
    return kept


def translations(path: Path) -> dict[str, str]:
    """Sentence -> translation."""
    found: dict[str, str] = {}
    for one, other in rows(path, ("sentence", "translation")):
        if found.setdefault(text(one), text(other)) != text(other):
            raise RefusedError("two translations of one sentence")
    if not found:
        raise RefusedError("no rows")
    return found


def beir(folder: Path) -> dict[str, Any]:
    """Ids and texts of documents and judged queries, and the relevant documents of each."""

    def texts(name: str, *, titled: bool) -> dict[str, str]:
        found: dict[str, str] = {}
        if titled:
            _refuse_two_titles(folder / name)
        for row in json_lines(folder / name, ("_id", "text")):
            if isinstance(row[0], bool) or not isinstance(row[0], (str, int)) or row[0] == "":
                raise RefusedError("an id that is not text")
            if str(row[0]) in found:
                raise RefusedError("an id occurs twice")
            found[str(row[0])] = _may_be_empty(row[1])
        if titled:
            for line in text_of(folder / name).split("\n"):
                record = json.loads(line) if line.strip() else {}
                if record.get("title") is not None:
                    one = str(record["_id"])
                    found[one] = f"{_may_be_empty(record['title'])} {found[one]}".strip()
        return found

    documents, queries = texts("corpus.jsonl", titled=True), texts("queries.jsonl", titled=False)
    relevant: dict[str, dict[str, int]] = {}
    seen: dict[tuple[str, str], int] = {}
    for query, document, score in tsv(folder / "qrels/test.tsv", ("query-id", "corpus-id", "score")):
        grade = number(score)
        if grade != int(grade) or abs(grade) > 2**31 - 1 or not query or not document:
            raise RefusedError("a grade that is not a whole number, or an empty id")
        if seen.setdefault((query, document), int(grade)) != grade:
            raise RefusedError("two grades")
        if query in queries and document in documents and grade >= 1:
            relevant.setdefault(query, {})[document] = int(grade)
    if not relevant:
        raise RefusedError("no relevant documents")
    return {
        "documents": documents,
        "queries": {name: queries[name] for name in queries if name in relevant},
        "relevant": {name: relevant[name] for name in queries if name in relevant},
    }


def _refuse_two_titles(file: Path) -> None:
    def check(pairs: list[tuple[str, Any]]) -> bool:
        return [name for name, _ in pairs].count("title") > 1

    for line in text_of(file).split("\n"):
        try:  # the hook's last result is that of the outermost object
            if line.strip() and json.loads(line, object_pairs_hook=check) is True:
                raise RefusedError("a title occurs twice")
        except (ValueError, RecursionError):
            continue  # refused elsewhere


def _may_be_empty(value: Any) -> str:
    return "" if isinstance(value, str) and not normalized(value) else text(value)
