"""The function of the jobs that ``jobs.py`` measures: it does nothing."""

from pathlib import Path
from typing import Any


def nothing(settings: dict[str, Any], inputs: dict[str, Path], folder: Path) -> None:
    """Write no file."""
