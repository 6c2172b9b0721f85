"""The scores behind the README's rows: collected from evaluations, and claims recomputed with loops."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from nearfar.evaluation.statistics import crossed_difference, verdict
from tests.docs.pages import study_script

with study_script("readme") as README:
    pass
RUNS = {"start": (0,), "peer": (1, 2, 3), "ours": (1, 2, 3)}
UNITS = 60


def evaluation(kind: str, values: np.ndarray, gold: np.ndarray) -> dict[str, Any]:
    """The part of an evaluation's file that is read: two tasks of similarity, or one of retrieval or labels."""
    content: dict[str, Any] = {
        "provenance": {"commit": "c", "command": "evaluate /folder/of/this/machine"},
        "tasks": {},
    }
    if kind == "retrieval":
        content["retrieval"] = {"folder/one": {"main": "mrr@10", "per_query": {"mrr@10": values.tolist()}}}
    elif kind == "labels":
        content["transfer"] = {"tasks": {"one": {"gold": gold.tolist(), "predicted": values.tolist()}}}
    else:
        cut = 20
        parts = {"one": slice(None, cut), "two": slice(cut, None)}
        for task, part in parts.items():
            subset = {"gold": gold[part].tolist(), "cosines_e6": np.rint(1e6 * values[part]).astype(int).tolist()}
            content["tasks"][task] = {"subsets": {"all": subset}}
    return content


def drawn_values(kind: str, chance: np.random.Generator, gold: np.ndarray, lead: float) -> np.ndarray:
    """Scores of a run, the same noise for both units of a cluster: it counts that clusters are drawn."""
    if kind == "labels":
        return np.where(np.repeat(chance.random(UNITS // 2), 2) < 0.7 + lead, gold, 1 - gold)
    noise = np.repeat(chance.normal(scale=0.4, size=UNITS // 2), 2)
    return np.clip(gold + (0.4 - lead) * noise, 0, 1) if kind == "similarity" else np.clip(0.5 + lead + noise, 0, 1)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["retrieval", "labels", "similarity"])
def test_claims_are_the_tables_numbers(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(7)
    gold = chance.integers(0, 2, UNITS) if kind == "labels" else chance.random(UNITS).round(3)
    scored: dict[tuple[str, int], np.ndarray] = {}
    leads = (0.0, 0.15, 0.05) if kind == "retrieval" else (0.0, 0.05, 0.15)  # of start, peer, ours
    for lead, (side, seeds) in zip(leads, RUNS.items(), strict=True):
        for seed in seeds:
            scored[side, seed] = drawn_values(kind, chance, gold, lead)
            file = tmp_path / "runs" / "pairs" / f"{side}-{seed}" / "evaluation.json"
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps(evaluation(kind, scored[side, seed], gold)), encoding="utf-8")
    keys = [("one", unit) for unit in range(UNITS)]
    if kind == "similarity":
        keys = [("one", unit) for unit in range(20)] + [("two", unit) for unit in range(40)]
    clusters = [number // 2 for number in range(UNITS)]
    left_out = {keys[0], keys[1]}
    monkeypatch.setattr(README, "clusters_of", lambda _: (dict(zip(keys, clusters, strict=True)), left_out))
    monkeypatch.setattr(README, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(README, "RESULTS", tmp_path)
    tried = {"retrieval": (2, 1), "labels": (2, 1), "similarity": (1, 3)}[kind]
    monkeypatch.setattr(README, "settings_tried", lambda _: tried)
    README.collect("pairs")
    README.report()

    table = pd.read_parquet(tmp_path / "pairs.parquet")
    assert len(table) == 7 * (UNITS - 2)
    assert ("gold" in table) == ("cosine" in table) == (kind == "similarity") != ("score" in table)
    assert "/folder" not in (tmp_path / "pairs.json").read_text(encoding="utf-8")

    def score(values: np.ndarray, rows: np.ndarray) -> float:
        if kind == "labels":
            return float(np.mean(values[rows] == gold[rows]))
        if kind == "retrieval":
            return float(np.mean(values[rows]))
        tasks = [rows[rows < 20], rows[rows >= 20]]
        return float(np.mean([stats.spearmanr(np.round(values[part], 6), gold[part]).statistic for part in tasks]))

    kept = np.arange(2, UNITS)
    pairs = kept.reshape(-1, 2)
    resamples = [
        pairs[chance.integers(0, len(pairs), len(pairs))].ravel() for _ in range(300 if kind == "similarity" else 1500)
    ]
    sides = {
        side: (
            np.array([score(scored[side, seed], kept) for seed in seeds]),
            np.array([[score(scored[side, seed], rows) for rows in resamples] for seed in seeds]),
        )
        for side, seeds in RUNS.items()
    }
    (claim,) = json.loads((tmp_path / "claims.json").read_text(encoding="utf-8"))
    for side, (points, _) in sides.items():
        assert claim[side] == pytest.approx(100 * points.mean(), abs=2e-4)
    assert (claim["units"], claim["runs"], claim["settings_ours"], claim["settings_peer"]) == (29, 3, *tried)
    assert (claim["verdict"] is None) == (kind == "labels")  # the peer had fewer settings, and is not ahead
    for tested, other in ((claim, "peer"), (claim["versus_start"], "start")):
        expected = crossed_difference(sides["ours"], sides[other], units=29, bound=float(kind != "similarity"))
        assert expected is not None
        assert tested["difference"] == pytest.approx(100 * expected.difference, abs=2e-4)
        width = 100 * (expected.high - expected.low)
        assert [tested["low"], tested["high"]] == pytest.approx(
            [100 * expected.low, 100 * expected.high], abs=(0.15 if kind == "similarity" else 0.06) * width
        )
        if tested["verdict"] is not None:
            assert tested["verdict"] == verdict(tested["low"], tested["high"], p_holm=tested["p_holm"])


def test_settings_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeats, the present setting and runs without training are none; two columns and seeds of one are one."""
    lines = """study,row,setting,side,seed,column,value
recipes-labels-minilm-choice,untrained,,no training,,a,1
recipes-labels-minilm-choice,x,1e-4,nearfar,1,a,1
recipes-labels-minilm-choice,x,1e-4,nearfar,1,b,2
recipes-labels-minilm-choice,x,2e-4,nearfar,1,a,1
recipes-labels-minilm-choice,y,,sentence-transformers,1,a,1
recipes-nli-choice,y,,sentence-transformers,1,a,1
readme-labels-choice,peer,present,sentence-transformers,1,trec-dev,93.5
readme-labels-choice,peer,2e-4,sentence-transformers,1,trec-dev,94.25
readme-labels-choice,peer,4e-4,sentence-transformers,1,trec-dev,93
"""
    (tmp_path / "choices.csv").write_text(lines, encoding="utf-8")
    monkeypatch.setattr(README, "CHOICES", tmp_path / "choices.csv")
    labels, documents = README.ROWS["labels"], README.ROWS["documents"]
    assert README.settings_tried(labels) == (2, 3)
    assert README.settings_tried(labels._replace(not_counted=("x",))) == (1, 3)
    assert README.settings_tried(documents) == (1, 1)
