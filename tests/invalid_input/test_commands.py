"""A command that does not exist."""

from pathlib import Path

from tests.invalid_input.cli_runner import assert_refused


def test_unknown_command(workspace: Path) -> None:
    assert_refused(["trian"], "'trian'", "Did you mean 'train'?")
