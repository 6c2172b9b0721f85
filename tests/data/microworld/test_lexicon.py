"""Reading lexicons, and the consistency of both vocabularies."""

import pytest

from nearfar.data.microworld.held_out_words import TEST
from nearfar.data.microworld.lexicon import Lexicon, action, read_concepts
from nearfar.data.microworld.training_words import TRAIN

BOTH = pytest.mark.parametrize("lexicon", [TRAIN, TEST], ids=["train", "test"])


def test_a_table_is_read_by_its_indentation() -> None:
    animal, kind, rabbit, car = read_concepts("animal\n  (pet)\n    rabbit, bunny\ncar: toy, big thing\n")
    assert rabbit.words == ("rabbit", "bunny")
    assert rabbit.lineage == (rabbit, kind, animal)
    assert rabbit.is_a("animal")
    assert not rabbit.is_a("car")
    assert (kind.spoken, animal.spoken) == (False, True)
    assert (car.parent, car.fits) == (None, ("toy", "big thing"))


def test_contraries_of_an_action_exclude_its_subtypes() -> None:
    doze = action("rest", "doze", "person")
    snore = action("rest", "snore", "person", kind_of="doze")
    fly = action("motion", "fly", "person", contraries="doze")
    hum = action("music", "hum", "person")
    assert fly.excludes(doze)
    assert doze.excludes(fly)
    assert fly.excludes(snore)
    assert snore.excludes(fly)
    assert not fly.excludes(hum)
    assert not hum.excludes(snore)  # neither is a contrary of the other


@BOTH
def test_a_lexicon_refers_only_to_existing_names(lexicon: Lexicon) -> None:
    nouns = {noun.name for noun in lexicon.nouns}
    places = {place.name for place in lexicon.places}
    actions = [action_.name for action_ in lexicon.actions]
    assert len(set(actions)) == len(actions)
    for action_ in lexicon.actions:
        assert {*action_.agents, *action_.patients, *action_.recipients} <= nouns
        assert {*action_.places} <= places
        assert {*action_.contraries} <= set(actions)
        assert action_.kind_of is None or action_.kind_of in actions
        assert not action_.mutual or all(verb.endswith(" with") for verb in action_.words)
    assert {kind for attribute in lexicon.attributes for kind in attribute.fits} <= nouns
    assert set(lexicon.outdoor_kinds) <= nouns


@BOTH
def test_a_word_has_one_meaning_among_the_nouns(lexicon: Lexicon) -> None:
    words = [word for noun in lexicon.nouns for word in noun.words]
    assert len(set(words)) == len(words)


def content_words(lexicon: Lexicon) -> set[str]:
    concepts = (*lexicon.nouns, *lexicon.attributes, *lexicon.places)
    phrases = [word for concept in concepts if concept.spoken for word in concept.words]
    phrases += [verb for action_ in lexicon.actions for verb in (*action_.words, *action_.active, *action_.converse)]
    phrases += [lexicon.some, *lexicon.numbers.values()]
    particles = {"after", "at", "down", "from", "in", "of", "off", "on", "out", "the", "to", "up", "with"}
    return {part for phrase in phrases for part in phrase.replace("-", " ").split()} - particles


def test_the_two_lexicons_share_no_content_word() -> None:
    assert len(content_words(TRAIN)) > 150
    assert len(content_words(TEST)) > 150
    assert not content_words(TRAIN) & content_words(TEST)
