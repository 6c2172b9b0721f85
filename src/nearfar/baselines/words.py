"""Vectors of words: bags of words, and the average of given word vectors (GloVe, word2vec, fastText text files).

A bag of words is a binary vector with one dimension for each word of the texts, the baseline of SemEval-2017 Task 1.
The cosine of two such vectors is n(a, b) / sqrt(n(a) n(b)), n the number of distinct words of a text, or common to two
texts. Words are lower-cased runs of letters and digits, and single punctuation marks. Cer et al. 2017 use the
tokenizers of treebanks. On the tracks of SemEval-2017 this gives Pearson 59.95 (Arabic), 71.17 (Spanish) and 72.68
(English); published are 60.45, 71.17 and 72.78 (Kim et al. 2021, Table 3). The dimensions are the words of the texts of
one call. Cosines do not depend on them, so nothing is fitted.
"""

import importlib
import importlib.util
import math
import re
import warnings
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.cells import Location
from nearfar.data.files import read_lines
from nearfar.types import NearfarError

WORD = re.compile(r"\w+|[^\w\s]")
MAX_NUMBERS = 5 * 10**8
"""Maximum size of the matrix of a bag of words: 2 GB."""
# Words, English clitics as the corpora behind GloVe split them (does n't, dog 's), and single punctuation marks.
_PARTS = re.compile(r"\w+(?=n['’]t\b)|n['’]t\b|['’](?:s|m|d|re|ve|ll)\b|\w+|[^\w\s]", re.IGNORECASE)
_NUMBER_AFTER = re.compile(r" [-+]?\.?\d[\d.]*([eE][-+]?\d+)?$")


def words_of(text: str) -> set[str]:
    """The distinct words of a text.

    >>> sorted(words_of("The dog, the Dog!"))
    ['!', ',', 'dog', 'the']
    """
    return set(WORD.findall(text.lower()))


def bag_of_words(texts: Sequence[str]) -> NDArray[np.float32]:
    """Binary vectors of the words of ``texts`` [texts, words]; a text without words has a zero vector.

    Raises:
        NearfarError: the texts have so many distinct words that the matrix does not fit into 2 GB.
    """
    words = [words_of(text) for text in texts]
    column = {word: number for number, word in enumerate(sorted(set().union(*words)))}
    if len(texts) * len(column) > MAX_NUMBERS:
        raise NearfarError(
            f"bow: {len(texts)} texts with {len(column)} distinct words need {4 * len(texts) * len(column) / 1e9:.0f} "
            "GB; it is for tasks with fewer texts, such as those of similarity."
        )
    vectors = np.zeros((len(texts), max(1, len(column))), dtype=np.float32)
    for row, each in zip(vectors, words, strict=True):
        row[[column[word] for word in each]] = 1
    return vectors


