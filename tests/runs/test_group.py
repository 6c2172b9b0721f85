"""Reading the folder of a group of runs."""

import json
from pathlib import Path

import pytest

from nearfar.runs.group import GROUP_FILE, is_run_name, runs_of
from nearfar.types import NearfarError


def write(folder: Path, content: object) -> Path:
    (folder / GROUP_FILE).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def test_the_runs_of_a_group_in_order(tmp_path: Path) -> None:
    write(tmp_path, {"schema": 1, "kind": "group", "runs": ["seed-10", "seed-2"]})
    expected = [tmp_path / "seed-10", tmp_path / "seed-2"]
    assert runs_of(tmp_path) == runs_of(str(tmp_path)) == expected


def test_other_folders_and_names_are_not_groups(tmp_path: Path) -> None:
    assert runs_of(tmp_path) is None
    assert runs_of(tmp_path / "nowhere") is None
    assert runs_of("owner/name") is None


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "3", {}, {"runs": []}, {"runs": "seed-1"}, {"runs": ["seed-1", 2]}, {"runs": ["../seed-1"]}],
)
def test_a_damaged_file_is_an_error(tmp_path: Path, content: object) -> None:
    with pytest.raises(NearfarError, match=r"group\.json.*nearfar train --resume"):
        runs_of(write(tmp_path, content))


def test_names_of_runs() -> None:
    assert is_run_name("seed-1")
    assert is_run_name(f"seed-{2**63 - 1}")
    for name in ("seed-", "seed-1x", "seed--1", "run", "", "seed-1/x", None, 1):
        assert not is_run_name(name)
