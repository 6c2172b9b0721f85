"""An index after any change of its file, or killed at any step, equals one made anew; nothing is encoded twice."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearfar import NearfarError
from nearfar.commands.encode import vectors
from nearfar.commands.search.corpus import Corpus
from nearfar.commands.search.index import FILES
from nearfar.disk.folders import folder_lock
from nearfar.encoder.encoder import Encoder
from tests.encode_helpers import Killed, kill_at, stop_after
from tests.search_helpers import ROWS, assert_is_the_index_of, opened, update, write_rows
from tests.tiny import save_tiny


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder.from_pretrained(save_tiny(tmp_path_factory.mktemp("model")), device="cpu")


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(vectors, "PART_TEXTS", 5)
    write_rows()


@pytest.fixture
def encoded(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are encoded from now on."""
    texts: list[str] = []
    tokenize = Encoder.tokenize
    monkeypatch.setattr(
        Encoder, "tokenize", lambda self, part, **settings: texts.extend(part) or tokenize(self, part, **settings)
    )
    return texts


DISTINCT = len({text for _, text in ROWS})


@pytest.mark.long
def test_a_new_index_encodes_each_distinct_text_once(encoder: Encoder, encoded: list[str]) -> None:
    assert update(encoder) == DISTINCT
    assert encoded == list(dict.fromkeys(text for _, text in ROWS))
    assert_is_the_index_of(ROWS, opened(), encoder)
    assert np.load("index/vectors.npy").shape == (DISTINCT, 32)  # an ordinary .npy file
    assert set(os.listdir("index")) <= set(FILES)
    assert sorted(os.listdir()) == ["docs.tsv", "index"]


def test_an_unchanged_file_is_neither_encoded_nor_read(encoder: Encoder, encoded: list[str]) -> None:
    os.utime("docs.tsv", (10**9, 10**9))
    update(encoder)
    encoded.clear()
    content = Path("docs.tsv").read_bytes()
    with Path("docs.tsv").open("r+b") as file:
        file.write(content[:-5] + b"\xff" * 5)  # would be refused if it were read
    os.utime("docs.tsv", (10**9, 10**9))
    assert (update(encoder), encoded) == (None, [])
    os.utime("docs.tsv", (10**9, 10**9 + 1))
    with pytest.raises(NearfarError, match="not UTF-8"):
        update(encoder)


EDITED: dict[str, tuple[list[tuple[str, str]], list[str]]] = {
    "a row is added": ([*ROWS, ("x", "two birds")], ["two birds"]),
    "many rows are added": ([*ROWS, *((str(n), f"{n} apple") for n in range(13))], [f"{n} apple" for n in range(13)]),
    "a text is edited": ([*ROWS[:4], ("4", "two birds"), *ROWS[5:]], ["two birds"]),
    "another column is edited": ([*ROWS[:4], ("x", ROWS[4][1]), *ROWS[5:]], []),
    "the last rows are removed": (ROWS[:7], []),
    "the order is reversed": (ROWS[::-1], []),
    "all texts are new": ([(one, f"{text} {one}") for one, text in ROWS], [f"{text} {one}" for one, text in ROWS]),
}


@pytest.mark.long
@pytest.mark.parametrize(("rows", "new"), EDITED.values(), ids=EDITED)
def test_an_edited_file(rows: list[tuple[str, str]], new: list[str], encoder: Encoder, encoded: list[str]) -> None:
    update(encoder)
    encoded.clear()
    write_rows(rows)
    assert (update(encoder), encoded) == (len(new), new)
    assert_is_the_index_of(rows, opened(), encoder)
    assert sorted(os.listdir()) == ["docs.tsv", "index"]
    assert update(encoder) is None


SCENARIOS = {"new": ([], ROWS), "changed": (ROWS, [*ROWS[:6], ("x", "two birds"), *ROWS[8:], ("y", "one apple")])}


