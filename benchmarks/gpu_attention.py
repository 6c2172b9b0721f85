"""Attention only, forward and backward, by each GPU backend: the basis for choosing the default backend."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import common
import torch
from gpu_models import Shape, SyntheticTexts, tokens_of
from torch import Tensor
from training_systems import synchronize

from nearfar.encoder.attention import HALF, AttentionBackend, attend, has_varlen
from nearfar.encoder.tokens import LengthGroup, group_by_length

DROPOUTS = (0.0, 0.1)
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def available_backends(device: str, dtype: torch.dtype, dropout: float) -> tuple[AttentionBackend, ...]:
    """The backends that support these tensors."""
    varlen = device == "cuda" and dtype in HALF and dropout == 0 and has_varlen(torch.device(device))
    return ("groups", "tiles", "varlen") if varlen else ("groups", "tiles")


def measure(
    shapes: Mapping[str, Shape], *, device: str, texts: int, rounds: int, calls: int, until: float
) -> list[dict[str, Any]]:
    """Seconds per call, forward and backward, by backend: one row per shape of heads, dtype and dropout.

    The batch has equally many premises and hypotheses.
    """
    rows = []
    heads = {(shape.heads, shape.head_dim): (name, shape) for name, shape in shapes.items()}
    cases = [(dtype, dropout) for dtype in DTYPES for dropout in DROPOUTS]
    for (count, head_dim), (name, shape) in heads.items():
        texts_of = SyntheticTexts(shape)
        lengths = sorted(
            tokens_of(texts_of.sentence(kind)) for kind in ("premise", "hypothesis") for _ in range(texts // 2)
        )
        for dtype, dropout in cases:
            generator = torch.Generator().manual_seed(0)
            drawn = torch.randn(4, sum(lengths), count, head_dim, generator=generator).to(device, DTYPES[dtype])
            *tensors, grad_output = drawn.unbind()
            inputs = [*(tensor.requires_grad_() for tensor in tensors), grad_output]
            sides = {
                backend: _calls(backend, inputs, group_by_length(lengths), dropout=dropout, calls=calls)
                for backend in available_backends(device, DTYPES[dtype], dropout)
            }
            seconds = common.run_interleaved(sides, rounds, until=until)
            row = {"shape": name, "heads": count, "head_dim": head_dim, "dtype": dtype, "dropout": dropout}
            rows.append({**row, "texts": texts, "tokens": sum(lengths), "seconds": seconds})
            print(
                "attention",
                row,
                {backend: f"{1e6 * median(each):.0f} us" for backend, each in seconds.items()},
                flush=True,
            )
    return rows


def _calls(
    backend: AttentionBackend, inputs: Sequence[Tensor], groups: list[LengthGroup], *, dropout: float, calls: int
) -> Callable[[int], float]:
    """A function that measures the seconds per call; ``inputs`` are query, key, value and the output's gradient."""
    *inputs, grad_output = inputs
    device = grad_output.device.type

    def measured(_: int) -> float:
        synchronize(device)
        started = time.perf_counter()
        for _ in range(calls):
            out = attend(*inputs, groups, dropout=dropout, backend=backend)  # type: ignore[misc]
            torch.autograd.grad(out, inputs, grad_output)
        synchronize(device)
        return (time.perf_counter() - started) / calls

    return measured


def table_rows(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Shape with dtype and dropout, default backend, fastest backend, and microseconds of each backend."""
    lines = []
    for row in rows:
        medians = {backend: median(seconds) for backend, seconds in row["seconds"].items()}
        default = "tiles"  # the texts are short
        fastest = min(medians, key=medians.__getitem__)
        cells = (
            f"{1e6 * medians[backend]:,.0f}" if backend in medians else "" for backend in ("groups", "varlen", "tiles")
        )
        what = f"{row['heads']} heads of {row['head_dim']}, {row['dtype']}, dropout {row['dropout']:g}"
        lines.append((what, default, fastest, *cells))
    return lines
