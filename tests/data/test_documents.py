"""Documents without labels: which files hold them, and the pairs that are made of each."""

import json
from itertools import chain, pairwise
from pathlib import Path

import pytest

from nearfar import NearfarError, adapt
from nearfar.data.documents import LONGEST, Document, load_pairs_of_documents, pairs_of, sentences_of
from nearfar.data.fingerprints import units_of_rows
from tests.tiny import save_tiny

SENTENCES = [f"This is sentence number {number} of the text." for number in range(12)]


def test_pairs_of_a_document() -> None:
    document = Document("A title", " ".join(SENTENCES))
    pairs = pairs_of(document, 8, seed=1)
    assert pairs == pairs_of(document, 8, seed=1)
    assert pairs != pairs_of(document, 8, seed=2)
    assert pairs[:4] == pairs_of(document, 4, seed=1)
    assert sum(anchor == "A title" for anchor, _ in pairs) == 4
    passages = {f"{first} {second}" for first, second in pairwise(SENTENCES)}
    assert set(chain(*pairs)) <= {"A title", *passages}
    assert all(anchor != positive for anchor, positive in pairs)
    assert len(pairs_of(document._replace(title=""), 8, seed=1)) >= 4
    assert pairs_of(Document("A title", SENTENCES[0]), 4, seed=1) == [("A title", SENTENCES[0])]
    assert pairs_of(Document("", SENTENCES[0]), 4, seed=1) == []
    assert pairs_of(Document("A title", ""), 4, seed=1) == []


def test_sentences_end_with_signs_of_any_script_and_blank_lines_and_are_cut() -> None:
    assert sentences_of(
        "翼は長くて薄いもので、飛行機を空中に運んでいきます。空気は翼の上をとても速く流れていきます。"
    ) == [
        "翼は長くて薄いもので、飛行機を空中に運んでいきます。",
        "空気は翼の上をとても速く流れていきます。",
    ]
    words = [f"word{number}" for number in range(LONGEST + 40)]
    assert sentences_of(f"## A heading without an end\n\n{' '.join(words)}") == [
        "## A heading without an end",
        " ".join(words[:LONGEST]),
        " ".join(words[LONGEST:]),
    ]


def test_the_pairs_of_a_document_are_one_unit(tmp_path: Path) -> None:
    """So that no document has pairs on both sides of held-out rows."""
    file = tmp_path / "documents.jsonl"
    texts = [" ".join(f"{text[:-1]} {number}." for text in SENTENCES) for number in range(3)]
    rows = [{"title": f"title {number}", "text": text} for number, text in enumerate(texts)]
    edited = {"title": "other", "text": texts[0].replace("number 3", "no. 3").upper()}
    file.write_text("".join(json.dumps(row) + "\n" for row in [*rows, rows[0], edited]))
    read = load_pairs_of_documents(str(file), pairs=6)
    assert len(set(units_of_rows(read.rows) or ())) == 3
    assert read.sources == (f"{file}: {len(read.rows)} pairs of 3 documents (copies left out: 2)",)
    assert len(load_pairs_of_documents(str(file), pairs=6, limit=5).rows) == 5


def test_folders_tables_and_lines(tmp_path: Path) -> None:
    text = " ".join(SENTENCES)
    folder = tmp_path / "docs"
    (folder / "more").mkdir(parents=True)
    (folder / "b.md").write_text(f"# A title\n\n{text}\n")
    (folder / "more" / "a.txt").write_text(text.replace("text", "other text"))
    (folder / "page.html").write_text("<p>not read</p>")
    of_folder = load_pairs_of_documents(str(folder))
    assert of_folder.sources == (f"{folder}: {len(of_folder.rows)} pairs of 2 documents",)
    titled = pairs_of(Document("A title", text), 4, seed=1)
    assert of_folder.rows[: len(titled)] == titled
    table, lines = tmp_path / "table.tsv", tmp_path / "lines.txt"
    table.write_text(f"heading\tbody\nA title\t{text}\n")
    columns = {"title_column": "heading", "text_column": "body"}
    assert load_pairs_of_documents(str(table), **columns).rows == titled
    lines.write_text(f"{text}\n")
    assert load_pairs_of_documents(str(lines)).rows == pairs_of(Document("", text), 4, seed=1)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(NearfarError, match="has no documents, files that end in"):
        load_pairs_of_documents(str(tmp_path))
    (tmp_path / "short.txt").write_text("One sentence alone, without a title.\n")
    with pytest.raises(NearfarError, match=r"short\.txt: no pairs"):
        load_pairs_of_documents(str(tmp_path / "short.txt"))
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 and more text\n")
    with pytest.raises(NearfarError, match=r"latin\.txt: .*UTF-8"):
        load_pairs_of_documents(str(tmp_path))


@pytest.mark.long
def test_adapt_trains_on_documents(tmp_path: Path) -> None:
    texts = [" ".join(f"{text[:-1]} {number}." for text in SENTENCES) for number in range(12)]
    (tmp_path / "lines.txt").write_text("".join(f"{text}\n" for text in texts))
    model = save_tiny(tmp_path / "tiny")
    trained = adapt(str(tmp_path / "lines.txt"), model=str(model), output=str(tmp_path / "run"), hold_out=0, sets=())
    assert (trained.model / "model.safetensors").is_file()
    assert 'method = "documents"' in (tmp_path / "run" / "config.toml").read_text()
