"""The processor and its instruction sets, and provenance information of other modules for result files."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

SYSTEM: str = sys.platform
CPUINFO = Path("/proc/cpuinfo")
_NAMES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "asimd", "sve", "bf16", "i8mm")
INSTRUCTION_SETS = {name: "neon" if name == "asimd" else name for name in _NAMES}
"""Instruction sets that are relevant to matrix products: Linux's name -> nearfar's name."""
ATEN_LEVELS = {"default": 0, "avx2": 2}
"""Value of ATEN_CPU_CAPABILITY, which limits torch's own kernels -> the highest level (:data:`LEVELS`) in use."""
ONEDNN_LEVELS = {
    "SSE41": 0,
    "AVX": 1,
    "AVX2": 2,
    "AVX2_VNNI": 2,
    "AVX2_VNNI_2": 2,
    "AVX512_CORE": 3,
    "AVX512_CORE_VNNI": 4,
    "AVX512_CORE_BF16": 5,
    "AVX512_CORE_FP16": 6,
    "AVX512_CORE_AMX": 7,
}
"""Value of ONEDNN_MAX_CPU_ISA, which limits torch's matrix products -> the highest level; other values are no limit."""
LEVELS = {"avx2": 2, "avx512f": 3, "avx512_vnni": 4, "avx512_bf16": 5, "avx512_fp16": 6, "amx_bf16": 7}
"""Linux's name of an instruction set -> its level."""
_UNLIMITED = 99

PROVENANCE_PROVIDERS: dict[str, Callable[[], object]] = {}
"""Functions that imported modules register to add information to result files: name -> function of a JSON value."""


def processor() -> str:
    """The processor's name, if the system reports it."""
    fields = cpu_fields()
    brand = _sysctl("machdep.cpu.brand_string") if SYSTEM == "darwin" else None
    return fields.get("model name") or fields.get("Model") or brand or platform.processor()


def instruction_sets() -> list[str]:
    """The processor's :data:`INSTRUCTION_SETS`, without those that the environment disables in torch."""
    fields = cpu_fields()
    flags = set(f"{fields.get('flags', '')} {fields.get('Features', '')}".split())
    return [name for flag, name in INSTRUCTION_SETS.items() if flag in flags and LEVELS.get(flag, 0) <= _limit()]


def disabled_by_environment(flag: str) -> bool:
    """Whether this process's environment disables an instruction set of :data:`LEVELS` in torch."""
    return LEVELS[flag] > _limit()


def cpu_fields() -> dict[str, str]:
    """The fields of the first processor in /proc/cpuinfo; empty if there is no such file."""
    try:
        text = CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return fields


def provenance_info() -> dict[str, object]:
    """The values of :data:`PROVENANCE_PROVIDERS`."""
    return {name: provider() for name, provider in PROVENANCE_PROVIDERS.items()}


def _limit() -> int:
    aten = ATEN_LEVELS.get(os.environ.get("ATEN_CPU_CAPABILITY", "").lower(), _UNLIMITED)
    onednn = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or ""
    return min(aten, ONEDNN_LEVELS.get(onednn.upper(), _UNLIMITED))


@cache
def _sysctl(name: str) -> str | None:
    """A value of sysctl on macOS."""
    try:
        done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
