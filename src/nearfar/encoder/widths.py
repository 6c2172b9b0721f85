"""Embeddings truncated to their first dimensions, and the widths at which a model was trained for that (Matryoshka)."""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nearfar.types import NearfarError

WIDTHS = "matryoshka"
"""The key of ``config_sentence_transformers.json`` with the widths at which a model was trained, widest first.

It is nearfar's addition: sentence-transformers ignores it, and drops it where it saves the model again.
"""


def truncated_width(dimensions: int | None, dim: int, trained: Sequence[int]) -> int:
    """Width of an embedding truncated to its first ``dimensions``; ``dim`` if that is None.

    Args:
        dimensions: the requested width.
        dim: the model's width.
        trained: the widths at which the model was trained, for the message.

    Raises:
        NearfarError: ``dimensions`` is below 1 or above ``dim``.
    """
    if dimensions is not None and not 1 <= dimensions <= dim:
        widths = f" It was trained at the widths {', '.join(map(str, trained))}." if trained else ""
        raise NearfarError(f"--dimensions {dimensions}: must be from 1 to {dim}, the model's width.{widths}")
    return dim if dimensions is None else dimensions


def choose_width(dimensions: int | None, dim: int, trained: Sequence[int]) -> int:
    """As :func:`truncated_width`, with a warning for a width that the model was not trained at, where that is known."""
    width = truncated_width(dimensions, dim, trained)
    if trained and width not in (*trained, dim):
        widths = ", ".join(map(str, trained))
        warnings.warn(f"--dimensions {width}: the model was trained at the widths {widths}, not at this.", stacklevel=3)
    return width


def read_widths(settings: dict[str, Any], file: Path) -> tuple[int, ...]:
    """The widths that the ``settings`` of a model folder list; empty if there are none.

    Raises:
        NearfarError: they are not whole numbers from 1; the message names ``file``.
    """
    widths = settings.get(WIDTHS) or []
    if not isinstance(widths, list) or not all(type(width) is int and width > 0 for width in widths):
        raise NearfarError(f"{file}: {WIDTHS} is {widths!r}, but must be a list of whole numbers from 1.")
    return tuple(widths)


def write_widths(file: Path, widths: Sequence[int]) -> None:
    """Add the widths to the settings of a model folder; no widths change nothing."""
    if widths:
        from nearfar.encoder.folder_checks import read_object  # imports torch, which readers of cards do not need

        settings = {**read_object(file), WIDTHS: list(widths)}
        file.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def describe_widths(dim: int, widths: Sequence[int], *, name: str = "this folder") -> str:
    """A sentence for the card of the model ``name``, after a space; empty if it was trained at its full width only."""
    smaller = [str(width) for width in widths if width < dim]
    if not smaller:
        return ""
    return (
        f" The first {', '.join(smaller)} dimensions were trained to be embeddings of their own (Matryoshka): "
        f'`SentenceTransformer("{name}", truncate_dim={smaller[0]})` gives smaller vectors.'
    )
