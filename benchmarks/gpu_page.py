"""The page of gpu.py, generated from its result file alone."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import common
from gpu_attention import table_rows
from gpu_models import WORDS

PAGE = common.Page("gpu", "gpu-speed", "Speed on a GPU")
SNLI = 550_152
"""Number of pairs in SNLI's training split."""
COMPARED = (
    ("CE on shuffled pairs, fp32", "sbert fp32", "SoftmaxLoss fp32"),
    ("CE on shuffled pairs, bf16", "sbert bf16", "SoftmaxLoss bf16"),
    ("triplets, in-batch negatives, fp32", "info-nce fp32", "MultipleNegativesRankingLoss fp32"),
    ("triplets, in-batch negatives, bf16", "info-nce bf16", "MultipleNegativesRankingLoss bf16"),
    ("defaults: SCL grouped by premise, fp32, against CE", "scl fp32", "SoftmaxLoss fp32"),
    ("defaults: SCL grouped by premise, bf16, against CE", "scl bf16", "SoftmaxLoss bf16"),
    ("sentences: the recipe against SimCSE, fp32", "sg-opt1 fp32", "SimCSE fp32"),
    ("sentences: the recipe against SimCSE, bf16", "sg-opt1 bf16", "SimCSE bf16"),
    ("CUDA graphs, fp32", "info-nce fp32", "info-nce fp32, without graphs"),
    ("CUDA graphs, bf16", "info-nce bf16", "info-nce bf16, without graphs"),
)
EPOCH = ("sbert fp32", "sbert bf16", "scl fp32", "scl bf16", "SoftmaxLoss fp32", "SoftmaxLoss bf16")
INTRODUCTION = (
    "Encoders have random weights and a synthetic vocabulary; synthetic sentences are as long as SNLI's. nearfar runs",
    "its complete training loop, sentence-transformers its own trainer with default settings. fp32 is without TF32.",
    "Loading and the first round are not timed; a later round includes the recording of a CUDA graph where a batch",
    "has a new shape. SimCSE is sentence-transformers' MultipleNegativesRankingLoss on a sentence given twice, so it",
    "encodes each sentence twice; sg-opt1 with `--views 0-0` encodes it once, beside its frozen token embeddings.",
)


def body(record: dict[str, Any]) -> list[str]:
    """The text of the page, without title and provenance."""
    versions = ", ".join(f"{name} {record['versions'][name]}" for name in ("torch", "transformers", common.PEER))
    lengths = ", ".join(f"{mean:g} words per {kind}" for kind, (mean, _) in WORDS.items())
    lines = [
        f"{record['hardware']['accelerator'] or 'CPU'}, {common.machine(record)}; {versions}.",
        "",
        *INTRODUCTION,
        "",
        f"Means: {lengths}. Batches of {record['batch_size']}, blocks of {record['steps']} steps; at most",
        f"{record['rounds']} rounds, in which the sides are interleaved. Values are medians over rounds; ratios have "
        "their [minimum, maximum].",
    ]
    if record["small"]:
        lines += ["", "**The small form, which only tests that the benchmark runs.**"]
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
    header = ("encoder", "comparison", "first", "second", "first, rows/s", "second, rows/s", "speed ratio")
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
        f"The peak is the measured speed of one large matrix product, in TFLOP/s: {peaks}. Only the matrix products",
        "for a side's texts are counted, forward and backward, without padding; nearfar encodes each distinct text of",
        "a batch once.",
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
    header = ("encoder", "side", "measured pairs", "minutes per epoch")
    return [
        f"## An epoch of SNLI's {SNLI:,} pairs",
        "",
        "Extrapolated from the time of the pairs measured above. No complete epoch was run; evaluation and checkpoints",
        "are not included.",
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
    header = ("encoder", "precision", "nearfar, texts/s", "peer, texts/s", "speed ratio", "nearfar, share of the peak")
    return [
        "## Encoding",
        "",
        f"{first['texts']:,} texts of {first['mean_tokens']:.1f} tokens; times include tokenisation. The peer uses its",
        "default batch size of 32. The cosine is the lowest between nearfar's vectors and the peer's in fp32.",
        "",
        *common.table((*header, "cosine"), rows, words=2),
    ]


def _attention(record: dict[str, Any]) -> list[str]:
    first = record["attention"][0]
    rows = table_rows(record["attention"])
    header = ("attention", "default", "fastest", "groups, µs", "varlen, µs", "padded, µs")
    return [
        "## Attention by backend",
        "",
        f"One call, forward and backward, on {first['texts']} texts. `groups` is torch's attention, one call per",
        "length; `varlen` one call of the flash kernel (half precision, no dropout); `padded` torch's attention on a",
        "few padded blocks. `NEARFAR_CUDA_ATTENTION=groups` or `padded` selects one. Flex attention is not used,",
        "because it does not support dropout of attention weights.",
        "",
        *common.table(header, rows, words=3),
    ]


def _speeds(blocks: Sequence[dict[str, Any]]) -> list[float]:
    return [block["rows"] / block["seconds"] for block in blocks]


def _of_the_peak(blocks: Sequence[dict[str, Any]], peak: dict[str, float], side: str) -> Iterator[str]:
    speed = median(block["operations"] / block["seconds"] for block in blocks)
    yield f"{speed / 1e12:.2f}"
    yield f"{100 * speed / peak['bf16' if 'bf16' in side else 'fp32']:.1f} %"
