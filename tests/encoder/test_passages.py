"""Passages of long documents: where they are cut, and that a document's score is that of its best one."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers.models import WordPiece

from nearfar import Encoder, NearfarError, evaluate, search
from tests.tiny import save_tiny, sentences

LONG = [" ".join(sentences(count, seed=count)) for count in (2, 6, 3, 9, 5, 4)]
"""Documents; the words of the tiny model are all in its vocabulary, one token each."""
HOW = {"device": "cpu", "precision": "fp32"}


@pytest.fixture
def encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Encoder:
    monkeypatch.chdir(tmp_path)
    save_tiny(Path("tiny"))
    return Encoder.from_pretrained("tiny", device="cpu")


@pytest.mark.parametrize(("tokens", "overlap"), [(3, 0), (8, 0), (8, 3), (5, 4), (12, 11)])
def test_passages_have_all_words_in_order(encoder: Encoder, tokens: int, overlap: int) -> None:
    for text, passages in zip(LONG, encoder.passages(LONG, tokens, overlap=overlap), strict=True):
        words, starts = text.split(), range(0, max(1, len(text.split()) - overlap), tokens - overlap)
        assert [passage.split() for passage in passages] == [words[start : start + tokens] for start in starts]


def test_a_word_is_cut_only_if_it_is_longer_than_a_passage(encoder: Encoder) -> None:
    vocabulary = {word: number for number, word in enumerate(("[UNK]", "dog", "cat", "bird", "ab", "##ab"))}
    encoder.tokenizer.backend_tokenizer.model = WordPiece(vocabulary, unk_token="[UNK]")
    word = "ab" * 7
    ((first, *others),) = encoder.passages([f"dog cat bird {word} dog"], 5)
    assert first == "dog cat bird"
    assert "".join(others).replace(" ", "") == f"{word}dog"
    assert encoder.passages(["", "a dog"], 5) == [[""], ["a dog"]]
    with pytest.raises(NearfarError, match=r"--chunk 999: the model reads passages of at most \d+ tokens"):
        encoder.passages(LONG, 999)


@pytest.mark.long
def test_the_score_of_a_document_is_that_of_its_best_passage(encoder: Encoder) -> None:
    """In retrieval and in search, whose hits are passages with the rows that they are from."""
    passages = encoder.passages(LONG, 6, overlap=2)
    queries = [" ".join(reversed(parts[-1].split())) for parts in passages]
    Path("docs.tsv").write_text("text\tnumber\n" + "".join(f"{text}\t{n}\n" for n, text in enumerate(LONG)))
    Path("pairs.tsv").write_text(
        "anchor\tpositive\n" + "".join(f"{q}\t{t}\n" for q, t in zip(queries, LONG, strict=True))
    )
    vectors = [encoder.encode(parts, normalize=True, precision="fp32") for parts in passages]
    best = np.array([[(own @ query).max() for own in vectors] for query in encoder.encode(queries, normalize=True)])
    expected = [1 / (1 + np.sum(row > row[number] + 1e-6)) for number, row in enumerate(best)]
    settings = {"chunk": 6, "overlap": 2, **HOW}
    result = evaluate("tiny", retrieval=["pairs.tsv"], **settings)
    assert result.retrieval["pairs.tsv"].per_query["mrr@10"] == pytest.approx(expected, abs=1e-5)
    assert {name: result.config[name] for name in ("chunk", "overlap")} == {"chunk": 6, "overlap": 2}
    for top in (1, 3, 100):
        for number, hits in enumerate(search(queries, model="tiny", input="docs.tsv", top=top, **settings)):
            order = np.argsort(-best[number].round(5), kind="stable")[:top]
            assert [hit.row for hit in hits] == order.tolist()
            assert [hit.score for hit in hits] == pytest.approx(best[number][order], abs=1e-5)
            assert all(hit.text in passages[hit.row] for hit in hits)
            assert [hit.columns["number"] for hit in hits] == [str(row) for row in order]
    with pytest.raises(NearfarError, match="is the index of another model or other settings: --chunk was 6"):
        search(queries, model="tiny", input="docs.tsv", **HOW)


def test_mistakes(encoder: Encoder) -> None:
    with pytest.raises(NearfarError, match="--overlap 6: must be below --chunk 6"):
        evaluate("tiny", retrieval=["pairs.tsv"], chunk=6, overlap=6)
    with pytest.raises(NearfarError, match="--overlap 2: needs --chunk"):
        evaluate("tiny", retrieval=["pairs.tsv"], overlap=2)
    Path("scored.tsv").write_text("score\tsentence1\tsentence2\n1\ta dog\ta cat\n0\ta dog\ta bird\n")
    with pytest.raises(NearfarError, match="--chunk: is for retrieval, and no task is; name one with --retrieval"):
        evaluate("tiny", pairs=["scored.tsv"], chunk=6)
    Path("pairs.tsv").write_text("anchor\tpositive\na dog\ta cat\n")
    with pytest.raises(NearfarError, match="chunk 6: is for encoders"):
        evaluate("bow:tiny", retrieval=["pairs.tsv"], chunk=6)
