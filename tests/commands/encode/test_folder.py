"""A corpus -> a folder of parts: the same embeddings as in one file, by any division of rows and work."""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from nearfar import NearfarError
from nearfar.commands.encode import folder as module
from nearfar.commands.encode.parts import Parts
from nearfar.commands.encode.run import can_be_continued
from nearfar.config.encoding import EncodeConfig
from tests.corpora import (
    ENDS,
    GROUP,
    ROWS,
    SHARD_ROWS,
    TEXTS,
    contents,
    encoded,
    in_one_file,
    make_corpus,
    manifest,
    part_files,
    read_parts,
    vectors_of,
)
from tests.encode_helpers import stop_after
from tests.tiny import save_tiny


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_corpus(tmp_path, monkeypatch)


@pytest.mark.long
def test_parts_equal_one_file_to_the_byte(corpus: Path) -> None:
    assert encoded(shard_rows=9) == (ROWS, 32)
    table = read_parts()
    assert table["row"].to_pylist() == list(range(ROWS))
    expected = in_one_file()
    assert np.ptp(expected, axis=0).max() > 0.1
    assert vectors_of(table).tobytes() == expected.tobytes()
    sizes = [pyarrow.parquet.ParquetFile(file).metadata.num_rows for file in part_files()]
    assert sizes == [min(9, ROWS - start) for start in range(0, ROWS, 9)]
    assert [file.name for file in part_files()][:2] == ["part-00000.parquet", "part-00001.parquet"]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.* were truncated")
def test_settings_have_the_effect_that_they_have_in_one_file(corpus: Path) -> None:
    settings: dict[str, Any] = {"normalize": True, "dimensions": 8, "pooling": "cls", "max_length": 5, "prompt": "a "}
    encoded(**settings)
    assert vectors_of(read_parts()).tobytes() == in_one_file(**settings).tobytes()
    assert vectors_of(read_parts()).tobytes() != in_one_file("plain.npy").tobytes()


@pytest.mark.long
def test_kept_columns_stay_with_their_rows(corpus: Path) -> None:
    Path("in/2.parquet").rename("elsewhere.parquet")
    Path("in/2.parquet").symlink_to(corpus / "elsewhere.parquet")
    encoded(keep=("kind", "id", "text"), shard_rows=60)
    table = read_parts()
    assert table.schema.names == ["row", "vector", "kind", "id", "text"]
    assert table.select(["kind", "id", "text"]).equals(
        pyarrow.parquet.read_table("all.parquet").select(["kind", "id", "text"])
    )


@pytest.mark.long
def test_the_manifest_describes_inputs_and_parts(corpus: Path) -> None:
    encoded()
    found = manifest()
    assert (found["rows"], found["dim"], found["settings"]["shard_rows"]) == (ROWS, 32, SHARD_ROWS)
    assert [one["rows"] for one in found["inputs"]] == [stop - start for start, stop in itertools.pairwise(ENDS)]
    assert [Path(one["address"]).name for one in found["inputs"]] == [f"{number}.parquet" for number in range(4)]
    starts = range(0, ROWS, SHARD_ROWS)
    assert [one["rows"] for one in found["parts"]] == [[start, min(start + SHARD_ROWS, ROWS)] for start in starts]
    for one, file in zip(found["parts"], part_files(), strict=True):
        assert (one["file"], one["size"]) == (file.name, file.stat().st_size)
        assert one["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert pyarrow.parquet.read_table("out").num_rows == ROWS  # readers of Parquet folders find the parts alone


@pytest.mark.long
def test_truncated_texts_are_counted_over_all_parts(corpus: Path) -> None:
    with pytest.warns(UserWarning, match=r"^\d+ of \d+ distinct texts are longer than 5 tokens and were") as caught:
        encoded(max_length=5)
    (message,) = [str(one.message) for one in caught if "truncated" in str(one.message)]
    cut, distinct = (int(message.split()[place]) for place in (0, 2))
    assert cut == sum(one["truncated"] for one in manifest()["parts"]) > 0
    assert distinct == sum(one["distinct"] for one in manifest()["parts"])


@pytest.mark.long
def test_a_part_reads_only_its_row_groups(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: Counter[int] = Counter()
    read = pyarrow.parquet.ParquetFile.iter_batches

    def counting(self: Any, *args: Any, **settings: Any) -> Any:
        groups.update(settings["row_groups"])
        assert set(settings["columns"]) == {"text"}
        return read(self, *args, **settings)

    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", counting)
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS}), "all.parquet", row_group_size=50)
    encoded(input="all.parquet", shard_rows=100)
    assert groups == dict.fromkeys(range(4), 1)


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.parametrize("engine", ["local", "ray"])
def test_workers_write_the_same_bytes(corpus: Path, engine: str) -> None:
    if engine == "ray":
        pytest.importorskip("ray")
    encoded("expected", keep=("id",))
    encoded("by-2", keep=("id",), workers=2, threads=1, engine=engine)
    assert contents("by-2") == contents("expected")


