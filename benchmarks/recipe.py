"""Time of a step of the recipe for NLI rows, compared with info-nce and sentence-transformers on the same rows.

    python benchmarks/recipe.py run       writes benchmarks/results/recipe.json
    python benchmarks/recipe.py report    fills its place in docs/training-speed.md from that file alone

A batch has 64 premises of SNLI (of microworld without NEARFAR_DATA), each with one hypothesis of each label. The losses
for triplets get the entailed and the contradicted hypothesis. All sides are interleaved within a round, in one process,
on new rows in each round. With ``--quick``, results are printed, and written only with ``--into``.
"""

import argparse
import os
import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import common
from common import MODEL
from sentence_transformers.sentence_transformer import losses
from training_run import Rows
from training_systems import TimedRound, nearfar, sentence_transformers

from nearfar import InfoNceConfig, NliOrderConfig
from nearfar.data.rows import load_nli
from nearfar.encoder.precision import resolve
from nearfar.types import LABEL_NAMES

PAGE = common.Page("recipe", "training-speed")
RECIPE, RECIPE_WITHOUT_NEUTRAL = "nli-order, recipe", "nli-order, recipe without neutral rows"
REFERENCE, PEER = "info-nce", "MultipleNegativesRankingLoss"
PREMISES = 64
BAR = 1.1
"""Target for the time of a step of the recipe relative to a step of info-nce."""
ORDER: dict[str, Any] = {"order_pairs": "batch", "order_weight": 0.1, "dropout": 0.0}
"""The settings of docs/tables/recipes-nli.md."""
TRIPLET = ("anchor", "positive", "negative")


class Premise(NamedTuple):
    """A premise and its hypothesis of each label."""

    text: str
    hypotheses: dict[str, str]


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all sides."""
    rounds, steps = options.rounds, options.steps
    data = "snli:dev" if os.environ.get("NEARFAR_DATA") else "microworld"
    premises, precision = complete_premises(data), resolve("auto", "cpu")
    found = common.record(model=MODEL, rounds=rounds, steps=steps, data=data, precision=precision, premises=PREMISES)
    shared: dict[str, Any] = {"output": "unused", "precision": precision, "epochs": 1}
    order: dict[str, Any] = {**shared, **ORDER, "batch_size": len(LABEL_NAMES) * PREMISES}
    columns = ("premise", "hypothesis", "label")
    peer = partial(sentence_transformers, losses.MultipleNegativesRankingLoss)
    info_nce = InfoNceConfig(**shared, batch_size=PREMISES, negative_column="negative", distinct_texts=True)
    sides: dict[str, tuple[Callable[[list[Premise]], Rows], Callable[[Rows], TimedRound]]] = {
        REFERENCE: (triplets, nearfar(info_nce, TRIPLET)),
        RECIPE_WITHOUT_NEUTRAL: (pairs, nearfar(NliOrderConfig(**order, neutral=False), columns)),
        RECIPE: (pairs, nearfar(NliOrderConfig(**order), columns)),
        PEER: (triplets, peer(TRIPLET, bf16=precision == "bf16", batch_size=PREMISES)),
    }
    each = (steps + 1) * PREMISES

    def one_round(name: str, number: int) -> TimedRound:
        rows, train = sides[name]
        return train(rows([premises[place % len(premises)] for place in range(number * each, (number + 1) * each)]))

    measured = common.run_interleaved({name: partial(one_round, name) for name in sides}, rounds)
    for name, of_side in measured.items():
        count = steps * PREMISES * (len(LABEL_NAMES) if "nli-order" in name else 1)
        if any(abs(timed.rows - count) > len(LABEL_NAMES) for timed in of_side):  # a repeated triplet is dropped
            raise SystemExit(f"{name}: trained on {[timed.rows for timed in of_side]} rows, not {count}")
    found["sides"] = {name: [timed._asdict() for timed in of_side] for name, of_side in measured.items()}
    return found


def complete_premises(data: str) -> list[Premise]:
    """The premises with exactly one hypothesis of each label, shuffled."""
    found: dict[str, list[tuple[str, str]]] = {}
    for row in load_nli(data).rows:
        found.setdefault(row.premise, []).append((LABEL_NAMES[row.label], row.hypothesis))
    complete = [
        Premise(text, dict(hypotheses))
        for text, hypotheses in found.items()
        if sorted(label for label, _ in hypotheses) == sorted(LABEL_NAMES)
    ]
    random.Random(0).shuffle(complete)
    return complete


def pairs(premises: list[Premise]) -> Rows:
    """All pairs with their labels."""
    return [(one.text, hypothesis, label) for one in premises for label, hypothesis in one.hypotheses.items()]


def triplets(premises: list[Premise]) -> Rows:
    """Premise, entailed hypothesis, contradicted hypothesis."""
    return [(one.text, one.hypotheses["entailment"], one.hypotheses["contradiction"]) for one in premises]


def body(found: dict[str, Any]) -> list[str]:
    """Seconds and tokens of a step of each side."""
    sides, steps = found["sides"], found["steps"]
    seconds = {name: [one["seconds"] / steps for one in of_side] for name, of_side in sides.items()}
    tokens = {
        name: sum(one["tokens"][1] for one in sides[name]) / len(sides[name]) / steps for name in (REFERENCE, RECIPE)
    }
    rows = []
    for name, of_side in seconds.items():
        count = f"{tokens[name]:,.0f}" if name in tokens else "as info-nce"
        ratio = "" if name == REFERENCE else common.spread(common.ratios(of_side, seconds[REFERENCE]))
        rows.append((f"`{name}`" if name != PEER else name, common.spread(of_side, 3), count, ratio))
    return common.table(("side", "seconds per step", "tokens per step", "times as long as info-nce"), rows)


if __name__ == "__main__":
    rounds = common.ROUNDS._replace(quick=2)
    common.main(PAGE, __doc__, run, body, rounds, common.Sizes("steps", "steps per round after its first", 8, 2))
