"""Sentences of a frame: voices, negation, places, and templates of each style."""

from random import Random

import pytest

from nearfar.data.microworld.frames import SOME, Entity, Frame
from nearfar.data.microworld.sentences import TEST_STYLE, TRAIN_STYLE, realise
from nearfar.data.microworld.training_words import TRAIN

NOUNS = {concept.name: concept for concept in TRAIN.nouns}
PLACES = {concept.name: concept for concept in TRAIN.places}
ATTRIBUTES = {concept.name: concept for concept in TRAIN.attributes}
ACTIONS = {action.name: action for action in TRAIN.actions}
DOG, SHEEP, BOY, GIRL = (Entity(NOUNS[noun]) for noun in ("dog", "sheep", "boy", "girl"))


def sentences_of(frame: Frame, style=TRAIN_STYLE) -> set[str]:
    rng = Random(0)
    return {realise(frame, TRAIN, style, rng) for _ in range(600)}


def test_all_sentences_of_an_intransitive() -> None:
    assert sentences_of(Frame(action=ACTIONS["jump"], agent=Entity(NOUNS["sheep"], 2))) == {
        sentence.replace("jump", verb)
        for verb in ("jump", "leap")
        for sentence in (
            "Two sheep are jumping.",
            "The two sheep are jumping.",
            "Two sheep jump.",
            "The two sheep jump.",
            "Two sheep jumping.",
            "The two sheep jumping.",
            "There are two sheep jumping.",
        )
    }


def test_negated_sentences_are_definite() -> None:
    frame = Frame(action=ACTIONS["bite"], agent=DOG, patient=Entity(NOUNS["sheep"], SOME), negated=True)
    assert sentences_of(frame) == {
        "The dog is not biting the sheep.",
        "The dog does not bite the sheep.",
        "The sheep are not being bitten by the dog.",
        "The sheep are not bitten by the dog.",
    }


def test_active_passive_and_converse() -> None:
    frame = Frame(
        action=ACTIONS["lead"], agent=BOY, patient=Entity(NOUNS["cow"], 1, ATTRIBUTES["big"]), place=PLACES["outdoors"]
    )
    sentences = sentences_of(frame)
    assert "A boy is guiding a big cow outdoors." in sentences
    assert "There is a large cow being led by a boy outdoors." in sentences
    assert "The large cow follows the boy outdoors." in sentences


def test_giving_has_a_recipient_in_every_voice() -> None:
    doll = Entity(NOUNS["doll"], SOME)
    sentences = sentences_of(Frame(action=ACTIONS["give"], agent=BOY, patient=doll, recipient=GIRL))
    assert "A boy is giving some dolls to a girl." in sentences
    assert "A boy hands a girl some dolls." in sentences
    assert "Some dolls are given to a girl by a boy." in sentences
    assert "The girl receiving the dolls from the boy." in sentences
    assert all("girl" in sentence and "boy" in sentence and "doll" in sentence for sentence in sentences)


def test_mutual_actions_have_both_participants_as_subject() -> None:
    frame = Frame(action=ACTIONS["talk with"], agent=BOY, patient=GIRL)
    assert "A boy and a girl are talking together." in sentences_of(frame)
    assert "A boy is speaking with a girl." in sentences_of(frame)
    assert "It is the boy and the girl that are talking with each other." in sentences_of(frame, TEST_STYLE)
    assert not any(sentence.startswith(("There", "Here")) and " and " in sentence for sentence in sentences_of(frame))


def test_a_fronted_place_needs_a_place() -> None:
    frame = Frame(action=ACTIONS["sleep"], agent=DOG)
    assert not any("," in sentence for sentence in sentences_of(frame, TEST_STYLE))
    with_place = Frame(action=ACTIONS["sleep"], agent=DOG, place=PLACES["in the park"])
    assert "In the park, the dog is sleeping." in sentences_of(with_place, TEST_STYLE)


@pytest.mark.parametrize("part", ["affirmed", "denied"])
def test_the_styles_share_one_template(part: str) -> None:
    train, test = set(getattr(TRAIN_STYLE, part)), set(getattr(TEST_STYLE, part))
    assert len(train & test) == 1
    assert len(test - train) >= 2
