"""The tables of gpu.py on its page, generated from its result file alone."""

from collections.abc import Sequence
from statistics import median
from typing import Any

import common
from gpu_attention import table_rows

PAGE = common.Page("gpu", "gpu-speed")
COMPARED = (
    ("CE on shuffled pairs", "sbert fp32", "SoftmaxLoss fp32"),
    ("CE on shuffled pairs", "sbert bf16", "SoftmaxLoss bf16"),
    ("triplets", "info-nce fp32", "MultipleNegativesRankingLoss fp32"),
    ("triplets", "info-nce bf16", "MultipleNegativesRankingLoss bf16"),
    ("sentences, recipe and SimCSE", "sg-opt1 bf16", "SimCSE bf16"),
    ("with and without CUDA graphs", "info-nce bf16", "info-nce bf16, without graphs"),
)


def body(record: dict[str, Any]) -> list[str]:
    """Training, encoding and attention."""
    lines = [f"{record['hardware']['accelerator'] or 'CPU'}; transformers {record['versions']['transformers']}."]
    if record["small"]:
        lines += ["", "**The small form, which only tests that the benchmark runs.**"]
    if record["shapes"]:
        lines += ["", *_training(record), "", *_encoding(record)]
    return [*lines, "", *_attention(record)]


def _training(record: dict[str, Any]) -> list[str]:
    rows, blocks = [], []
    for name, shape in record["shapes"].items():
        for what, ours, theirs in COMPARED:
            speeds = [_speeds(shape["training"][side]) for side in (ours, theirs)]
            blocks += [block["seconds"] for side in (ours, theirs) for block in shape["training"][side]]
            ratio = common.spread(common.ratios(*speeds))
            rows.append((name, what, f"`{ours}`", f"`{theirs}`", *(f"{median(each):,.0f}" for each in speeds), ratio))
    rounds = sorted({len(shape["training"][side]) for shape in record["shapes"].values() for side in shape["training"]})
    header = ("encoder", "rows", "first", "second", "first, rows/s", "second, rows/s", "times as fast")
    return [
        "## Training",
        "",
        f"Batches of {record['batch_size']}. **Each figure is of {' or '.join(map(str, rounds))} rounds of "
        f"{record['steps']} steps, of {min(blocks):.1f} to {max(blocks):.1f} seconds each**: with so few, the ranges "
        "say little.",
        "",
        *common.table(header, rows, words=4),
    ]


def _encoding(record: dict[str, Any]) -> list[str]:
    rows = []
    for name, shape in record["shapes"].items():
        of = shape["encoding"]
        for precision in ("fp32", "bf16"):
            ours, theirs = (of["seconds"][f"{side} {precision}"] for side in ("nearfar", common.PEER))
            speeds = (f"{of['texts'] / median(each):,.0f}" for each in (ours, theirs))
            lowest = f"{of['lowest'][f'nearfar {precision}']:.5f}"
            rows.append((name, precision, *speeds, common.spread(common.ratios(theirs, ours)), lowest))
    first = next(iter(record["shapes"].values()))["encoding"]
    header = ("encoder", "precision", "nearfar, texts/s", "peer, texts/s", "times as fast", "lowest cosine")
    return [
        "## Encoding",
        "",
        f"{first['texts']:,} texts of {first['mean_tokens']:.1f} tokens, with tokenisation; the peer has its default",
        "batch size of 32. The cosine is to the peer's vectors in fp32.",
        "",
        *common.table(header, rows, words=2),
    ]


def _attention(record: dict[str, Any]) -> list[str]:
    rows = table_rows(record["attention"])
    same = sum(default == fastest for _, default, fastest, *_ in rows)
    return [
        "## Attention by backend",
        "",
        f"Of one call, forward and backward, the default backend is the fastest in {same} of {len(rows)} cases:",
        "`varlen`, the flash kernel, in half precision without dropout, else `padded`, torch's attention on a few",
        "padded blocks. `NEARFAR_CUDA_ATTENTION` names another (`groups`, one call for each length).",
    ]


def _speeds(blocks: Sequence[dict[str, Any]]) -> list[float]:
    return [block["rows"] / block["seconds"] for block in blocks]
