"""Generate microworld, a small English world, and write the files of nearfar's named sets ``microworld...``.

    python studies/microworld/write.py [FOLDER]    by default src/nearfar/data/microworld

A sentence expresses a semantic frame (``frames``) by a template (``sentences``), with the words of a lexicon
(``training_words`` or ``held_out_words``). Labels and scores are computed from the frames, never from the words. The
test sets have their own vocabulary and templates, so that only knowledge of meaning generalises: that the passive has
the same meaning, and that negation or swapped roles do not.

The files are the same on every machine and Python version; a change would invalidate all results on them.
"""

import gzip
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import changes
from frames import Frame, equivalent_frames, relation, similarity
from held_out_words import TEST
from lexicon import Lexicon
from scenes import draw_frame
from sentences import TEST_STYLE, TRAIN_STYLE, Style, realise
from training_words import TRAIN

from nearfar.types import CONTRADICTION, ENTAILMENT, LABEL_NAMES, NEUTRAL, NliRow, ScoredPair

FOLDER = Path(__file__).parents[2] / "src" / "nearfar" / "data" / "microworld"
NLI_COLUMNS = ("premise", "hypothesis", "label")
SCORED_COLUMNS = ("score", "sentence1", "sentence2")
Table = Sequence[Sequence[str]]
"""The header and the rows."""


def main(folder: Path) -> None:
    """Write the files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables():
        text = "".join("\t".join(row) + "\n" for row in table)
        (folder / name).write_bytes(compressed(text.encode()))


def compressed(content: bytes) -> bytes:
    """Return the same bytes everywhere: without time and operating system (byte 9) in the header."""
    packed = gzip.compress(content, mtime=0)
    return packed[:9] + b"\xff" + packed[10:]


def tables() -> Iterator[tuple[str, Table]]:
    """Yield the name and the rows of each file.

    Each part has its own random stream. The training sets share a vocabulary with ``scored-dev``, but none of its
    sentences; ``nli-test`` and ``scored-test`` share no content word with them.
    """
    train, test = Generator(TRAIN, TRAIN_STYLE), Generator(TEST, TEST_STYLE)
    scored_dev = train.pairs(400, Random("0 sts dev"))
    held_out = {sentence for pair in scored_dev for sentence in (pair.first, pair.second)}
    nli_train = train.rows(1300, Random("0 nli"), held_out)
    nli_test = test.rows(250, Random("0 nli test"), set())
    for split, rows in (("train", nli_train), ("test", nli_test)):
        yield f"nli-{split}.tsv.gz", [NLI_COLUMNS, *((*row[:2], LABEL_NAMES[row.label]) for row in rows)]
        entailed = (row[:2] for row in rows if row.label == ENTAILMENT)
        yield f"pairs-{split}.tsv.gz", [("anchor", "positive"), *entailed]
    for split, pairs in (("dev", scored_dev), ("test", test.pairs(800, Random("0 sts test")))):
        yield f"scored-{split}.tsv.gz", [SCORED_COLUMNS, *((f"{pair.score:.3f}", *pair[:2]) for pair in pairs)]
    yield "labelled.tsv.gz", [("text", "label"), *train.sentences(600, Random("0 labelled"), held_out)]
    yield "text.txt.gz", [(text,) for text, _ in train.sentences(2000, Random("0 text"), held_out)]
    yield "paraphrases.tsv.gz", [("anchor", "positive", "topic"), *train.paraphrases(3000, Random("1 paraphrases"))]


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

    def paraphrases(self, count: int, rng: Random) -> list[tuple[str, str, str]]:
        """Return pairs of sentences with the same meaning, with the topic of their action.

        Each pair describes a scene twice. The second sentence is the one of four with the lowest word overlap with the
        first. Most scenes are followed by one that contradicts them, such as the scene with swapped roles, negated, or
        with another number, so that the search for a paraphrase meets sentences with the same words and another
        meaning. No scene and no sentence occurs twice.
        """
        pairs: list[tuple[str, str, str]] = []
        scenes: set[Frame] = set()
        sentences: set[str] = set()
        while len(pairs) < count:
            scene = draw_frame(self.lexicon, rng)
            for frame in (scene, changes.apply(CONTRADICTION, scene, self.lexicon, rng)):
                if frame is None or frame in scenes:
                    continue
                anchor = self.say(frame, rng)
                others = [self.say(frame, rng) for _ in range(4)]
                positive = min(others, key=lambda other: word_overlap(other, anchor))
                if anchor != positive and not {anchor, positive} & sentences:
                    scenes.update(equivalent_frames(frame))
                    sentences.update((anchor, positive))
                    pairs.append((anchor, positive, frame.action.topic))
        return pairs[:count]

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


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
