"""Training speed against sentence-transformers' trainer, and the cost of the contrastive loss.

    python benchmarks/training.py run       writes benchmarks/results/training.json
    python benchmarks/training.py report    fills its place in docs/training-speed.md from that file alone

Rows are from SNLI if NEARFAR_DATA is set, else from microworld. All sides of a group are interleaved within a round, in
one process, on new rows in each round. With `--quick` or `--only`, results are printed, and written only with `--into`.
"""

import argparse
import math
import os
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import common
import torch
from common import MODEL
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from torch import nn
from torch.profiler import profile
from training_run import Rows, Run, write_rows
from training_systems import TimedRound, nearfar, peak, plain_simcse, sentence_transformers

from nearfar import SbertConfig, SclConfig, SimcseSupConfig, SimcseUnsupConfig
from nearfar.data.rows import load_nli
from nearfar.data.triplets import nli_triplets
from nearfar.types import LABEL_NAMES

PAGE = common.Page("training", "training-speed")


ROWS_OF_A_PREMISE = 3
"""Only premises with this number of rows are used, as nearly all in SNLI have."""


class Pool:
    """New rows of each kind for each round; starts again from the first row when they run out."""

    def __init__(self, steps: int, batch_size: int) -> None:
        specs = ("snli:dev",) if os.environ.get("NEARFAR_DATA") else ("microworld",)
        data = load_nli(specs)
        rows = [(row.premise, row.hypothesis, LABEL_NAMES[row.label]) for row in data.rows]
        premises: dict[str, list[tuple[str, ...]]] = {}
        for row in rows:
            premises.setdefault(row[0], []).append(row)
        groups = [group for group in premises.values() if len(group) == ROWS_OF_A_PREMISE]
        # A number that gives equally full batches, whether or not premises are kept together.
        self.steps, self.premises = steps, (steps + 1) * (batch_size // ROWS_OF_A_PREMISE)
        self.pairs = self.premises * ROWS_OF_A_PREMISE
        self.texts = (steps + 1) * batch_size
        shuffled = [row for group in groups for row in group]
        triplets: list[tuple[str, ...]] = list(dict.fromkeys(nli_triplets(data.rows)))
        sentences = list(dict.fromkeys((text,) for row in rows for text in row[:2]))
        self.sources = (
            f"{', '.join(specs)}: the {len(groups):,} premises with {ROWS_OF_A_PREMISE} pairs each; "
            f"{len(triplets):,} triplets; {len(sentences):,} sentences"
        )
        for rows_of_kind in (groups, shuffled, triplets, sentences):
            random.Random(0).shuffle(rows_of_kind)
        self._groups, self._shuffled, self._triplets, self._sentences = groups, shuffled, triplets, sentences

    def grouped(self, number: int) -> Rows:
        """Pairs, grouped by premise."""
        return [row for group in _part(self._groups, number, self.premises) for row in group]

    def shuffled(self, number: int) -> Rows:
        """The same number of pairs, shuffled."""
        return _part(self._shuffled, number, self.pairs)

    def triplets(self, number: int) -> Rows:
        """(premise, entailed hypothesis, contradicting hypothesis)."""
        return _part(self._triplets, number, self.texts)

    def sentences(self, number: int) -> Rows:
        """Distinct sentences."""
        return _part(self._sentences, number, self.texts)


def _part(rows: Sequence[Any], number: int, size: int) -> list[Any]:
    return [rows[place % len(rows)] for place in range(number * size, (number + 1) * size)]


PROFILED_STEPS = 4
PEAK_SIZE = 2048
PARTS = {
    "products of matrices": ("aten::mm", "aten::addmm", "aten::bmm"),
    "attention": ("_CompiledAttention", "_CompiledAttentionBackward"),
    "dropout, residual, LayerNorm": (
        "_Drop",
        "_DropBackward",
        "aten::native_layer_norm",
        "aten::native_layer_norm_backward",
    ),
    "GELU": ("aten::gelu", "aten::gelu_backward"),
    "AdamW and clipping": (
        "aten::_fused_adamw_",
        "aten::linalg_vector_norm",
        "aten::_foreach_norm",
        "aten::mul_",
        "aten::_foreach_mul_",
        "Optimizer.step#AdamW.step",
    ),
    "casts and copies": ("aten::copy_", "aten::_to_copy", "aten::fill_", "aten::zero_"),
}
REST = "all else"


def profiled(rows: Rows, batch_size: int) -> dict[str, Any]:
    """Milliseconds of an sbert step in bf16 by part, GFLOP/s of its matrix products, and of one large product."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(write_rows(Path(folder) / "rows.tsv", ("premise", "hypothesis", "label"), rows))
        run = Run(
            SbertConfig(
                output="unused", data=(file,), batch_size=batch_size, precision="bf16", order="rows", head_layers=1
            )
        )
    run.advance(2)
    with profile(with_flops=True) as found:
        run.advance(PROFILED_STEPS)
    part_of = {name: part for part, names in PARTS.items() for name in names}
    milliseconds = dict.fromkeys((*PARTS, REST), 0.0)
    operations = 0
    for event in found.key_averages():
        part = part_of.get(event.key, REST)
        milliseconds[part] += event.self_cpu_time_total / 1000 / PROFILED_STEPS
        operations += event.flops if part == "products of matrices" else 0
    seconds = milliseconds["products of matrices"] * PROFILED_STEPS / 1000
    return {
        "ms": milliseconds,
        "gflops": operations / seconds / 1e9,
        "peak_gflops": peak(torch.bfloat16, "cpu", PEAK_SIZE, repeats=20) / 1e9,
    }


def profile_line(found: dict[str, Any]) -> str:
    """The profile in a sentence."""
    share = 100 * found["ms"]["products of matrices"] / sum(found["ms"].values())
    return (
        f"Of a step of `sbert bf16`, {share:.0f} % are products of matrices, for real tokens only. They run at "
        f"{found['gflops']:.0f} GFLOP/s, one product of {PEAK_SIZE} x {PEAK_SIZE} matrices at "
        f"{found['peak_gflops']:.0f} (torch's profiler)."
    )


class Comparison(NamedTuple):
    """Two sides of a group."""

    what: str
    ours: str
    theirs: str


COMPARISONS = {
    "pairs": (
        Comparison("equal work: CE on shuffled pairs, bf16", "sbert bf16", "SoftmaxLoss bf16"),
        Comparison("equal work: CE on shuffled pairs, fp32", "sbert fp32", "SoftmaxLoss fp32"),
        Comparison("defaults: SCL grouped by premise, bf16, against fp32", "scl bf16", "SoftmaxLoss fp32"),
        Comparison("defaults: SCL grouped by premise, fp32, against fp32", "scl fp32", "SoftmaxLoss fp32"),
    ),
    "triplets": (
        Comparison("supervised SimCSE, bf16", "simcse-sup bf16", "MultipleNegativesRankingLoss bf16"),
        Comparison("supervised SimCSE, bf16", "simcse-sup bf16", "CachedMultipleNegativesRankingLoss bf16"),
    ),
    "sentences": (
        Comparison("unsupervised SimCSE, bf16", "simcse-unsup bf16", "padded step bf16"),
        Comparison("unsupervised SimCSE, bf16 against fp32", "simcse-unsup bf16", "padded step fp32"),
        Comparison("unsupervised SimCSE, fp32", "simcse-unsup fp32", "padded step fp32"),
    ),
}
DESCRIPTIONS = {(one.ours, one.theirs): one.what for group in COMPARISONS.values() for one in group}
GROUPS = (*COMPARISONS, "scl-cost", "profile")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the groups."""
    rounds, steps, batch_size = options.rounds, options.steps, options.batch_size
    pool = Pool(steps, batch_size)
    found = common.record(model=MODEL, rounds=rounds, steps=steps, batch_size=batch_size, data=pool.sources, groups={})
    for name in options.only:
        if name == "scl-cost":
            found["scl_cost"] = scl_cost(pool, rounds, batch_size)
            continue
        if name == "profile":
            found["profile"] = profiled(pool.shuffled(0), batch_size)
            continue
        measured = common.run_interleaved(sides(name, pool, batch_size), rounds)
        _check(measured)
        found["groups"][name] = {
            "unit": name,
            "sides": {side: [timed._asdict() for timed in of_side] for side, of_side in measured.items()},
            "comparisons": [comparison._asdict() for comparison in COMPARISONS[name]],
        }
        speeds = {side: round(median(timed.rows / timed.seconds for timed in of)) for side, of in measured.items()}
        print(name, speeds, flush=True)
    return found


def sides(group: str, pool: Pool, batch_size: int) -> dict[str, Callable[[int], TimedRound]]:
    """The sides of a group, by their names in :data:`COMPARISONS`."""
    pair, triplet = ("premise", "hypothesis", "label"), ("anchor", "positive", "negative")
    both: dict[str, Any] = {"fp32": {"precision": "fp32"}, "bf16": {"precision": "bf16"}}
    shared: dict[str, Any] = {"output": "unused", "batch_size": batch_size}

    def peer(loss: Callable[[SentenceTransformer], nn.Module], columns: Sequence[str], name: str) -> Any:
        return sentence_transformers(loss, columns, bf16=name == "bf16", batch_size=batch_size)

    if group == "pairs":
        ce: dict[str, Any] = {**shared, "order": "rows", "head_layers": 1}
        return {
            **{f"sbert {p}": _of(pool.shuffled, nearfar(SbertConfig(**ce, **s), pair)) for p, s in both.items()},
            **{f"scl {p}": _of(pool.grouped, nearfar(SclConfig(**shared, **s), pair)) for p, s in both.items()},
            **{
                f"SoftmaxLoss {p}": _of(pool.shuffled, peer(_softmax, ("sentence1", "sentence2", "label"), p))
                for p in both
            },
        }
    if group == "triplets":
        # The same settings as the peer: mean pooling, no additional layer, no truncation.
        alike: dict[str, Any] = {"pooling": "own", "mlp": "none", "train_max_length": None, "epochs": 1}
        config = SimcseSupConfig(**shared, **alike, precision="bf16")
        ranking = {
            "MultipleNegativesRankingLoss bf16": losses.MultipleNegativesRankingLoss,
            "CachedMultipleNegativesRankingLoss bf16": losses.CachedMultipleNegativesRankingLoss,
        }
        peers = {name: _of(pool.triplets, peer(loss, triplet, "bf16")) for name, loss in ranking.items()}
        return {"simcse-sup bf16": _of(pool.triplets, nearfar(config, triplet)), **peers}
    return {
        **{
            f"simcse-unsup {p}": _of(pool.sentences, nearfar(SimcseUnsupConfig(**shared, **s), ("text",)))
            for p, s in both.items()
        },
        **{
            f"padded step {p}": _of(pool.sentences, plain_simcse(bf16=p == "bf16", batch_size=batch_size)) for p in both
        },
    }


def _softmax(model: SentenceTransformer) -> nn.Module:
    width = model.get_embedding_dimension()
    assert width is not None
    return losses.SoftmaxLoss(model, width, num_labels=len(LABEL_NAMES))


def _of(rows: Callable[[int], Rows], train: Callable[[Rows], TimedRound]) -> Callable[[int], TimedRound]:
    return lambda number: train(rows(number))


def _check(measured: dict[str, list[TimedRound]]) -> None:
    """Check for equal work: finite losses, and the same number of rows except for differences in the first step."""
    for side, found in measured.items():
        if not all(math.isfinite(timed.loss) for timed in found):
            raise SystemExit(f"{side}: a loss is not finite")
    for timed in zip(*measured.values(), strict=True):
        rows = [one.rows for one in timed]
        if max(rows) - min(rows) > ROWS_OF_A_PREMISE:
            raise SystemExit(f"the sides trained on {rows} rows")


def scl_cost(pool: Pool, rounds: int, batch_size: int) -> dict[str, list[float]]:
    """Seconds per round of CE + SCL and of CE alone, on the same batches grouped by premise, interleaved by step."""
    rows = [row for number in range(rounds + 1) for row in pool.grouped(number)]
    with tempfile.TemporaryDirectory() as folder:
        file = str(write_rows(Path(folder) / "rows.tsv", ("premise", "hypothesis", "label"), rows))
        shared: dict[str, Any] = {"output": "unused", "data": (file,), "batch_size": batch_size, "precision": "bf16"}
        runs = {"CE + SCL": Run(SclConfig(**shared)), "CE": Run(SbertConfig(**shared))}
    one = {name: _step_of(run) for name, run in runs.items()}
    each = pool.steps + 1
    measured = common.run_interleaved(one, rounds * each, warm_up=each)
    return {
        name: [sum(seconds[start : start + each]) for start in range(0, rounds * each, each)]
        for name, seconds in measured.items()
    }


def _step_of(run: Run) -> Callable[[int], float]:
    return lambda _: run.advance(1)


COST = "Additional time per step of CE + SCL over CE alone, on the same batches grouped by premise, in bf16:"


def body(found: dict[str, Any]) -> list[str]:
    """The speed of each pair of sides, and the cost of the contrastive loss."""
    lines = [
        f"{found['data']}; batches of {found['batch_size']}; {found['rounds']} rounds of {found['steps']} steps.",
    ]
    rows = []
    for group in found["groups"].values():
        speeds = {side: [one["rows"] / one["seconds"] for one in of_side] for side, of_side in group["sides"].items()}
        for comparison in group["comparisons"]:
            sides = [comparison[side] for side in ("ours", "theirs")]
            ours, theirs = (speeds[side] for side in sides)
            what = DESCRIPTIONS.get((sides[0], sides[1]), comparison["what"])
            medians = [f"{median(side):,.0f}" for side in (ours, theirs)]
            rows.append((what, *(f"`{side}`" for side in sides), *medians, common.spread(common.ratios(ours, theirs))))
    if rows:
        header = ("comparison", "nearfar", "peer", "nearfar, rows/s", "peer, rows/s", "times as fast")
        lines += ["", *common.table(header, rows, words=3)]
    if cost := found.get("scl_cost"):
        more = [100 * (ratio - 1) for ratio in common.ratios(cost["CE + SCL"], cost["CE"])]
        lines += ["", f"{COST} {common.spread(more, 1)} % (in Liao's implementation 80 %)."]
    return [*lines, "", profile_line(found["profile"])] if "profile" in found else lines


if __name__ == "__main__":
    common.main(
        PAGE,
        __doc__,
        run,
        body,
        common.ROUNDS,
        common.Sizes("steps", "steps per round after its first", 8, 3),
        common.Sizes("batch-size", "rows in a batch", 64, 64),
        more=lambda parser: parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, metavar="NAME"),
        trial=lambda options: len(options.only) < len(GROUPS),
    )
