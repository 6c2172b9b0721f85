"""Paraphrase pairs: distinct, of one meaning, with misleading neighbours, and always the same."""

import hashlib
import os
import subprocess
import sys
from itertools import pairwise
from random import Random

import pytest

from nearfar.data.microworld import ParaphrasePair, paraphrase_pairs
from nearfar.data.microworld.frames import Frame, equivalent_frames, relation
from nearfar.data.microworld.generate import Generator, word_overlap
from nearfar.types import CONTRADICTION

DIGEST = """
import hashlib
from nearfar.data.microworld import paraphrase_pairs
print(hashlib.sha256(repr(paraphrase_pairs(3, pairs=50)).encode()).hexdigest())
"""


@pytest.fixture(scope="module")
def pairs() -> list[ParaphrasePair]:
    return paraphrase_pairs()


@pytest.fixture(scope="module")
def frames() -> dict[str, set[Frame]]:
    """The meanings of each sentence that the generator says for the default pairs."""
    found: dict[str, set[Frame]] = {}
    say = Generator.say

    def recorded(self: Generator, frame: Frame, rng: Random) -> str:
        sentence = say(self, frame, rng)
        found.setdefault(sentence, set()).add(frame)
        return sentence

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Generator, "say", recorded)
        paraphrase_pairs()
    return found


def test_no_sentence_occurs_twice(pairs: list[ParaphrasePair]) -> None:
    assert len(pairs) == 3000
    assert len({text for pair in pairs for text in pair[:2]}) == 6000
    assert 5 < len({pair.topic for pair in pairs}) <= 30  # the explorer page colours up to 30 values


def test_both_sentences_have_a_meaning_that_no_other_pair_has(
    pairs: list[ParaphrasePair], frames: dict[str, set[Frame]]
) -> None:
    seen: set[Frame] = set()
    for pair in pairs:
        common = {frame for frame in frames[pair.anchor] & frames[pair.positive] if frame.action.topic == pair.topic}
        new = [frame for frame in common if not seen & set(equivalent_frames(frame))]
        assert new, pair
        seen.update(equivalent_frames(new[0]))


def test_most_pairs_have_a_neighbour_that_contradicts_them(
    pairs: list[ParaphrasePair], frames: dict[str, set[Frame]]
) -> None:
    """And its words are as near as those of the paraphrase."""
    contradicted, nearer = 0, 0
    for pair, following in pairwise(pairs):
        if any(
            relation(one, other) == CONTRADICTION for one in frames[pair.anchor] for other in frames[following.anchor]
        ):
            contradicted += 1
            overlaps = [word_overlap(pair.anchor, text) for text in following[:2]]
            nearer += max(overlaps) >= word_overlap(pair.anchor, pair.positive)
    assert contradicted > 0.4 * len(pairs)  # of each two pairs, one follows the other
    assert nearer > 0.3 * contradicted


def test_seeds_and_sizes() -> None:
    small = paraphrase_pairs(1, pairs=7)
    assert len(small) == 7
    assert paraphrase_pairs(1, pairs=20)[:7] == small
    assert paraphrase_pairs(2, pairs=7) != small
    assert paraphrase_pairs(pairs=0) == []


def test_the_default_pairs_have_not_changed(pairs: list[ParaphrasePair]) -> None:
    # a change would invalidate the results of the demo
    assert hashlib.sha256(repr(pairs).encode()).hexdigest()[:16] == "5fa1d6af5ad7e4f1"


@pytest.mark.long
def test_pairs_do_not_depend_on_the_hash_seed_of_the_process() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(digests) == 1
