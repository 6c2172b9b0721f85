"""Committed result files were made from committed code, by a command that another machine can repeat."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDERS = ("benchmarks/results", "studies/results", "tests/campaign/results")
FILES = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.json"))


def values_of(content: Any, key: str) -> Iterator[Any]:
    """All values of a key at any depth."""
    for inner in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        yield from values_of(inner, key)
    if isinstance(content, dict) and key in content:
        yield content[key]


MACHINE = re.compile(r"(?<![\w:/.])/(?:home|root|tmp|work|Users)/[^\s\"']+")
"""A path of the machine that made a file, in a sentence."""


def faults_of(content: Any) -> list[str]:
    commits = [str(commit) for commit in values_of(content, "commit")]
    commits += [commit for counts in values_of(content, "commits") for commit in counts]
    words = [word for command in values_of(content, "command") for word in shlex.split(command or "")]
    paths = [word for word in words if PurePosixPath(word).is_absolute() or PureWindowsPath(word).is_absolute()]
    return [commit for commit in commits if commit.endswith("-dirty")] + paths + MACHINE.findall(json.dumps(content))


def test_clean_commit_and_no_absolute_path() -> None:
    assert len(FILES) > 100
    for file in FILES:
        assert faults_of(json.loads(file.read_text(encoding="utf-8"))) == [], file.relative_to(ROOT)
    bad = [{"a": {"commit": "12ab-dirty"}}, {"commits": {"34cd-dirty": 2}, "command": "x --into /out"}, "no /tmp/a"]
    assert faults_of(bad) == ["12ab-dirty", "34cd-dirty", "/out", "/tmp/a"]
