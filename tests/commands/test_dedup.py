"""A file without near-duplicates: groups equal connected components, rows stay unchanged, runs resume, and errors."""

import csv
import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest
from scipy.sparse.csgraph import connected_components

from nearfar import Encoder, NearfarError, dedup
from nearfar.cli import main
from nearfar.commands.dedup import histogram
from nearfar.commands.encode import vectors
from tests.damaged_arrays import DAMAGED_HEADERS
from tests.tiny import save_tiny, sentences

DISTINCT = list(dict.fromkeys(sentences(60, seed=5, longest=7)))
LINES = [*DISTINCT[:20], "", DISTINCT[3], *DISTINCT[20:], f"  {DISTINCT[0]} ", DISTINCT[3]]
"""A blank line, and three repeated texts, one with other white space."""
FLAGS = ["--model", "tiny", "--input", "x.txt", "--output", "y.txt"]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save_tiny(tmp_path / "tiny")
    (tmp_path / "x.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(vectors, "PART_TEXTS", 7)
    return tmp_path


def deduped(**settings: Any) -> Any:
    """Call ``dedup`` without progress bars."""
    return dedup(**{"model": "tiny", "input": "x.txt", "output": "y.txt", "progress": False, **settings})


def cosines() -> np.ndarray:
    vectors = Encoder.from_pretrained("tiny").encode(DISTINCT, normalize=True)
    scores = vectors @ vectors.T
    np.fill_diagonal(scores, -np.inf)
    return scores


def threshold(share: float) -> float:
    """A threshold between two cosines that the given share of the texts reaches."""
    highest = np.sort(cosines().max(axis=1))
    place = round((1 - share) * len(highest))
    return float(highest[place - 1] + highest[place]) / 2


@pytest.mark.long
@pytest.mark.parametrize(("share", "keep"), [(0.4, "longest"), (0.8, "first")])
def test_one_row_of_each_component_is_kept(workspace: Path, share: float, keep: str) -> None:
    limit = threshold(share)
    result = deduped(threshold=limit, keep=keep)
    count, labels = connected_components(cosines() >= limit)
    expected = []
    for label in range(count):
        texts = [text for text, own in zip(DISTINCT, labels, strict=True) if own == label]
        expected.append(texts[0] if keep == "first" else max(texts, key=len))
    kept = Path("y.txt").read_text().splitlines()
    assert kept == sorted(expected, key=DISTINCT.index)
    assert (result.rows, result.texts, result.kept) == (len(LINES) - 1, len(DISTINCT), count)
    assert 1 < count < len(DISTINCT)
    sizes = [sum(labels[DISTINCT.index(line.strip())] == label for line in LINES if line) for label in range(count)]
    assert (result.groups, result.largest) == (sum(size > 1 for size in sizes), max(sizes))
    assert sorted(os.listdir()) == ["tiny", "x.txt", "y.txt"]


@pytest.mark.long
def test_groups_list_every_row_and_its_similarity_to_the_kept_one(workspace: Path) -> None:
    limit = threshold(0.5)
    result = deduped(threshold=limit, groups="g.tsv", keep="longest")
    with Path("g.tsv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert max(int(row["group"]) for row in rows) == result.groups
    assert sum(row["kept"] == "no" for row in rows) == result.rows - result.kept
    encoder = Encoder.from_pretrained("tiny")
    for number in range(1, result.groups + 1):
        group = [row for row in rows if int(row["group"]) == number]
        (best,) = [row for row in group if row["kept"] == "yes"]
        assert len(best["text"]) == max(len(row["text"]) for row in group)
        vectors = encoder.encode([row["text"] for row in group], normalize=True)
        own = encoder.encode([best["text"]], normalize=True)[0]
        np.testing.assert_allclose([float(row["similarity"]) for row in group], vectors @ own, atol=2e-6)
        assert all(LINES[int(row["line"]) - 1].strip() == row["text"] for row in group)


@pytest.mark.long
@pytest.mark.parametrize("extension", ["txt.gz", "csv", "tsv", "jsonl", "parquet"])
def test_kept_rows_are_unchanged_in_every_format(workspace: Path, extension: str) -> None:
    limit, texts = threshold(0.3), [line for line in LINES if line]
    deduped(threshold=limit)
    kept = set(Path("y.txt").read_text().splitlines())
    more = 'a "b", {}\nc' if extension in ("csv", "tsv") else "m {}"
    rows = [{"id": str(n), "said": text, "more": more.format(n)} for n, text in enumerate(texts)]
    expected = [row for n, row in enumerate(rows) if row["said"] in kept and texts.index(row["said"]) == n]
    source, target = Path(f"in.{extension}"), Path(f"out.{extension}")

    def content(some: list[dict[str, str]]) -> bytes:
        if extension == "txt.gz":
            return "".join(row["said"] + "\n" for row in some).encode()
        if extension == "jsonl":
            return "".join(json.dumps(row) + "\n" for row in some).encode()
        separator = "\t" if extension == "tsv" else ","
        return pandas.DataFrame(some).to_csv(None, sep=separator, index=False, lineterminator="\r\n").encode()

    if extension == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), source, row_group_size=7)
    else:
        source.write_bytes(gzip.compress(content(rows)) if extension == "txt.gz" else content(rows))
    deduped(input=source, output=target, threshold=limit, column=None if extension == "txt.gz" else "said")
    if extension == "parquet":
        assert pyarrow.parquet.read_table(target).to_pylist() == expected
    else:
        found = target.read_bytes()
        assert (gzip.decompress(found) if extension == "txt.gz" else found) == content(expected)


