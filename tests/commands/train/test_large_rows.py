"""Rows and tokens on disk train as those in memory do."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nearfar import train
from nearfar.disk import rows
from nearfar.encoder import tokens
from nearfar.runs.held_out import load_held_out
from tests.tiny import save_tiny, sentences

pytestmark = pytest.mark.long


@pytest.mark.parametrize("columns", [("anchor", "positive", "negative"), ("text",)])
def test_a_run_from_disk_equals_one_in_memory(
    columns: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = zip(*(sentences(260, seed=seed) for seed, _ in enumerate(columns)), strict=True)
    data = tmp_path / "rows.tsv"
    data.write_text("\n".join(map("\t".join, [columns, *lines])) + "\n")
    given: dict[str, Any] = {"data": data, "model": save_tiny(tmp_path / "tiny"), "batch_size": 8, "max_steps": 3}
    given |= {"keep": "last", "precision": "fp32"}
    given |= {"hold_out": 60, "sets": [{"data": "own"}]} if len(columns) > 1 else {}
    train(**given, output=tmp_path / "memory")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for module, name, value in (
        *((rows, "IN_MEMORY", 20), (rows, "BLOCK", 16), (rows, "RECENT", 9)),
        *((tokens, "AT_ONCE", 50), (rows, "ARRAY_IN_MEMORY", 0)),
    ):
        monkeypatch.setattr(module, name, value)
    train(**given, output=tmp_path / "disk")
    memory, disk = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("memory", "disk"))
    assert all(torch.equal(memory[name], disk[name]) for name in memory)
    if len(columns) > 1:
        assert load_held_out(tmp_path / "memory").digest == load_held_out(tmp_path / "disk").digest
    seen = [load_file(tmp_path / name / "nearfar_seen.safetensors") for name in ("memory", "disk")]
    assert all(torch.equal(seen[0][name], seen[1][name]) for name in seen[0])
