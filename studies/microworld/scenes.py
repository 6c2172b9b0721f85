"""Plausibility of frames, and random sampling of plausible ones."""

from functools import cache
from random import Random

from frames import SOME, Entity, Frame
from lexicon import Action, Concept, Lexicon


def is_plausible(frame: Frame, lexicon: Lexicon) -> bool:
    """Whether participants fit their roles, attributes fit their nouns, and the action can happen at the place."""
    action = frame.action
    kinds = {"agent": action.agents, "patient": action.patients, "recipient": action.recipients}
    entities = list(frame.roles.values())
    if not all(is_compatible(entity.noun, kinds[role], lexicon) for role, entity in frame.roles.items()):
        return False
    if any(one is not other and one.noun in other.noun.lineage for one in entities for other in entities):
        return False  # "a man is hugging a person" is ambiguous
    if not all(is_compatible(one.noun, one.attribute.fits, lexicon) for one in entities if one.attribute):
        return False
    return frame.place is None or _happens_at(action, frame.place, entities, lexicon)


@cache
def is_compatible(noun: Concept, kinds: tuple[str, ...], lexicon: Lexicon) -> bool:
    """Whether a noun is of one of these kinds, or general enough to include one: an animal could be a dog."""
    return any(noun in known.lineage for known in lexicon.nouns if known.is_a(*kinds))


def draw_frame(lexicon: Lexicon, rng: Random, *, action: Action | None = None, agent: Entity | None = None) -> Frame:
    """Draw a plausible frame; ``action`` or ``agent`` fix that part of it."""
    while True:
        drawn = action or rng.choice(lexicon.actions)
        frame = Frame(
            action=drawn,
            agent=agent or _draw_entity(drawn.agents, lexicon, rng, plural=0.25),
            patient=_draw_entity(drawn.patients, lexicon, rng, plural=0.2) if drawn.patients else None,
            recipient=_draw_entity(drawn.recipients, lexicon, rng, plural=0.1) if drawn.recipients else None,
            place=rng.choice([place for place in lexicon.places if place.spoken]) if rng.random() < 0.5 else None,
            negated=rng.random() < 0.12,
        )
        if is_plausible(frame, lexicon):
            return frame


def _draw_entity(kinds: tuple[str, ...], lexicon: Lexicon, rng: Random, *, plural: float) -> Entity:
    noun = rng.choice(_nouns_of(kinds, lexicon))
    fitting = [attribute for attribute in lexicon.attributes if noun.is_a(*attribute.fits)]
    return Entity(
        noun,
        count=rng.choice([SOME, *lexicon.numbers]) if rng.random() < plural else 1,
        attribute=rng.choice(fitting) if fitting and rng.random() < 0.3 else None,
    )


@cache
def _nouns_of(kinds: tuple[str, ...], lexicon: Lexicon) -> tuple[Concept, ...]:
    return tuple(noun for noun in lexicon.nouns if noun.spoken and noun.is_a(*kinds))


def _happens_at(action: Action, place: Concept, entities: list[Entity], lexicon: Lexicon) -> bool:
    if place.is_a("(roofed)") and any(one.noun.is_a(*lexicon.outdoor_kinds) for one in entities):
        return False
    return place.is_a(*action.places) if action.places else not place.is_a("(water)")
