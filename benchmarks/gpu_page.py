"""The page of gpu.py, made of its result file alone."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import common
from gpu_attention import table_rows
from gpu_models import WORDS

TITLE = "Speed on a GPU"
SNLI = 550_152
"""Pairs that SNLI's training part has."""
COMPARED = (
    ("CE on shuffled pairs, fp32", "sbert fp32", "SoftmaxLoss fp32"),
    ("CE on shuffled pairs, bf16", "sbert bf16", "SoftmaxLoss bf16"),
    ("triplets, in-batch negatives, fp32", "info-nce fp32", "MultipleNegativesRankingLoss fp32"),
    ("triplets, in-batch negatives, bf16", "info-nce bf16", "MultipleNegativesRankingLoss bf16"),
    ("as run: SCL by premise, fp32, against CE", "scl fp32", "SoftmaxLoss fp32"),
    ("as run: SCL by premise, bf16, against CE", "scl bf16", "SoftmaxLoss bf16"),
    ("nested attention in place of the default, bf16", "sbert bf16, nested", "sbert bf16"),
)
EPOCH = ("sbert fp32", "sbert bf16", "scl fp32", "scl bf16", "SoftmaxLoss fp32", "SoftmaxLoss bf16")
INTRODUCTION = (
    "Encoders have random weights and a vocabulary of made-up words, of which sentences are drawn as long as SNLI's.",
    "nearfar goes its whole way, from tokenising to AdamW's step; sentence-transformers is its own trainer with its",
    "defaults. fp32 is without TF32. Loading is not counted, nor is the first round.",
)


def body(record: dict[str, Any]) -> list[str]:
    """The page without its title."""
    versions = ", ".join(f"{name} {record['versions'][name]}" for name in ("torch", "transformers", common.PEER))
    lengths = ", ".join(f"{mean:g} words a {kind}" for kind, (mean, _) in WORDS.items())
    lines = [
        f"{record['hardware']['accelerator'] or 'CPU'}, {common.machine(record)}; {versions}.",
        "",
        *INTRODUCTION,
        "",
        f"Means: {lengths}. Batches of {record['batch_size']}, blocks of {record['steps']} steps; at most",
        f"{record['rounds']} rounds, in which all sides take turns. Medians over rounds, with least and greatest.",
    ]
    if record["small"]:
        lines += ["", "**The small form, which shows only that the benchmark runs.**"]
    if record["shapes"]:
        lines += ["", *_training(record), "", *_epoch(record), "", *_encoding(record)]
    return [*lines, "", *_attention(record)]


def _training(record: dict[str, Any]) -> list[str]:
    rows = []
    for name, shape in record["shapes"].items():
        for what, ours, theirs in COMPARED:
            speeds = [_speeds(shape["training"][side]) for side in (ours, theirs)]
            ratio = common.spread(common.ratios(*speeds))
            rows.append((name, what, f"`{ours}`", f"`{theirs}`", *(f"{median(each):,.0f}" for each in speeds), ratio))
    header = ("encoder", "what", "first", "second", "first, rows/s", "second, rows/s", "times as fast")
    shares = [
        (name, f"`{side}`", *_of_the_peak(blocks, record["peak"], side))
        for name, shape in record["shapes"].items()
        for side, blocks in shape["training"].items()
    ]
    peaks = ", ".join(f"{precision} {each / 1e12:,.1f}" for precision, each in record["peak"].items())
    return [
        "## Training",
        "",
        *common.table(header, rows, words=4),
        "",
        "### Share of the peak",
        "",
        f"The peak is that of one large product of matrices, measured here, in TFLOP/s: {peaks}. What is counted are",
        "the products that a side's texts need, forwards and backwards: nearfar encodes each distinct text of a batch",
        "once; padding counts for nobody.",
        "",
        *common.table(("encoder", "side", "TFLOP/s", "share"), shares, words=2),
    ]


def _epoch(record: dict[str, Any]) -> list[str]:
    rows = []
    for name, shape in record["shapes"].items():
        for side in EPOCH:
            blocks = shape["training"][side]
            minutes = [SNLI / speed / 60 for speed in _speeds(blocks)]
            rows.append((name, f"`{side}`", sum(block["rows"] for block in blocks), common.spread(minutes)))
    header = ("encoder", "side", "pairs measured", "minutes for an epoch")
    return [
        f"## An epoch of SNLI's {SNLI:,} pairs",
        "",
        "Extrapolated: the time of the pairs measured above, in proportion. No epoch was run; evaluation and",
        "checkpoints are not in it.",
        "",
        *common.table(header, rows, words=2),
    ]


def _encoding(record: dict[str, Any]) -> list[str]:
    rows = []
    for name, shape in record["shapes"].items():
        of = shape["encoding"]
        for precision in ("fp32", "bf16"):
            ours, theirs = (of["seconds"][f"{side} {precision}"] for side in ("nearfar", common.PEER))
            speeds = (f"{of['texts'] / median(each):,.0f}" for each in (ours, theirs))
            share = 100 * of["operations"] / median(ours) / record["peak"][precision]
            lowest = f"{of['lowest'][f'nearfar {precision}']:.5f}"
            rows.append(
                (name, precision, *speeds, common.spread(common.ratios(theirs, ours)), f"{share:.1f} %", lowest)
            )
    first = next(iter(record["shapes"].values()))["encoding"]
    header = ("encoder", "precision", "nearfar, texts/s", "peer, texts/s", "times as fast", "nearfar, of the peak")
    return [
        "## Encoding",
        "",
        f"{first['texts']:,} texts of {first['mean_tokens']:.1f} tokens, tokenising included; the peer in batches of",
        "32, its default. The cosine is the lowest of nearfar's vectors to the peer's in fp32.",
        "",
        *common.table((*header, "cosine"), rows, words=2),
    ]


def _attention(record: dict[str, Any]) -> list[str]:
    first = record["attention"][0]
    rows = table_rows(record["attention"])
    header = ("attention", "default", "fastest", "groups, µs", "varlen, µs", "nested, µs")
    return [
        "## Attention by each way",
        "",
        f"One call, forwards and backwards, on {first['texts']} texts. `groups` is torch's attention once for each",
        "length, `varlen` one call of the flash kernel (half precision, no dropout), `nested` torch's nested tensors.",
        "Where `nested` is the fastest, `NEARFAR_CUDA_ATTENTION=nested` takes it. Flex attention is left out, as it",
        "has no dropout of shares.",
        "",
        *common.table(header, rows, words=3),
    ]


def _speeds(blocks: Sequence[dict[str, Any]]) -> list[float]:
    return [block["rows"] / block["seconds"] for block in blocks]


def _of_the_peak(blocks: Sequence[dict[str, Any]], peak: dict[str, float], side: str) -> Iterator[str]:
    speed = median(block["operations"] / block["seconds"] for block in blocks)
    yield f"{speed / 1e12:.2f}"
    yield f"{100 * speed / peak['bf16' if 'bf16' in side else 'fp32']:.1f} %"
