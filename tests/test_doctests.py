"""The examples in docstrings give the output that they show."""

import doctest
import importlib
from pathlib import Path

import pytest

import nearfar

SOURCE = Path(nearfar.__file__).parent
WITH_EXAMPLES = sorted(
    ".".join(("nearfar", *file.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for file in SOURCE.rglob("*.py")
    if ">>> " in file.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0
