"""Hits equal those computed directly from the embeddings; settings, outputs, the verb and its prompt for queries."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nearfar import Encoder, NearfarError, search
from nearfar.cli import main
from nearfar.commands.search import Hit, write_hits
from nearfar.commands.search.index import SearchIndex
from tests.search_helpers import ROWS, write_rows
from tests.tiny import save_tiny, sentences

QUERIES = ["two dogs run in the park", "a small bird", *sentences(5, seed=11)]
TEXTS = [text for _, text in ROWS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models of different weights."""
    folder = tmp_path_factory.mktemp("models")
    save_tiny(folder / "tiny")
    save_tiny(folder / "other", seed=1)
    return folder


@pytest.fixture(autouse=True)
def workspace(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("tiny", "other"):
        os.symlink(folder / name, name)
    write_rows()


def found(query: str | list[str], **settings: Any) -> list[list[Hit]]:
    settings = {"model": "tiny", "input": "docs.tsv", "precision": "fp32", "device": "cpu", **settings}
    return search(query, **settings)


def expected(query: str, top: int, *, normalize: bool = True, distinct: bool = True) -> list[tuple[int, float]]:
    """Row and score of the best rows, by a stable sort of all scores in float64."""
    encoder = Encoder.from_pretrained("tiny", device="cpu")
    vectors = encoder.encode([query, *TEXTS], normalize=normalize, precision="fp32").astype(np.float64)
    rows = [row for row, text in enumerate(TEXTS) if not distinct or TEXTS.index(text) == row]
    scores = vectors[1:] @ vectors[0]
    # Equal texts have equal scores, up to rounding.
    order = sorted(rows, key=lambda row: (-round(scores[row], 5), TEXTS.index(TEXTS[row]), row))
    return [(row, float(scores[row])) for row in order[:top]]


@pytest.mark.long
@pytest.mark.parametrize(
    ("top", "keep_duplicates", "normalize"),
    [(1, False, True), (10, True, True), (10, False, False), (1000, False, True)],
)
def test_hits_equal_those_computed_directly(top: int, keep_duplicates: bool, normalize: bool) -> None:
    hits = found(QUERIES, top=top, keep_duplicates=keep_duplicates, normalize=normalize)
    assert len(hits) == len(QUERIES)
    for query, own in zip(QUERIES, hits, strict=True):
        rows = expected(query, top, normalize=normalize, distinct=not keep_duplicates)
        assert [hit.row for hit in own] == [row for row, _ in rows]
        np.testing.assert_allclose([hit.score for hit in own], [score for _, score in rows], rtol=1e-5, atol=1e-5)
        assert [hit.rank for hit in own] == list(range(1, len(rows) + 1))
        assert [(hit.columns["id"], hit.text) for hit in own] == [ROWS[row] for row, _ in rows]
        counts = [1 if keep_duplicates else TEXTS.count(hit.text) for hit in own]
        assert [hit.count for hit in own] == counts
    assert keep_duplicates or top < 20 or max(hit.count for hit in hits[0]) == 2


@pytest.mark.long
def test_an_index_of_another_model_or_other_settings_is_refused(folder: Path) -> None:
    found("a dog", precision="bf16")
    before = found("a dog", precision="auto")
    assert SearchIndex.open(Path("docs.tsv.index")).manifest.settings["precision"] == "bf16"
    for settings, message in (
        ({"precision": "fp32"}, "--precision was bf16, is fp32"),
        ({"max_length": 20}, "--max-length was 62, is 20"),
        ({"show": []}, "--show was id, is none"),
        ({"model": "other"}, "--model was tiny, is other; the model's weights or settings changed"),
    ):
        with pytest.raises(NearfarError, match=message) as caught:
            found("a dog", **{"precision": "auto", **settings})
        assert "Replace it with --rebuild, or keep both: name another folder with --index" in str(caught.value)
    assert found("a dog", precision="auto") == before
    Path("tiny").unlink()
    os.symlink(folder / "other", "tiny")
    with pytest.raises(NearfarError, match="settings: the model's weights or settings changed"):
        found("a dog", precision="auto")


@pytest.mark.long
def test_prompts_are_put_before_queries_and_texts() -> None:
    encoder = Encoder.from_pretrained("tiny", device="cpu")
    hits = found(QUERIES, query_prompt="no dog: ", document_prompt="river ", top=1000)
    for query, own in zip(QUERIES, hits, strict=True):
        vector = encoder.encode([query], prompt="no dog: ", normalize=True, precision="fp32")[0]
        texts = encoder.encode([hit.text for hit in own], prompt="river ", normalize=True, precision="fp32")
        np.testing.assert_allclose([hit.score for hit in own], texts @ vector, atol=1e-5)
    scores = [[hit.score for hit in own] for own in found(QUERIES, query_prompt="", document_prompt="river ", top=1000)]
    assert scores != [[hit.score for hit in own] for own in hits]  # another prompt of queries needs no new index


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no query": ((), {}, "needs a query"),
    "an empty query": (["a dog", " "], {}, "query 2 is empty"),
    "a foreign folder to rebuild": ("a dog", {"index": "tiny", "rebuild": True}, "is a folder with other files"),
}


@pytest.mark.parametrize(("query", "settings", "message"), BAD.values(), ids=BAD)
def test_bad_calls(query: Any, settings: dict[str, Any], message: str) -> None:
    models = sorted(os.listdir("tiny"))
    with pytest.raises(NearfarError, match=message):
        found(query, **settings)
    assert sorted(os.listdir()) == ["docs.tsv", "other", "tiny"]
    assert sorted(os.listdir("tiny")) == models