@pytest.mark.long
def test_shares_make_the_whole(corpus: Path) -> None:
    encoded("expected")
    done = [encoded(shard=f"{number}/4")[0] for number in (3, 1, 4)]
    assert not Path("out/_manifest.json").exists()
    done.append(encoded(shard="2/4")[0])
    assert sum(done) == ROWS
    assert contents() == contents("expected")
    assert encoded(shard="2/4")[0] == done[-1]  # a requeued process finds its parts


@pytest.mark.long
def test_a_process_that_starts_while_another_makes_the_plan_joins_it(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded("expected")
    original, calls = module.read_plan, []

    def late(place: Any) -> Any:
        calls.append(place.address)
        if len(calls) == 1:  # nothing is there yet; then another process starts and writes its parts
            found = original(place)
            encoded(shard="1/2")
            return found
        return original(place)

    monkeypatch.setattr(module, "read_plan", late)
    encoded(shard="2/2")
    assert contents() == contents("expected")


@pytest.mark.long
def test_an_error_of_a_text_names_its_row_in_its_file_and_its_part(corpus: Path) -> None:
    texts = pyarrow.array([*TEXTS[:50], None, *TEXTS[51:]], pyarrow.large_string()).dictionary_encode()
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), "x.parquet", row_group_size=30)
    with pytest.raises(NearfarError) as error:
        encoded(input="x.parquet")
    assert str(error.value).startswith("1 of 9 parts failed:\n  part-00002.parquet: ")
    assert "x.parquet, row 51: column 'text' is empty." in str(error.value)
    assert str(error.value).endswith("The other parts are kept; continue with --resume.")
    assert len(part_files()) == 8
    assert not Path("out/_manifest.json").exists()


RECORD = "out/_nearfar/parts/part-00003.json"


