"""Inputs and outputs at fsspec addresses: in memory://, as on a file system and as in an object store."""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from nearfar import NearfarError
from nearfar.disk import places
from tests.corpora import contents, encoded, make_corpus


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    yield make_corpus(tmp_path, monkeypatch)
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def upload(address: str) -> None:
    """Copy the corpus to an address."""
    system, path = fsspec.core.url_to_fs(address)
    system.makedirs(path, exist_ok=True)
    for file in sorted(Path("in").iterdir()):
        system.put_file(str(file), f"{path}/{file.name}")


def remote_contents(address: str) -> dict[str, bytes]:
    """The files below an address."""
    system, path = fsspec.core.url_to_fs(address)
    return {name[len(path) :].lstrip("/"): system.cat_file(name) for name in system.find(path)}


def without_addresses(files: dict[str, bytes]) -> dict[str, Any]:
    """The files, those with addresses of inputs without these."""
    found: dict[str, Any] = dict(files)
    for name, key in (("_manifest.json", "inputs"), ("_nearfar/plan.json", "files")):
        found[name] = json.loads(files[name])
        for one in found[name][key]:
            one["address"] = one["address"].rpartition("/")[2]
    return found


@pytest.mark.long
def test_memory_in_and_out(corpus: Path) -> None:
    encoded("expected", keep=("id",))
    upload("memory://data/in")
    assert encoded("memory://data/out", input="memory://data/in/*.parquet", keep=("id",))[0] == 200
    assert without_addresses(remote_contents("memory://data/out")) == without_addresses(contents("expected"))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["file system", "object store"])
def test_resuming_and_overwriting_in_memory(corpus: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "object store":  # an upload appears when it is complete
        monkeypatch.setattr(places, "OBJECT_STORES", {"memory"})
        monkeypatch.setattr(MemoryFileSystem, "mv", None)
    encoded("memory://out", shard="1/2")
    system, _ = fsspec.core.url_to_fs("memory://out")
    assert not system.exists("/out/_manifest.json")
    with pytest.raises(NearfarError, match="--output memory://out: holds a run of nearfar encode"):
        encoded("memory://out")
    encoded("memory://out", resume=True)
    expected = remote_contents("memory://out")
    system.rm("/out/part-00003.parquet")
    system.pipe_file("/out/part-00004.parquet", b"other")
    encoded("memory://out", resume=True)
    assert remote_contents("memory://out") == expected
    with pytest.raises(NearfarError, match="--shard-rows was 23, is 50"):
        encoded("memory://out", shard_rows=50, resume=True)
    encoded("memory://out", shard_rows=50, overwrite=True)
    assert len([name for name in remote_contents("memory://out") if name.startswith("part-")]) == 4
    encoded("memory://out", overwrite=True)
    assert remote_contents("memory://out") == expected


@pytest.mark.long
def test_a_failed_upload_leaves_no_part(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = MemoryFileSystem.put_file

    def failing(self: Any, local: str, remote: str, **settings: Any) -> None:
        original(self, local, remote, **settings)
        if "part-00003" in remote:
            raise ConnectionError("the line is cut")

    monkeypatch.setattr(MemoryFileSystem, "put_file", failing)
    with pytest.raises(NearfarError, match=r"part-00003\.parquet: cannot be written \(the line is cut\)") as error:
        encoded("memory://out")
    assert "1 of 9 parts failed" in str(error.value)
    assert "part-00003.parquet" not in remote_contents("memory://out")
    monkeypatch.undo()
    monkeypatch.chdir(corpus)
    encoded("memory://out", resume=True)
    assert not [name for name in remote_contents("memory://out") if "writing" in name]
    encoded("expected")
    assert without_addresses(remote_contents("memory://out")) == without_addresses(contents("expected"))


@pytest.mark.skipif(importlib.util.find_spec("s3fs") is not None, reason="s3fs is installed")
def test_a_missing_package_is_named(corpus: Path) -> None:
    for place in ({"input": "s3://bucket/*.parquet"}, {"output": "s3://bucket/out"}):
        with pytest.raises(NearfarError, match="Install s3fs to access S3"):
            encoded(**place)
