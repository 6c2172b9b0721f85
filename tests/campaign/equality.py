"""What must be equal: processes, padding, kernels, micro-batches, resumed runs, objectives, batches of `encode`.

The cases are drawn here, from their names and the seed; the modules ``equality_*`` compute them in forks.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nearfar.config import METHODS
from tests.campaign.case import Case, SkipPartError
from tests.campaign.server import Server
from tests.tiny import ARCHITECTURES

ROWS = (17, 25, 40)
"""Rows of data; the last batch is often short."""
POOLINGS = (
    *("cls", "mean", "mean_without_cls", "max", "first_last", "embeddings_last", "last_two"),
    *("layer:0", "layer:1", "layer:1:cls", "layer:2:max", "layer:1:mean_without_cls"),
)
ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu", "tanh")
LENGTHS = ("one token", "longest", "all equal", "one long among short", "any")
WIDTHS = (32, 24, 16, 8, 5, 2)
"""Not 1: the cosine of such vectors is 1 or -1, and its gradient zero up to rounding."""
SECONDS = ("labels", "sentences", "nli", "order")
LOOPS = (
    *("info_nce", "nt_xent", "info_nce_directions", "premise_scl", "supcon"),
    *("self_guided", "ranking", "distillation", "pairs"),
)
EXACT = (
    *("info_nce", "info_nce, negatives", "nt_xent", "supcon", "opt1", "opt3"),
    *("list_distillation", "premise_scl", "cosine_regression"),
)
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "mlm": ("simcse-unsup", {"mlm_weight": 0.5}),
    "directions": ("info-nce", {"directions": "all"}),
    "cosent": ("regression", {"objective": "cosent"}),
    "angle": ("regression", {"objective": "angle"}),
    "order of all pairs": ("nli-order", {"order_pairs": "batch", "directions": "both", "neutral": False}),
    "premises": ("scl", {"max_negatives": 3, "max_positives": 1}),
    "margin": ("scl", {"false_negative_margin": 0.1}),
}
"""Name -> a method and settings, beside every method with its defaults."""


def cases(seed: int) -> Iterator[Case]:
    """About 680 cases; the short form runs the first of them."""
    if not hasattr(os, "fork"):
        raise SkipPartError("needs os.fork")
    for number in range(90):
        family = ARCHITECTURES[number % len(ARCHITECTURES)]
        name = f"ragged {family} {number}, {LENGTHS[number % len(LENGTHS)]}"
        yield _case(f"ragged equals padded {family}", name, _ragged(name, seed, family, number))
    for number in range(36):
        bf16 = number % 2 == 1
        name = f"kernels {'bfloat16' if bf16 else 'float32'} {number}"
        yield _case(f"kernels on equals off {'bf16' if bf16 else 'fp32'}", name, _kernels(name, seed, bf16=bf16))
    for number, objective in enumerate(LOOPS * 6):
        name = f"loops {objective} {number // len(LOOPS)}"
        yield _case("objectives equal loops", name, ("objectives:against_loops", _drawn(name, seed, objective)))
    for number, objective in enumerate(EXACT * 10):
        name = f"mpmath {objective} {number // len(EXACT)}"
        yield _case("objectives equal mpmath", name, ("objectives:against_mpmath", _drawn(name, seed, objective)))
    for kind in ("shuffled", "sorted", "one by one", "batches", "repeated", "file"):
        for number in range(10):
            family = ARCHITECTURES[number % len(ARCHITECTURES)]
            name = f"encode {kind} {number}"
            given = {"kind": kind, "family": family, "seed": _draw(name, seed).randrange(2**31)}
            yield _case(f"encode {kind}", name, ("encoders:encode_equals", given))
    yield from _gradient_cases(seed)
    yield from _run_cases(seed)
    for number in range(3):  # processes are started by spawn, which takes seconds
        name = f"encode processes {number}"
        given = {"kind": "file", "family": "bert", "seed": _draw(name, seed).randrange(2**31), "processes": 2}
        yield _case("encode processes", name, ("encoders:encode_equals", given))


def _case(group: str, name: str, call: tuple[str, dict[str, Any]]) -> Case:
    """A case that calls a function of the modules ``equality_*`` in a fork."""
    function, given = call

    def check(server: Server, shared: Path, folder: Path) -> str:
        place = {"shared": str(shared.resolve())} if function.startswith(("gradients", "runs")) else {}
        done = server.function(f"tests.campaign.equality_{function}", {**place, **given}, cwd=folder)
        if done.status:
            return f"the computation ended with status {done.status}: {done.last_line}"
        return str(done.result)

    return Case(group, name, check)


def _draw(name: str, seed: int) -> random.Random:
    return random.Random(f"{seed} {name}")


def _drawn(name: str, seed: int, objective: str) -> dict[str, Any]:
    return {"name": objective, "seed": _draw(name, seed).randrange(2**31)}


def _gradient_cases(seed: int) -> Iterator[Case]:
    for variant in (*METHODS, *VARIANTS):
        method, extra = VARIANTS.get(variant, (variant, {}))
        for processes in (1, 2, 4):
            name = f"{variant}, {processes} processes"
            given = _step(_draw(name, seed), method, extra)
            given["settings"]["batch_size"] = processes * max(given["settings"]["batch_size"] // processes, 3)
            yield _case(f"processes {method}", name, ("gradients:compare", {**given, "processes": processes}))
        for kind in ("one", "several", "more than a batch", "few tokens", "tokens"):
            name = f"{variant}, micro-batch of {kind}"
            draw = _draw(name, seed)
            given = _step(draw, method, extra)
            given |= {"processes": None, "micro_batch": None, "micro_batch_tokens": None}
            if "tokens" in kind:
                given["micro_batch_tokens"] = draw.randint(1, 8) if kind == "few tokens" else draw.randint(9, 200)
            else:
                size = {"one": 1, "several": draw.randint(2, 9), "more than a batch": draw.randint(300, 1000)}
                given["micro_batch"] = size[kind]
            yield _case(f"micro-batches {method}", name, ("gradients:compare", given))


def _step(draw: random.Random, method: str, extra: dict[str, Any]) -> dict[str, Any]:
    """A step of a method; the settings are those of one process."""
    settings: dict[str, Any] = {"seed": draw.randrange(1000), "batch_size": draw.choice((4, 7, 8, 12, 16)), **extra}
    if method != "distill" and "mlm_weight" not in extra and draw.random() < 0.4:
        settings["matryoshka"] = draw.sample(WIDTHS, draw.randint(1, 3))
    if method == "distill":
        settings["list_weight"] = draw.choice((0.0, 0.3, 1.0))
    return {
        "method": method,
        "rows": draw.choice(ROWS),
        "settings": settings,
        "accumulate": draw.choice((1, 1, 2, 3)),
        "skip": 0 if "objective" in extra else draw.choice((0, 1, -1)),  # a last batch may be a single pair
        **({} if draw.random() < 0.5 else {"micro_batch": draw.randint(1, 9)}),
    }


def _run_cases(seed: int) -> Iterator[Case]:
    for method in METHODS:
        for number in range(6):
            name = f"resumed {method} {number}"
            draw = _draw(name, seed)
            steps = draw.randint(5, 9)
            settings: dict[str, Any] = {
                "seed": draw.randrange(1000),
                "batch_size": draw.choice((4, 7, 10)),
                "max_steps": steps,
                "epochs": 20,
                "checkpoint_every": draw.randint(1, 4),
                "evaluate_every": draw.randint(1, 5),
                "keep": draw.choice(("best", "last")),
                "accumulate": draw.choice((1, 1, 2)),
            }
            if draw.random() < 0.4:
                settings["ema"] = draw.choice((0.5, 0.9))
            if draw.random() < 0.3:
                settings["start_weight"] = draw.choice((0.2, 0.5))
            if draw.random() < 0.3:
                settings["micro_batch"] = draw.randint(1, 9)
            second = draw.choice(SECONDS) if draw.random() < 0.4 else None
            if method != "distill" and second is None and draw.random() < 0.5:
                settings["matryoshka"] = draw.sample(WIDTHS, draw.randint(1, 3))
            if method == "distill":
                settings["list_weight"] = draw.choice((0.0, 0.3, 1.0))
            stops = {str(draw.randint(1, steps)): draw.choice(("killed", "Ctrl-C")) for _ in range(draw.randint(1, 2))}
            given = {"method": method, "rows": draw.choice(ROWS), "settings": settings, "stops": stops}
            call = ("runs:resumed_equals_undisturbed", {**given, "second": second})
            yield _case(f"resumed {method}", name, call)


def _shape(draw: random.Random, family: str, *, positions: int) -> dict[str, Any]:
    """Sizes of an encoder, of which each family uses some."""
    return {
        "family": family,
        "heads": draw.randint(1, 4),
        "head_dim": draw.choice((6, 8, 16, 24, 32, 64)),
        "layers": draw.randint(2, 4),
        "intermediate": draw.randint(8, 100),
        "vocabulary": draw.randint(50, 400),
        "activation": draw.choice(ACTIVATIONS if family != "distilbert" else ("gelu", "relu")),
        "positions": positions,
        "embedding": draw.choice((8, 48)),
        "sinusoidal": draw.random() < 0.5,
        "buckets": draw.choice((32, 48)),
        "window": draw.choice((4, 8, 32)),
        "every": draw.randint(1, 3),
        "seed": draw.randrange(2**31),
    }


def _ragged(name: str, seed: int, family: str, number: int) -> tuple[str, dict[str, Any]]:
    draw = _draw(name, seed)
    shape = _shape(draw, family, positions=draw.choice((16, 40, 160)))
    pooling, most = POOLINGS[number % len(POOLINGS)], shape["positions"]
    least = 2 if "without_cls" in pooling else 1  # without its first token, a text of one token has none
    lengths = {
        "one token": [least] * draw.randint(1, 4),
        "longest": [most] * draw.randint(1, 3),
        "all equal": [draw.randint(least, most)] * draw.randint(2, 8),
        "one long among short": [*(draw.randint(least, 4) for _ in range(8)), most],
        "any": [draw.randint(least, most) for _ in range(draw.randint(1, 12))],
    }[LENGTHS[number % len(LENGTHS)]]
    draw.shuffle(lengths)
    return "encoders:ragged_equals_padded", {"shape": shape, "lengths": lengths, "pooling": pooling}


def _kernels(name: str, seed: int, *, bf16: bool) -> tuple[str, dict[str, Any]]:
    draw = _draw(name, seed)
    shape = _shape(draw, draw.choice([one for one in ARCHITECTURES if one != "mpnet"]), positions=140)
    shape |= {"head_dim": draw.choice((16, 32, 64)), "dropout": draw.choice((0.0, 0.1, 0.4))}
    lengths = [draw.choice((draw.randint(1, 12), draw.randint(1, 128))) for _ in range(draw.randint(1, 9))]
    return "encoders:kernels_equal_torch", {"shape": shape, "lengths": lengths, "bf16": bf16}
