"""A corpus -> a folder of parts: the same embeddings as in one file, by any division of rows and work."""

import hashlib
import itertools
import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from nearfar import Encoder, NearfarError
from nearfar.commands.encode import command, parts
from nearfar.quantization import int8_ranges, quantize
from tests.corpora import (
    ENDS,
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
    start,
    vectors_of,
)

GROUP_ROWS = 30


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_corpus(tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("shard_rows", [9, SHARD_ROWS, 10 * ROWS])
def test_parts_equal_one_file_to_the_byte(corpus: Path, shard_rows: int) -> None:
    assert encoded(shard_rows=shard_rows) == (ROWS, 32)
    table = read_parts()
    assert table["row"].to_pylist() == list(range(ROWS))
    expected = in_one_file()
    assert np.ptp(expected, axis=0).max() > 0.1
    assert vectors_of(table).tobytes() == expected.tobytes()
    sizes = [pyarrow.parquet.ParquetFile(file).metadata.num_rows for file in part_files()]
    assert sizes == [min(shard_rows, ROWS - start) for start in range(0, ROWS, shard_rows)]
    assert [file.name for file in part_files()][:2] == ["part-00000.parquet", "part-00001.parquet"][: len(sizes)]


@pytest.mark.long
@pytest.mark.parametrize(
    "settings", [{"normalize": True, "dimensions": 8}, {"pooling": "cls", "max_length": 5, "prompt": "a dog "}]
)
@pytest.mark.filterwarnings("ignore:.* were truncated")
def test_settings_have_the_effect_that_they_have_in_one_file(corpus: Path, settings: dict[str, Any]) -> None:
    encoded(**settings)
    assert vectors_of(read_parts()).tobytes() == in_one_file(**settings).tobytes()
    assert vectors_of(read_parts()).tobytes() != in_one_file("plain.npy").tobytes()


@pytest.mark.long
def test_smaller_embeddings(corpus: Path) -> None:
    plain = in_one_file()
    encoded("half", dtype="float16")
    np.testing.assert_array_equal(vectors_of(read_parts("half")), plain.astype(np.float16))
    encoded("binary", quantize="binary", dimensions=20)
    np.testing.assert_array_equal(vectors_of(read_parts("binary")), quantize(plain[:, :20], "binary"))
    encoded("int8", quantize="int8", calibrate="one.npy")
    np.testing.assert_array_equal(vectors_of(read_parts("int8")), quantize(plain, "int8", int8_ranges([plain])))
    assert read_parts("int8").schema.field("vector").type == pyarrow.list_(pyarrow.int8(), 32)


@pytest.mark.long
def test_kept_columns_stay_with_their_rows(corpus: Path) -> None:
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
    assert (found["rows"], found["dim"], len(found["parts"])) == (ROWS, 32, -(-ROWS // SHARD_ROWS))
    assert [one["rows"] for one in found["inputs"]] == [stop - start for start, stop in itertools.pairwise(ENDS)]
    assert [Path(one["address"]).name for one in found["inputs"]] == [f"{number}.parquet" for number in range(4)]
    assert [one["rows"] for one in found["parts"]] == [
        [start, min(start + SHARD_ROWS, ROWS)] for start in range(0, ROWS, SHARD_ROWS)
    ]
    for one, file in zip(found["parts"], part_files(), strict=True):
        assert (one["file"], one["size"]) == (file.name, file.stat().st_size)
        assert one["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert sum(one["distinct"] for one in found["parts"]) <= ROWS
    assert found["settings"]["shard_rows"] == SHARD_ROWS
    # Readers of Parquet folders find the parts and nothing else.
    assert pyarrow.parquet.read_table("out").num_rows == ROWS


@pytest.mark.long
def test_truncated_texts_are_counted_over_all_parts(corpus: Path) -> None:
    with pytest.warns(UserWarning, match=r"^\d+ of \d+ distinct texts are longer than 5 tokens and were") as caught:
        encoded(max_length=5)
    (message,) = [str(one.message) for one in caught if "truncated" in str(one.message)]
    cut, distinct = (int(message.split()[place]) for place in (0, 2))
    assert cut == sum(one["truncated"] for one in manifest()["parts"]) > 0
    assert distinct == sum(one["distinct"] for one in manifest()["parts"])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:--shard-rows 50")
def test_a_part_reads_only_its_row_groups(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: Counter[int] = Counter()
    open_parquet = pyarrow.parquet.ParquetFile.iter_batches

    def counting(self: Any, *args: Any, **settings: Any) -> Any:
        groups.update(settings["row_groups"])
        assert set(settings["columns"]) == {"text"}
        return open_parquet(self, *args, **settings)

    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", counting)
    encoded(input="all.parquet", shard_rows=50)  # the file has one row group
    assert groups == {0: 4}
    groups.clear()
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS}), "all.parquet", row_group_size=50)
    encoded("again", input="all.parquet", shard_rows=100)
    assert groups == dict.fromkeys(range(4), 1)


@pytest.mark.nightly
@pytest.mark.long
def test_workers_write_the_same_bytes(corpus: Path) -> None:
    encoded("expected", keep=("id",))
    encoded("by-2", keep=("id",), workers=2, threads=1)
    assert contents("by-2") == contents("expected")


@pytest.mark.long
def test_a_worker_opens_its_encoder_once(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    original = Encoder.from_pretrained
    monkeypatch.setattr(Encoder, "from_pretrained", lambda *args, **kw: opened.append(1) or original(*args, **kw))
    encoded()
    assert len(opened) == 1  # also for the check of the settings before the first part
    assert parts.load_encoder.cache_info().currsize == 0  # and it is freed at the end


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
    original, calls = command.read_plan, []

    def late(place: Any) -> Any:
        calls.append(place.address)
        if len(calls) == 1:  # nothing is there yet; then another process starts and writes its parts
            found = original(place)
            encoded(shard="1/2")
            return found
        return original(place)

    monkeypatch.setattr(command, "read_plan", late)
    encoded(shard="2/2")
    assert contents() == contents("expected")


@pytest.mark.nightly
@pytest.mark.long
def test_processes_that_start_at_once_agree(corpus: Path) -> None:
    encoded("expected")
    programs: list[subprocess.Popen[bytes]] = [start(corpus, "--shard", f"{number}/4") for number in range(1, 5)]
    assert [program.wait() for program in programs] == [0] * 4
    assert contents() == contents("expected")
    assert not list(Path("out/_nearfar/writing").iterdir())


def test_a_pattern_is_enough_for_parts_of_a_million_rows(corpus: Path) -> None:
    encoded(shard_rows=None)
    assert manifest()["settings"]["shard_rows"] == 1_000_000
    assert [file.name for file in part_files()] == ["part-00000.parquet"]


def test_a_file_with_a_pattern_in_its_name_is_a_file(corpus: Path) -> None:
    Path("x[1].parquet").write_bytes(Path("all.parquet").read_bytes())
    encoded("one.npy", input="x[1].parquet", shard_rows=None)
    assert np.load("one.npy").shape == (ROWS, 32)


def test_a_row_group_larger_than_a_shard_is_worth_a_warning(corpus: Path) -> None:
    with pytest.warns(UserWarning, match=r"--shard-rows 50: the input has row groups of up to 200 rows"):
        encoded(input="all.parquet", shard_rows=50)


@pytest.mark.long
@pytest.mark.parametrize("kind", [pyarrow.large_string(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())])
def test_dictionaries_and_large_strings_are_text(corpus: Path, kind: pyarrow.DataType) -> None:
    table = pyarrow.table({"text": pyarrow.array(TEXTS).cast(kind)})
    pyarrow.parquet.write_table(table, "x.parquet", row_group_size=GROUP_ROWS)
    encoded(input="x.parquet")
    assert vectors_of(read_parts()).tobytes() == in_one_file().tobytes()


@pytest.mark.long
def test_an_error_of_a_text_names_its_row_in_its_file_and_its_part(corpus: Path) -> None:
    texts = [*TEXTS[:50], None, *TEXTS[51:]]
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), "x.parquet", row_group_size=GROUP_ROWS)
    with pytest.raises(NearfarError) as error:
        encoded(input="x.parquet")
    assert str(error.value).splitlines()[0] == "1 of 9 parts failed:"
    assert "part-00002.parquet: " in str(error.value)
    assert "x.parquet, row 51: column 'text' holds None (NoneType), not text." in str(error.value)
    assert "The other parts are kept; continue with --resume." in str(error.value)
    assert len(part_files()) == 8
    assert not Path("out/_manifest.json").exists()
    assert json.loads(Path("out/_nearfar/plan.json").read_text())["files"][0]["rows"] == ROWS
