"""The CI workflow runs the commands of the README, on the systems and Python versions of the package."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
JOB = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))["jobs"]["readme"]


def test_the_commands_of_the_readme_run_on_all_systems() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Use it")[0]
    commands = re.findall(r"^make \w+$", readme, re.MULTILINE)
    assert commands == ["make demo", "make test"]
    assert [step["run"] for step in JOB["steps"] if step.get("run", "").startswith("make")] == commands
    assert {name.partition("-")[0] for name in JOB["strategy"]["matrix"]["os"]} == {"ubuntu", "macos", "windows"}


def test_the_python_versions_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [line.rpartition(" :: ")[2] for line in project["classifiers"] if re.search(r":: \d\.\d+$", line)]
    assert JOB["strategy"]["matrix"]["python"] == named


@pytest.mark.parametrize(("system", "folder"), [("", ".venv/bin/"), ("Windows_NT", ".venv/Scripts/")])
def test_make_finds_the_programs_of_the_environment(system: str, folder: str) -> None:
    if shutil.which("make") is None:
        pytest.skip("no make")
    command = ["make", "--dry-run", "--always-make", "demo", f"OS={system}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"{folder}python -m nearfar demo" in done.stdout
