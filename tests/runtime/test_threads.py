"""Thread settings are applied before torch is imported, and the user's settings are kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nearfar.runtime import threads
from nearfar.runtime.threads import WAIT_VARIABLES, settings


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "nonsense"}, None),
        ({"cpu.max": "1 0"}, None),
    ],
)
def test_a_containers_quota_limits_the_threads(
    files: dict[str, str], quota: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(threads, "CGROUP", tmp_path)
    monkeypatch.setattr(threads, "available_cores", lambda: 3)
    assert threads.cpu_quota() == quota
    count = settings(dict(WAIT_VARIABLES)).get("OMP_NUM_THREADS")
    assert count == (None if quota is None or quota >= 3 else str(quota))
    assert "OMP_NUM_THREADS" not in settings({"OMP_NUM_THREADS": "8"})
    assert "OMP_NUM_THREADS" not in settings({"MKL_NUM_THREADS": "8"})


def test_processes_started_inside_inherit_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in WAIT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    code = f"import os; print(*(os.environ[name] for name in {sorted(WAIT_VARIABLES)!r}))"
    with threads.child_environment():
        completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.split() == [WAIT_VARIABLES[name] for name in sorted(WAIT_VARIABLES)]
    assert not set(WAIT_VARIABLES) & set(os.environ)
    assert not set(WAIT_VARIABLES) & set(settings({"OMP_WAIT_POLICY": "ACTIVE"}))
