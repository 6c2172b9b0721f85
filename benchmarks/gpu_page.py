"""The tables of gpu.py on its page, generated from its result files alone."""

from collections.abc import Sequence
from statistics import median
from typing import Any

import common
from gpu_attention import table_rows

PAGE, EPOCH_PAGE = common.Page("gpu", "gpu-speed"), common.Page("gpu_epoch", "gpu-speed")
OURS, MNRL = "info-nce", "MultipleNegativesRankingLoss"
TRAINING, ENCODING = ("training", "large"), ("encoding", "long")
"""The parts of a shape: batches of two sizes, texts of two lengths."""
UNKNOWN = "–"
EARLIER = """**Measured by an earlier form of this benchmark**: the peer was started anew for each block of 15 steps, in
fp32 and in bf16; none of its other forms was tried, nor batches of 1,024 or long texts. nearfar's attention and CUDA
graphs have changed since."""
Blocks = dict[str, list[dict[str, Any]]]


def body(record: dict[str, Any]) -> list[str]:
    """Training, encoding and attention."""
    lines = [f"{record['hardware']['accelerator'] or 'CPU'}; transformers {record['versions']['transformers']}."]
    if record["small"]:
        lines += ["", "**The small form, which only tests that the benchmark runs.**"]
    if "batch_sizes" not in record:
        lines += ["", EARLIER]
    if record["shapes"]:
        lines += ["", *_training(record), "", *_encoding(record)]
    return lines if "batch_sizes" not in record else [*lines, "", *_attention(record)]  # older backends are no more


def _fastest(blocks: Blocks, library: str) -> str:
    """The fastest form of a library, of those with the most blocks."""
    most = max(map(len, blocks.values()))
    compared = [side for side in blocks if side.startswith(library) and "," not in side and len(blocks[side]) == most]
    return max(compared, key=lambda side: median(_speeds(blocks[side])))


