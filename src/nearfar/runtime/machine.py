"""What this process computes on: the processor and its instruction sets, and what parts of the library tell of it."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

SYSTEM: str = sys.platform
CPUINFO = Path("/proc/cpuinfo")
INSTRUCTION_SETS = {
    "avx2": "avx2",
    "avx512f": "avx512f",
    "avx512_vnni": "avx512_vnni",
    "avx512_bf16": "avx512_bf16",
    "avx512_fp16": "avx512_fp16",
    "amx_bf16": "amx_bf16",
    "asimd": "neon",
    "sve": "sve",
    "bf16": "bf16",
    "i8mm": "i8mm",
}
"""The instruction sets that matter to matrix products: as Linux writes them -> as nearfar does."""
ATEN_LEVELS = {"default": 0, "avx2": 2}
"""ATEN_CPU_CAPABILITY, which limits torch's own kernels -> the level up to which sets are used."""
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
"""ONEDNN_MAX_CPU_ISA, which limits the matrix products of torch -> the same levels; other values limit nothing."""
LEVELS = {"avx2": 2, "avx512f": 3, "avx512_vnni": 4, "avx512_bf16": 5, "avx512_fp16": 6, "amx_bf16": 7}
_UNLIMITED = 99

PROVENANCE_PROVIDERS: dict[str, Callable[[], object]] = {}
"""What parts of the library, once imported, tell of themselves in result files: name -> what JSON holds."""


def processor() -> str:
    """Its name, as far as the system tells it."""
    for name in ("model name", "Model"):
        if value := cpu_fields().get(name):
            return value
    return (_sysctl("machdep.cpu.brand_string") if SYSTEM == "darwin" else None) or platform.processor()


def instruction_sets(environment: Mapping[str, str] | None = None) -> list[str]:
    """Those of :data:`INSTRUCTION_SETS` that the processor has and that ``environment`` does not disable in torch."""
    fields = cpu_fields()
    flags = set(f"{fields.get('flags', '')} {fields.get('Features', '')}".split())
    level = _limit(os.environ if environment is None else environment)
    return [name for flag, name in INSTRUCTION_SETS.items() if flag in flags and LEVELS.get(flag, 0) <= level]


def disabled_by_environment(flag: str) -> bool:
    """Whether this process's environment takes a set of :data:`LEVELS` from torch, whether or not it is there."""
    return LEVELS[flag] > _limit(os.environ)


def cpu_fields() -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo; empty where there is none."""
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
    """What each part tells."""
    return {name: provider() for name, provider in PROVENANCE_PROVIDERS.items()}


def _limit(environment: Mapping[str, str]) -> int:
    aten = ATEN_LEVELS.get(environment.get("ATEN_CPU_CAPABILITY", "").lower(), _UNLIMITED)
    asked = environment.get("ONEDNN_MAX_CPU_ISA") or environment.get("DNNL_MAX_CPU_ISA") or ""
    return min(aten, ONEDNN_LEVELS.get(asked.upper(), _UNLIMITED))


@cache
def _sysctl(name: str) -> str | None:
    """A value of macOS' sysctl."""
    try:
        done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
