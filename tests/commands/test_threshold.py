"""A threshold file: from judged pairs and from searches, used by search and dedup, refused for other models."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearfar import Encoder, NearfarError, dedup, search, threshold
from nearfar.cli import main
from nearfar.evaluation.results import ThresholdResult
from tests.tiny import save_tiny, sentences

TEXTS = list(dict.fromkeys(sentences(400, seed=5, longest=9)))
PAIRS = list(zip(TEXTS[::2], TEXTS[1::2], strict=False))
FLAGS = ["--model", "tiny", "--error", "0.4", "--output", "t.json"]


def cosines(encoder: Encoder, pairs: list[tuple[str, str]]) -> np.ndarray:
    first, second = (encoder.encode(list(side), normalize=True) for side in zip(*pairs, strict=True))
    return np.einsum("pd,pd->p", first, second)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Judged pairs of which those with a cosine above the median are right, and every tenth is judged wrongly."""
    save_tiny(tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    scores = cosines(Encoder.from_pretrained("tiny"), PAIRS)
    right = (scores > np.median(scores)) ^ (np.arange(len(PAIRS)) % 10 == 0)
    rows = [f"{query}\t{text}\t{int(own)}" for (query, text), own in zip(PAIRS, right, strict=True)]
    Path("judged.tsv").write_text("\n".join(["query\ttext\tlabel", *rows]) + "\n", encoding="utf-8")
    Path("texts.txt").write_text("\n".join(TEXTS[:80]) + "\n", encoding="utf-8")
    return tmp_path


def made(**settings: Any) -> ThresholdResult:
    given = {"model": "tiny", "pairs": "judged.tsv", "output": "t.json", "error": 0.4, "precision": "fp32"}
    return threshold(**{**given, "progress": False, **settings})


@pytest.mark.long
def test_what_is_seen_at_the_threshold_is_counted_from_the_pairs(workspace: Path) -> None:
    found = made()
    assert ThresholdResult.load("t.json") == found
    assert found.tested == len(PAIRS) - len(PAIRS) // 5
    assert found.shown == found.hits
    assert found.share == pytest.approx(found.wrong / found.hits)
    assert 0 <= found.low <= found.share <= found.error == 0.4
    every = np.sum(cosines(Encoder.from_pretrained("tiny"), PAIRS) >= found.threshold)
    assert found.shown <= every <= found.shown + len(PAIRS) // 5
    assert found.probabilities == sorted(found.probabilities)
    assert found.settings["query_prompt"] == ""
    assert "top" not in found.settings
    assert made(overwrite=True).threshold == found.threshold
    assert made(overwrite=True, seed=7).settings == found.settings


@pytest.mark.long
def test_search_shows_hits_above_it_with_their_probability(workspace: Path) -> None:
    found = made()
    settings: dict[str, Any] = {"model": "tiny", "input": "texts.txt", "precision": "fp32", "top": 5}
    every = search(TEXTS[:3], **settings)
    shown = search(TEXTS[:3], **settings, threshold="t.json")
    for all_hits, hits in zip(every, shown, strict=True):
        above = [hit for hit in all_hits if hit.score >= found.threshold]
        assert [(hit.row, hit.score) for hit in hits] == [(hit.row, hit.score) for hit in above]
        for hit in hits:
            expected = np.interp(hit.score, found.scores, found.probabilities)
            assert hit.columns == {"probability": pytest.approx(expected, abs=1e-4)}
    lowest = every[0][2].score
    assert [hit.row for hit in search(TEXTS[0], **settings, threshold=lowest)[0]] == [hit.row for hit in every[0][:3]]
    assert search(TEXTS[0], **settings, threshold=1.5) == [[]]


@pytest.mark.long
def test_the_column_of_the_probability_has_a_name_of_its_own(workspace: Path) -> None:
    made()
    Path("texts.tsv").write_text("text\tprobability\n" + f"{TEXTS[0]}\tmine\n", encoding="utf-8")
    ((hit,),) = search(TEXTS[0], model="tiny", input="texts.tsv", precision="fp32", threshold="t.json")
    assert hit.columns == {
        "probability": "mine",
        "hit_probability": pytest.approx(ThresholdResult.load("t.json").probabilities[-1]),
    }


@pytest.mark.long
def test_dedup_groups_by_it(workspace: Path) -> None:
    found = made()
    settings: dict[str, Any] = {"model": "tiny", "input": "texts.txt", "precision": "fp32", "progress": False}
    by_file, by_number = dedup(**settings, threshold="t.json"), dedup(**settings, threshold=found.threshold)
    assert by_file == by_number
    assert by_file.threshold == found.threshold


@pytest.mark.long
def test_it_is_refused_for_another_model_or_other_settings(workspace: Path) -> None:
    made()
    save_tiny(workspace / "other", seed=1)
    settings: dict[str, Any] = {"model": "tiny", "input": "texts.txt", "precision": "fp32", "threshold": "t.json"}
    for change, message in (
        ({"model": "other"}, "the model's weights or settings changed"),
        ({"pooling": "cls"}, "--pooling was mean, is cls"),
        ({"query_prompt": "q: "}, "--query-prompt was '', is q: "),
        ({"max_length": 9}, "--max-length was 62 62, is 9 9"),
        ({"precision": "bf16"}, "--precision was fp32, is bf16"),
        ({"dimensions": 8}, "--dimensions was not given, is 8"),
        ({"chunk": 9}, "--chunk was not given, is 9"),
        ({"normalize": False}, "the similarity changed"),
    ):
        with pytest.raises(NearfarError, match=message):
            search("a dog", **{**settings, **change})
    with pytest.raises(NearfarError, match="--query-prompt was '', is d: "):
        dedup(**settings, prompt="d: ", progress=False)


@pytest.mark.long
def test_hits_of_a_search_are_those_of_search(workspace: Path) -> None:
    """Every anchor is a document too, so that the first of its two hits is right."""
    rows = [f"{text} .\t{text}" for text in TEXTS]
    Path("pairs.tsv").write_text("\n".join(["anchor\tpositive", *rows]) + "\n", encoding="utf-8")
    found = made(pairs=None, retrieval="pairs.tsv", top=2, error=0.7)
    assert found.settings["top"] == 2
    assert found.hits > found.shown
    settings: dict[str, Any] = {"model": "tiny", "input": "pairs.tsv", "column": "positive", "precision": "fp32"}
    hits = search([f"{text} ." for text in TEXTS], **settings, top=2, threshold="t.json")
    wrong = [sum(hit.text != text for hit in own) / len(own) for own, text in zip(hits, TEXTS, strict=True) if own]
    assert found.shown <= len(wrong)
    assert np.mean(wrong) <= 0.7
    with pytest.raises(NearfarError, match="--top was 2, is 3"):
        search("a dog", **settings, top=3, threshold="t.json")
    with pytest.raises(NearfarError, match=r"--top was 2, is not given.*dedup needs one of --pairs"):
        dedup(model="tiny", input="texts.txt", precision="fp32", threshold="t.json", progress=False)


@pytest.mark.long
def test_no_threshold_says_what_would_help(workspace: Path) -> None:
    with pytest.raises(NearfarError, match=r"below 0\.01 .*queries.* These queries reach --error 0\.\d+"):
        made(error=0.01)
    assert not Path("t.json").exists()


SCORED = ("sentence1", "sentence2", "score")


@pytest.mark.parametrize(
    ("header", "row", "settings", "message"),
    [
        (("query", "text", "label"), ("a", "b", "2"), {}, "line 2: column 'label' holds '2', not 0 or 1"),
        (("query", "text", "label"), ("a", "b", "yes"), {}, "line 2: column 'label' holds 'yes', not a number"),
        (("query", "text", "label"), ("a", "b", ""), {}, "line 2: column 'label' is empty"),
        (("query", "text", "label"), ("a", "", "1"), {}, "line 2: column 'text' is empty"),
        (("query", "text"), ("a", "b"), {}, "no column 'score'"),
        (("first", "second", "label"), ("a", "b", "1"), {}, "no column 'sentence1'"),
        (SCORED, ("a", "b", "4.5"), {}, "--right-from"),
        (("query", "text", "label"), ("a", "b", "1"), {"label_column": "judge"}, "no column 'judge'"),
        (("query", "text", "label"), (), {}, "holds no pairs"),
    ],
)
def test_rows_are_refused(
    header: tuple[str, ...],
    row: tuple[str, ...],
    settings: dict[str, Any],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ["\t".join(header), *(["\t".join(row)] if row else [])]
    Path("judged.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(NearfarError, match=message):
        made(model="nowhere", **settings)
    assert not Path("t.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "Name either judged pairs by --pairs, or a retrieval task by --retrieval."),
        ("--pairs p.tsv --retrieval r.tsv", "Name either judged pairs"),
        ("--pairs p.tsv --corpus c.txt", "--corpus c.txt: needs --retrieval"),
        ("--pairs p.tsv --top 3", "--top 3: needs --retrieval"),
        ("--retrieval r.tsv --right-from 3", "--right-from 3.0: needs --pairs"),
        ("--retrieval r.tsv --label-column l", "--label-column l: needs --pairs"),
        ("--pairs p.tsv --confidence 1", "must be below 1"),
        ("--pairs p.tsv --output t.tsv", "--output"),
        ("--pairs missing.tsv", "missing.tsv"),
    ],
)
def test_flags_are_refused(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = [*FLAGS[:-2], *([] if "--output" in words else FLAGS[-2:])]
    assert main(["threshold", *flags, *words.split()]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [0.5, 0.1]}, "must be ascending numbers"),
        ({"probabilities": []}, "must be ascending numbers"),
        ({"threshold": "high"}, "threshold = 'high': must be a number"),
        ({"kind": "export"}, "is not a file of nearfar threshold"),
        ({"schema": 9}, "is not a result file of nearfar"),
    ],
)
def test_a_damaged_file_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    content: dict[str, Any] = {
        **{"schema": 1, "kind": "threshold", "model": "m", "settings": {}, "data": "p.tsv", "error": 0.05},
        **{"confidence": 0.95, "threshold": 0.8, "tested": 9, "shown": 5, "hits": 5, "wrong": 0, "share": 0.0},
        **{"low": 0.0, "scores": [0.1, 0.5], "probabilities": [0.0, 1.0], "calibration_error": 0.1},
    }
    file = tmp_path / "t.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    assert str(ThresholdResult.load(file)).startswith("Threshold 0.8: at most 5.00% of the hits")
    file.write_text(json.dumps({**content, **change}), encoding="utf-8")
    with pytest.raises(NearfarError, match=message):
        ThresholdResult.load(file)


@pytest.mark.long
def test_the_command_prints_what_it_found(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["threshold", *FLAGS, "--pairs", "judged.tsv", "--precision", "fp32"]) == 0
    printed = capsys.readouterr().out
    assert "at most 40.00% of the hits that a query shows are wrong, with 95.0% confidence" in printed
    assert "Wrote t.json" in printed
    words = ["--model", "tiny", "--input", "texts.txt", "--precision", "fp32"]
    assert main(["search", *words, "--threshold", "t.json", TEXTS[0]]) == 0
    out, err = capsys.readouterr()
    assert "probability" in out
    assert "Threshold" in err
    assert main(["dedup", *words, "--threshold", "t.json"]) == 0
    assert "near-duplicates" in capsys.readouterr().out
    assert main(["search", *words, "--threshold", "none.json", TEXTS[0]]) == 2
    assert "none.json" in capsys.readouterr().err
    assert main(["search", *words, "--threshold", "0.5", "--hybrid", TEXTS[0]]) == 2
    assert "--threshold and --hybrid" in capsys.readouterr().err
