"""Profile of a training step: the time of its parts, and the speed of matrix products relative to the peak."""

import tempfile
from pathlib import Path
from typing import Any

import torch
from common import table
from torch.profiler import profile
from training_run import Rows, Run, write_rows
from training_systems import peak

from nearfar import SbertConfig

STEPS = 4
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
LABELS = {"products of matrices": "matrix products", REST: "other"}
"""Key in the result file -> label on the page, where they differ."""


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
        run.advance(STEPS)
    part_of = {name: part for part, names in PARTS.items() for name in names}
    milliseconds = dict.fromkeys((*PARTS, REST), 0.0)
    operations = 0
    for event in found.key_averages():
        part = part_of.get(event.key, REST)
        milliseconds[part] += event.self_cpu_time_total / 1000 / STEPS
        operations += event.flops if part == "products of matrices" else 0
    seconds = milliseconds["products of matrices"] * STEPS / 1000
    return {
        "ms": milliseconds,
        "gflops": operations / seconds / 1e9,
        "peak_gflops": peak(torch.bfloat16, "cpu", PEAK_SIZE, repeats=20) / 1e9,
    }


def lines_of(found: dict[str, Any]) -> list[str]:
    """The profile as a section of a page."""
    total = sum(found["ms"].values())
    rows = [(LABELS.get(part, part), f"{ms:.0f}", f"{100 * ms / total:.0f} %") for part, ms in found["ms"].items()]
    speed, peak = (f"{found[name]:.0f}" for name in ("gflops", "peak_gflops"))
    return [
        "## Profile of a step",
        "",
        "`sbert bf16`, measured by torch's profiler. Matrix products are computed for real tokens only, not for",
        f"padding. They run at {speed} GFLOP/s; one product of {PEAK_SIZE} x {PEAK_SIZE} matrices runs at {peak}",
        "GFLOP/s.",
        "",
        *table(("part", "ms", "share"), rows),
    ]
