"""Imports in the server what most forks need, so that a fork takes hundredths of a second instead of four."""

import tempfile
from importlib import import_module
from pathlib import Path


def warm_up() -> None:
    """Open a tiny model, which imports transformers, and import the modules of all verbs."""
    import tyro  # noqa: F401

    import tests.campaign.doors  # noqa: F401
    from nearfar import Encoder
    from nearfar.cli import VERBS
    from tests.tiny import save_tiny

    for verb in VERBS:
        import_module(f"nearfar.cli.{verb.replace('-', '_')}")
    for command in ("compare", "geometry.command", "search.command", "report.command", "mine.command"):
        import_module(f"nearfar.commands.{command}")
    with tempfile.TemporaryDirectory(prefix="campaign-warm-") as folder:
        Encoder.from_pretrained(save_tiny(Path(folder) / "tiny")).encode(["a dog"])
