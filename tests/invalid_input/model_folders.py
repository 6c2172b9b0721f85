"""Model folders of each form."""

import json
from pathlib import Path
from typing import Any

from nearfar import Encoder
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
