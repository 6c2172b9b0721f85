"""What a lexicon of the small world is made of: concepts and actions, and the tables that they are read from."""

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, eq=False)
class Concept:
    """A noun, an attribute or a place: words of one meaning, and the wider concept that it falls under.

    ``fits`` lists the kinds of noun that an attribute may describe.
    """

    words: tuple[str, ...]
    parent: "Concept | None" = None
    fits: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The first word; a name in brackets is a kind that no sentence speaks of."""
        return self.words[0]

    @property
    def spoken(self) -> bool:
        """Whether sentences may use it."""
        return not self.name.startswith("(")

    @cached_property
    def lineage(self) -> tuple["Concept", ...]:
        """Itself, its parent, and so on up to the root."""
        return (self, *(self.parent.lineage if self.parent else ()))

    def is_a(self, *kinds: str) -> bool:
        """Whether it is one of these kinds or falls under one of them."""
        return not self._kinds.isdisjoint(kinds)

    @cached_property
    def _kinds(self) -> frozenset[str]:
        return frozenset(concept.name for concept in self.lineage)


@dataclass(frozen=True, eq=False, kw_only=True)
class Action:
    """Verbs of one meaning, who can do it to what, and how it relates to other actions.

    Attributes:
        words: verbs of this meaning in base form, the first naming the action; later words of a verb stay as they are.
        active: further verbs of this meaning that make no good passive.
        converse: verbs that tell the same event from the other side: A leads B, B follows A; A sells x to B, B buys
            x from A.
        topic: the kind of activity.
        agents, patients, recipients: kinds of noun that can take each role; no patients for an intransitive.
        places: kinds of place where it happens; none means anywhere on dry land.
        kind_of: a more general action: jogging is running.
        contraries: actions that the same agent cannot be doing at the same time.
        mutual: "A does it with B" says the same as "B does it with A"; the verbs end in "with".
        object_optional: "A is eating" is said as well as "A is eating an apple".

    """

    words: tuple[str, ...]
    active: tuple[str, ...] = ()
    converse: tuple[str, ...] = ()
    topic: str
    agents: tuple[str, ...]
    patients: tuple[str, ...] = ()
    recipients: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    kind_of: str | None = None
    contraries: tuple[str, ...] = ()
    mutual: bool = False
    object_optional: bool = False

    @property
    def name(self) -> str:
        """The first verb."""
        return self.words[0]

    def excludes(self, other: "Action") -> bool:
        """Whether nobody can be doing both at once; what excludes sleeping excludes snoring."""
        one, two = {self.name, self.kind_of}, {other.name, other.kind_of}
        return not (two.isdisjoint(self.contraries) and one.isdisjoint(other.contraries))


@dataclass(frozen=True, eq=False)
class Lexicon:
    """All that can be spoken of in one part of the world.

    ``numbers`` maps the exact counts that occur to their words; ``some`` is the word for an unknown plural count;
    ``outdoor_kinds`` are kinds of noun that are not found inside a building.
    """

    nouns: tuple[Concept, ...]
    attributes: tuple[Concept, ...]
    places: tuple[Concept, ...]
    actions: tuple[Action, ...]
    numbers: dict[int, str]
    some: str
    outdoor_kinds: tuple[str, ...]


def read_concepts(table: str) -> tuple[Concept, ...]:
    """Read a table of concepts: one a line, synonyms after commas, indented under its wider concept.

    A name in brackets is a kind without a word of its own; what follows a colon are the kinds of noun that an
    attribute fits.

    >>> [(concept.words, concept.is_a("animal")) for concept in read_concepts('''
    ... animal
    ...   rabbit, bunny
    ... car
    ... ''')]
    [(('animal',), True), (('rabbit', 'bunny'), True), (('car',), False)]
    """
    concepts: list[Concept] = []
    path: list[Concept] = []
    for line in filter(str.strip, table.splitlines()):
        depth = (len(line) - len(line.lstrip())) // 2
        words, _, fits = line.partition(":")
        del path[depth:]
        concept = Concept(_list(words), path[-1] if path else None, _list(fits))
        concepts.append(concept)
        path.append(concept)
    return tuple(concepts)


def action(
    topic: str,
    words: str,
    agents: str,
    patients: str = "",
    recipients: str = "",
    *,
    active: str = "",
    converse: str = "",
    places: str = "",
    kind_of: str | None = None,
    contraries: str = "",
    mutual: bool = False,
    object_optional: bool = False,
) -> Action:
    """An :class:`Action` from lists written with commas."""
    return Action(
        topic=topic,
        words=_list(words),
        active=_list(active),
        converse=_list(converse),
        agents=_list(agents),
        patients=_list(patients),
        recipients=_list(recipients),
        places=_list(places),
        kind_of=kind_of,
        contraries=_list(contraries),
        mutual=mutual,
        object_optional=object_optional,
    )


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