class Glove:
    """Averages word vectors [words, dim]; called like an encode function, returns float32 [texts, dim].

    The baseline "Avg. GloVe embeddings" of Reimers & Gurevych 2019 (Table 1) and of SentEval's bag of words (Conneau &
    Kiela 2018, section 4): each occurrence of a known token counts once, including stop words and punctuation; unknown
    tokens are skipped; vectors are not normalised. A text is split at white space; a token without a vector is split
    further into words and punctuation marks. A token without a vector is looked up in lower case; if no word of the
    file has upper-case letters, all texts are lower-cased first.

    Args:
        words: word -> row of ``vectors``.
        vectors: float32 [words, dim].
        title: the name of the vectors in warnings.
    """

    def __init__(self, words: dict[str, int], vectors: NDArray[np.float32], *, title: str = "the word vectors") -> None:
        self.words, self.vectors, self.title = words, vectors, title
        self.lower = all(word == word.lower() for word in words)

    @classmethod
    def from_file(cls, path: str | Path) -> "Glove":
        """Read lines ``word v1 v2 ...``, also gzipped (.gz); a first line ``count dim`` (fastText) is checked.

        Numbers are separated by single spaces. A word may contain spaces, as a few in glove.840B do, if its last part
        is not a number. Of a repeated word, the first line counts.

        Args:
            path: the file; needs 4 * dim bytes of memory per word.

        Raises:
            NearfarError: no such file, a damaged one, not UTF-8, a line with too few or too many numbers or with
                a value that is not a finite number (each with file and line), a number of lines other than in the
                first line, no vectors.
        """
        path = Path(path).expanduser()
        rows: dict[str, int] = {}
        numbers = array("f")
        declared: int | None = None
        dim = lines = 0
        for where, whole in read_lines(path):
            line = whole.rstrip(" ")  # fastText ends its lines with a space
            fields = line.split(" ")
            if where.number == 1 and len(fields) == 2 and all(field.isdecimal() for field in fields):
                declared, dim = int(fields[0]), int(fields[1])
                continue
            lines, dim = lines + 1, dim or len(fields) - 1
            word, vector = _parse(line, dim, where)
            if word not in rows:
                numbers.extend(vector)
                rows[word] = len(rows)
        if not lines or declared not in (None, lines):
            raise NearfarError(
                f"{path}: has {lines} vectors, and its first line says {declared or 'nothing of their number'}. A line "
                "is a word and its vector: word v1 v2 ... Download it again, or remove a first line that is wrong."
            )
        return cls(rows, np.frombuffer(numbers, dtype=np.float32).reshape(len(rows), dim), title=str(path))

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one vector per text; a text without known words gets the zero vector, and a warning counts these."""
        rows = [list(self._rows(text)) for text in texts]
        averages = np.zeros((len(texts), self.vectors.shape[1]), dtype=np.float32)
        for average, of_text in zip(averages, rows, strict=True):
            if of_text:
                average[:] = self.vectors[of_text].mean(axis=0)
        if empty := rows.count([]):
            what = f"{empty} of {len(texts)} texts have no word in {self.title} and get the zero vector."
            warnings.warn(what, stacklevel=2)
        return averages

    def _rows(self, text: str) -> Iterator[int]:
        """Yield the row of each known token's vector."""
        for piece in (text.lower() if self.lower else text).split():
            whole = self.words.keys() & {piece, piece.lower()}
            for token in [piece] if whole else _PARTS.findall(piece):
                row = self.words.get(token, self.words.get(token.lower()))
                if row is not None:
                    yield row


def _parse(line: str, dim: int, where: Location) -> tuple[str, list[float]]:
    """The word and the vector of a line; a word can contain spaces, but its last part is no number."""
    word, *values = line.rsplit(" ", dim)
    try:
        numbers = list(map(float, values))
    except ValueError:
        numbers = []
    if not dim or len(numbers) != dim or not math.isfinite(sum(numbers)) or _NUMBER_AFTER.search(word):
        raise NearfarError(
            f"{where}: must be a word and {dim or 'its'} finite numbers, as the first line has or declares: word v1 v2 "
            f"... The line begins with {line[:40]!r}."
        )
    return word, numbers


PUBLISHED = "https://tfhub.dev/google/universal-sentence-encoder/4"
"""The deep averaging network, for TensorFlow 2. The transformer is ``universal-sentence-encoder-large/5``."""
INSTALL = (
    "The Universal Sentence Encoder runs on TensorFlow, which nearfar does not install: "
    "pip install tensorflow tensorflow-hub 'setuptools<81' (and tensorflow-text for its multilingual models)."
)
TEXTS_AT_ONCE = 256


class Use:
    """The published encoder; called like an encode function, returns float32 [texts, 512].

    Args:
        url_or_path: a TensorFlow Hub URL, or a folder with the unpacked model (saved_model.pb and variables).

    Raises:
        NearfarError: TensorFlow Hub is not installed, or the model cannot be loaded; the message says what to do.
    """

    def __init__(self, url_or_path: str = PUBLISHED) -> None:
        try:
            hub: Any = importlib.import_module("tensorflow_hub")
            if importlib.util.find_spec("tensorflow_text"):
                importlib.import_module("tensorflow_text")  # registers the operations of the multilingual models
        except ImportError as error:
            raise NearfarError(f"{INSTALL} Missing: {error}.") from error
        try:
            self._model = hub.load(url_or_path)
        except (OSError, ValueError, RuntimeError) as error:
            raise NearfarError(
                f"{url_or_path}: TensorFlow Hub cannot load it: {error}. Go online once, or unpack the model from "
                f"{PUBLISHED} into a folder and name the folder: use:FOLDER."
            ) from error

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one vector per text."""
        parts = [list(texts[start : start + TEXTS_AT_ONCE]) for start in range(0, len(texts), TEXTS_AT_ONCE)]
        return np.concatenate([np.asarray(self._model(part), dtype=np.float32) for part in parts or [[]]])
