"""The English inflection that the generated sentences need: plurals, articles and verb forms."""

import re

_PLURALS = {
    "person": "people",
    "man": "men",
    "woman": "women",
    "child": "children",
    "mouse": "mice",
    "goose": "geese",
    "sheep": "sheep",
    "deer": "deer",
    "aircraft": "aircraft",
    "potato": "potatoes",
    "tomato": "tomatoes",
}

_PAST_PARTICIPLES = {
    "bite": "bitten",
    "break": "broken",
    "build": "built",
    "catch": "caught",
    "cut": "cut",
    "drive": "driven",
    "eat": "eaten",
    "feed": "fed",
    "fly": "flown",
    "give": "given",
    "lead": "led",
    "lend": "lent",
    "read": "read",
    "ride": "ridden",
    "sell": "sold",
    "show": "shown",
    "shut": "shut",
    "steal": "stolen",
    "take": "taken",
    "teach": "taught",
    "tear": "torn",
    "throw": "thrown",
    "write": "written",
}

_DOUBLES = re.compile("[^aeiou]*[aeiou][^aeiouwxy]")  # "run", "swim": the last consonant doubles


def plural(noun: str) -> str:
    """``puppy`` -> ``puppies``, ``piece of furniture`` -> ``pieces of furniture``."""
    head, of, rest = noun.partition(" of ")
    before, space, last = head.rpartition(" ")
    return before + space + _PLURALS.get(last, _with_s(last)) + of + rest


def with_article(phrase: str) -> str:
    """Put ``a`` or ``an`` before a phrase, by its first letter; the lexicons have no words such as "hour"."""
    return ("an " if phrase[0] in "aeiou" else "a ") + phrase


def present_participle(verb: str) -> str:
    """``run after`` -> ``running after``."""
    stem, space, rest = verb.partition(" ")
    if _DOUBLES.fullmatch(stem):
        stem += stem[-1]
    elif stem.endswith("e"):
        stem = stem[:-1]
    return stem + "ing" + space + rest


def past_participle(verb: str) -> str:
    """``carry`` -> ``carried``, ``take apart`` -> ``taken apart``."""
    stem, space, rest = verb.partition(" ")
    if stem in _PAST_PARTICIPLES:
        form = _PAST_PARTICIPLES[stem]
    elif _DOUBLES.fullmatch(stem):
        form = stem + stem[-1] + "ed"
    elif stem[-1] == "y" and stem[-2] not in "aeiou":
        form = stem[:-1] + "ied"
    else:
        form = stem + ("d" if stem.endswith("e") else "ed")
    return form + space + rest


def third_person(verb: str) -> str:
    """``catch`` -> ``catches``, ``talk with`` -> ``talks with``."""
    stem, space, rest = verb.partition(" ")
    return _with_s(stem) + space + rest


def _with_s(word: str) -> str:
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    if word[-1] == "y" and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"
