"""Evaluations from the task's name to the file on disk, with functions for models."""

import json
from pathlib import Path

import numpy as np
import pytest

import nearfar.evaluate as module
from nearfar.config import STS_TASKS
from nearfar.evaluate import evaluate
from nearfar.evaluation.results import read_result
from nearfar.types import NearfarError, ScoredPair


def letters(texts):
    """Counts of the letters a to z: similar strings are near."""
    return np.array([[text.count(chr(97 + n)) for n in range(26)] for text in texts], dtype=np.float32)


@pytest.fixture
def pairs_file(tmp_path):
    rows = ["score\tsentence1\tsentence2", "5\tab\tab", "3\tab\tabc", "1\tab\tcd", "0\tab\txyz", "2\tabc\tabd"]
    file = tmp_path / "mine.tsv"
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(file)


def test_from_a_file_of_pairs_to_a_result_file(pairs_file, tmp_path):
    result = evaluate(
        letters, tasks=[pairs_file, pairs_file], resamples=20, output=tmp_path / "out" / "r.json", progress=False
    )
    assert read_result(tmp_path / "out" / "r.json") == result
    assert result["model"] == "letters"
    assert list(result["tasks"]) == [pairs_file]
    assert result["tasks"][pairs_file]["pairs"] == 5
    assert result["tasks"][pairs_file]["spearman"]["all"]["score"] > 80
    assert result["config"] == {
        "tasks": [pairs_file],
        "pooling": None,
        "max_length": None,
        "precision": "fp32",
        "resamples": 20,
        "seed": 0,
        "training_seed": None,
    }
    assert (tmp_path / "out" / "r.md").read_text(encoding="utf-8").startswith("# Evaluation of letters\n")


def test_a_name_and_a_training_seed_are_kept_and_one_task_needs_no_list(pairs_file):
    result = evaluate(letters, tasks=pairs_file, name="a to z", training_seed=3, resamples=0, progress=False)
    assert (result["model"], result["config"]["training_seed"]) == ("a to z", 3)
    assert list(result["tasks"]) == [pairs_file]


def test_the_same_seed_gives_the_same_scores(pairs_file):
    seeds = (1, 1, *range(2, 20))
    first, again, *others = (
        evaluate(letters, tasks=[pairs_file], resamples=50, seed=seed, progress=False)["tasks"] for seed in seeds
    )
    assert first == again
    assert any(first != other for other in others)  # so few pairs may give two seeds the same interval by chance


def test_a_named_task_must_be_there(monkeypatch, tmp_path):
    monkeypatch.setenv("NEARFAR_DATA", str(tmp_path))
    with pytest.raises(NearfarError, match=r"nowhere\.tsv"):
        evaluate(letters, tasks=[str(tmp_path / "nowhere.tsv")], progress=False)


def some_tasks(*there):
    def load_task(name):
        if name not in there:
            raise NearfarError(f"{name} is nowhere.")
        texts = ["ab", "abc", "cd", "xyz", name]
        return {"one": [ScoredPair("ab", text, float(score)) for score, text in enumerate(texts)]}

    return load_task


def test_a_default_task_that_cannot_be_had_is_noted(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "load_task", some_tasks("stsb", "sickr"))
    result = evaluate(letters, resamples=0, progress=False, output=tmp_path / "r.json")
    assert list(result["tasks"]) == ["stsb", "sickr"]
    assert list(result["unavailable"]) == [task for task in STS_TASKS if task not in ("stsb", "sickr")]
    assert "sts14: not evaluated. sts14 is nowhere." in (tmp_path / "r.md").read_text()
    with pytest.raises(NearfarError, match="sts12 is nowhere"):
        evaluate(letters, tasks=["sts12", "stsb"], progress=False)


def test_if_no_task_can_be_had_that_is_an_error(monkeypatch):
    monkeypatch.setattr(module, "load_task", some_tasks())
    with pytest.raises(NearfarError, match=r"none of the tasks can be had\. sts12 is nowhere"):
        evaluate(letters, progress=False)


def test_splits_of_one_set_are_scored_as_one(monkeypatch):
    pairs = some_tasks("sickr-full")("sickr-full")["one"]
    monkeypatch.setattr(module, "load_task", lambda name: {"train": pairs, "test": pairs[::-1]})
    task = evaluate(letters, tasks=["sickr-full"], resamples=0, progress=False)["tasks"]["sickr-full"]
    assert list(task["subsets"]) == ["train+test"]
    assert task["subsets"]["train+test"]["gold"] == [0, 1, 2, 3, 4, 4, 3, 2, 1, 0]
    assert task["spearman"]["mean"] == task["spearman"]["all"]


def test_settings_of_an_encoder_mean_nothing_to_a_function(pairs_file):
    with pytest.raises(NearfarError, match="pooling is a setting"):
        evaluate(letters, tasks=[pairs_file], pooling="mean", progress=False)


def test_an_output_that_cannot_be_written_stops_before_the_work(tmp_path):
    with pytest.raises(NearfarError, match=r"ends in \.json"):
        evaluate(lambda texts: pytest.fail("encoded"), output=tmp_path / "r.txt", progress=False)


def test_a_model_that_is_nowhere_is_an_error(pairs_file, tmp_path):
    with pytest.raises(NearfarError, match="absent"):
        evaluate(tmp_path / "absent", tasks=[pairs_file], progress=False)


@pytest.mark.realdata
def test_all_tasks_fit_a_small_file(nearfar_data, tmp_path):
    def lengths(texts):
        # cosines with all six decimals, as a real encoder's
        return np.random.default_rng(0).normal(size=(len(texts), 8)) + letters(texts)[:, :8]

    file = tmp_path / "r.json"
    result = evaluate(lengths, resamples=10, output=file, progress=False)
    assert list(result["tasks"]) == list(STS_TASKS)
    assert len(result["averages"]) == 2
    assert file.stat().st_size < 350_000
    assert json.loads(file.read_text(encoding="utf-8")) == result


PUBLISHED = {  # Spearman over all pairs, from MTEB's results repository
    "sts12": 72.37,
    "sts13": 80.60,
    "sts14": 75.59,
    "sts15": 85.39,
    "sts16": 78.99,
    "stsb": 82.03,
    "sickr-full": 77.58,
}


@pytest.mark.realdata
def test_all_minilm_has_its_published_scores(nearfar_data: Path) -> None:
    result = evaluate("sentence-transformers/all-MiniLM-L6-v2", tasks=tuple(PUBLISHED), resamples=0, progress=False)
    for task, published in PUBLISHED.items():
        assert result["tasks"][task]["spearman"]["all"]["score"] == pytest.approx(published, abs=0.03), task