@pytest.mark.long
def test_the_histogram_counts_nearest_others(workspace: Path) -> None:
    scores = cosines()
    result = deduped(output=None)
    expected = histogram(DISTINCT, scores.max(axis=1), scores.argmax(axis=1))
    assert [one[:3] for one in result.histogram] == [one[:3] for one in expected]
    assert [one.similarity for one in result.histogram] == pytest.approx([one.similarity for one in expected], abs=1e-5)
    assert sorted(os.listdir()) == ["tiny", "x.txt"]


def test_bins_of_the_histogram() -> None:
    scores = np.array([1.0000001, 0.95, 0.9499, 0.8, -0.02], np.float32)
    bins = histogram(list("abcde"), scores, np.array([1, 0, 0, 0, 0]))
    assert [(round(one.low, 2), one.texts, one.at_least) for one in bins if one.texts] == [
        (0.95, 2, 2),
        (0.9, 1, 3),
        (0.8, 1, 4),
        (-0.05, 1, 5),
    ]
    assert (bins[0].first, bins[0].second) == ("b", "a")
    assert histogram(["a"], np.array([-np.inf], np.float32), np.array([-1])) == ()


@pytest.mark.long
def test_a_threshold_is_chosen_in_a_second_call(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = threshold(0.3)
    deduped(output="z.txt", threshold=limit)
    assert main(["dedup", *FLAGS]) == 0
    assert not Path("y.txt").exists()
    monkeypatch.setattr(Encoder, "encode_tokens", None)  # nothing is encoded again
    assert main(["dedup", *FLAGS, "--threshold", str(limit)]) == 0
    assert Path("z.txt").read_bytes() == Path("y.txt").read_bytes()
    assert not Path("y.txt.vectors").exists()
    printed, kept = capsys.readouterr().out, len(Path("y.txt").read_text().splitlines())
    for words in (
        f"x.txt: {len(LINES) - 1} rows, {len(DISTINCT)} distinct texts.",
        "The embeddings are kept in y.txt.vectors: run the same command with --threshold T.",
        f"Wrote {kept} rows to y.txt",
        f"{len(LINES) - 1 - kept} of {len(LINES) - 1} rows",
    ):
        assert words in printed


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"input": "t.tsv", "output": "y.tsv"}, r"t\.tsv: it is unclear which column .* name one with --column"),
        ({"input": "empty.txt"}, r"empty\.txt: holds no texts"),
    ],
)
def test_errors(workspace: Path, settings: dict[str, Any], message: str) -> None:
    Path("t.tsv").write_text("a\tb\n1\tdog\n2\t\n")
    Path("empty.txt").write_text("\n \n")
    with pytest.raises(NearfarError, match=message):
        deduped(**settings)
    assert not Path("y.txt").exists()


@pytest.mark.long
def test_an_input_that_changes_while_it_is_read_is_refused(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Encoder.encode_tokens

    def changing(*args: Any, **settings: Any) -> Any:
        lines = Path("x.txt").read_text().splitlines(keepends=True)
        Path("x.txt").write_text("".join(["a new line\n", *lines]))
        return whole(*args, **settings)

    monkeypatch.setattr(Encoder, "encode_tokens", changing)
    with pytest.raises(NearfarError, match=r"x\.txt: changed while it was read\. Start again"):
        deduped(threshold=0.9)
    assert not Path("y.txt").exists()


@pytest.mark.long
def test_vectors_that_are_damaged_or_not_finite_are_computed_again(workspace: Path) -> None:
    deduped()
    (file,) = Path("y.txt.vectors").glob("*.npy")
    content, array = file.read_bytes(), np.load(file)
    array[3, 2] = np.nan
    file.write_bytes(next(iter(DAMAGED_HEADERS.values()))(content))
    deduped()
    assert file.read_bytes() == content
    np.save(file, array)
    deduped()
    assert file.read_bytes() == content
