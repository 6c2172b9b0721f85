"""The first word: a command that does not exist."""

from pathlib import Path

from tests.doors.door import assert_refused


def test_unknown_command(world: Path) -> None:
    assert_refused(["trian"], "'trian'", "Did you mean 'train'?")
