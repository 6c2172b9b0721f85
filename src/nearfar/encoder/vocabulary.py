"""Texts of random words from a model's vocabulary, to train on where there are no sentences."""

import random
import unicodedata
from typing import TYPE_CHECKING

from nearfar.encoder.weights import locate
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TEXTS = 10_000
WORDS = (4, 12)
"""The smallest and the largest number of words in a text."""
MIN_WORDS = 10
"""A vocabulary with fewer words is refused: its texts would be much alike."""
_STARTS_WORD = ("\u0120", "\u2581")
"""What a token at the start of a word begins with in byte-level BPE, and in SentencePiece."""


def vocabulary_texts(model: str) -> list[str]:
    """10,000 texts of 4 to 12 words, each drawn from the whole words of the model's vocabulary, with equal chances.

    They are the same in each run, whatever its seed.

    Raises:
        NearfarError: no such model, a damaged tokenizer, or one with fewer than 10 whole words.
    """
    from nearfar.encoder.pretrained import load_tokenizer

    words = whole_words(load_tokenizer(locate(model)))
    if len(words) < MIN_WORDS:
        raise NearfarError(
            f"{model}: its vocabulary has {len(words)} whole words, too few to make texts of; {MIN_WORDS} are needed. "
            "Name a file of sentences instead, or for training without them a method, as in nearfar train info-nce."
        )
    chance = random.Random(1)
    return [" ".join(chance.choices(words, k=chance.randint(*WORDS))) for _ in range(TEXTS)]


def whole_words(tokenizer: "PreTrainedTokenizerBase") -> list[str]:
    """The tokens that are words of two letters or more, in the order of their numbers.

    Where tokens at the start of a word are marked (byte-level BPE, SentencePiece), these are meant; where those inside
    a word are (WordPiece: ##), the others. Words of one letter are left out, unless there are more of them in scripts
    without case than longer words, as in a vocabulary of Chinese characters.
    """
    numbers = range(len(tokenizer))
    tokens = tokenizer.convert_ids_to_tokens(list(numbers))
    marked = sum(token.startswith(_STARTS_WORD) for token in tokens) > len(tokens) / 10
    special = set(tokenizer.all_special_ids)
    starts = [
        number
        for number, token in zip(numbers, tokens, strict=True)
        if number not in special and (token.startswith(_STARTS_WORD) if marked else not token.startswith("##"))
    ]
    words = dict.fromkeys(word for number in starts if (word := str(tokenizer.decode([number])).strip()).isalpha())
    longer = [word for word in words if len(word) > 1]
    characters = [word for word in words if len(word) == 1 and unicodedata.category(word) == "Lo"]
    return [*characters, *longer] if len(characters) > len(longer) else longer
