"""Mocks of machines with and without native bfloat16."""

import pytest

from nearfar.encoder import precision

WARNING = "bfloat16 is emulated here, which may be many times slower than fp32"


def machine(patch: pytest.MonkeyPatch, *, native: bool) -> None:
    """Make bfloat16 ``native`` or emulated for the test, regardless of the processor and the environment."""
    patch.setattr(precision, "is_native", lambda _=None: native)
    patch.delenv(precision.VARIABLE, raising=False)
    precision._warn_not_native.cache_clear()
