"""A command that does not exist."""

from pathlib import Path

import pytest

from tests.invalid_input.cli_runner import assert_refused


@pytest.mark.long
def test_unknown_command(workspace: Path) -> None:
    assert_refused(["trian"], "'trian'", "Did you mean 'train'?")
