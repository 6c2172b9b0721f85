"""Averaged word vectors: a text is the mean of its known words' vectors (GloVe, word2vec, fastText text files)."""

import math
import re
import warnings
from array import array
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nearfar.data.files import Location, read_lines
from nearfar.types import NearfarError

# Words, English clitics as the corpora behind GloVe split them (does n't, dog 's), and single punctuation marks.
_PARTS = re.compile(r"\w+(?=n['’]t\b)|n['’]t\b|['’](?:s|m|d|re|ve|ll)\b|\w+|[^\w\s]", re.IGNORECASE)


class Glove:
    """Word vectors [words, dim] and the average of them; called like an encode function, gives float32 [texts, dim].

    The baseline "Avg. GloVe embeddings" of Reimers & Gurevych 2019 (Table 1) and of SentEval's bag of words (Conneau &
    Kiela 2018, section 4): every known token counts once each time it occurs, stop words and punctuation included;
    unknown ones are skipped; vectors are not normalised. A text is split at white space, and a piece that has no vector
    of its own is split once more into words and punctuation marks. A token without a vector is looked up in lower case;
    where no word of the file has a capital, everything is lower-cased to begin with.

    Args:
        words: word -> row of ``vectors``.
        vectors: float32 [words, dim].
        title: what to call it in warnings.
    """

    def __init__(self, words: dict[str, int], vectors: NDArray[np.float32], *, title: str = "the word vectors") -> None:
        self.words, self.vectors, self.title = words, vectors, title
        self.lower = not any(_has_capital(word) for word in words)

    @classmethod
    def from_file(cls, path: str | Path, *, words: Collection[str] | None = None) -> "Glove":
        """Read ``word v1 v2 ...`` lines, also gzipped (.gz); a first line ``count dim`` (fastText) is checked.

        Numbers are separated by single spaces. A word may itself hold spaces, as a few of glove.840B do, so long as its
        last piece is no number. Of a word that comes twice the first counts.

        Args:
            path: the file; read once, 4 * dim bytes a word are kept.
            words: keep no others, to save memory and time. Give each in the spellings that should be found; lines of
                other words are not looked at but for their word.

        Raises:
            NearfarError: no such file, a damaged one, not UTF-8, a line with too few or too many numbers or with
                something that is no finite number (each with file and line), fewer or more lines than the first line
                says, no vectors.
        """
        path = Path(path).expanduser()
        kept = None if words is None else frozenset(words)
        rows: dict[str, int] = {}
        numbers = array("f")
        declared: int | None = None
        dim = lines = 0
        for where, whole in read_lines(path):
            line = whole.rstrip(" ")  # fastText ends its lines with a space
            if not dim:
                fields = line.split(" ")
                if where.number == 1 and len(fields) == 2 and all(field.isdecimal() for field in fields):
                    declared, dim = int(fields[0]), int(fields[1])
                    continue
                dim = len(fields) - 1
                if not dim:
                    raise NearfarError(f"{where}: holds no numbers. A line is a word and its vector: word v1 v2 ...")
            lines += 1
            word, *values = line.rsplit(" ", dim)
            if word in rows or (kept is not None and word not in kept):
                continue
            numbers.extend(_parse(word, values, dim, where))
            rows[word] = len(rows)
        if not lines:
            raise NearfarError(f"{path}: holds no vectors. A line is a word and its vector: word v1 v2 ...")
        if declared not in (None, lines):
            raise NearfarError(
                f"{path}: the first line says {declared} vectors, and there are {lines}. Fetch the file again, or "
                "remove the first line if you cut the file yourself."
            )
        if not rows:
            raise NearfarError(f"{path}: has none of the {len(kept or ())} words asked for among its {lines}.")
        return cls(rows, np.frombuffer(numbers, dtype=np.float32).reshape(len(rows), dim), title=str(path))

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One vector a text; a text without a known word gets the zero vector, and a warning counts those."""
        averages = np.zeros((len(texts), self.vectors.shape[1]), dtype=np.float32)
        tokens = unknown = empty = 0
        for number, text in enumerate(texts):
            rows = list(self._rows(text))
            known = [row for row in rows if row is not None]
            tokens += len(rows)
            unknown += len(rows) - len(known)
            if known:
                averages[number] = self.vectors[known].mean(axis=0)
            else:
                empty += 1
        if empty:
            warnings.warn(
                f"{empty} of {len(texts)} texts have no word in {self.title} and get the zero vector; of all tokens, "
                f"{100 * unknown / max(tokens, 1):.1f}% are not in it.",
                stacklevel=2,
            )
        return averages

    def _rows(self, text: str) -> Iterator[int | None]:
        """Row of each token's vector, None where it has none."""
        for piece in (text.lower() if self.lower else text).split():
            if (row := self._row(piece)) is not None:
                yield row
            else:
                yield from map(self._row, _PARTS.findall(piece))

    def _row(self, token: str) -> int | None:
        row = self.words.get(token)
        return row if row is not None or self.lower else self.words.get(token.lower())


def _has_capital(word: str) -> bool:
    return word != word.lower()


def _parse(word: str, values: list[str], dim: int, where: Location) -> list[float]:
    if len(values) != dim or _is_number(word.rpartition(" ")[2] if " " in word else ""):
        there = len(f"{word} {' '.join(values)}".split(" ")) - 1
        raise NearfarError(f"{where}: {there} numbers, where the lines before (or the first one) say {dim}.")
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        wrong = next(value for value in values if not _is_number(value))
        raise NearfarError(
            f"{where}: {wrong!r} is not a number. A line is a word and its vector: word v1 v2 ..."
        ) from None
    if not math.isfinite(sum(numbers)):
        raise NearfarError(f"{where}: the vector of {word!r} holds a NaN or infinity.")
    return numbers


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
