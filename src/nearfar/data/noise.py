"""Text noise for studies of noisy training data: random noise, or back-translations from a file.

Gunel et al. (2021, Table 3) make training sets noisy by back-translation through German, sampled at a temperature: the
higher, the noisier. ``nearfar back-translate`` writes such a file, and :func:`load_translations` reads it.
:func:`add_noise` needs no model; its kinds are word dropout (Iyyer et al. 2015), random swaps (Wei & Zou 2019, EDA) and
synthetic misspellings (Belinkov & Bisk 2018). Results with them are not comparable with results on back-translations.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Literal, TypeAlias

from nearfar.data.cells import text_field
from nearfar.data.sources import read_columns
from nearfar.types import NearfarError

Kind: TypeAlias = Literal["word-dropout", "word-swap", "characters"]


def add_noise(texts: Sequence[str], kind: Kind, rate: float, *, seed: int) -> list[str]:
    """Return the texts with noise of one kind, 0 <= ``rate`` <= 1; at rate 0 they are unchanged.

    - ``word-dropout``: each word (separated by white space) is dropped with probability ``rate``; if all would be
      dropped, a random one is kept;
    - ``word-swap``: from left to right, each pair of adjacent words is swapped with probability ``rate``; a word is
      swapped at most once, so at rate 1 the words are swapped in disjoint pairs;
    - ``characters``: each character that is not white space is changed with probability ``rate``; the changes are
      equally likely: delete it, insert a random letter a to z before it, replace it by another letter, or swap it with
      the next character of its word (not at the end of a word; both characters are then done). The letter is upper
      case if the character is. A text that would become empty is returned unchanged.

    At any ``rate`` above 0, words are separated by single spaces. The result for a text depends on the text, the kind,
    the rate and the seed, not on its position or on other texts: equal texts get equal noise.

    >>> add_noise(["one two three four five"], "word-swap", 1, seed=0)
    ['two one four three five']
    """
    if rate == 0:
        return list(texts)
    # A string seed is hashed with SHA-512, so the streams of neighbouring seeds are independent.
    return [_KINDS[kind](text, rate, random.Random(f"{seed} {kind} {float(rate)} {text}")) for text in texts]


def load_translations(file: str | Path, sentences: Sequence[str]) -> list[str]:
    """Return the translation of each sentence, from ``sentence`` and ``translation`` of ``nearfar back-translate``.

    White space is normalised as in :func:`nearfar.data.cells.text_field`.

    Raises:
        NearfarError: no such file or column, a malformed row or empty text (with file and line), two translations of
            one sentence, no rows, a sentence without a translation.
    """
    translations: dict[str, str] = {}
    columns = ("sentence", "translation")
    for where, values in read_columns(file, columns):
        sentence, translation = (text_field(value, name, where) for value, name in zip(values, columns, strict=True))
        if translations.setdefault(sentence, translation) != translation:
            raise NearfarError(f"{where}: a second translation of {sentence!r}. Keep one per sentence.")
    if not translations:
        raise NearfarError(f"{file}: no translations, only a header.")
    for sentence in sentences:
        if sentence not in translations:
            raise NearfarError(
                f"{file}: no translation of {sentence!r}. Create the file from these sentences with nearfar "
                "back-translate; add a row for each whose translation was empty."
            )
    return [translations[sentence] for sentence in sentences]


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
        changes = ("omit", "insert", "replace", "exchange")
        change = generator.choice(changes if following else changes[:3])
        if change == "insert":
            written += _letter(character, generator), character
        elif change == "replace":
            written.append(_letter(character, generator))
        elif change == "exchange":
            written += following, character
            place += 1
    return "".join(written)


def _letter(character: str, generator: random.Random) -> str:
    """Return a random letter other than ``character``, upper case if ``character`` is."""
    letter = generator.choice([letter for letter in ascii_lowercase if letter != character.lower()])
    return letter.upper() if character.isupper() else letter


_KINDS: Mapping[Kind, Callable[[str, float, random.Random], str]] = {
    "word-dropout": _drop_words,
    "word-swap": _swap_words,
    "characters": _misspell,
}
