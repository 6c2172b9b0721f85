"""The CI workflows run the commands of the README, on the systems and Python versions of the package."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
JOBS = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))["jobs"]


def commands_of(job: str) -> list[str]:
    return [step["run"] for step in JOBS[job]["steps"] if step.get("run", "").startswith("make")]


def test_the_commands_of_the_readme_run_on_all_systems_at_night() -> None:
    """make test-all has all of make test."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Use it")[0]
    assert re.findall(r"^make \w+$", readme, re.MULTILINE) == ["make demo", "make test"]
    assert commands_of("night") == ["make demo", "make test-all"]
    systems = {name.partition("-")[0] for name in JOBS["night"]["strategy"]["matrix"]["os"]}
    assert systems == {"ubuntu", "macos", "windows"}


def test_the_python_versions_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [line.rpartition(" :: ")[2] for line in project["classifiers"] if re.search(r":: \d\.\d+$", line)]
    assert JOBS["night"]["strategy"]["matrix"]["python"] == named


@pytest.mark.parametrize(("system", "folder"), [("", ".venv/bin/"), ("Windows_NT", ".venv/Scripts/")])
def test_make_finds_the_programs_of_the_environment(system: str, folder: str) -> None:
    if shutil.which("make") is None:
        pytest.skip("no make")
    command = ["make", "--dry-run", "--always-make", "demo", f"OS={system}"]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"{folder}python -m nearfar demo" in completed.stdout


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_make_target_exists(workflow: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    commands = "\n".join(step.get("run", "") for job in jobs.values() for step in job["steps"])
    assert commands
    assert set(re.findall(r"\bmake ([a-z-]+)$", commands, re.MULTILINE)) <= targets
