"""Unfinished output: a run interrupted at any step resumes to the same bytes, and no finished block is lost."""

import json
import os
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearfar import Encoder, NearfarError
from nearfar.commands.encode.command import encode
from nearfar.disk import folder_lock
from nearfar.disk.places import LocalFolder
from tests.encode_helpers import BLOCK, TEXTS, Killed, encoded, kill_at, make_workspace, stopped
from tests.tiny import save_tiny

pytestmark = pytest.mark.long


def contents() -> dict[str, bytes]:
    """The files of an unfinished run."""
    folder = Path("x.npy.partial")
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_workspace(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("output", "settings"),
    [
        pytest.param("x.npy", {}, marks=pytest.mark.nightly),
        pytest.param("x.npy", {"quantize": "int8", "calibrate": "c.npy"}, marks=pytest.mark.nightly),
        ("x.parquet", {"quantize": "int8", "with_texts": True}),
    ],
)
def test_a_run_killed_at_any_step_resumes_to_the_same_bytes(
    workspace: Path, output: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save("c.npy", np.array([[-1.0] * 32, [1.0] * 32]))
    encoder = Encoder.from_pretrained("tiny")
    monkeypatch.setattr(Encoder, "from_pretrained", lambda *_, **__: encoder)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # slow
    settings = {**settings, "block": 12}

    def written() -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in (Path(output), Path("x.ranges.npy")) if file.exists()}

    encoded(output, **settings)
    expected, steps = written(), 0
    while True:
        shutil.rmtree(f"{output}.partial", ignore_errors=True)
        for file in expected:
            Path(file).unlink(missing_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            kill_at(steps, patch)
            try:
                encoded(output, **settings)
                break
            except Killed:
                pass
        assert not Path(output).exists() or written() == expected  # never a partial file, nor one without its ranges
        try:
            encoded(output, resume=True, **settings)
        except NearfarError as error:  # killed after the output was complete
            assert "is finished" in str(error)  # noqa: PT017
        assert written() == expected
        assert sorted(os.listdir()) == sorted(["c.npy", "tiny", "x.txt", *expected])
        steps += 1
    assert steps > 2 * (2 * 2 + 5)  # two for each block, and the ones before and after the blocks


def test_over_several_resumes_each_block_is_encoded_once(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = encoded("y.npy")
    seen: list[int] = []
    tokenize = Encoder.tokenize
    monkeypatch.setattr(Encoder, "tokenize", lambda self, texts, **_: seen.append(len(texts)) or tokenize(self, texts))
    stopped(blocks=2)
    assert [file.name for file in sorted(Path("x.npy.partial").glob("*.parquet"))] == [
        "part-00000.parquet",
        "part-00001.parquet",
    ]
    Path("x.npy.partial/_nearfar/writing/part-00002.parquet.ab").write_text("killed while a part was written")
    stopped(blocks=1, resume=True)
    assert len(list(Path("x.npy.partial").glob("*.parquet"))) == 3
    seen.clear()
    assert encoded(resume=True) == expected
    assert len(seen) == 2  # blocks 4 and 5


def test_the_files_of_an_interrupted_run_are_not_overwritten(workspace: Path) -> None:
    stopped()
    before = contents()
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
        assert contents() == before

    refuse(r"x\.npy\.partial: holds 10 of 23 texts of an interrupted run\. Continue it with --resume")
    again = r"Give the same ones, or remove the folder to start again"
    refuse(rf"different inputs or settings: the texts of --input changed\. {again}", source="x2.txt", resume=True)
    refuse(r"the texts of --input changed; the number of texts was 23, is 24", source="x3.txt", resume=True)
    refuse(r"different inputs or settings: the model's weights or settings changed\. ", model="other", resume=True)
    refuse(
        r"--pooling was not given, is cls; --normalize was False, is True\.", pooling="cls", normalize=True, resume=True
    )
    refuse(
        r"--dtype was float32, is float16; --precision was fp32, is bf16",
        precision="bf16",
        dtype="float16",
        resume=True,
    )
    refuse(r"--max-length was not given, is 9", max_length=9, resume=True)
    refuse(r"--block was 5, is 4", block=4, resume=True)
    shutil.copytree("tiny", "copy")  # the same model in another folder
    encode("copy", input="x.txt", output="x.npy", block=BLOCK, resume=True, progress=False)
    with pytest.raises(NearfarError, match=r"x\.npy: is finished, there is nothing to resume"):
        encoded(resume=True)
    with pytest.raises(NearfarError, match=r"--output x\.npy: exists; replace it by --overwrite"):
        encoded()
    assert encoded(overwrite=True) == Path("x.npy").read_bytes()  # encoded again


def test_two_runs_cannot_write_the_same_output(workspace: Path) -> None:
    with (
        folder_lock(Path("x.npy.partial"), remove_if_empty=True),
        pytest.raises(NearfarError, match=r"x\.npy: another process is using it now"),
    ):
        encoded()
    assert not Path("x.npy.partial").exists()
    encoded()


def test_a_damaged_plan_is_refused(workspace: Path) -> None:
    stopped()
    Path("x.npy.partial/_nearfar/plan.json").write_bytes(b"{")
    with pytest.raises(NearfarError, match=r"x\.npy\.partial.*plan\.json: is damaged .* to start again"):
        encoded(resume=True)


@pytest.mark.parametrize("name", ["part-00000.parquet", "_nearfar/parts/part-00000.json"])
def test_a_damaged_part_is_written_again(name: str, workspace: Path) -> None:
    expected = encoded("y.npy")
    stopped()
    file = Path("x.npy.partial", name)
    file.write_bytes(file.read_bytes()[:-9])
    assert encoded(resume=True) == expected


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("name", ["plan.json", "parts/part-00000.json"])
def test_a_pipe_in_the_folder_is_refused_and_not_waited_for(name: str, workspace: Path) -> None:
    stopped()
    file = Path("x.npy.partial/_nearfar", name)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(NearfarError, match=f"{name}: is a pipe, not a regular file"):
        encoded(resume=True)


def test_many_changed_settings_are_listed_in_part(workspace: Path) -> None:
    stopped()
    file = Path("x.npy.partial/_nearfar/plan.json")
    plan = json.loads(file.read_text())
    plan["settings"] |= {f"{number}\n": "x" * 10_000 for number in range(10)}
    file.write_text(json.dumps(plan))
    with pytest.raises(
        NearfarError, match=r"different inputs or settings: --0\\n was x+ \.\.\.;.*; and 5 more\."
    ) as error:
        encoded(resume=True)
    assert len(str(error.value)) < 1500


def test_a_full_disk_is_reported_before_and_during_the_run(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = encoded("y.npy")
    usage = namedtuple("usage", "total used free")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 5000, 5000))
        with pytest.raises(NearfarError, match=r"x\.npy: needs about 5\.9 KB of disk space, and 5\.0 KB are free"):
            encoded()  # the parts, and their join
        assert not Path("x.npy").exists()
        patch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 6000, 6000))
        encoded(resume=True)
    Path("x.npy").unlink()
    publish = LocalFolder.publish
    with monkeypatch.context() as patch:

        def full(self: LocalFolder, written: Path, name: str) -> None:
            if name == "part-00002.parquet":
                raise NearfarError(f"{name}: cannot be written (No space left on device).")
            publish(self, written, name)

        patch.setattr(LocalFolder, "publish", full)
        with pytest.raises(NearfarError, match=r"cannot be written \(No space left.*10 of 23 texts are done"):
            encoded()
    assert encoded(resume=True) == expected
