"""Paraphrase pairs of the generated world: two sentences with one meaning, for training on pairs alone."""

from random import Random
from typing import NamedTuple

from nearfar.data.microworld import changes
from nearfar.data.microworld.frames import Frame, equivalent_frames
from nearfar.data.microworld.generate import Generator, word_overlap
from nearfar.data.microworld.scenes import draw_frame
from nearfar.data.microworld.sentences import TRAIN_STYLE
from nearfar.data.microworld.training_words import TRAIN
from nearfar.types import CONTRADICTION

CANDIDATES = 4
"""Number of sentences from which the second one of a pair is chosen."""


class ParaphrasePair(NamedTuple):
    """Two sentences with the same meaning."""

    anchor: str
    positive: str
    topic: str
    """The kind of activity."""


def paraphrase_pairs(seed: int = 0, *, pairs: int = 3000) -> list[ParaphrasePair]:
    """Generate paraphrase pairs: a pure function of the arguments, the same on every machine and Python version.

    Each pair describes a scene twice. The second sentence is the one of four with the lowest word overlap with the
    first. Most scenes are followed by one that contradicts them, such as the scene with swapped roles, negated, or with
    another number, so that the search for a paraphrase meets sentences with the same words and another meaning. No
    scene and no sentence occurs twice.
    """
    generator, rng = Generator(TRAIN, TRAIN_STYLE), Random(f"{seed} paraphrases")
    found: list[ParaphrasePair] = []
    scenes: set[Frame] = set()
    sentences: set[str] = set()
    while len(found) < pairs:
        scene = draw_frame(TRAIN, rng)
        for frame in (scene, changes.apply(CONTRADICTION, scene, TRAIN, rng)):
            if frame is None or frame in scenes:
                continue
            anchor = generator.say(frame, rng)
            others = [generator.say(frame, rng) for _ in range(CANDIDATES)]
            positive = min(others, key=lambda other: word_overlap(other, anchor))
            if anchor != positive and not {anchor, positive} & sentences:
                scenes.update(equivalent_frames(frame))
                sentences.update((anchor, positive))
                found.append(ParaphrasePair(anchor, positive, frame.action.topic))
    return found[:pairs]
