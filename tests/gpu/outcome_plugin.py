"""Writes the outcomes of the GPU tests and the GPU's name: a pytest plugin that ``make test-gpu`` loads.

The file is benchmarks/results/gpu-tests.json, or runs/uncommitted/gpu-tests.json where the checkout has uncommitted
changes. Without a GPU nothing is written.
"""

import json
from collections import Counter
from pathlib import Path

import pytest
import torch

from nearfar.evaluation.results import provenance

ROOT = Path(__file__).parents[2]
_outcomes: dict[str, str] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record the outcome of a test; a failure in any phase counts."""
    if report.when == "call" or report.outcome != "passed":
        _outcomes[report.nodeid] = (
            "failed" if "failed" in (report.outcome, _outcomes.get(report.nodeid)) else report.outcome
        )


def record(folder: Path) -> Path:
    """Write the outcomes and the machine into a folder."""
    content = {**provenance().to_dict(), "capability": capability()}
    content |= {"counts": Counter(_outcomes.values()), "tests": _outcomes}
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "gpu-tests.json"
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return file


def capability() -> list[int] | None:
    """The GPU's compute capability."""
    return list(torch.cuda.get_device_capability()) if torch.cuda.is_available() else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the file, and print its path."""
    if not torch.cuda.is_available():
        terminalreporter.write_line("There is no GPU: torch sees no CUDA device, so nothing was recorded.")
        return
    commit = str(provenance().commit)
    clean = commit != "None" and not commit.endswith("-dirty")
    file = record(ROOT / "benchmarks" / "results" if clean else ROOT / "runs" / "uncommitted")
    terminalreporter.write_line(f"recorded in {file.relative_to(ROOT)}")
