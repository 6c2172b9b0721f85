"""Model folders of each form, and functions to damage them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nearfar import Encoder, NearfarError
from nearfar.encoder.classifier import Classifier
from tests.tiny import save_tiny

REMOVED = object()
"""Marks a setting to remove."""


def save_model_variants(root: Path) -> Path:
    """Write ``plain``, ``modules`` (with Dense and Normalize), ``layers``, ``words`` (by pooling), ``classifier``."""
    save_tiny(root / "plain")
    encoder = Encoder.from_pretrained(root / "plain", pooling="cls", max_length=20)
    encoder.add_dense()
    encoder.normalizes = True
    encoder.save_pretrained(root / "modules")
    Encoder.from_pretrained(root / "plain", pooling="first_last").save_pretrained(root / "layers")
    Encoder.from_pretrained(root / "plain", pooling="mean_without_cls").save_pretrained(root / "words")
    Classifier.from_pretrained(root / "plain", label_names=("a", "b", "c")).save_pretrained(root / "classifier")
    return root


def edit(file: Path, changes: dict[str, Any]) -> None:
    """Change settings of a JSON file, or create it."""
    settings = json.loads(file.read_text()) if file.exists() else {}
    settings |= changes
    file.write_text(json.dumps({name: value for name, value in settings.items() if value is not REMOVED}))


def assert_load_refused(load: Callable[[], object], folder: Path, mentions: tuple[str, ...]) -> None:
    """Assert that loading fails with one line that starts with the folder or a file in it."""
    with pytest.raises(NearfarError) as caught:
        load()
    message = str(caught.value)
    assert message.startswith(str(folder))
    assert "\n" not in message
    assert "report" not in message
    for words in mentions:
        assert words in message


def rows_of(table: list[tuple[dict[str, Any], tuple[str, ...]]]) -> list[Any]:
    """Parametrisation from a table of changes and the expected messages, with ids."""
    return [
        pytest.param(changes, mentions, id=f"{number} " + ",".join(f"{k}={v!r:.20}" for k, v in changes.items()))
        for number, (changes, mentions) in enumerate(table)
    ]
