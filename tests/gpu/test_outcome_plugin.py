"""The outcome file of ``make test-gpu``."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.gpu import outcome_plugin


def test_a_failure_in_any_phase_counts_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome_plugin, "_outcomes", {})
    monkeypatch.setattr(outcome_plugin, "capability", lambda: [9, 0])
    phases = ("setup", "call", "teardown")
    outcomes_by_test = {"good": "ppp", "skipped": "s-p", "wrong": "pfp", "untidy": "ppf", "broken": "f-p"}
    names = {"p": "passed", "f": "failed", "s": "skipped"}
    for test, letters in outcomes_by_test.items():
        for phase, letter in zip(phases, letters, strict=True):
            if letter != "-":
                outcome_plugin.pytest_runtest_logreport(SimpleNamespace(nodeid=test, when=phase, outcome=names[letter]))
    content = json.loads(outcome_plugin.record(tmp_path / "results").read_text())
    expected = {"good": "passed", "skipped": "skipped", "wrong": "failed", "untidy": "failed", "broken": "failed"}
    assert content["tests"] == expected
    assert content["counts"] == {"passed": 1, "skipped": 1, "failed": 3}
    assert content["capability"] == [9, 0]
    assert {"commit", "versions", "hardware", "date", "command"} <= content.keys()