def _training(record: dict[str, Any]) -> list[str]:
    rows, rounds, steps, recorded = [], [], [], 0
    forms: dict[str, dict[tuple[str, str], str]] = {}
    """Form -> rows per second, or why there are none, by encoder and part."""
    sizes = record.get("batch_sizes") or {"training": record["batch_size"]}
    cells = [(name, part) for name in record["shapes"] for part in sizes]
    for name, part in cells:
        shape, size = record["shapes"][name], sizes[part]
        blocks: Blocks = shape.get(part) or {}
        for side in (side for side in blocks if side.startswith((OURS, MNRL))):
            forms.setdefault(side, {})[name, part] = f"{median(_speeds(blocks[side])):,.0f}"
        for side, reason in shape.get("failed", {}).get(part, {}).items():
            forms.setdefault(side, {})[name, part] = reason.replace("|", "/")
        pair = [_fastest(blocks, library) for library in (OURS, MNRL) if blocks]
        for side in pair:
            step = 1000 * size * median(block["seconds"] / block["rows"] for block in blocks[side])
            rate = median(block["operations"] / block["seconds"] for block in blocks[side])
            share = rate / record["peak"]["bf16" if "bf16" in side else "fp32"]
            busy = shape.get("busy", {}).get(part, {}).get(side)
            facts = (f"{step:.1f}", f"{100 * share:.1f} %", UNKNOWN if busy is None else f"{100 * busy:.0f} %")
            times = common.spread(common.ratios(*(_speeds(blocks[each]) for each in pair))) if side == pair[0] else ""
            rows.append((name, size, f"`{side}`", f"{median(_speeds(blocks[side])):,.0f}", *facts, times))
            rounds.append(len(blocks[side]))
            steps += [block["rows"] // size for block in blocks[side]]
            recorded += sum(block.get("recorded", 0) for block in blocks[side])
    header = ("encoder", "batch", "fastest form of", "rows/s", "ms a step", "of the peak", "GPU busy", "times as fast")
    titles = ("form", *(f"{name.partition(',')[0]}, {sizes[part]:,}" for name, part in cells))
    ordered = sorted(forms, key=lambda side: side.startswith(MNRL))  # nearfar's first
    peaks = " and ".join(f"{value / 1e12:,.0f} in {name}" for name, value in record["peak"].items())
    return [
        "## Training",
        "",
        f"Triplets, each side in its fastest form, in {_range(rounds)} rounds of {_range(steps)} steps, with",
        f"tokenisation. The peak is that of a product of large matrices, in TFLOP/s {peaks};",
        "only the matrix products of real tokens count. Busy is the share of the time in which a kernel runs.",
        *([f"In these rounds {recorded} shapes were recorded or compiled."] if recorded else []),
        "",
        *common.table(header, rows, words=3),
        "",
        "### Every form",
        "",
        "Rows per second: of the fastest form of each side in the rounds above, of the others in all their blocks.",
        "",
        *common.table(titles, [(f"`{side}`", *(forms[side].get(cell, UNKNOWN) for cell in cells)) for side in ordered]),
    ]


def _encoding(record: dict[str, Any]) -> list[str]:
    rows, counts = [], []
    for name, shape in record["shapes"].items():
        for of in (shape[part] for part in ENCODING if shape.get(part)):
            counts.append(f"{of['texts']:,} of {of['mean_tokens']:.0f} tokens")
            for precision in ("fp32", "bf16"):
                ours = of["seconds"][f"nearfar {precision}"]
                peers = {
                    side: each for side, each in of["seconds"].items() if side.startswith(f"{common.PEER} {precision}")
                }
                best = min(peers, key=lambda side, peers=peers: median(peers[side]))
                default, theirs = next(iter(peers.values())), peers[best]
                speeds = (f"{of['texts'] / median(each):,.0f}" for each in (ours, default, theirs))
                share = of["operations"] / median(ours) / record["peak"][precision]
                facts = (common.spread(common.ratios(theirs, ours)), f"{100 * share:.1f} %")
                lowest = f"{of['lowest'][f'nearfar {precision}']:.5f}"
                rows.append(
                    (
                        name,
                        f"{of['mean_tokens']:.0f}",
                        precision,
                        *speeds,
                        best.partition(", ")[2] or "32",
                        *facts,
                        lowest,
                    )
                )
    header = ("encoder", "tokens", "precision", "nearfar, texts/s", "peer in 32s", "peer at best", "in batches of")
    return [
        "## Encoding",
        "",
        f"Texts: {', '.join(dict.fromkeys(counts))}; with tokenisation. The peer's default batch size is 32; its best",
        "one is compared. The share of the peak is nearfar's; the cosine is to the peer's vectors in fp32.",
        "",
        *common.table((*header, "times as fast", "of the peak", "lowest cosine"), rows, words=3),
    ]


def _attention(record: dict[str, Any]) -> list[str]:
    rows = table_rows(record["attention"])
    same = sum(default == fastest for _, default, fastest, *_ in rows)
    return [
        "## Attention by backend",
        "",
        "Microseconds of one call, forward and backward, on texts as long as those of training. `tiles`, which such",
        f"texts have by default, are the fastest in {same} of {len(rows)} cases.",
        "",
        *common.table(("heads", "default", "fastest", "groups", "varlen", "tiles"), rows, words=3),
    ]


def epoch_body(record: dict[str, Any]) -> list[str]:
    """One sentence."""
    small = "The small form: " if record["small"] else ""
    return [
        f"{small}{record['rows']:,} triplets by {record['shape']} in bf16, in batches of {record['batch_size']}, on "
        f"{record['hardware']['accelerator'] or 'CPU'}: **{record['seconds']:.0f} seconds** for {record['steps']:,} "
        f"steps, of them {record['preparing']:.0f} for reading rows and model, and tokenisation."
    ]


def _range(numbers: Sequence[int]) -> str:
    least, most = min(numbers, default=0), max(numbers, default=0)
    return f"{most}" if least == most else f"{least} to {most}"


def _speeds(blocks: Sequence[dict[str, Any]]) -> list[float]:
    return [block["rows"] / block["seconds"] for block in blocks]