@pytest.mark.long
def test_output_files_hold_the_hits() -> None:
    hits = found(QUERIES[:2], output="hits.jsonl", top=3)
    lines = [json.loads(line) for line in Path("hits.jsonl").read_text(encoding="utf-8").splitlines()]
    names = ["query", "rank", "score", "row", "text", "count", "id"]
    assert [list(line.values()) for line in lines] == [
        [query, hit.rank, round(hit.score, 6), hit.row, hit.text, hit.count, hit.columns["id"]]
        for query, own in zip(QUERIES, hits, strict=False)
        for hit in own
    ]
    found(QUERIES[:2], output="hits.tsv", top=3)
    table = [line.split("\t") for line in Path("hits.tsv").read_text(encoding="utf-8").splitlines()]
    assert table == [names, *([str(value) for value in line.values()] for line in lines)]
    with pytest.raises(NearfarError, match=r"hits\.tsv: exists"):
        found("a dog", output="hits.tsv")
    found("a dog", output="hits.tsv", overwrite=True)


def test_columns_named_like_fields_and_values_of_any_type() -> None:
    columns = ("score", "input_score", "tags")
    hits = [[Hit(1, 0.5, 3, "a dog", {"score": None, "input_score": "a\tb\nc", "tags": ["x", 1]}, 2)]]
    write_hits(Path("hits.tsv"), ["q"], hits, columns)
    assert Path("hits.tsv").read_text().splitlines() == [
        "query\trank\tscore\trow\ttext\tcount\tinput_score\tinput_input_score\ttags",
        'q\t1\t0.5\t3\ta dog\t2\t\ta b c\t"[""x"", 1]"',
    ]
    write_hits(Path("hits.jsonl"), ["q"], hits, columns)
    line = json.loads(Path("hits.jsonl").read_text())
    assert (line["input_input_score"], line["tags"]) == ("a\tb\nc", ["x", 1])


COMMAND = ["search", "--model", "tiny", "--input", "docs.tsv", "--precision", "fp32", "--device", "cpu"]


@pytest.mark.long
def test_the_verb_prints_lines_to_a_pipe_and_notes_beside_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, *QUERIES[:2], "--top", "3"]) == 0
    printed = capsys.readouterr()
    found(QUERIES[:2], output="hits.tsv", top=3)
    assert printed.out == Path("hits.tsv").read_text(encoding="utf-8")
    assert f"docs.tsv.index: made, 24 texts encoded now; {len(ROWS)} rows, 24 distinct texts" in printed.err
    assert main([*COMMAND, QUERIES[0], "--output", "one.jsonl"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "up to date" in printed.err
    assert "Wrote the hits of 1 queries to one.jsonl" in printed.err


@pytest.mark.long
def test_approximate_search_finds_the_same_in_a_small_file_and_reports_its_recall(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("usearch", exc_type=ImportError)
    exact, graph = found(QUERIES), found(QUERIES, approximate=True)
    assert [[hit.row for hit in hits] for hits in graph] == [[hit.row for hit in hits] for hits in exact]
    Path("q.txt").write_text("\n".join(QUERIES) + "\n")
    assert main([*COMMAND, QUERIES[0], "--approximate"]) == 0
    assert "recall@10 against exact search: 1.000 (measured on 24 of its texts, each" in capsys.readouterr().err
    assert main([*COMMAND, "--queries", "q.txt", "--approximate"]) == 0
    assert "recall@10 against exact search: 1.000 (measured on 7 queries)" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("kind", ["int8", "binary"])
def test_quantized_search_of_all_candidates_is_exact_and_reports_its_recall(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exact, every = found(QUERIES), found(QUERIES, quantize=kind, rescore=100)
    assert [[hit.row for hit in hits] for hits in every] == [[hit.row for hit in hits] for hits in exact]
    scores = [[hit.score for hits in side for hit in hits] for side in (every, exact)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    assert found(QUERIES) == exact  # codes in the index folder change nothing
    assert main([*COMMAND, QUERIES[0], "--quantize", kind, "--rescore", "100"]) == 0
    assert "Quantized search: recall@10 against exact search: 1.000 (measured on 24 of its" in capsys.readouterr().err


@pytest.mark.long
def test_search_in_the_first_dimensions() -> None:
    encoder = Encoder.from_pretrained("tiny", device="cpu")
    vectors = encoder.encode([QUERIES[0], *TEXTS], precision="fp32")[:, :6]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = vectors[1:] @ vectors[0]
    hits = found(QUERIES[0], dimensions=6)[0]
    assert hits[0].score == pytest.approx(scores.max(), abs=1e-5)
    assert [hit.score for hit in hits] == pytest.approx([scores[hit.row] for hit in hits], abs=1e-5)
    assert found(QUERIES[0], dimensions=6, quantize="binary", rescore=100)[0][0].row == hits[0].row
    with pytest.raises(NearfarError, match=r"--dimensions was 6, is not given\. Replace it with --rebuild"):
        found(QUERIES[0])
    write_rows([("0", "a new row"), *ROWS])  # the vectors of all other rows are kept
    assert [hit.text for hit in found(QUERIES[0], dimensions=6, top=3)[0]] == [hit.text for hit in hits[:3]]


def test_without_a_query_and_a_terminal_the_verb_names_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(COMMAND) == 2
    assert "no query given: name one, or a file with --queries FILE" in capsys.readouterr().err
    assert not Path("docs.tsv.index").exists()


@pytest.mark.long
def test_the_verb_asks_for_queries_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = iter([*QUERIES[:2], ""])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda prompt: next(asked))
    monkeypatch.setenv("COLUMNS", "200")
    assert main([*COMMAND, "--top", "2"]) == 0
    printed = capsys.readouterr().out
    for hit in (hit for query in QUERIES[:2] for hit in found(query, top=2)[0]):
        assert f"{hit.score:.4f}" in printed
        assert hit.text in printed
