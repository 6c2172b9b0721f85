"""Noise in texts, for studies of noisy training data: drawn here, or translations there and back from a file.

Gunel et al. (2021, Table 3) make training sets noisy by translation to German and back, sampled at a temperature: the
higher, the noisier. ``nearfar back-translate`` writes such a file, and :func:`load_translations` reads it.
:func:`add_noise` needs no model; its kinds are those of word dropout (Iyyer et al. 2015), of random swaps (Wei & Zou
2019, EDA) and of synthetic misspellings (Belinkov & Bisk 2018). They are a noise of their own: results on them are not
to be compared with those on translations.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Literal, TypeAlias, get_args

from nearfar.data.sources import read_columns, text_field
from nearfar.types import NearfarError

Kind: TypeAlias = Literal["word-dropout", "word-swap", "characters"]


def add_noise(texts: Sequence[str], kind: Kind, rate: float, *, seed: int) -> list[str]:
    """Return the texts with noise of one kind, 0 <= ``rate`` <= 1; at 0 they come back as they are.

    - ``word-dropout``: each word (what stands between white space) is dropped with probability ``rate``; if that would
      be all of them, one stays, by lot;
    - ``word-swap``: from left to right, each pair of neighbouring words changes places with probability ``rate``; a
      word that was moved is not moved again, so that at rate 1 the words change places two by two;
    - ``characters``: with probability ``rate``, each character that is not white space is, with equal chances, left
      out, preceded by a random letter of a to z, replaced by another one, or exchanged for the next character of its
      word (not at a word's end; both are then done with). The letter is a capital where the character is one. A text
      of which nothing would be left is returned as it is.

    Noise of any ``rate`` above 0 leaves one space between words. What becomes of a text depends on it, the kind, the
    rate and the seed, not on its place or on other texts: a text that comes twice is changed in the same way.

    Raises NearfarError for an unknown kind or a rate that is not from 0 to 1.

    >>> add_noise(["one two three four five"], "word-swap", 1, seed=0)
    ['two one four three five']
    """
    if kind not in get_args(Kind):
        raise NearfarError(f"{kind}: no such kind of noise. There are: {', '.join(get_args(Kind))}.")
    if not 0 <= rate <= 1:
        raise NearfarError(f"The rate of noise is {rate:g}, but must be from 0 to 1.")
    if rate == 0:
        return list(texts)
    # Seeded by text: random.Random hashes it with SHA-512, so neighbouring seeds share nothing.
    return [_KINDS[kind](text, rate, random.Random(f"{seed} {kind} {float(rate)} {text}")) for text in texts]


def load_translations(file: str | Path) -> dict[str, str]:
    """Return sentence -> translation, out of the columns of these names of a file by ``nearfar back-translate``.

    Texts are tidied as :func:`nearfar.data.sources.text_field` says, as those of every loader are. Looking up a
    sentence that the file lacks raises NearfarError: there may be sentences whose translation came out empty, and
    whether to leave them out or to keep them as they are is the caller's to decide (``sentence in translations``).

    Raises:
        NearfarError: no such file or column, a malformed row or empty text (with file and line), two translations of
            one sentence, no rows.
    """
    translations = _Translations(Path(file))
    columns = ("sentence", "translation")
    for where, values in read_columns(file, columns):
        sentence, translation = (text_field(value, name, where) for value, name in zip(values, columns, strict=True))
        if translations.get(sentence, translation) != translation:
            raise NearfarError(f"{where}: a second translation of {sentence!r}. Leave one for each sentence.")
        translations[sentence] = translation
    if not translations:
        raise NearfarError(f"{file}: no translations, only the names of the columns.")
    return translations


class _Translations(dict[str, str]):
    """A dictionary that names the sentence that it lacks, and its file."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def __missing__(self, sentence: str) -> str:
        raise NearfarError(
            f"{self._file}: no translation of {sentence!r}. Make the file from these sentences with nearfar "
            "back-translate; where that is so, its translation came out empty, and the sentence is to be left out."
        )


def _drop_words(text: str, rate: float, generator: random.Random) -> str:
    words = text.split()
    kept = [word for word in words if generator.random() >= rate]
    return " ".join(kept or (words and [generator.choice(words)]))


def _swap_words(text: str, rate: float, generator: random.Random) -> str:
    words = text.split()
    place = 0
    while place + 1 < len(words):
        if generator.random() < rate:
            words[place : place + 2] = words[place + 1], words[place]
            place += 1
        place += 1
    return " ".join(words)


def _misspell(text: str, rate: float, generator: random.Random) -> str:
    words = " ".join(_misspell_word(word, rate, generator) for word in text.split()).split()
    return " ".join(words) or text


def _misspell_word(word: str, rate: float, generator: random.Random) -> str:
    written: list[str] = []
    place = 0
    while place < len(word):
        character, following = word[place], word[place + 1 : place + 2]
        place += 1
        if generator.random() >= rate:
            written.append(character)
            continue
        change = generator.choice(
            ("omit", "insert", "replace", "exchange") if following else ("omit", "insert", "replace")
        )
        if change == "insert":
            written += _letter(character, generator), character
        elif change == "replace":
            written.append(_letter(character, generator))
        elif change == "exchange":
            written += following, character
            place += 1
    return "".join(written)


def _letter(character: str, generator: random.Random) -> str:
    """Return a random letter that is not ``character``, a capital where that is one."""
    letter = generator.choice([letter for letter in ascii_lowercase if letter != character.lower()])
    return letter.upper() if character.isupper() else letter


_KINDS: Mapping[Kind, Callable[[str, float, random.Random], str]] = {
    "word-dropout": _drop_words,
    "word-swap": _swap_words,
    "characters": _misspell,
}
