"""Training runs that end at a chosen step, as by a power cut."""

from collections.abc import Callable
from typing import Any

import pytest

from nearfar.training.display import MetricsFile


def interrupt_at_step(step: int, monkeypatch: pytest.MonkeyPatch, run_command: Callable[[], object]) -> None:
    """Run a command and kill it, like a power cut, before the results of a step are saved."""
    write = MetricsFile.on_step

    def kill(self: MetricsFile, report: Any) -> None:
        write(self, report)
        if report.step == step:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MetricsFile, "on_step", kill)
        with pytest.raises(KeyboardInterrupt):
            run_command()
