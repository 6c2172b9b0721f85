"""The lexicon of the generated corpus: concepts and actions, and the parser of their tables."""

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, eq=False)
class Concept:
    """A noun, an attribute or a place: synonyms, and the parent concept.

    ``fits`` lists the kinds of noun that an attribute may describe.
    """

    words: tuple[str, ...]
    parent: "Concept | None" = None
    fits: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The first word; a name in parentheses is a kind that does not occur in sentences."""
        return self.words[0]

    @property
    def spoken(self) -> bool:
        """Whether it may occur in sentences."""
        return not self.name.startswith("(")

    @cached_property
    def lineage(self) -> tuple["Concept", ...]:
        """Itself, its parent, and so on up to the root."""
        return (self, *(self.parent.lineage if self.parent else ()))

    def is_a(self, *kinds: str) -> bool:
        """Whether it is one of these kinds or a descendant of one."""
        return not self._kinds.isdisjoint(kinds)

    @cached_property
    def _kinds(self) -> frozenset[str]:
        return frozenset(concept.name for concept in self.lineage)


@dataclass(frozen=True, eq=False, kw_only=True)
class Action:
    """Synonymous verbs, the kinds of noun in each role, and relations to other actions.

    Attributes:
        words: verbs in base form; the first is the name of the action. Only the first word of a verb is inflected.
        active: further synonyms that are not used in the passive.
        converse: verbs for the same event from the other participant's side: A leads B, B follows A; A sells x to B, B
            buys x from A.
        topic: the kind of activity.
        agents, patients, recipients: kinds of noun for each role; an intransitive verb has no patients.
        places: kinds of place where it can happen; empty for anywhere on dry land.
        kind_of: a more general action: jogging is running.
        contraries: actions that the same agent cannot do at the same time.
        mutual: "A does it with B" has the same meaning as "B does it with A"; the verbs end in "with".
        object_optional: the object can be omitted: "A is eating", "A is eating an apple".

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
        """Whether both cannot happen at once with one agent; an action that excludes sleeping also excludes snoring."""
        one, two = {self.name, self.kind_of}, {other.name, other.kind_of}
        return not (two.isdisjoint(self.contraries) and one.isdisjoint(other.contraries))


@dataclass(frozen=True, eq=False)
class Lexicon:
    """The vocabulary of the training or test sentences.

    ``numbers`` maps the exact counts that occur to their words; ``some`` is the word for an unknown plural count;
    ``outdoor_kinds`` are kinds of noun that do not occur inside a building.
    """

    nouns: tuple[Concept, ...]
    attributes: tuple[Concept, ...]
    places: tuple[Concept, ...]
    actions: tuple[Action, ...]
    numbers: dict[int, str]
    some: str
    outdoor_kinds: tuple[str, ...]


def read_concepts(table: str) -> tuple[Concept, ...]:
    """Parse a table of concepts: one per line, synonyms separated by commas, indented under the parent concept.

    A name in parentheses is a kind without a word of its own. After a colon come the kinds of noun that an attribute
    fits.

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
    """Return an :class:`Action` from comma-separated lists."""
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
