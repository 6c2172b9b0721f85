"""Changes of a frame: labels by construction, and plausible results."""

from itertools import islice
from random import Random

import pytest

from nearfar.data.microworld import changes
from nearfar.data.microworld.frames import Entity, Frame, relation
from nearfar.data.microworld.held_out_words import TEST
from nearfar.data.microworld.lexicon import Lexicon
from nearfar.data.microworld.scenes import draw_frame, is_plausible
from nearfar.data.microworld.training_words import TRAIN
from nearfar.types import CONTRADICTION, ENTAILMENT, NEUTRAL

NOUNS = {concept.name: concept for concept in TRAIN.nouns}
ACTIONS = {action.name: action for action in TRAIN.actions}
BOTH = pytest.mark.parametrize("lexicon", [TRAIN, TEST], ids=["train", "test"])

ALWAYS = {
    # each frame that one of these produces has the label, for any input
    ENTAILMENT: (
        changes.widen_noun,
        changes.widen_action,
        changes.widen_place,
        changes.forget_attribute,
        changes.forget_number,
        changes.forget_place,
        changes.forget_patient,
        changes.deny_contrary,
    ),
    NEUTRAL: (
        changes.narrow_noun,
        changes.narrow_action,
        changes.add_attribute,
        changes.add_place,
        changes.name_number,
    ),
    CONTRADICTION: (changes.negate, changes.contrary_action),
}


@BOTH
@pytest.mark.parametrize("label", [ENTAILMENT, NEUTRAL, CONTRADICTION])
def test_a_change_of_an_affirmed_frame_gives_its_label(label: int, lexicon: Lexicon) -> None:
    rng = Random(0)
    for change in ALWAYS[label]:
        seen = 0
        for _ in range(1500):
            frame = draw_frame(lexicon, rng)
            if not frame.negated:
                for changed in islice(change(frame, lexicon), 5):
                    assert relation(frame, changed) == label, (change, frame, changed)
                    seen += 1
        assert seen >= 10, change


@BOTH
def test_every_change_is_used_and_produces_plausible_frames(lexicon: Lexicon) -> None:
    rng = Random(1)
    for label, weights in changes.AFFIRMED.items():
        used = set()
        for _ in range(1500):
            frame = draw_frame(lexicon, rng)
            changed = changes.apply(label, frame, lexicon, rng)
            if changed:
                assert relation(frame, changed) == label
                assert is_plausible(changed, lexicon)
                used |= {change for change in weights if changed in change(frame, lexicon)}
        assert used == set(weights) | (used & {changes.negate})


def test_roles_are_swapped_only_where_it_makes_sense() -> None:
    boy, apple, puppy = Entity(NOUNS["boy"]), Entity(NOUNS["apple"]), Entity(NOUNS["puppy"])
    [swapped] = changes.swap_roles(Frame(action=ACTIONS["eat"], agent=boy, patient=apple), TRAIN)
    assert not is_plausible(swapped, TRAIN)
    [swapped] = changes.swap_roles(Frame(action=ACTIONS["chase"], agent=boy, patient=puppy), TRAIN)
    assert is_plausible(swapped, TRAIN)
    assert (swapped.agent, swapped.patient) == (puppy, boy)


def test_no_change_gives_none() -> None:
    # a negated frame that already has a place cannot be extended, so no change gives an entailment
    place = next(place for place in TRAIN.places if place.name == "in the park")
    frame = Frame(action=ACTIONS["sing"], agent=Entity(NOUNS["boy"]), place=place, negated=True)
    assert changes.apply(ENTAILMENT, frame, TRAIN, Random(0)) is None
