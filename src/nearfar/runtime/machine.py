"""The processor and its instruction sets."""

import os
import platform
import sys
from pathlib import Path

SYSTEM: str = sys.platform
CPUINFO = Path("/proc/cpuinfo")
_NAMES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "asimd", "sve", "bf16", "i8mm")
INSTRUCTION_SETS = {name: "neon" if name == "asimd" else name for name in _NAMES}
"""Instruction sets that are relevant to matrix products: Linux's name -> nearfar's name."""
_UNLIMITED = ("", "all", "avx512", "avx512_core_amx")
"""Values of ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA that do not limit torch's kernels and matrix products."""


def processor() -> str:
    """The processor's name, if the system reports it."""
    fields = cpu_fields()
    return fields.get("model name") or fields.get("Model") or platform.processor()


def instruction_sets() -> list[str]:
    """The processor's :data:`INSTRUCTION_SETS`, without those that the environment disables in torch."""
    fields = cpu_fields()
    flags = set(f"{fields.get('flags', '')} {fields.get('Features', '')}".split())
    return [name for flag, name in INSTRUCTION_SETS.items() if flag in flags and not disabled_by_environment(flag)]


def disabled_by_environment(flag: str) -> bool:
    """Whether this process's environment limits torch's instruction sets; then AVX-512 and AMX count as disabled."""
    limits = [os.environ.get(name, "").lower() for name in ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")]
    return flag.startswith(("avx512", "amx")) and not {*limits} <= {*_UNLIMITED}


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
