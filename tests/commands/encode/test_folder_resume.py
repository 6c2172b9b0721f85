"""What --resume and --overwrite do with a folder of parts, and what is refused, with the difference by name."""

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from nearfar import NearfarError
from nearfar.commands.encode import parts
from nearfar.commands.encode.command import can_be_continued
from nearfar.config.encode import EncodeConfig
from nearfar.disk.places import LocalFolder
from nearfar.encoder.encoder import Encoder
from tests.corpora import TEXTS, contents, encoded, make_corpus, part_files
from tests.damaged_arrays import DAMAGED_HEADERS
from tests.tiny import save_tiny

RECORD = "out/_nearfar/parts/part-00003.json"


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_corpus(tmp_path, monkeypatch)


def count_encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets the number of each part that is encoded from now on."""
    done: list[int] = []
    original = parts._encode_part

    def counting(plan: Any, part: int, *rest: Any) -> Any:
        done.append(part)
        return original(plan, part, *rest)

    monkeypatch.setattr(parts, "_encode_part", counting)
    return done


def flip_a_byte(file: str) -> None:
    content = bytearray(Path(file).read_bytes())
    content[len(content) // 2] ^= 1
    Path(file).write_bytes(bytes(content))


DAMAGE: dict[str, tuple[Callable[[], object], list[int]]] = {
    "nothing": (lambda: None, []),
    "a part is missing": (lambda: Path("out/part-00003.parquet").unlink(), [3]),
    "a part has another byte": (lambda: flip_a_byte("out/part-00003.parquet"), [3]),
    "a record is cut off": (lambda: Path(RECORD).write_text('{"plan": "'), [3]),
    "a record is of another plan": (
        lambda: Path(RECORD).write_text(json.dumps({**json.loads(Path(RECORD).read_text()), "plan": "other"})),
        [3],
    ),
    "all records are missing": (lambda: [file.unlink() for file in Path(RECORD).parent.iterdir()], list(range(9))),
    "the manifest is missing": (lambda: Path("out/_manifest.json").unlink(), []),
    "a killed worker left a file": (lambda: Path("out/_nearfar/writing/part-00003.parquet.ab").write_text("x"), []),
}


@pytest.mark.long
@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_missing_or_wrong_is_written_again(corpus: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded()
    expected = contents()
    change, missing = DAMAGE[damage]
    change()
    written = count_encoded(monkeypatch)
    encoded(resume=True)
    assert written == missing
    assert contents() == expected


@pytest.mark.long
def test_what_a_killed_worker_left_goes_with_its_part(corpus: Path) -> None:
    encoded()
    for name in ("part-00003.parquet.ab", "part-00003.json.ab"):
        Path("out/_nearfar/writing", name).write_text("x")
    Path("out/part-00003.parquet").unlink()
    encoded(resume=True)
    assert not list(Path("out/_nearfar/writing").iterdir())


@pytest.mark.long
@pytest.mark.parametrize("name", ["plan.json", "_manifest.json"])
def test_what_was_left_of_a_file_of_the_run_goes_with_it(corpus: Path, name: str) -> None:
    if name == "_manifest.json":
        encoded()
        Path("out/_manifest.json").unlink()
    Path("out/_nearfar/writing").mkdir(parents=True, exist_ok=True)
    Path("out/_nearfar/writing", f"{name}.ab").write_text("half")
    encoded(resume=name == "_manifest.json")
    assert Path("out/_manifest.json").exists()
    assert not list(Path("out/_nearfar/writing").iterdir())


@pytest.mark.long
def test_another_process_that_writes_the_manifest_first(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = LocalFolder.publish

    def removed(self: LocalFolder, written: Path, name: str) -> None:
        if name == "_manifest.json":
            publish(self, Path(shutil.copy(written, f"{written}.other")), name)
            self.clean(name)
        publish(self, written, name)

    encoded("expected")
    monkeypatch.setattr(LocalFolder, "publish", removed)
    encoded()
    assert contents() == contents("expected")


@pytest.mark.long
def test_a_record_that_cannot_be_renamed_leaves_no_file(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = Path.replace

    def fail(self: Path, target: Path) -> Path:
        if target.name == "part-00003.json":
            raise OSError(errno.EROFS, "Read-only file system")
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        with pytest.raises(NearfarError, match=r"part-00003\.json: cannot be written \(Read-only file system\)"):
            encoded()
    assert not list(Path("out/_nearfar/writing").iterdir())


@pytest.mark.long
def test_a_complete_run_opens_no_encoder(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded()
    monkeypatch.setattr(Encoder, "from_pretrained", None)
    assert encoded(resume=True) == (len(TEXTS), 32)


def other_model() -> None:
    save_tiny(Path("tiny"), seed=7)


def other_text() -> None:
    table = pyarrow.table({"text": ["another", *TEXTS[1:40]], "id": ["x"] * 40, "kind": [1] * 40})
    pyarrow.parquet.write_table(table, "in/0.parquet")


def more_files() -> None:
    Path("in/9.parquet").write_bytes(Path("in/0.parquet").read_bytes())


def renamed_file() -> None:
    Path("in/0.parquet").rename("in/00.parquet")


CHANGES: dict[str, tuple[Callable[[], object], dict[str, Any], str]] = {
    "model": (other_model, {}, "the model's weights or settings changed"),
    "text": (other_text, {}, "in/0.parquet had "),
    "files": (more_files, {}, "--input had 4 files, has 5"),
    "name": (renamed_file, {}, "--input had the file 0.parquet, has 00.parquet in its place"),
    "rows": (lambda: None, {"shard_rows": 24}, "--shard-rows was 23, is 24"),
    "normalize": (lambda: None, {"normalize": True}, "--normalize was False, is True"),
    "prompt": (lambda: None, {"prompt": "a "}, "--prompt was not given, is a "),
    "keep": (lambda: None, {"keep": ("id",)}, "--keep was not given, is id"),
    "precision": (lambda: None, {"precision": "bf16"}, "--precision was fp32, is bf16"),
    "column": (lambda: None, {"column": "id"}, "--column was text, is id"),
    "codes": (lambda: None, {"quantize": "binary"}, "--quantize was not given, is binary"),
}


@pytest.mark.parametrize(
    ("change", "how"), [*((change, {"resume": True}) for change in CHANGES), ("rows", {"shard": "1/2"})]
)
def test_another_model_input_or_setting_is_refused_by_name(corpus: Path, change: str, how: dict[str, Any]) -> None:
    encoded(shard="1/9")
    before = contents()
    change_it, settings, message = CHANGES[change]
    change_it()
    with pytest.raises(NearfarError) as error:
        encoded(**settings, **how)
    assert "was started with different inputs or settings: " in str(error.value)
    assert message in str(error.value)
    assert str(error.value).endswith("Give the same ones, or choose another --output.")
    assert contents() == before


@pytest.mark.long
def test_other_ranges_are_refused(corpus: Path) -> None:
    np.save("a.npy", np.arange(64, dtype=np.float32).reshape(2, 32))
    np.save("b.npy", np.arange(1, 65, dtype=np.float32).reshape(2, 32))
    encoded(quantize="int8", calibrate="a.npy")
    with pytest.raises(NearfarError, match=r"the ranges of --calibrate changed"):
        encoded(quantize="int8", calibrate="b.npy", resume=True)


@pytest.mark.long
def test_damaged_ranges_of_a_run_are_refused(corpus: Path) -> None:
    np.save("a.npy", np.arange(64, dtype=np.float32).reshape(2, 32))
    int8 = {"quantize": "int8", "calibrate": "a.npy"}
    encoded(shard="1/9", **int8)
    (file,) = Path("out/_nearfar").glob("*ranges*")
    content = file.read_bytes()
    for damage in DAMAGED_HEADERS.values():
        file.write_bytes(damage(content))
        with pytest.raises(NearfarError, match=r"ranges.*is damaged"):
            encoded(shard="2/9", **int8)
    file.write_bytes(content)
    assert encoded(shard="2/9", **int8)


@pytest.mark.long
def test_a_file_of_the_same_size_with_another_footer_fails_its_parts(corpus: Path) -> None:
    encoded(shard="1/9")
    content = bytearray(Path("in/0.parquet").read_bytes())
    content[-20] ^= 1
    Path("in/0.parquet").write_bytes(bytes(content))
    with pytest.raises(NearfarError, match=r"in/0\.parquet: has changed since the run started\. Restore it"):
        encoded(resume=True)


@pytest.mark.long
def test_files_that_moved_are_found(corpus: Path) -> None:
    encoded("expected")
    encoded(shard="1/9")
    Path("in").rename("there")
    encoded(input="there/*.parquet", resume=True)
    assert [file.read_bytes() for file in part_files()] == [file.read_bytes() for file in part_files("expected")]


@pytest.mark.long
def test_precision_auto_keeps_that_of_the_beginning(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded(shard="1/9")
    encoded(resume=True, precision="auto")
    assert json.loads(Path("out/_nearfar/plan.json").read_text())["settings"]["precision"] == "fp32"


@pytest.mark.long
def test_a_folder_with_a_run_needs_resume_or_overwrite(corpus: Path) -> None:
    encoded()
    before = contents()
    with pytest.raises(NearfarError, match=r"--output out: holds a run of nearfar encode\. Continue it with --resume"):
        encoded()
    assert contents() == before
    Path("out/notes.txt").write_text("mine")
    with pytest.raises(NearfarError, match="no column 'said'"):
        encoded(overwrite=True, column="said")
    assert len(part_files()) == 9  # the old run is kept until the new one can start
    encoded(overwrite=True, shard_rows=50)
    assert [file.name for file in part_files()] == [f"part-0000{number}.parquet" for number in range(4)]
    assert Path("out/notes.txt").read_text() == "mine"
    encoded(overwrite=True)
    Path("out/notes.txt").unlink()
    assert contents() == before


@pytest.mark.long
def test_a_damaged_plan_says_what_to_remove(corpus: Path) -> None:
    encoded()
    whole = json.loads(Path("out/_nearfar/plan.json").read_text())
    without = [
        {**whole, "settings": {name: value for name, value in whole["settings"].items() if name != missing}}
        for missing in whole["settings"]
        if missing not in ("keep", "calibrate")
    ]
    without += [{**whole, name: value} for name, value in (("files", [1]), ("files", []), ("dim", 0), ("schema", "x"))]
    for content in ("{", "[]", '{"kind": "other"}', *map(json.dumps, without)):
        Path("out/_nearfar/plan.json").write_text(content)
        with pytest.raises(NearfarError, match=r"plan\.json: is damaged \(.*\)\. Remove it and the parts"):
            encoded(resume=True)
    Path("out/_nearfar/plan.json").write_text('{"kind": "nearfar embeddings in parts", "format": 2}')
    with pytest.raises(NearfarError, match=r"plan\.json: has the format 2; update nearfar"):
        encoded(resume=True)


@pytest.mark.long
def test_a_disk_that_fills_up_fails_a_part_and_keeps_the_others(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded("expected")
    original = pyarrow.parquet.ParquetWriter.write_table

    def full(self: Any, table: Any) -> None:
        if 69 in table["row"].to_pylist():
            raise OSError(errno.ENOSPC, "No space left on device")
        original(self, table)

    with monkeypatch.context() as patch:
        patch.setattr(pyarrow.parquet.ParquetWriter, "write_table", full)
        with pytest.raises(NearfarError, match=r"part-00003\.parquet: .*cannot be written \(No space left on device\)"):
            encoded()
    assert len(part_files()) == 8
    assert not list(Path("out/_nearfar/writing").iterdir())
    encoded(resume=True)
    assert contents() == contents("expected")


@pytest.mark.long
def test_too_little_space_is_an_error_before_the_work(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalFolder, "free_bytes", lambda _: 200 * 32 * 4 - 1)
    with pytest.raises(NearfarError, match=r"out: needs about 25\.6 KB of disk space, and 25\.6 KB are free"):
        encoded()
    assert not part_files()
    encoded(resume=True, shard="1/2")  # a share needs less
    assert part_files()


@pytest.mark.long
def test_an_interrupted_run_keeps_its_parts(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded("expected")
    original = parts._encode_part

    def stopping(plan: Any, part: int, *rest: Any) -> Any:
        if part == 3:
            raise KeyboardInterrupt
        return original(plan, part, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(parts, "_encode_part", stopping)
        with pytest.raises(KeyboardInterrupt):
            encoded()
    assert [file.name for file in part_files()] == [f"part-0000{number}.parquet" for number in range(3)]
    config = EncodeConfig(input="in/*.parquet", column="text", output="out", shard_rows=23)
    assert can_be_continued(config)
    encoded(resume=True)
    assert contents() == contents("expected")
    assert not can_be_continued(config)


PLANS: dict[str, tuple[str, str]] = {
    "half a surrogate pair": ('"address": "', '"address": "\\ud800'),
    "a number as text": ('"rows": ', '"rows": "1", "x": '),
    "a negative number": ('"size": ', '"size": -'),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_with_a_wrong_value_is_damaged(corpus: Path, name: str) -> None:
    encoded(shard="1/9")
    file = Path("out/_nearfar/plan.json")
    file.write_text(file.read_text().replace(*PLANS[name], 1))
    with pytest.raises(NearfarError, match=r"plan\.json: is damaged .*to start again"):
        encoded(resume=True)
