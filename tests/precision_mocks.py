"""Machines with and without native bfloat16, made up."""

import pytest

from nearfar.encoder import precision

FACTOR = 41.7
WARNING = "bfloat16 is emulated on this processor: 42 times slower than fp32 here"


def machine(patch: pytest.MonkeyPatch, *, native: bool) -> None:
    """From here on bfloat16 is ``native`` or emulated, whatever the processor, and auto is what the machine says."""
    patch.setattr(precision, "is_native", lambda _=None: native)
    patch.setattr(precision, "bf16_slowdown", lambda: FACTOR)
    patch.delenv(precision.VARIABLE, raising=False)
    precision._warn_not_native.cache_clear()
