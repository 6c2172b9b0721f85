"""Plurals, verb forms and articles."""

import pytest

from nearfar.data.microworld.english import past_participle, plural, present_participle, third_person, with_article


@pytest.mark.parametrize(
    ("singular", "expected"),
    [
        ("dog", "dogs"),
        ("puppy", "puppies"),
        ("toy", "toys"),
        ("bus", "buses"),
        ("peach", "peaches"),
        ("box", "boxes"),
        ("potato", "potatoes"),
        ("piano", "pianos"),
        ("person", "people"),
        ("woman", "women"),
        ("mouse", "mice"),
        ("sheep", "sheep"),
        ("police officer", "police officers"),
        ("piece of furniture", "pieces of furniture"),
        ("grown-up", "grown-ups"),
    ],
)
def test_plurals(singular: str, expected: str) -> None:
    assert plural(singular) == expected


@pytest.mark.parametrize(
    ("verb", "expected_participle", "expected_past", "expected_third"),
    [
        ("chase", "chasing", "chased", "chases"),
        ("carry", "carrying", "carried", "carries"),
        ("play", "playing", "played", "plays"),
        ("hug", "hugging", "hugged", "hugs"),
        ("help", "helping", "helped", "helps"),
        ("fix", "fixing", "fixed", "fixes"),
        ("feed", "feeding", "fed", "feeds"),
        ("catch", "catching", "caught", "catches"),
        ("give", "giving", "given", "gives"),
        ("open", "opening", "opened", "opens"),
        ("tear up", "tearing up", "torn up", "tears up"),
        ("look at", "looking at", "looked at", "looks at"),
    ],
)
def test_verb_forms(verb: str, expected_participle: str, expected_past: str, expected_third: str) -> None:
    assert (present_participle(verb), past_participle(verb), third_person(verb)) == (
        expected_participle,
        expected_past,
        expected_third,
    )


def test_articles() -> None:
    assert [with_article(phrase) for phrase in ("dog", "old dog", "elderly man")] == [
        "a dog",
        "an old dog",
        "an elderly man",
    ]
