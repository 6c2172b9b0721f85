"""A file of texts -> a file of embeddings: every source and format, constant memory, workers, errors."""

import gc
import os
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch

from nearfar import Encoder, NearfarError
from nearfar.cli import main
from nearfar.commands.encode import encode, run
from nearfar.commands.encode import file as file_module
from nearfar.data import lines
from nearfar.disk.places import LocalFolder
from tests.encode_helpers import BLOCK, TEXTS, Killed, encoded, kill_at, make_workspace, stop_after, stop_in, stopped


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_workspace(tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize(
    "settings", [{"normalize": True, "pooling": "cls"}, {"precision": "bf16"}, {"dtype": "float16"}]
)
def test_embeddings_equal_those_of_encode(workspace: Path, settings: dict[str, Any]) -> None:
    encoded(**settings)
    found = np.load("x.npy")
    encoder = Encoder.from_pretrained("tiny", pooling=settings.get("pooling"))
    expected = encoder.encode(TEXTS, normalize="normalize" in settings)
    assert found.dtype == settings.get("dtype", "float32")
    assert found.shape == expected.shape
    assert np.ptp(expected, axis=0).max() > 0.1
    difference = np.abs(found.astype(np.float32) - expected).max()
    assert difference <= {"bf16": 0.2, "float16": 2e-3}.get(settings.get("precision", settings.get("dtype")), 1e-5)
    assert (difference > 1e-5) == ("precision" in settings or "dtype" in settings)
    assert sorted(os.listdir()) == ["tiny", "x.npy", "x.txt"]


@pytest.mark.long
def test_parquet(workspace: Path) -> None:
    encoded("x.parquet", dtype="float16", with_texts=True)
    encoded("x.npy", dtype="float16")
    table = pyarrow.parquet.read_table("x.parquet")
    assert table.schema.names == ["row", "text", "embedding"]
    assert table.schema.field("embedding").type == pyarrow.list_(pyarrow.float16(), 32)
    assert table["row"].to_pylist() == list(range(len(TEXTS)))
    vectors = table["embedding"].combine_chunks().flatten().to_numpy().reshape(-1, 32)
    np.testing.assert_array_equal(vectors, np.load("x.npy"))
    assert table["text"].to_pylist() == TEXTS
    assert pyarrow.parquet.ParquetFile("x.parquet").metadata.num_row_groups == 5
    assert sorted(os.listdir()) == ["tiny", "x.npy", "x.parquet", "x.txt"]


@pytest.mark.long
def test_a_source_that_changes_while_being_read_raises(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[list[str]] = [TEXTS, [*TEXTS[:-1], "another"]]
    monkeypatch.setattr(lines, "read_texts", lambda *_: iter(reads.pop(0)))
    with pytest.raises(NearfarError, match=r"x\.txt: changed while it was read. Start again") as error:
        encoded()
    assert "--resume" not in str(error.value)
    assert not Path("x.npy").exists()
    reads += [TEXTS, TEXTS]  # the source is restored: nothing of the failed run is reused
    encoded(resume=True)
    np.testing.assert_allclose(np.load("x.npy"), Encoder.from_pretrained("tiny").encode(TEXTS), atol=1e-5)


@pytest.mark.nightly
@pytest.mark.long
def test_two_workers_give_the_same_bytes_as_one_process(workspace: Path) -> None:
    expected = encoded("y.npy", block=12, dimensions=12)
    assert encoded(workers=2, threads=torch.get_num_threads(), block=12, dimensions=12) == expected


@pytest.mark.long
def test_a_part_that_fails_in_a_worker_is_named_and_resumed(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = encoded("y.npy")
    monkeypatch.setattr(file_module, "computes_here", lambda _: False)  # jobs, but in this process
    with monkeypatch.context() as patch:
        stop_in(patch, Encoder, "encode_tokens", 2, NearfarError("not enough memory"))
        with pytest.raises(NearfarError, match=r"3 of 5 parts failed:\n  part-00002\.parquet: not enough memory"):
            encoded()
    with monkeypatch.context() as patch:  # a worker has had later parts before
        patch.setitem(run._reading, str(Path("x.txt").absolute()), (20, iter(())))
        assert encoded(resume=True) == expected
    monkeypatch.setattr(lines, "read_texts", lambda *_: iter(reads.pop(0)))
    reads = [["a dog"], ["a pear"], ["a dog"]]  # when the plan is made, at the end, by the worker
    with pytest.raises(NearfarError, match=r"z\.txt: changed while it was read"):
        encoded("z.npy", "z.txt")


@pytest.mark.long
def test_memory_does_not_grow_with_the_number_of_lines(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The model is replaced: its shape checks, which are active only in tests, create garbage.
    monkeypatch.setattr(Encoder, "encode_tokens", lambda _, ids, **__: np.ones((len(ids), 32), dtype=np.float32))
    peaks = []
    for number, count in enumerate((300, 2000, 20000)):  # the first run also imports
        Path("y.txt").write_text("".join(f"the dog sees {line} and a cat in the park\n" for line in range(count)))
        gc.collect()
        tracemalloc.start()
        encode("tiny", input="y.txt", output=f"{number}.npy", block=500, progress=False)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    text, vector = 80, 4 * 32  # bytes
    assert peaks[2] - peaks[1] < 18000 * min(text, vector) / 3  # a garbage collection later or earlier is 0.15 MB


@pytest.mark.long
def test_ctrl_c_says_how_to_resume(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["encode", "tiny", "--input", "x.txt", "--output", "x.parquet", "--with-texts", "--workers", "1"]
    with pytest.MonkeyPatch.context() as patch:
        stop_after(0, patch, KeyboardInterrupt())
        assert main(words) == 130
        assert main(words) == 2  # not overwritten
    captured = capsys.readouterr()
    assert captured.out.rstrip().endswith(f"Resume with:\n  nearfar {' '.join(words)} --resume")
    assert "holds an interrupted run" in captured.err
    assert main([*words, "--resume"]) == 0
    assert "Wrote 23 embeddings with 32 dimensions to x.parquet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": "blank.txt"}, r"blank\.txt: holds no texts"),
        ({"source": "bad.txt"}, r"bad\.txt, line 21: not UTF-8"),  # before anything is encoded
    ],
)
def test_mistakes(workspace: Path, settings: dict[str, Any], message: str) -> None:
    Path("blank.txt").write_text("\n\n")
    Path("bad.txt").write_bytes(b"a dog\n" * 20 + b"\xff\n")
    before = sorted(os.listdir())
    with pytest.raises(NearfarError, match=message):
        encoded(**settings)
    assert sorted(os.listdir()) == before


def contents() -> dict[str, bytes]:
    """The files of an unfinished run."""
    folder = Path("x.npy.partial")
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.long
@pytest.mark.parametrize(
    ("output", "settings", "stride"),
    [
        pytest.param("x.npy", {"quantize": "int8", "calibrate": "c.npy"}, 1, marks=pytest.mark.nightly),
        pytest.param("x.parquet", {"quantize": "int8", "with_texts": True}, 1, marks=pytest.mark.nightly),
        ("x.parquet", {"quantize": "int8", "with_texts": True}, 5),
    ],
)
def test_a_run_killed_at_any_step_resumes_to_the_same_bytes(
    workspace: Path, output: str, settings: dict[str, Any], stride: int, monkeypatch: pytest.MonkeyPatch
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
            assert "exists; replace it" in str(error)  # noqa: PT017
        assert written() == expected
        assert sorted(os.listdir()) == sorted(["c.npy", "tiny", "x.txt", *expected])
        steps += stride
    assert steps > 2 * (2 * 2 + 5)  # two for each block, and the ones before and after the blocks


@pytest.mark.long
def test_over_several_resumes_each_block_is_encoded_once(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = encoded("y.npy")
    seen: list[tuple[Encoder, int]] = []
    tokenize = Encoder.tokenize
    monkeypatch.setattr(
        Encoder, "tokenize", lambda self, texts, **_: seen.append((self, len(texts))) or tokenize(self, texts)
    )
    stopped(blocks=2)
    Path("x.npy.partial/_nearfar/writing/part-00002.parquet.ab").write_text("killed while a part was written")
    stopped(blocks=1, resume=True)
    assert len(list(Path("x.npy.partial").glob("*.parquet"))) == 3
    assert encoded(resume=True) == expected
    last = seen[-1][0]  # a thread of a run before may still read ahead
    assert [size for encoder, size in seen if encoder is last] == [5, 3]  # blocks 4 and 5


@pytest.mark.long
def test_the_files_of_an_interrupted_run_are_not_overwritten(workspace: Path) -> None:
    stopped()
    before = contents()
    Path("x2.txt").write_text("\n".join([*TEXTS[:-1], "a cat"]))
    for settings, message in (
        ({}, r"x\.npy\.partial: holds an interrupted run\. Continue it with --resume"),
        ({"source": "x2.txt", "resume": True}, r"the texts of --input changed\. Give the same ones, or remove the fol"),
        ({"block": 4, "resume": True}, r"--block was 5, is 4"),
    ):
        with pytest.raises(NearfarError, match=message):
            encoded(**settings)
        assert contents() == before
    shutil.copytree("tiny", "copy")  # the same model in another folder
    encode("copy", input="x.txt", output="x.npy", block=BLOCK, resume=True, progress=False)
    with pytest.raises(NearfarError, match=r"--output x\.npy: exists; replace it by --overwrite"):
        encoded()
    assert encoded(overwrite=True) == Path("x.npy").read_bytes()  # encoded again


@pytest.mark.long
def test_a_full_disk_is_reported(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = encoded("y.npy")
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
