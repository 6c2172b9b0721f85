"""Where the time of a training step goes: how much of it products of matrices take, and how near the peak they are."""

import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from common import table
from torch.profiler import profile
from training_run import Rows, Run, write_rows

from nearfar.config import SbertConfig

STEPS = 4
PEAK_SIZE = 2048
PARTS = {
    "products of matrices": ("aten::mm", "aten::addmm", "aten::bmm"),
    "attention": ("_Compiled", "_CompiledBackward"),
    "dropout, residual, LayerNorm": (
        "_AddNorm",
        "_AddNormBackward",
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
    """Milliseconds of a like-for-like step in bf16 by part, and GFLOP/s of its products and of a large one."""
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
    return {"ms": milliseconds, "gflops": operations / seconds / 1e9, "peak_gflops": _peak()}


def _peak() -> float:
    """GFLOP/s of a large product in bf16, the fastest of several."""
    one, other = torch.randn(2, PEAK_SIZE, PEAK_SIZE).bfloat16()
    fastest = float("inf")
    for _ in range(20):
        started = time.perf_counter()
        torch.mm(one, other)
        fastest = min(fastest, time.perf_counter() - started)
    return 2 * PEAK_SIZE**3 / fastest / 1e9


def lines_of(found: dict[str, Any]) -> list[str]:
    """The profile as a part of a page."""
    total = sum(found["ms"].values())
    rows = [(part, f"{ms:.0f}", f"{100 * ms / total:.0f} %") for part, ms in found["ms"].items()]
    speed, peak = (f"{found[name]:.0f}" for name in ("gflops", "peak_gflops"))
    return [
        "## Where a like-for-like step's time goes",
        "",
        "nearfar in bf16, as the profiler has it. The products of matrices are those of the real tokens and no others:",
        f"they run at {speed} GFLOP/s, and one of {PEAK_SIZE} x {PEAK_SIZE} at {peak}.",
        "",
        *table(("part", "ms", "share"), rows),
    ]
