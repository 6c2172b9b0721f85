"""Relations between frames and their similarity scores."""

from dataclasses import replace
from random import Random

import pytest

from nearfar.data.microworld.frames import SOME, Entity, Frame, relation, similarity
from nearfar.data.microworld.lexicon import Concept
from nearfar.data.microworld.scenes import draw_frame
from nearfar.data.microworld.training_words import TRAIN
from nearfar.types import CONTRADICTION, ENTAILMENT, NEUTRAL

NOUNS = {concept.name: concept for concept in TRAIN.nouns}
ATTRIBUTES = {concept.name: concept for concept in TRAIN.attributes}
PLACES: dict[str, Concept] = {concept.name: concept for concept in TRAIN.places}
ACTIONS = {action.name: action for action in TRAIN.actions}


def entity(noun: str, count: int = 1, attribute: str | None = None) -> Entity:
    return Entity(NOUNS[noun], count, ATTRIBUTES[attribute] if attribute else None)


DOG, CAT, ANIMAL = entity("dog"), entity("cat"), entity("animal")
CHASE = Frame(action=ACTIONS["chase"], agent=DOG, patient=CAT)
SLEEP = Frame(action=ACTIONS["sleep"], agent=DOG)


def changed(frame: Frame, **changes: object) -> Frame:
    return replace(frame, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("premise", "hypothesis", "forward", "backward"),
    [
        (CHASE, CHASE, ENTAILMENT, ENTAILMENT),
        (CHASE, changed(CHASE, agent=ANIMAL), ENTAILMENT, NEUTRAL),
        (CHASE, changed(CHASE, agent=CAT, patient=DOG), CONTRADICTION, CONTRADICTION),
        (CHASE, changed(CHASE, place=PLACES["in the park"]), NEUTRAL, ENTAILMENT),
        (changed(CHASE, place=PLACES["in the park"]), changed(CHASE, place=PLACES["outdoors"]), ENTAILMENT, NEUTRAL),
        (
            changed(CHASE, place=PLACES["in the park"]),
            changed(CHASE, place=PLACES["indoors"]),
            CONTRADICTION,
            CONTRADICTION,
        ),
        (CHASE, changed(CHASE, agent=entity("dog", 1, "black")), NEUTRAL, ENTAILMENT),
        (
            changed(SLEEP, agent=entity("dog", 1, "black")),
            changed(SLEEP, agent=entity("dog", 1, "big")),
            NEUTRAL,
            NEUTRAL,
        ),
        (
            changed(SLEEP, agent=entity("dog", 1, "black")),
            changed(SLEEP, agent=entity("dog", 1, "white")),
            CONTRADICTION,
            CONTRADICTION,
        ),
        (changed(SLEEP, agent=entity("dog", 2)), changed(SLEEP, agent=entity("dog", SOME)), ENTAILMENT, NEUTRAL),
        (changed(SLEEP, agent=entity("dog", 2)), changed(SLEEP, agent=entity("dog", 4)), CONTRADICTION, CONTRADICTION),
        (SLEEP, changed(SLEEP, agent=entity("dog", SOME)), CONTRADICTION, CONTRADICTION),
        (changed(SLEEP, action=ACTIONS["jog"]), changed(SLEEP, action=ACTIONS["run"]), ENTAILMENT, NEUTRAL),
        (SLEEP, changed(SLEEP, action=ACTIONS["run"]), CONTRADICTION, CONTRADICTION),
        (SLEEP, changed(SLEEP, negated=True), CONTRADICTION, CONTRADICTION),
        # a contrary entails the negation; the negation does not entail the contrary
        (SLEEP, changed(SLEEP, action=ACTIONS["run"], negated=True), ENTAILMENT, NEUTRAL),
        # "it does not sleep" entails "it does not sleep in the park", not the other way round
        (changed(SLEEP, negated=True), changed(SLEEP, negated=True, place=PLACES["in the park"]), ENTAILMENT, NEUTRAL),
        (changed(SLEEP, negated=True), changed(SLEEP, place=PLACES["in the park"]), CONTRADICTION, CONTRADICTION),
    ],
)
def test_relations(premise: Frame, hypothesis: Frame, forward: int, backward: int) -> None:
    assert relation(premise, hypothesis) == forward
    assert relation(hypothesis, premise) == backward


def test_mutual_actions_are_symmetric() -> None:
    talk = Frame(action=ACTIONS["talk with"], agent=entity("man"), patient=entity("woman"))
    swapped = replace(talk, agent=talk.patient or talk.agent, patient=talk.agent)
    assert relation(talk, swapped) == ENTAILMENT
    assert similarity(talk, swapped) == 5.0


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (CHASE, CHASE, 5.0),
        (CHASE, changed(CHASE, agent=ANIMAL), 5 * (4 + 2 * 0.6 + 2) / 8),
        (CHASE, changed(CHASE, place=PLACES["in the park"]), 5 * (4 + 2 + 2 + 2 * 0.5) / 10),
        (CHASE, changed(CHASE, patient=None), 5 * (4 + 2 + 2 * 0.5) / 8),
        (CHASE, changed(CHASE, agent=entity("dog", 1, "black")), 5 * (4 + 2 * 0.75 + 2) / 8),
        (CHASE, changed(CHASE, patient=entity("rabbit")), 0.6 * 5 * (4 + 2 + 2 * 0.25) / 8),
        (CHASE, changed(CHASE, patient=entity("cat", 2)), 0.6 * 5 * (4 + 2 + 2 * 0.6) / 8),
        (CHASE, changed(CHASE, negated=True), 0.6 * 5 * (0 + 2 + 2) / 8),
        (CHASE, changed(CHASE, agent=CAT, patient=DOG), 0.6 * 5 * (4 + 2 * 0.5 + 2 * 0.5) / 8),
        (
            changed(SLEEP, agent=entity("dog", 2, "black")),
            changed(SLEEP, agent=entity("dog", SOME, "white")),
            0.6 * 5 * (4 + 2 * 0.8 * 0.5) / 6,
        ),
        (SLEEP, changed(SLEEP, action=ACTIONS["run"]), 0.6 * 5 * (4 * 0.25 + 2) / 6),
        (SLEEP, changed(SLEEP, action=ACTIONS["run"], negated=True), 5 * (0 + 2) / 6),
        (
            changed(CHASE, action=ACTIONS["chase"]),
            changed(CHASE, action=ACTIONS["run"], patient=None),
            5 * (1 + 2 + 1) / 8,
        ),
        (
            SLEEP,
            Frame(action=ACTIONS["play"], agent=entity("man"), patient=entity("piano")),
            0.6 * 5 * (4 * 0.25 + 0 + 2 * 0.5) / 8,
        ),
        (CHASE, Frame(action=ACTIONS["play"], agent=entity("man"), patient=entity("piano")), 0.0),
    ],
)
def test_similarities_follow_the_formula(first: Frame, second: Frame, expected: float) -> None:
    assert similarity(first, second) == pytest.approx(expected, abs=1e-3)


def test_similarity_and_relation_are_symmetric_and_consistent() -> None:
    rng = Random(0)
    frames = [draw_frame(TRAIN, rng) for _ in range(120)]
    for first in frames:
        assert similarity(first, first) == 5.0
        for second in frames:
            score = similarity(first, second)
            assert 0.0 <= score <= 5.0
            assert score == similarity(second, first)
            contradicts = relation(first, second) == CONTRADICTION
            assert contradicts == (relation(second, first) == CONTRADICTION)
            assert score <= 3.0 or not contradicts