def flip_a_byte(file: str) -> None:
    content = bytearray(Path(file).read_bytes())
    content[len(content) // 2] ^= 1
    Path(file).write_bytes(bytes(content))


DAMAGE: dict[str, tuple[Callable[[], object], list[int]]] = {
    "a part is missing": (lambda: Path("out/part-00003.parquet").unlink(), [3]),
    "a part has another byte": (lambda: flip_a_byte("out/part-00003.parquet"), [3]),
    "a record is cut off": (lambda: Path(RECORD).write_text('{"plan": "'), [3]),
    "a record is of another plan": (
        lambda: Path(RECORD).write_text(json.dumps({**json.loads(Path(RECORD).read_text()), "plan": "other"})),
        [3],
    ),
    "the manifest is missing": (lambda: Path("out/_manifest.json").unlink(), []),
}


@pytest.mark.long
@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_missing_or_wrong_is_written_again(corpus: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded()
    expected = contents()
    change, missing = DAMAGE[damage]
    change()
    written: list[int] = []
    store = Parts.store
    monkeypatch.setattr(Parts, "store", lambda self, part, *rest: written.append(part) or store(self, part, *rest))
    encoded(resume=True)
    assert written == missing
    assert contents() == expected


@pytest.mark.long
def test_what_a_killed_process_left_of_a_file_goes_with_it(corpus: Path) -> None:
    Path("out/_nearfar/writing").mkdir(parents=True)
    for name in ("plan.json.ab", "part-00003.parquet.ab", "part-00003.json.ab"):
        Path("out/_nearfar/writing", name).write_text("half")
    encoded()
    assert not list(Path("out/_nearfar/writing").iterdir())


def other_model() -> None:
    save_tiny(Path("tiny"), seed=7)


def other_text() -> None:
    table = pyarrow.table({"text": ["another", *TEXTS[1:40]], "id": ["x"] * 40, "kind": [1] * 40})
    pyarrow.parquet.write_table(table, "in/0.parquet")


def more_files() -> None:
    Path("in/9.parquet").write_bytes(Path("in/0.parquet").read_bytes())


CHANGES: dict[str, tuple[Callable[[], object], dict[str, Any], str]] = {
    "model": (other_model, {}, "the model's weights or settings changed"),
    "text": (other_text, {}, "files of --input changed, such as "),
    "files": (more_files, {}, "in/9.parquet"),
    "rows": (lambda: None, {"shard_rows": 24}, "--shard-rows was 23, is 24"),
    "precision": (lambda: None, {"precision": "bf16"}, "--precision was fp32, is bf16"),
}


@pytest.mark.long
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
def test_a_file_of_the_same_size_with_other_rows_fails_its_parts(corpus: Path) -> None:
    encoded(shard="1/9")
    size = Path("in/0.parquet").stat().st_size
    table = pyarrow.parquet.read_table("in/0.parquet")
    table = table.set_column(0, "id", [[f"no-{number}" for number in range(len(table))]])
    pyarrow.parquet.write_table(table, "in/0.parquet", row_group_size=GROUP)
    assert Path("in/0.parquet").stat().st_size == size
    with pytest.raises(NearfarError, match=r"in/0\.parquet: has changed since the run started\. Restore it"):
        encoded(resume=True)


@pytest.mark.long
def test_a_folder_with_a_run_needs_resume_or_overwrite(corpus: Path) -> None:
    encoded()
    before = contents()
    with pytest.raises(NearfarError, match=r"--output out: holds a run of nearfar encode\. Continue it with --resume"):
        encoded()
    Path("out/notes.txt").write_text("mine")
    with pytest.raises(NearfarError, match="no column 'said'"):
        encoded(overwrite=True, column="said")
    assert len(part_files()) == 9  # the old run is kept until the new one can start
    encoded(overwrite=True, shard_rows=50)
    assert len(part_files()) == 4
    encoded(overwrite=True)
    assert contents() == {**before, "notes.txt": b"mine"}


@pytest.mark.long
def test_a_damaged_plan_says_what_to_remove(corpus: Path) -> None:
    encoded()
    plan = Path("out/_nearfar/plan.json")
    whole = json.loads(plan.read_text())
    surrogate = plan.read_text().replace('"address": "', '"address": "\\ud800', 1)
    for content in ("{", surrogate, *(json.dumps(whole | {name: {}}) for name in ("kind", "files", "settings"))):
        plan.write_text(content)
        with pytest.raises(NearfarError, match=r"plan\.json: is damaged \(.*\)\. Remove it and the parts"):
            encoded(resume=True)


@pytest.mark.long
def test_an_interrupted_run_keeps_its_parts(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded("expected")
    with monkeypatch.context() as patch:
        stop_after(3, patch, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            encoded()
    assert [file.name for file in part_files()] == [f"part-0000{number}.parquet" for number in range(3)]
    config = EncodeConfig(input="in/*.parquet", column="text", output="out", shard_rows=23)
    assert can_be_continued(config)
    encoded(resume=True)
    assert contents() == contents("expected")
    assert not can_be_continued(config)
