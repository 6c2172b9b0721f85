"""Generate a sentence for a frame: choose words, voice, and sentence template."""

from dataclasses import dataclass, replace
from random import Random

from english import past_participle, plural, present_participle, third_person, with_article
from frames import SOME, Entity, Frame
from lexicon import Lexicon


@dataclass(frozen=True)
class Style:
    """Sentence templates for affirmed and negated frames, and the phrase for a mutual action.

    The fields of a template are ``subject`` (``a_subject`` if it must be indefinite), ``is``, ``doing``, ``does``,
    ``does_not`` and ``place``.
    """

    affirmed: tuple[str, ...]
    denied: tuple[str, ...]
    mutually: str


TRAIN_STYLE = Style(
    affirmed=(
        "{subject} {is} {doing} {place}",
        "{subject} {does} {place}",
        "{subject} {doing} {place}",
        "there {is} {a_subject} {doing} {place}",
    ),
    denied=(
        "{subject} {is} not {doing} {place}",
        "{subject} {does_not} {place}",
    ),
    mutually="together",
)

TEST_STYLE = Style(
    affirmed=(
        "{subject} {is} {doing} {place}",
        "{place}, {subject} {is} {doing}",
        "{subject} can be seen {doing} {place}",
        "it is {subject} that {is} {doing} {place}",
        "here {is} {a_subject} {doing} {place}",
    ),
    denied=(
        "{subject} {is} not {doing} {place}",
        "{subject} {is}n't {doing} {place}",
        "it is not true that {subject} {is} {doing} {place}",
    ),
    mutually="with each other",
)


@dataclass(frozen=True)
class _Clause:
    """A subject and its predicate in three verb forms."""

    subject: tuple[Entity, ...]
    plural: bool
    doing: str
    does: str
    does_not: str


def realise(frame: Frame, lexicon: Lexicon, style: Style, rng: Random) -> str:
    """Return a random sentence for a frame, with the words of the lexicon and the templates of the style."""
    realiser = _Realiser(lexicon, style, rng, definite=frame.negated or rng.random() < 0.35)
    clause = rng.choice(realiser.clauses(frame))
    templates = style.denied if frame.negated else style.affirmed
    template = rng.choice([template for template in templates if _template_fits(template, frame, clause)])
    sentence = template.format(
        subject=" and ".join(map(realiser.phrase, clause.subject)),
        a_subject=replace(realiser, definite=False).phrase(clause.subject[0]),
        doing=clause.doing,
        does=clause.does,
        does_not=clause.does_not,
        place=rng.choice(frame.place.words) if frame.place else "",
        **{"is": "are" if clause.plural else "is"},
    )
    return sentence[0].upper() + sentence[1:].rstrip() + "."


@dataclass(frozen=True)
class _Realiser:
    """Chooses the words of one sentence, with definite ("the dog") or indefinite ("a dog") articles throughout.

    Negated sentences are always definite: "a dog is not running" could refer to another dog.
    """

    lexicon: Lexicon
    style: Style
    rng: Random
    definite: bool

    def clauses(self, frame: Frame) -> list[_Clause]:
        """Return the clauses for a frame: active, passive, with a converse verb, or with a joint subject."""
        action, patient, recipient = frame.action, frame.patient, frame.recipient
        if patient is None:
            # of "cook, prepare" only the first verb can omit its object
            verbs = action.words[:1] if action.patients else action.words + action.active
            return [_active(self.rng.choice(verbs), frame.agent)]
        by_whom, what, to_whom = (self.phrase(one) if one else "" for one in (frame.agent, patient, recipient))
        verb = self.rng.choice(action.words + action.active)
        passive_verb = self.rng.choice(action.words)
        if action.mutual:
            mutually = f"{verb.removesuffix(' with')} {self.style.mutually}"
            return [_active(f"{verb} {what}", frame.agent), _active(mutually, frame.agent, patient)]
        objects, to_and_by = what, f"by {by_whom}"
        if recipient:
            objects = self.rng.choice((f"{what} to {to_whom}", f"{to_whom} {what}"))
            to_and_by = f"to {to_whom} by {by_whom}"
        clauses = [_active(f"{verb} {objects}", frame.agent), _passive(passive_verb, patient, to_and_by)]
        if action.converse:
            converse = self.rng.choice(action.converse) + (f" {what} from {by_whom}" if recipient else f" {by_whom}")
            clauses.append(_active(converse, recipient or patient))
        return clauses

    def phrase(self, entity: Entity) -> str:
        """Return the noun phrase of an entity: "the two black dogs", "an old man", "some apples"."""
        noun = self.rng.choice(entity.noun.words)
        attribute = self.rng.choice(entity.attribute.words) + " " if entity.attribute else ""
        number = self.lexicon.numbers[entity.count] + " " if entity.count in self.lexicon.numbers else ""
        bare = number + attribute + (noun if entity.count == 1 else plural(noun))
        if self.definite:
            return f"the {bare}"
        if entity.count == 1:
            return with_article(bare)
        return f"{self.lexicon.some} {bare}" if entity.count == SOME else bare


def _active(verb: str, *subject: Entity) -> _Clause:
    if _is_plural(*subject):
        return _Clause(subject, True, present_participle(verb), verb, f"do not {verb}")
    return _Clause(subject, False, present_participle(verb), third_person(verb), f"does not {verb}")


def _passive(verb: str, patient: Entity, rest: str) -> _Clause:
    done = f"{past_participle(verb)} {rest}"
    if _is_plural(patient):
        return _Clause((patient,), True, f"being {done}", f"are {done}", f"are not {done}")
    return _Clause((patient,), False, f"being {done}", f"is {done}", f"is not {done}")


def _is_plural(*subject: Entity) -> bool:
    return len(subject) > 1 or subject[0].count != 1


def _template_fits(template: str, frame: Frame, clause: _Clause) -> bool:
    """Whether a template fits: an initial place needs a place, and "there is" a single subject."""
    if template.startswith("{place}"):
        return frame.place is not None
    return "a_subject" not in template or len(clause.subject) == 1
