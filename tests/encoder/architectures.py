"""By day the architectures that differ most: BERT, one that needs padding, one with local attention; at night all."""

import pytest

from tests.tiny import ARCHITECTURES

VARIED = [
    name if name in ("bert", "mpnet", "modernbert") else pytest.param(name, marks=pytest.mark.nightly)
    for name in ARCHITECTURES
]