@pytest.mark.long
@pytest.mark.parametrize(
    ("scenario", "stride"),
    [("new", 9), *(pytest.param(name, 1, marks=pytest.mark.nightly) for name in SCENARIOS)],
)
def test_an_update_killed_at_any_step_is_continued(
    scenario: str, stride: int, encoder: Encoder, encoded: list[str]
) -> None:
    before, after = SCENARIOS[scenario]
    fsync = os.fsync
    new = len({text for _, text in after} - {text for _, text in before})
    steps, most = 0, 0
    while True:
        folder = f"index-{steps}"
        if before:
            write_rows(before)
            update(encoder, folder)
        write_rows(after)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda _: None)  # slow; kill_at counts the calls
            kill_at(steps, patch)
            try:
                update(encoder, folder)
                break
            except Killed:
                pass
        encoded.clear()
        update(encoder, folder)
        assert len(encoded) <= new
        most = max(most, len(encoded))
        assert_is_the_index_of(after, opened(folder), encoder)
        assert [name for name in os.listdir() if name.lstrip(".").startswith(folder + ".")] == []
        steps += stride
    assert os.fsync is fsync
    assert steps > 20
    assert most == new  # killed before the first block


@pytest.mark.long
def test_finished_parts_of_an_interrupted_update_are_kept(encoder: Encoder, encoded: list[str]) -> None:
    update(encoder)
    rows = [(one, f"{text} {one}") for one, text in ROWS]
    write_rows(rows)
    with pytest.MonkeyPatch.context() as patch:
        stop_after(2, patch, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            update(encoder)
    encoded.clear()
    assert update(encoder) == len(ROWS)
    assert encoded == [text for _, text in rows[10:]]
    assert_is_the_index_of(rows, opened(), encoder)


def test_a_file_that_changes_while_it_is_read_is_read_again(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime("docs.tsv", (10**9, 10**9))
    rows, more = Corpus.rows, [*ROWS, ("x", "two birds")]

    def read_then_edit(self: Corpus) -> Any:
        yield from rows(self)
        write_rows(more)
        os.utime("docs.tsv", (10**9, 10**9))

    with monkeypatch.context() as patch:
        patch.setattr(Corpus, "rows", read_then_edit)
        update(encoder)
    assert_is_the_index_of(ROWS, opened(), encoder)
    assert update(encoder) == 1
    assert_is_the_index_of(more, opened(), encoder)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no vectors": (lambda folder: (folder / "vectors.npy").unlink(), "vectors.npy: is missing"),
    "short lines": (lambda folder: os.truncate(folder / "rows.jsonl", 10), "rows.jsonl: is missing, too short"),
    "other rows": (lambda folder: np.save(folder / "rows.npy", np.zeros(3)), "rows.npy: has other values"),
    "another format": (lambda folder: edit_manifest(folder, format=2), "wrong value .format"),
}


def edit_manifest(folder: Path, **values: object) -> None:
    found = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**found, **values}))


@pytest.mark.long
@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_index_is_refused_until_it_is_made_again(
    damage: Callable[[Path], object], message: str, encoder: Encoder
) -> None:
    update(encoder)
    damage(Path("index"))
    with pytest.raises(NearfarError, match=message) as caught:
        update(encoder)
    assert "--rebuild" in str(caught.value)


def test_a_damaged_row_is_found_when_it_is_read(encoder: Encoder) -> None:
    update(encoder)
    lines = Path("index/rows.jsonl").read_bytes()
    Path("index/rows.jsonl").write_bytes(lines.replace(b"a dog .", b"a cat .", 1))
    reader = opened()
    row = next(row for row, (_, text) in enumerate(ROWS) if text == "a dog .")
    with pytest.raises(NearfarError, match=rf"rows.jsonl: row {row} is not what was written.*--rebuild"):
        reader.read_row(row)


def test_an_index_that_another_process_writes_is_refused(encoder: Encoder) -> None:
    with (
        folder_lock(Path("index.vectors")),
        pytest.raises(NearfarError, match=r"index: another process is using it.*--index"),
    ):
        update(encoder)


def test_a_chosen_index_of_another_file_is_not_replaced(encoder: Encoder) -> None:
    update(encoder)
    write_rows([("x", "other rows")], "other.tsv")
    with pytest.raises(
        NearfarError, match=r"--index index: is the index of .*docs.tsv, and .*other.tsv has none of its"
    ):
        update(encoder, file="other.tsv", named=True)
    assert len(opened().rows) == len(ROWS)
    assert not Path("index.vectors").exists()
    write_rows([*ROWS, ("x", "other rows")], "moved.tsv")
    assert update(encoder, file="moved.tsv", named=True) == 1
    assert update(encoder, file="other.tsv", named=True, rebuild=True) == 1
