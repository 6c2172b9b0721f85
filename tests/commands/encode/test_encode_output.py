"""Unfinished output: a run interrupted at any step resumes to the same bytes, and no finished block is lost."""

import errno
import json
import os
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from nearfar import Encoder, NearfarError
from nearfar.commands.encode import output as output_module
from nearfar.commands.encode.command import encode
from nearfar.commands.encode.output import output_lock
from tests.encode_helpers import BLOCK, TEXTS, Killed, encoded, kill_at, make_workspace, stopped
from tests.tiny import save_tiny

pytestmark = pytest.mark.long


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_workspace(tmp_path, monkeypatch)


@pytest.mark.parametrize("output", ["x.npy", "x.parquet"])
def test_a_run_killed_at_any_step_resumes_to_the_same_bytes(
    workspace: Path, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Encoder.from_pretrained("tiny")
    settings: dict[str, Any] = {"with_texts": output == "x.parquet"}
    monkeypatch.setattr(Encoder, "from_pretrained", lambda *_, **__: encoder)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # slow
    settings["block"] = 10
    expected = encoded(output, **settings)
    steps = 0
    while True:
        shutil.rmtree(f"{output}.partial", ignore_errors=True)
        Path(output).unlink(missing_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            kill_at(steps, patch)
            try:
                encoded(output, **settings)
                break
            except Killed:
                pass
        assert not Path(output).exists() or Path(output).read_bytes() == expected  # never a partial file
        try:
            assert encoded(output, resume=True, **settings) == expected
        except NearfarError as error:  # killed after the output was complete
            assert "is finished" in str(error)  # noqa: PT017
            assert Path(output).read_bytes() == expected
            assert not Path(f"{output}.partial").exists()
        else:
            assert sorted(os.listdir()) == sorted(["tiny", output, "x.txt"])
        steps += 1
    assert steps > 2 * (2 * 3 + 5)  # two for each block, and the ones before and after the blocks


def test_over_several_resumes_each_block_is_encoded_once(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = encoded("y.npy")
    seen: list[int] = []
    tokenize = Encoder.tokenize
    monkeypatch.setattr(Encoder, "tokenize", lambda self, texts, **_: seen.append(len(texts)) or tokenize(self, texts))
    stopped(blocks=2)
    log = Path("x.npy.partial/blocks.jsonl")
    content = log.read_bytes()
    assert [json.loads(line)["start"] for line in content.splitlines()] == [0, BLOCK]
    log.write_bytes(content + b'{"start": 10, "te')  # killed while a block was recorded
    stopped(blocks=3, resume=True)
    assert log.read_bytes().startswith(content)
    assert len(log.read_bytes().splitlines()) == 3
    seen.clear()
    assert encoded(resume=True) == expected
    assert len(seen) == 2  # blocks 4 and 5


def test_the_files_of_an_interrupted_run_are_not_overwritten(workspace: Path) -> None:
    stopped()
    before = {file.name: file.read_bytes() for file in Path("x.npy.partial").iterdir()}
    save_tiny(workspace / "other", seed=1)
    (workspace / "x2.txt").write_text("\n".join([*TEXTS[:-1], "a cat"]))
    (workspace / "x3.txt").write_text("\n".join([*TEXTS, "a cat"]))

    def refuse(message: str, **settings: Any) -> None:
        with pytest.raises(NearfarError, match=message):
            encode(
                settings.pop("model", "tiny"),
                input=settings.pop("source", "x.txt"),
                output="x.npy",
                **{"block": BLOCK, "progress": False, **settings},
            )
        assert {file.name: file.read_bytes() for file in Path("x.npy.partial").iterdir()} == before

    refuse(r"x\.npy\.partial: holds 10 of 23 texts of an interrupted run\. Continue it with --resume")
    again = r"Give the same ones, or remove the folder to start again"
    refuse(rf"different inputs or settings: the texts of --input changed\. {again}", source="x2.txt", resume=True)
    refuse(r"the texts of --input changed; the number of texts was 23, is 24", source="x3.txt", resume=True)
    refuse(r"different inputs or settings: the model's weights or settings changed\. ", model="other", resume=True)
    refuse(r"--pooling was mean, is cls; --normalize was False, is True\.", pooling="cls", normalize=True, resume=True)
    refuse(r"--precision was fp32, is bf16( emulated)?; --dtype was", precision="bf16", dtype="float16", resume=True)
    refuse(r"--max-length was 62, is 9", max_length=9, resume=True)
    refuse(r"--block was 5, is 4", block=4, resume=True)
    shutil.copytree("tiny", "copy")  # the same model in another folder, with its pooling given as a flag
    encode("copy", input="x.txt", output="x.npy", block=BLOCK, pooling="mean", resume=True, progress=False)
    with pytest.raises(NearfarError, match=r"x\.npy: is finished, there is nothing to resume"):
        encoded(resume=True)
    with pytest.raises(NearfarError, match=r"--output x\.npy: exists; replace it by --overwrite"):
        encoded()
    assert encoded(overwrite=True) == Path("x.npy").read_bytes()  # encoded again


def test_two_runs_cannot_write_the_same_output(workspace: Path) -> None:
    with output_lock(Path("x.npy")), pytest.raises(NearfarError, match=r"x\.npy: another process is using it now"):
        encoded()
    assert not Path("x.npy.partial").exists()
    encoded()


def test_a_damaged_folder_is_refused(workspace: Path) -> None:
    stopped()
    folder = Path("x.npy.partial")
    for name, content in (("vectors.npy", b"short"), ("settings.json", b"{"), ("blocks.jsonl", b"5\n")):
        original = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        with pytest.raises(NearfarError, match=r"x\.npy\.partial.*Remove .*to start again"):
            encoded(resume=True)
        (folder / name).write_bytes(original)
    encoded(resume=True)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("name", ["blocks.jsonl", "settings.json"])
def test_a_pipe_in_the_folder_is_refused_and_not_waited_for(name: str, workspace: Path) -> None:
    stopped()
    file = Path("x.npy.partial", name)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(NearfarError, match=f"{name}: is a pipe, not a regular file"):
        encoded(resume=True)


def test_many_changed_settings_are_listed_in_part(workspace: Path) -> None:
    stopped()
    file = Path("x.npy.partial/settings.json")
    settings = json.loads(file.read_text())
    file.write_text(json.dumps({**settings, **{f"{number}\n": "x" * 10_000 for number in range(10)}}))
    with pytest.raises(
        NearfarError, match=r"different inputs or settings: --0\\n was x+ \.\.\.;.*; and 5 more\."
    ) as error:
        encoded(resume=True)
    assert len(str(error.value)) < 1500


@pytest.mark.parametrize("output", ["x.npy", "x.parquet"])
def test_both_names_of_the_moved_file_are_continued(
    output: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that loses its power may keep the old name of a file that was renamed."""
    settings = {"with_texts": output == "x.parquet"}
    expected = encoded(output, **settings)
    Path(output).unlink()
    replace = Path.replace

    def kept(self: Path, target: Path) -> Path:
        if target == Path(output):
            target.hardlink_to(self)
            raise Killed
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", kept)
        with pytest.raises(Killed):
            encoded(output, **settings)
    assert Path(output).exists()
    assert any(Path(f"{output}.partial", name).exists() for name in ("vectors.npy", "table.parquet"))
    assert encoded(output, resume=True, **settings) == expected
    assert not Path(f"{output}.partial").exists()


def test_a_full_disk_is_reported_before_and_during_the_run(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = encoded("y.npy")
    usage = namedtuple("usage", "total used free")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 2000, 2000))
        with pytest.raises(NearfarError, match=r"x\.npy: needs about 2\.9 KB of disk space, and 2\.0 KB are free"):
            encoded()
        assert not Path("x.npy.partial").exists()
        patch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 3000, 3000))
        encoded()
        with pytest.raises(NearfarError, match=r"x\.parquet: needs about"):  # the output is written twice
            encoded("x.parquet")
    Path("x.npy").unlink()
    with monkeypatch.context() as patch:
        left = iter([None] * 5)

        def sync(_: object) -> None:
            if next(left, "full") == "full":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(output_module, "sync", sync)
        with pytest.raises(NearfarError, match=r"x\.npy: cannot be written \(No space left.*10 of 23 texts are done"):
            encoded()
    assert encoded(resume=True) == expected
