"""The meaning of a sentence as a frame of roles, the entailment relation of two frames, and their similarity."""

from dataclasses import dataclass, replace
from itertools import product

from lexicon import Action, Concept

from nearfar.types import CONTRADICTION, ENTAILMENT, NEUTRAL

SOME = 0  # a count: an unknown number above one


@dataclass(frozen=True)
class Entity:
    """The participant in a role: ``count`` of a noun (or :data:`SOME`), possibly with an attribute."""

    noun: Concept
    count: int = 1
    attribute: Concept | None = None


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One scene: an action, the participants in its roles, and a place; ``negated`` if it does not happen."""

    action: Action
    agent: Entity
    patient: Entity | None = None
    recipient: Entity | None = None
    place: Concept | None = None
    negated: bool = False

    @property
    def roles(self) -> dict[str, Entity]:
        """Role -> participant, for the roles that are filled."""
        roles = {"agent": self.agent, "patient": self.patient, "recipient": self.recipient}
        return {role: entity for role, entity in roles.items() if entity}


def relation(premise: Frame, hypothesis: Frame) -> int:
    """Return the label of a hypothesis, assuming that both describe the same event (as in SNLI).

    Affirmed frames are compared role by role. The hypothesis' value of a role is entailed if it equals the premise's,
    is more general, or is missing; neutral if it is more specific; a contradiction if both cannot be true (dog and cat,
    red and blue, two and four, park and kitchen, push and pull). The frame has the worst label of its roles.

    A negated hypothesis is entailed by a premise that contradicts the negated frame, and contradicts a premise that
    entails it. A negated premise entails the negation of a frame that would have entailed it, and contradicts that
    frame.
    """
    if premise.negated:
        follows = relation(replace(hypothesis, negated=False), replace(premise, negated=False)) == ENTAILMENT
        return (ENTAILMENT if hypothesis.negated else CONTRADICTION) if follows else NEUTRAL
    if hypothesis.negated:
        return _DENIAL[relation(premise, replace(hypothesis, negated=False))]
    return min(_compare(*both) for both in product(equivalent_frames(premise), equivalent_frames(hypothesis)))


def similarity(first: Frame, second: Frame) -> float:
    """Return the graded similarity of two frames, 0 (nothing in common) to 5 (the same meaning); symmetric.

    ``5 * c * sum_role(weight * role_similarity) / sum_role(weight)`` over the roles of either frame, with weight 4 for
    the action and 2 for agent, patient, recipient and place.

    - ``c`` is 0.6 if one frame contradicts the other (see :func:`relation`), else 1.
    - Concepts: 1 if equal, 0.6 if one is a kind of the other, 0.25 if both are of the same kind (dog and cat), else 0.
    - Actions: the same; 0.25 for a shared topic or for contraries; 0 if only one of the frames is negated.
    - Entities: the similarity of the nouns, times 0.6 for different counts (0.8 if one is "some"), times 0.5 for
      attributes that exclude each other and 0.75 for an attribute that only one has.
    - A role that only one frame fills counts 0.5. A participant that has different roles in the two frames counts half
      in each, if that is more than the similarity of the two participants in the role.
    """
    total = shared = 0.0
    for weight, role_similarity in _role_similarities(first, second):
        total += weight
        shared += weight * role_similarity
    clash = relation(first, second) == CONTRADICTION
    return round(5.0 * (0.6 if clash else 1.0) * shared / total, 3)


_DENIAL = {ENTAILMENT: CONTRADICTION, NEUTRAL: NEUTRAL, CONTRADICTION: ENTAILMENT}


def equivalent_frames(frame: Frame) -> tuple[Frame, ...]:
    """Return the frames with the same meaning: "A talks with B" is also "B talks with A"."""
    if frame.action.mutual and frame.patient:
        return frame, replace(frame, agent=frame.patient, patient=frame.agent)
    return (frame,)


def _compare(premise: Frame, hypothesis: Frame) -> int:
    """Return the worst label of any role; labels are ordered from entailment to contradiction."""
    return max(
        _action_label(premise.action, hypothesis.action),
        _entity_label(premise.agent, hypothesis.agent),
        _entity_label(premise.patient, hypothesis.patient),
        _entity_label(premise.recipient, hypothesis.recipient),
        _concept_label(premise.place, hypothesis.place),
    )


def _action_label(premise: Action, hypothesis: Action) -> int:
    if hypothesis.name in (premise.name, premise.kind_of):
        return ENTAILMENT
    return CONTRADICTION if premise.excludes(hypothesis) else NEUTRAL


def _entity_label(premise: Entity | None, hypothesis: Entity | None) -> int:
    if hypothesis is None:
        return ENTAILMENT
    if premise is None:
        return NEUTRAL
    return max(
        _concept_label(premise.noun, hypothesis.noun),
        _count_label(premise.count, hypothesis.count),
        _attribute_label(premise.attribute, hypothesis.attribute),
    )


def _concept_label(premise: Concept | None, hypothesis: Concept | None) -> int:
    if hypothesis is None or (premise and hypothesis in premise.lineage):
        return ENTAILMENT
    if premise is None or premise in hypothesis.lineage:
        return NEUTRAL
    return CONTRADICTION


def _count_label(premise: int, hypothesis: int) -> int:
    if premise == hypothesis:
        return ENTAILMENT
    if 1 in (premise, hypothesis) or SOME not in (premise, hypothesis):
        return CONTRADICTION
    return ENTAILMENT if hypothesis == SOME else NEUTRAL


def _attribute_label(premise: Concept | None, hypothesis: Concept | None) -> int:
    if premise and hypothesis and premise.parent != hypothesis.parent:
        return NEUTRAL  # big and red: attributes of different kinds
    return _concept_label(premise, hypothesis)


def _role_similarities(first: Frame, second: Frame) -> list[tuple[int, float]]:
    """Return weight and similarity of each role of either frame, maximised over equivalent frames."""
    choices = [_frame_similarities(*both) for both in product(equivalent_frames(first), equivalent_frames(second))]
    return max(choices, key=lambda parts: sum(weight * role_similarity for weight, role_similarity in parts))


def _frame_similarities(first: Frame, second: Frame) -> list[tuple[int, float]]:
    parts = [(4, _action_similarity(first, second))]
    for role in ("agent", "patient", "recipient"):
        mine, theirs = first.roles.get(role), second.roles.get(role)
        if mine and theirs:
            crossed = min(
                max(_entity_similarity(mine, other) for other in second.roles.values()),
                max(_entity_similarity(other, theirs) for other in first.roles.values()),
            )
            parts.append((2, max(_entity_similarity(mine, theirs), crossed / 2)))
        elif mine or theirs:
            parts.append((2, 0.5))
    if first.place and second.place:
        parts.append((2, _concept_similarity(first.place, second.place)))
    elif first.place or second.place:
        parts.append((2, 0.5))
    return parts


def _action_similarity(first: Frame, second: Frame) -> float:
    one, other = first.action, second.action
    if first.negated != second.negated:
        return 0.0
    if one.name == other.name:
        return 1.0
    if one.name == other.kind_of or other.name == one.kind_of:
        return 0.6
    return 0.25 if one.topic == other.topic or one.excludes(other) else 0.0


def _entity_similarity(first: Entity, second: Entity) -> float:
    role_similarity = _concept_similarity(first.noun, second.noun)
    if first.count != second.count:
        role_similarity *= 0.8 if SOME in (first.count, second.count) and 1 not in (first.count, second.count) else 0.6
    if first.attribute and second.attribute and first.attribute.parent == second.attribute.parent:
        return role_similarity * (1.0 if first.attribute == second.attribute else 0.5)
    return role_similarity * (0.75 if first.attribute != second.attribute else 1.0)


def _concept_similarity(first: Concept, second: Concept) -> float:
    if first == second:
        return 1.0
    if first in second.lineage or second in first.lineage:
        return 0.6
    return 0.25 if first.lineage[-1] == second.lineage[-1] else 0.0
