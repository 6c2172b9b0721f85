"""Noise: the requested rate and kind, independent for each text."""

from collections import Counter

import pytest

from nearfar.data.noise import add_noise, load_translations
from tests.data.files import error_of

KINDS = ["word-dropout", "word-swap", "characters"]
WORDS = [f"word{number}" for number in range(1000)]
LONG = " ".join(WORDS)


def noisy(text, kind, rate, seed=0):
    return add_noise([text], kind, rate, seed=seed)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_noise_of_a_text_does_not_depend_on_other_texts(kind):
    texts = [f"{LONG} {number}" for number in range(3)]
    noisy_texts = add_noise(texts, kind, 0.3, seed=1)
    assert noisy_texts == add_noise(texts[::-1], kind, 0.3, seed=1)[::-1]
    assert noisy_texts[1:2] == add_noise(texts[1:2], kind, 0.3, seed=1)
    assert add_noise([texts[0]] * 2, kind, 0.3, seed=1) == [noisy_texts[0]] * 2
    assert noisy(texts[0], kind, 0.3, seed=2) != noisy_texts[0] != noisy(texts[0], kind, 0.30001, seed=1)
    # and is independent of the noise of other texts
    changed = [set(WORDS) - set(text.split()) for text in noisy_texts]
    if kind == "word-dropout":
        assert 50 < len(changed[0] & changed[1]) < 130  # 0.3 x 0.3 x 1000 = 90 expected


def test_adjacent_words_are_swapped_at_the_rate():
    swapped = noisy(LONG, "word-swap", 0.2).split()
    assert swapped != WORDS
    assert sorted(swapped) == sorted(WORDS)
    moved = [abs(index - int(word[4:])) for index, word in enumerate(swapped)]
    assert set(moved) == {0, 1}
    # Each of n pairs is tried unless the one before was swapped: 1000 x 0.2 / 1.2 = 167 swaps expected.
    assert 130 < sum(moved) / 2 < 205
    assert noisy("a b c d e", "word-swap", 1) == "b a d c e"
    assert noisy("alone", "word-swap", 1) == "alone"


def test_characters_change_at_the_rate():
    text = "mnopqrst" * 500
    misspelt = noisy(text, "characters", 0.1)
    assert abs(len(misspelt) - len(text)) < 60  # as many insertions as omissions, 100 of each expected
    letters = Counter(misspelt) - Counter(text)
    assert set("abcdefghijkluvwxyz") <= set(letters)
    # Two of four changes insert a random letter, in 18 of 25 cases one that is not in the text.
    inserted = sum(count for letter, count in Counter(misspelt).items() if letter not in "mnopqrst")
    assert 4000 * 0.1 / 2 * 0.5 < inserted < 4000 * 0.1 / 2


def test_misspelt_words_stay_apart_and_no_text_becomes_empty():
    text = "ab  cde f"
    for seed in range(200):
        result = noisy(text, "characters", 0.5, seed)
        assert result == " ".join(result.split())
        assert result
    assert {noisy("a", "characters", 1, seed) for seed in range(100)} >= {"a"}
    assert noisy("", "characters", 1) == noisy("", "word-dropout", 1) == noisy("", "word-swap", 1) == ""


def test_translations_are_read_from_a_back_translate_file(tmp_path):
    file = tmp_path / "noisy.tsv"
    file.write_text("sentence\ttranslation\tpivot\n" + "A dog.\tThe dog.\tEin Hund.\nA cat.\tA  cat.\tEine Katze.\n")
    assert load_translations(file, ["A cat.", "A dog.", "A cat."]) == ["A cat.", "The dog.", "A cat."]
    message = error_of(load_translations, file, ["A dog.", "A bird."])
    assert message.startswith(f"{file}: no translation of 'A bird.'. Create the file from these sentences with nearfar")
