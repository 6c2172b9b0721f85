"""``nearfar env`` shows every part that works, and no user names or secrets."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nearfar.cli import main
from nearfar.commands import env
from nearfar.encoder import kernels

PARTS = {
    "versions": set("python nearfar torch transformers tokenizers sentence-transformers numpy commit".split()),
    "processor": {"system", "name", "instruction_sets", "bfloat16", "cores", "usable", "quota"},
    "threads": {"computing", "between_operations", "runtime", "variables"},
    "gpu": {"cuda_of_torch", "devices", "mps"},
    "kernels": {"available"},
    "folders": {"kernels", "hub", "datasets", "temporary"},
}


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NEARFAR_KERNELS", "0")
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    kernels.load.cache_clear()
    yield
    kernels.load.cache_clear()


def env_report(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["env", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_text_and_json_show_all_parts(capsys: pytest.CaptureFixture[str]) -> None:
    report = env_report(capsys)
    assert report["kernels"]["why_not"] == "NEARFAR_KERNELS=0"
    assert main(["env"]) == 0
    printed = capsys.readouterr().out
    assert list(tomllib.loads(printed)) == list(PARTS)
    assert all(names <= set(report[part]) for part, names in PARTS.items())


def test_no_names_and_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "anneliese"
    (home / "sets").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NEARFAR_DATA", str(home / "sets"))
    monkeypatch.setenv("HF_DATASETS_CACHE", "/scratch/anneliese/sets")
    monkeypatch.setenv("CXX", str(home / "bin" / "c++"))
    monkeypatch.setenv("NEARFAR_KERNELS", "1")  # the reason for no kernels names that file
    monkeypatch.setenv("HF_TOKEN", "hf_geheim")
    for flags in (["--json"], []):
        assert main(["env", *flags]) == 0
        output = capsys.readouterr()
        printed = " ".join(output.out.split())
        assert not re.search("anneliese|geheim", printed + output.err)
        for shown in ("~/sets", "/scratch/<user>/sets", "no C++ compiler was found (~/bin/c++)"):
            assert shown in printed


@pytest.mark.long
def test_any_part_may_fail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> None:
        raise OSError("out of order\nby far")

    failing = [*PARTS][::2]
    for part in failing:
        monkeypatch.setattr(env, f"_{part}", broken)
    found = env_report(capsys)
    assert {found.pop(part) for part in failing} == {"unknown: OSError: out of order"}
    assert all(isinstance(rest, dict) for rest in found.values())
