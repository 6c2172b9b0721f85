"""Documents without labels: what files hold them, and pairs of texts that belong together, made of each document."""

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nearfar.data.catalog import find
from nearfar.data.cells import find_columns, normalize_whitespace
from nearfar.data.paths import as_path
from nearfar.data.rows import TextData, as_specs, collect_rows, require_different
from nearfar.data.sources import SAVED_DATASET, Entry, column_names
from nearfar.disk import read_text
from nearfar.types import NearfarError

SUFFIXES = (".txt", ".md", ".rst")
"""Files of a folder of documents."""
LONGEST_TITLE = 120
"""Number of characters up to which the first line of a file is its title."""
SHORTEST = 20
"""Number of characters below which a piece of a document is no sentence."""
LONGEST = 100
"""Number of words after which a sentence is cut: it may be a table, or a text without punctuation."""
COPIED = 0.8
"""The share of its sentences from which on a document is a copy of another."""
_ENDS = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n\s*\n")


class Document(NamedTuple):
    """A document; the title is empty where there is none."""

    title: str
    text: str


def is_text_folder(spec: str) -> bool:
    """Whether a spec names a folder of text files, rather than a data set that was saved as a folder."""
    path = as_path(spec)
    return path.is_dir() and not any((path / name).exists() for name in SAVED_DATASET)


def load_pairs_of_documents(
    specs: str | Sequence[str],
    *,
    title_column: str = "title",
    text_column: str = "text",
    pairs: int = 4,
    seed: int = 1,
    limit: int | None = None,
) -> TextData:
    """Read documents, and make pairs of each by :func:`pairs_of`.

    Sources are tables with a column of texts, and one of titles where there is one; text files with one document a
    line; and folders of text files (:data:`SUFFIXES`, also in folders inside), whose first line is the title if it is
    short and more text follows. A document that comes again (:func:`without_copies`), and one of a single sentence
    without a title, gives no pair.

    Raises:
        NearfarError: a source cannot be found or read, has no document, or none that gives a pair.
    """

    def described() -> Iterator[tuple[str, Iterator[Entry], str]]:
        for spec in as_specs(specs):
            for title, documents in _documents(spec, title_column, text_column):
                distinct = without_copies(documents)
                copies = len(documents) - len(distinct)
                made = (Entry(pair) for document in distinct for pair in pairs_of(document, pairs, seed=seed))
                left_out = f" (copies left out: {copies:,})" if copies else ""
                yield title, made, f" of {len(distinct):,} documents{left_out}"

    return require_different(collect_rows("pairs", limit, described()), "pairs")


def without_copies(documents: Sequence[Document]) -> list[Document]:
    """The documents that are no copy of an earlier one: that do not share :data:`COPIED` of their sentences with it.

    Capitals and white space do not count. A copy would be a false negative of the other, and a held-out row that was
    trained on.
    """
    first, distinct = dict[str, int](), list[Document]()
    for number, document in enumerate(dict.fromkeys(documents)):
        sentences = {sentence.casefold() for sentence in sentences_of(document.text)}
        shared = Counter(first[sentence] for sentence in sentences if sentence in first)
        if not shared or max(shared.values()) < COPIED * len(sentences):
            distinct.append(document)
            first |= dict.fromkeys(sentences - first.keys(), number)
    return distinct


def pairs_of(document: Document, count: int, *, seed: int) -> list[tuple[str, str]]:
    """At most ``count`` pairs of texts of a document, in turn its title with a passage, and two passages.

    A passage is two sentences that follow each other, drawn at random from ``seed`` and the document alone. One passage
    is in every other pair, so that held-out rows are whole documents, and batches have no document twice.
    """
    sentences = sentences_of(document.text)
    draw = random.Random(f"{seed} {normalize_whitespace(document.text)}")

    def passage() -> str:
        start = draw.randrange(max(1, len(sentences) - 1))
        return " ".join(sentences[start : start + 2])

    middle, pairs = passage(), list[tuple[str, str]]()
    for number in range(count):
        other = passage()
        if document.title and number % 2 == 0:
            pairs.append((document.title, middle if number == 0 else other))
        else:
            pairs.append((middle, other))
    return [pair for pair in dict.fromkeys(pairs) if all(pair) and pair[0] != pair[1]]


def sentences_of(text: str) -> list[str]:
    """The sentences of a text: what ends with . ! ? and white space, with 。！？, or with a blank line.

    Pieces of fewer than :data:`SHORTEST` characters are left out, and those of over :data:`LONGEST` words are cut.

    >>> sentences_of("A first sentence, of some length. Fig. 3. And a second one is here!")
    ['A first sentence, of some length.', 'And a second one is here!']
    """
    pieces = (normalize_whitespace(piece).split() for piece in _ENDS.split(text))
    cut = (" ".join(words[start : start + LONGEST]) for words in pieces for start in range(0, len(words), LONGEST))
    return [piece for piece in cut if len(piece) >= SHORTEST]


def _documents(spec: str, title_column: str, text_column: str) -> Iterator[tuple[str, list[Document]]]:
    """The documents of a spec, table by table, each with its title for messages."""
    if is_text_folder(spec):
        yield spec, list(_of_files(as_path(spec)))
        return
    for table in find(spec):
        names = [] if table.is_plain_text else column_names(table)
        titled = find_columns(names, (title_column,)) is not None
        rows = table.text_rows((text_column, title_column) if titled else (text_column,))
        cells = ([str(cell or "") for cell in values] for _, values in rows)
        yield table.title, [Document(normalize_whitespace("".join(titles)), text) for text, *titles in cells]


def _of_files(folder: Path) -> Iterator[Document]:
    """The documents of a folder of text files, in the order of their paths.

    Raises:
        NearfarError: there is none, or one is not UTF-8 text.
    """
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not files:
        raise NearfarError(f"{folder}: has no documents, files that end in {', '.join(SUFFIXES)}.")
    for file in files:
        first, _, rest = read_text(file).lstrip("\ufeff \r\n").partition("\n")
        titled = len(first.strip()) <= LONGEST_TITLE and bool(rest.strip())
        title, text = (first.lstrip("# "), rest) if titled else ("", f"{first}\n{rest}")
        yield Document(normalize_whitespace(title), text)
