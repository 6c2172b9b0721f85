"""Hashes of texts and of pairs: stable, blind to case, spaces and punctuation, and to the order of a pair."""

import struct
import unicodedata
from hashlib import blake2b

import numpy as np
import pytest

from nearfar.data.fingerprints import normalize_for_hash, pair_hashes, text_hashes


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("A man is playing a guitar.", "amanisplayingaguitar"),
        ("  A  MAN -- is playing\ta guitar !!", "amanisplayingaguitar"),
        ("Ünïted Größe 12½", "ünïtedgröße12½"),
        ("東京タワー（東京）", "東京タワー東京"),
        ("किताब!", "किताब"),  # vowel signs are marks: without them, different words were equal
        ("love \u2764\ufe0f it", "loveit"),  # a variation selector after a symbol is no letter's mark
        ("?!", "?!"),
        ("", ""),
    ],
)
def test_letters_and_digits_remain(text: str, normalised: str) -> None:
    assert normalize_for_hash(text) == normalised


def test_composed_and_decomposed_accents_are_equal() -> None:
    text = "Café Ångström, İstanbul"
    assert unicodedata.normalize("NFD", text) != unicodedata.normalize("NFC", text)
    assert normalize_for_hash(unicodedata.normalize("NFD", text)) == normalize_for_hash(text)
    assert normalize_for_hash(normalize_for_hash(text)) == normalize_for_hash(text)


def test_hashes_are_the_same_everywhere() -> None:
    """Golden values: model folders hold such hashes, so a change would make every old folder wrong."""
    hashes = text_hashes(["A man.", "a MAN", "", "?!", "Café"])
    assert hashes.dtype == np.uint64
    assert hashes.tolist() == [
        3012421548811602074,
        3012421548811602074,
        13020603013274838756,
        2706097377156856991,
        16417751708935026519,
    ]
    pairs = [("a", "b"), ("B", "A!")]
    assert pair_hashes(pairs).tolist() == [4776906164143650354] * 2
    smaller, greater = sorted(text_hashes(pairs[0]).tolist())
    definition = blake2b(struct.pack("<2Q", smaller, greater), digest_size=8).digest()
    assert int.from_bytes(definition, "little") == 4776906164143650354
