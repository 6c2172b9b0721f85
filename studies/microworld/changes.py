"""Changes of a frame, grouped by their effect on its meaning. Each change yields all frames that it can produce."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any, TypeAlias

from frames import SOME, Frame, relation
from lexicon import Lexicon
from scenes import is_plausible

from nearfar.types import CONTRADICTION, ENTAILMENT, NEUTRAL

Change: TypeAlias = Callable[[Frame, Lexicon], Iterator[Frame]]


def apply(label: int, frame: Frame, lexicon: Lexicon, rng: Random, *, entailed: Frame | None = None) -> Frame | None:
    """Return a changed frame with the relation ``label`` to ``frame``, or None if no change produces one.

    If ``entailed``, a frame that follows from ``frame``, is given, it is changed instead.
    """
    weights = (DENIED if frame.negated else AFFIRMED)[label]
    # A random order in which a change of weight w precedes one of weight 1 with probability w / (w + 1).
    for change in sorted(weights, key=lambda change: rng.expovariate(weights[change])):
        frames = [
            changed
            for changed in change(entailed or frame, lexicon)
            if is_plausible(changed, lexicon) and relation(frame, changed) == label
        ]
        if frames:
            return rng.choice(frames)
    return None


# The result says less: it is entailed.


def widen_noun(frame: Frame, _: Lexicon) -> Iterator[Frame]:
    """A dog -> an animal."""
    for role, entity in frame.roles.items():
        yield from (_with(frame, role, noun=wider) for wider in entity.noun.lineage[1:] if wider.spoken)


def widen_action(frame: Frame, lexicon: Lexicon) -> Iterator[Frame]:
    """Jogging -> running."""
    yield from (replace(frame, action=action) for action in lexicon.actions if action.name == frame.action.kind_of)


def widen_place(frame: Frame, _: Lexicon) -> Iterator[Frame]:
    """In the park -> outdoors."""
    if frame.place:
        yield from (replace(frame, place=wider) for wider in frame.place.lineage[1:] if wider.spoken)


def forget_attribute(frame: Frame, _: Lexicon) -> Iterator[Frame]:
    """A black dog -> a dog."""
    yield from (_with(frame, role, attribute=None) for role, entity in frame.roles.items() if entity.attribute)


def forget_number(frame: Frame, _: Lexicon) -> Iterator[Frame]:
    """Two dogs -> some dogs."""
    yield from (_with(frame, role, count=SOME) for role, entity in frame.roles.items() if entity.count > 1)


def forget_place(frame: Frame, _: Lexicon) -> Iterator[Frame]:
    """Running in the park -> running."""
    if frame.place:
        yield replace(frame, place=None)


def forget_patient(frame: Frame, _: Lexicon) -> Iterator[Frame]:
    """Eating an apple -> eating."""
    if frame.patient and frame.action.object_optional:
        yield replace(frame, patient=None)


def deny_contrary(frame: Frame, lexicon: Lexicon) -> Iterator[Frame]:
    """Sleeping -> not running."""
    yield from (replace(changed, negated=not frame.negated) for changed in contrary_action(frame, lexicon))


# The result says more, or something that may or may not also be true: it is neutral.


def narrow_noun(frame: Frame, lexicon: Lexicon) -> Iterator[Frame]:
    """An animal -> a dog."""
    for role, entity in frame.roles.items():
        narrower = (noun for noun in lexicon.nouns if noun.spoken and entity.noun in noun.lineage[1:])
        yield from (_with(frame, role, noun=noun) for noun in narrower)


def narrow_action(frame: Frame, lexicon: Lexicon) -> Iterator[Frame]:
    """Running -> jogging."""
    yield from (replace(frame, action=action) for action in lexicon.actions if action.kind_of == frame.action.name)


def add_attribute(frame: Frame, lexicon: Lexicon) -> Iterator[Frame]:
    """A dog -> a black dog."""
    for role, entity in frame.roles.items():
        if entity.attribute is None:
            fitting = (one for one in lexicon.attributes if entity.noun.is_a(*one.fits))
            yield from (_with(frame, role, attribute=attribute) for attribute in fitting)


def add_place(frame: Frame, lexicon: Lexicon) -> Iterator[Frame]:
    """Running -> running in the park."""
    if frame.place is None:
        yield from (replace(frame, place=place) for place in lexicon.places if place.spoken)


def name_number(frame: Frame, lexicon: Lexicon) -> Iterator[Frame]:
    """Some dogs -> two dogs."""
    for role, entity in frame.roles.items():
        if entity.count == SOME:
            yield from (_with(frame, role, count=number) for number in lexicon.numbers)


# The result cannot also be true: it is a contradiction.


def negate(frame: Frame, _: Lexicon) -> Iterator[Frame]:
    """Running -> not running, and the reverse."""
    yield replace(frame, negated=not frame.negated)


def swap_roles(frame: Frame, _: Lexicon) -> Iterator[Frame]:
    """A dog chases a cat -> a cat chases a dog."""
    other = "recipient" if frame.recipient else "patient"
    if other in frame.roles:
        yield _recast(frame, agent=frame.roles[other], **{other: frame.agent})


def other_noun(frame: Frame, lexicon: Lexicon) -> Iterator[Frame]:
    """A dog -> a cat."""
    for role, entity in frame.roles.items():
        yield from (
            _with(frame, role, noun=noun) for noun in lexicon.nouns if noun.parent == entity.noun.parent and noun.spoken
        )


def other_attribute(frame: Frame, lexicon: Lexicon) -> Iterator[Frame]:
    """A black dog -> a white dog."""
    for role, entity in frame.roles.items():
        if entity.attribute:
            scale = (one for one in lexicon.attributes if one.parent == entity.attribute.parent)
            yield from (_with(frame, role, attribute=attribute) for attribute in scale)


def other_number(frame: Frame, lexicon: Lexicon) -> Iterator[Frame]:
    """Two dogs -> four dogs."""
    for role, entity in frame.roles.items():
        if entity.count != SOME:
            yield from (_with(frame, role, count=number) for number in lexicon.numbers)


def other_place(frame: Frame, lexicon: Lexicon) -> Iterator[Frame]:
    """In the park -> in the kitchen."""
    if frame.place:
        yield from (replace(frame, place=place) for place in lexicon.places if place.spoken)


def contrary_action(frame: Frame, lexicon: Lexicon) -> Iterator[Frame]:
    """Pushing a car -> pulling a car; sleeping -> running."""
    for action in lexicon.actions:
        if action.excludes(frame.action):
            if action.recipients == frame.action.recipients and action.patients and frame.patient:
                yield replace(frame, action=action)
            elif not action.patients or action.object_optional:
                yield replace(frame, action=action, patient=None, recipient=None)


def _with(frame: Frame, role: str, **values: Any) -> Frame:
    """Return the frame with another noun, count or attribute in a role."""
    return _recast(frame, **{role: replace(frame.roles[role], **values)})


def _recast(frame: Frame, **entities: Any) -> Frame:
    """Return the frame with other entities in these roles."""
    return replace(frame, **entities)


AFFIRMED: dict[int, dict[Change, float]] = {
    ENTAILMENT: {
        widen_noun: 2,
        widen_action: 4,
        widen_place: 1,
        forget_attribute: 1,
        forget_number: 1,
        forget_place: 1,
        forget_patient: 2,
        deny_contrary: 0.4,
        swap_roles: 4,  # of a mutual action
    },
    NEUTRAL: {narrow_noun: 3, narrow_action: 4, add_attribute: 1, add_place: 1, name_number: 2},
    CONTRADICTION: {
        negate: 2,
        swap_roles: 12,
        other_noun: 1,
        other_attribute: 1,
        other_number: 1,
        other_place: 1,
        contrary_action: 2,
    },
}
"""The changes of an affirmed frame that produce a hypothesis of each label, with their weights."""

DENIED: dict[int, dict[Change, float]] = {
    ENTAILMENT: {add_place: 1},
    NEUTRAL: {forget_place: 1, deny_contrary: 1},
    CONTRADICTION: {negate: 1},
}
"""The changes of a negated frame; fewer, because "the animal is not asleep" says little about the dog."""
