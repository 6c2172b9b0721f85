"""Generate the corpus (NLI rows, scored pairs, labelled sentences and text) and write it as files."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from random import Random
from typing import Any

from nearfar.data.microworld import changes
from nearfar.data.microworld.frames import Frame, relation, similarity
from nearfar.data.microworld.held_out_words import TEST
from nearfar.data.microworld.lexicon import Lexicon
from nearfar.data.microworld.scenes import draw_frame
from nearfar.data.microworld.sentences import TEST_STYLE, TRAIN_STYLE, Style, realise
from nearfar.data.microworld.training_words import TRAIN
from nearfar.types import CONTRADICTION, ENTAILMENT, LABEL_NAMES, NEUTRAL, NearfarError, NliRow, ScoredPair


@dataclass(frozen=True)
class Microworld:
    """A generated corpus; scores are 0 to 5, the labels of ``labelled`` are kinds of activity.

    ``nli``, ``sts_dev``, ``labelled`` and ``text`` share a vocabulary, but no sentence of ``sts_dev`` occurs in the
    others. ``nli_test`` and ``sts_test`` share no content word with them.
    """

    nli: list[NliRow]
    nli_test: list[NliRow]
    sts_dev: list[ScoredPair]
    sts_test: list[ScoredPair]
    labelled: list[tuple[str, str]]
    text: list[str]

    def write(self, folder: str | PathLike[str]) -> None:
        """Write the parts to ``folder``, in the layout of the folder ``NEARFAR_DATA``.

        Tab-separated with a header: ``nli/microworld/train.tsv`` and ``test.tsv`` (premise, hypothesis, label name),
        ``sts/microworld/dev.tsv`` and ``test.tsv`` (score, sentence1, sentence2), ``labelled.tsv`` (label, text); and
        ``text.txt``, one sentence per line.

        Raises:
            NearfarError: a file cannot be written.

        """
        folder = Path(folder)
        for name, rows in (("train", self.nli), ("test", self.nli_test)):
            named = ((row.premise, row.hypothesis, LABEL_NAMES[row.label]) for row in rows)
            _write_tsv(folder / "nli" / "microworld" / f"{name}.tsv", ("premise", "hypothesis", "label"), named)
        for name, pairs in (("dev", self.sts_dev), ("test", self.sts_test)):
            scored = ((f"{pair.score:.3f}", pair.first, pair.second) for pair in pairs)
            _write_tsv(folder / "sts" / "microworld" / f"{name}.tsv", ("score", "sentence1", "sentence2"), scored)
        _write_tsv(folder / "labelled.tsv", ("label", "text"), ((label, text) for text, label in self.labelled))
        _write_lines(folder / "text.txt", self.text)


def generate(
    seed: int = 0,
    *,
    premises: int = 1300,
    test_premises: int = 250,
    dev_pairs: int = 400,
    test_pairs: int = 800,
    labelled: int = 600,
    text: int = 2000,
) -> Microworld:
    """Generate a microworld: a pure function of its arguments, the same on every machine and Python version.

    Each of the ``premises`` and ``test_premises`` has three to five hypotheses, a few only one or two. Each part has
    its own random stream, so that its size does not affect the other parts (except ``dev_pairs``, whose sentences are
    excluded from the training parts).
    """
    train = Generator(TRAIN, TRAIN_STYLE)
    test = Generator(TEST, TEST_STYLE)
    sts_dev = train.pairs(dev_pairs, Random(f"{seed} sts dev"))
    held_out = {sentence for pair in sts_dev for sentence in (pair.first, pair.second)}
    return Microworld(
        nli=train.rows(premises, Random(f"{seed} nli"), held_out),
        nli_test=test.rows(test_premises, Random(f"{seed} nli test"), set()),
        sts_dev=sts_dev,
        sts_test=test.pairs(test_pairs, Random(f"{seed} sts test")),
        labelled=train.sentences(labelled, Random(f"{seed} labelled"), held_out),
        text=[sentence for sentence, _ in train.sentences(text, Random(f"{seed} text"), held_out)],
    )


# How the second frame of a scored pair is made from the first: labels of the changes applied in turn, or None for
# another scene; with weights.
_PAIRINGS: dict[tuple[int, ...] | None, int] = {
    (): 20,
    (ENTAILMENT,): 10,
    (ENTAILMENT, ENTAILMENT): 7,
    (ENTAILMENT, ENTAILMENT, ENTAILMENT): 5,
    (NEUTRAL,): 6,
    (ENTAILMENT, NEUTRAL): 6,
    (CONTRADICTION,): 20,
    (ENTAILMENT, CONTRADICTION): 10,
    (CONTRADICTION, CONTRADICTION): 5,
    None: 20,
}


@dataclass(frozen=True)
class Generator:
    """Generates sentences, rows and pairs with one lexicon and one style."""

    lexicon: Lexicon
    style: Style

    def say(self, frame: Frame, rng: Random) -> str:
        """Return a sentence for ``frame``."""
        return realise(frame, self.lexicon, self.style, rng)

    def say_contrasting(self, sentence: str, frame: Frame, other: Frame, rng: Random) -> str:
        """Return a sentence for ``other`` whose word overlap with ``sentence`` (for ``frame``) misleads.

        Of four candidates it is mostly the one with the highest overlap if the frames contradict each other, and with
        the lowest otherwise.
        """
        high_overlap = rng.random() < (0.7 if relation(frame, other) == CONTRADICTION else 0.3)
        candidates = sorted((self.say(other, rng) for _ in range(4)), key=lambda one: word_overlap(one, sentence))
        return candidates[-1] if high_overlap else candidates[0]

    def sentences(self, count: int, rng: Random, held_out: set[str]) -> list[tuple[str, str]]:
        """Return distinct sentences with the topics of their actions."""
        found: dict[str, str] = {}
        while len(found) < count:
            frame = draw_frame(self.lexicon, rng)
            sentence = self.say(frame, rng)
            if sentence not in held_out:
                found[sentence] = frame.action.topic
        return list(found.items())

    def rows(self, premises: int, rng: Random, held_out: set[str]) -> list[NliRow]:
        """Return rows of distinct premises, grouped by premise, with a hypothesis of each label that can be made."""
        rows: dict[str, list[NliRow]] = {}
        while len(rows) < premises:
            frame = draw_frame(self.lexicon, rng)
            premise = self.say(frame, rng)
            if premise not in rows and premise not in held_out:
                found = self.hypotheses(frame, premise, rng, held_out)
                if found:
                    rows[premise] = found
        return [row for found in rows.values() for row in found]

    def hypotheses(self, frame: Frame, premise: str, rng: Random, held_out: set[str]) -> list[NliRow]:
        """Return the rows of one premise: one per label that can be made, sometimes two entailments, contradictions."""
        labels = [ENTAILMENT, NEUTRAL, CONTRADICTION]
        labels += [label for label in (ENTAILMENT, CONTRADICTION) if rng.random() < 0.3]
        rows: dict[str, NliRow] = {}
        for label in labels:
            hypothesis = self.hypothesis(frame, label, rng)
            if hypothesis:
                sentence = self.say_contrasting(premise, frame, hypothesis, rng)
                if sentence != premise and sentence not in held_out:
                    rows.setdefault(sentence, NliRow(premise, sentence, label))
        return list(rows.values())

    def hypothesis(self, frame: Frame, label: int, rng: Random) -> Frame | None:
        """Return a frame with this relation to ``frame``: the same for a third of the entailments, else changed."""
        if label == ENTAILMENT and rng.random() < 0.35:
            return frame
        if label == CONTRADICTION and rng.random() < 0.3:
            other = self.other_scene(frame, rng)
            if relation(_uncounted(frame), _uncounted(other)) == CONTRADICTION:
                return other
        entailed = frame
        while rng.random() < 0.3:
            entailed = changes.apply(ENTAILMENT, frame, self.lexicon, rng, entailed=entailed) or entailed
        return changes.apply(label, frame, self.lexicon, rng, entailed=entailed)

    def pairs(self, count: int, rng: Random) -> list[ScoredPair]:
        """Return distinct scored pairs, drawn from the pairings."""
        pairs: dict[tuple[str, str], ScoredPair] = {}
        while len(pairs) < count:
            first = draw_frame(self.lexicon, rng)
            steps = rng.choices(list(_PAIRINGS), list(_PAIRINGS.values()))[0]
            second = self.other_scene(first, rng) if steps is None else self.changed(first, steps, rng)
            if second is None:
                continue
            one = self.say(first, rng)
            other = self.say_contrasting(one, first, second, rng)
            if one != other:
                pair = (one, other) if rng.random() < 0.5 else (other, one)
                pairs.setdefault(pair, ScoredPair(*pair, similarity(first, second)))
        return list(pairs.values())

    def changed(self, frame: Frame, labels: Iterable[int], rng: Random) -> Frame | None:
        """Return the frame after changes with these labels, applied in turn."""
        result: Frame | None = frame
        for label in labels:
            result = result and changes.apply(label, result, self.lexicon, rng)
        return result

    def other_scene(self, frame: Frame, rng: Random) -> Frame:
        """Return another scene with the same action, with the same agent, or with neither."""
        same = rng.choice(("action", "agent", "neither"))
        return draw_frame(
            self.lexicon,
            rng,
            action=frame.action if same == "action" else None,
            agent=frame.agent if same == "agent" else None,
        )


def _uncounted(frame: Frame) -> Frame:
    """Return the frame with all counts 1: in another scene, "a man" might be one of the two men of this one."""
    single: dict[str, Any] = {role: replace(entity, count=1) for role, entity in frame.roles.items()}
    return replace(frame, **single)


def word_overlap(first: str, second: str) -> float:
    """Return the Jaccard overlap of the words of two sentences."""
    one, other = set(first.lower().strip(".").split()), set(second.lower().strip(".").split())
    return len(one & other) / len(one | other)


def _write_tsv(path: Path, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    _write_lines(path, ("\t".join(row) for row in (header, *rows)))


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    except OSError as error:
        raise NearfarError(f"{path}: cannot be written: {error.strerror}") from error
