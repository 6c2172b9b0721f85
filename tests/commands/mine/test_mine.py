"""Pairs -> triplets with hard negatives: the rows, the formats, resuming, training on them, and errors."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearfar import Encoder, MineConfig, NearfarError, mine
from nearfar.cli import main
from nearfar.commands.encode import vectors
from nearfar.commands.mine import MiningResult, negatives
from tests.encode_helpers import Killed, stop_in
from tests.tiny import save_tiny, sentences

TEXTS = list(dict.fromkeys(sentences(90, seed=3, longest=9)))
NEAR = [f"{text} dog" if number % 3 else TEXTS[30 + number] for number, text in enumerate(TEXTS[:30])]
"""Two thirds of the positives are similar to their anchors."""
PAIRS = [*zip(TEXTS[:30], NEAR, strict=True), (TEXTS[0], TEXTS[60]), (TEXTS[1], NEAR[2])]
FLAGS = ["--model", "tiny", "--data", "pairs.tsv", "--output", "triplets.tsv"]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save_tiny(tmp_path / "tiny")
    write(tmp_path / "pairs.tsv", ["anchor", "positive"], PAIRS)
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS[61:]) + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(vectors, "PART_TEXTS", 7)
    monkeypatch.setattr(negatives, "CHUNK", 10)
    return tmp_path


def write(file: Path, columns: list[str], rows: list[tuple[str, ...]]) -> None:
    file.write_text("".join("\t".join(row) + "\n" for row in [tuple(columns), *rows]), encoding="utf-8")


def mined(output: str = "triplets.tsv", **settings: Any) -> tuple[MiningResult, list[dict[str, str]]]:
    """Mine without progress bars; returns the result and the rows of the file."""
    result = mine(**{"model": "tiny", "data": "pairs.tsv", "output": output, "progress": False, **settings})
    with Path(output).open(encoding="utf-8", newline="") as stream:
        return result, list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.long
def test_triplets_equal_a_plain_search(workspace: Path) -> None:
    result, rows = mined(corpus="corpus.txt", negatives=2, range_max=500, with_scores=True)
    encoder = Encoder.from_pretrained("tiny")
    documents = list(dict.fromkeys([*(positive for _, positive in PAIRS), *TEXTS[61:]]))
    anchors = list(dict.fromkeys(anchor for anchor, _ in PAIRS))
    vectors = dict(zip(documents, encoder.encode(documents, normalize=True), strict=True))
    queries = dict(zip(anchors, encoder.encode(anchors, normalize=True), strict=True))
    expected = []
    for anchor, positive in PAIRS:
        positives = [text for other, text in PAIRS if other == anchor]
        limit = min(float(queries[anchor] @ vectors[text]) for text in positives)
        limit -= abs(limit) * 0.05
        scores = {text: float(queries[anchor] @ vectors[text]) for text in documents if text not in positives}
        near = sorted((text for text in scores if scores[text] <= limit), key=lambda text: -scores[text])[:2]
        expected += [(anchor, positive, text) for text in near]
        assert all(text != anchor for text in near)
    assert [(row["anchor"], row["positive"], row["negative"]) for row in rows] == expected
    for row in rows:
        scores = [float(row["positive_score"]), float(row["negative_score"])]
        own = [queries[row["anchor"]] @ vectors[row[column]] for column in ("positive", "negative")]
        np.testing.assert_allclose(scores, own, atol=2e-6)
    assert (result.pairs, result.anchors, result.documents) == (32, 30, len(documents))
    assert result.triplets == len(rows)
    assert result.searched == len(documents)
    assert result.candidates == sum(len(documents) - len({p for a, p in PAIRS if a == anchor}) for anchor in anchors)
    assert sorted(os.listdir()) == ["corpus.txt", "pairs.tsv", "tiny", "triplets.tsv", "triplets.tsv.summary.json"]


@pytest.mark.long
def test_the_summary_has_counts_and_examples_at_the_quantiles(workspace: Path) -> None:
    result, rows = mined(max_score=0.9, with_scores=True)
    summary = json.loads(Path("triplets.tsv.summary.json").read_text())
    assert summary["triplets"] == result.triplets == len(rows)
    assert summary["settings"]["max_score"] == 0.9
    assert set(summary["dropped"]) == {"relative_margin", "max_score"}
    assert sum(summary["dropped_shares"].values()) == pytest.approx(
        sum(summary["dropped"].values()) / result.candidates
    )
    scores = sorted(float(row["negative_score"]) for row in rows)
    places = [int(quantile * (len(rows) - 1)) for quantile in (0, 0.25, 0.5, 0.75, 1)]
    assert [example["negative_score"] for example in summary["examples"]] == [scores[place] for place in places]
    assert [example["quantile"] for example in summary["examples"]] == [0, 0.25, 0.5, 0.75, 1]
    texts = {(row["anchor"], row["positive"], row["negative"]) for row in rows}
    assert {(example.anchor, example.positive, example.negative) for example in result.examples} <= texts
    assert summary["negative_score"] == pytest.approx(np.mean(scores), abs=1e-5)
    assert result.without_negative == len(PAIRS) - len({(row["anchor"], row["positive"]) for row in rows})
    Path("triplets.tsv").unlink()
    with pytest.raises(NearfarError, match=r"triplets\.tsv\.summary\.json: exists; replace it by --overwrite"):
        mined()


@pytest.mark.long
def test_missing_negatives_can_be_random(workspace: Path) -> None:
    few, some = mined(negatives=3, range_max=6, relative_margin=0.05)
    assert few.without_negative > 0
    full, rows = mined("full.tsv", negatives=3, range_max=6, relative_margin=0.05, fill_random=True, with_scores=True)
    assert full.filled == full.triplets - few.triplets > 0
    assert full.without_negative < few.without_negative
    positives: dict[str, set[str]] = {}
    for anchor, positive in PAIRS:
        positives.setdefault(anchor, set()).add(positive)
    lowest = dict.fromkeys(positives, 2.0)
    for row in rows:
        lowest[row["anchor"]] = min(lowest[row["anchor"]], float(row["positive_score"]))
    for row in rows:
        assert row["negative"] not in positives[row["anchor"]]
        limit = lowest[row["anchor"]] - 0.05 * abs(lowest[row["anchor"]])
        assert float(row["negative_score"]) <= limit + 1e-5
    mined_rows = {(row["anchor"], row["positive"], row["negative"]) for row in some}
    assert mined_rows <= {(row["anchor"], row["positive"], row["negative"]) for row in rows}
    assert len({tuple(row.values()) for row in rows}) == len(rows)
    again, _ = mined("again.tsv", negatives=3, range_max=6, relative_margin=0.05, fill_random=True, with_scores=True)
    assert again == full
    assert Path("again.tsv").read_bytes() == Path("full.tsv").read_bytes()


@pytest.mark.long
def test_random_sampling_depends_on_the_seed_and_not_on_the_chunks(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = mined("a.tsv", sampling="random", range_max=40)
    mined("b.tsv", sampling="random", range_max=40, seed=1)
    mined("c.tsv", range_max=40)
    monkeypatch.setattr(negatives, "CHUNK", 3)
    mined("d.tsv", sampling="random", range_max=40)
    content = [Path(f"{name}.tsv").read_bytes() for name in "abcd"]
    assert content[0] == content[3]
    assert len(set(content)) == 3
    assert first.triplets > 20


@pytest.mark.long
def test_info_nce_trains_on_the_triplets(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.tiny import write_pairs

    write_pairs(workspace / "dev.tsv")
    assert main(["mine", *FLAGS]) == 0
    printed = capsys.readouterr().out
    command = next(line for line in printed.splitlines() if line.startswith("Train on the triplets: "))
    argv = command.partition(": nearfar ")[2].replace("RUN", "run").split()
    assert argv[:3] == ["train", "--model", "tiny"]
    assert main([*argv, "--evaluate-on", "dev.tsv", "--max-steps", "1", "--batch-size", "8"]) == 0
    assert Path("run/model/config.json").exists()


@pytest.mark.long
def test_the_command_reports_counts_limits_and_examples(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mine", *FLAGS, "--max-score", "0.95"]) == 0
    printed = capsys.readouterr().out
    result = json.loads(Path("triplets.tsv.summary.json").read_text())
    assert f"Wrote {result['triplets']} triplets to triplets.tsv" in printed
    assert f"dropped by --relative-margin 0.05: {result['dropped_shares']['relative_margin']:.1%}" in printed
    assert f"dropped by --max-score 0.95: {result['dropped_shares']['max_score']:.1%}" in printed
    assert f"{result['without_negative']} pairs have no negative and are left out; --fill-random" in printed
    assert printed.count("  negative  ") == 5
    assert result["examples"][0]["negative"] in printed


@pytest.mark.long
def test_ctrl_c_prints_how_to_continue(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        stop_in(patch, negatives, "nearest", 1, KeyboardInterrupt())
        assert main(["mine", *FLAGS]) == 130
    printed = capsys.readouterr().out
    assert "Stopped; finished parts are kept in triplets.tsv.vectors. Continue with:" in printed
    assert printed.splitlines()[-1].split()[1:] == ["mine", *FLAGS]
    monkeypatch.setattr(Encoder, "encode_tokens", None)  # nothing is encoded again
    assert main(["mine", *FLAGS]) == 0


@pytest.mark.long
def test_vectors_of_other_models_and_texts_are_not_used(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        stop_in(patch, negatives, "nearest", 1, Killed())
        with pytest.raises(Killed):
            mined()
    save_tiny(workspace / "other", seed=1)
    write(workspace / "fewer.tsv", ["anchor", "positive"], PAIRS[:-1])
    settings: list[dict[str, Any]] = [{"model": "other"}, {"data": "fewer.tsv"}, {"pooling": "cls"}]
    for number, changed in enumerate(settings):
        expected, _ = mined(f"{number}.tsv", **changed)
        assert mined(overwrite=True, **changed)[0] == expected
        assert Path("triplets.tsv").read_bytes() == Path(f"{number}.tsv").read_bytes()


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"output": "x.txt"}, r"--output x\.txt: must end in \.tsv, \.csv or \.jsonl\."),
        ({"data": ()}, r"No source of pairs was named"),
        ({"anchor_column": "question"}, r"pairs\.tsv, line 1: no column 'question'"),
        ({"corpus": "pairs.tsv"}, r"pairs\.tsv, line 1: no column 'text'"),
        ({"min_score": 0.999999}, r"No pair has a negative: of \d+ candidates --relative-margin dropped"),
        ({"relative_margin": None, "range_min": 999}, r"No pair has a negative: .*none is in the range of ranks"),
    ],
)
def test_errors(workspace: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(NearfarError, match=message):
        mined(**{"output": "triplets.tsv", **settings})
    assert not Path("triplets.tsv").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_score": 0.6, "max_score": 0.5}, r"--min-score 0\.6: must not be above --max-score, which is 0\.5"),
        ({"range_min": 5, "range_max": 5}, r"--range-max 5: leaves 0 candidates after --range-min 5"),
        ({"negatives": 5, "range_max": 4}, r"--range-max 4: leaves 4 candidates .* fewer than --negatives 5"),
        ({"positive_column": "anchor"}, r"--positive-column anchor: is also --anchor-column"),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(NearfarError, match=message):
        MineConfig(model="m", data=("p.tsv",), output="t.tsv", **settings)
