"""Evaluations from the task's name to the file on disk, with functions for models."""

from pathlib import Path

import numpy as np
import pytest

import nearfar.commands.evaluate.tasks as module
from nearfar.commands.compare import compare
from nearfar.commands.evaluate import evaluate
from nearfar.data.named_sets import suite_tasks
from nearfar.evaluation.results import EvaluationResult
from nearfar.types import NearfarError, ScoredPair
from tests.tiny import save_tiny, sentences


def letters(texts):
    """Counts of the letters a to z: similar strings have similar vectors."""
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
    assert EvaluationResult.load(tmp_path / "out" / "r.json") == result
    assert result.model == "letters"
    assert list(result.tasks) == [pairs_file]
    assert result.tasks[pairs_file].pairs == 5
    assert result.tasks[pairs_file].spearman.all.score > 80
    assert result.config == {
        "tasks": [pairs_file],
        "pooling": None,
        "transductive": False,
        "max_length": None,
        "precision": "fp32",
        "resamples": 20,
        "seed": 0,
        "training_seed": None,
    }
    assert (tmp_path / "out" / "r.md").read_text(encoding="utf-8").startswith("# Evaluation of letters\n")


def some_tasks(*available):
    def load_task(name):
        if name not in available:
            raise NearfarError(f"{name} is nowhere.")
        texts = ["ab", "abc", "cd", "xyz", name]
        return {"one": [ScoredPair("ab", text, float(score)) for score, text in enumerate(texts)]}

    return load_task


def test_a_missing_default_task_is_noted(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "load_task", some_tasks("stsb", "sickr"))
    result = evaluate(letters, resamples=0, progress=False, output=tmp_path / "r.json")
    assert list(result.tasks) == ["stsb", "sickr"]
    assert list(result.unavailable) == [task for task in suite_tasks("sts") if task not in ("stsb", "sickr")]
    assert "sts14: not evaluated. sts14 is nowhere." in (tmp_path / "r.md").read_text()
    with pytest.raises(NearfarError, match="sts12 is nowhere"):
        evaluate(letters, tasks=["sts12", "stsb"], progress=False)


def test_splits_of_one_set_are_scored_as_one(monkeypatch):
    pairs = some_tasks("sickr-full")("sickr-full")["one"]
    monkeypatch.setattr(module, "load_task", lambda name: {"train": pairs, "test": pairs[::-1]})
    task = evaluate(letters, tasks=["sickr-full"], resamples=0, progress=False).tasks["sickr-full"]
    assert list(task.subsets) == ["train+test"]
    assert task.subsets["train+test"].gold == [0, 1, 2, 3, 4, 4, 3, 2, 1, 0]
    assert task.spearman.mean == task.spearman.all


@pytest.fixture
def labelled_file(tmp_path):
    rng = np.random.default_rng(0)
    rows = ["text\tlabel"]
    for number in range(120):
        label = "vowels" if number % 3 else "others"
        letters_ = rng.choice(list("aeiou" if label == "vowels" else "bcdfg"), size=4)
        rows.append(f"{''.join(letters_)}{'ab'[number % 2]} {number % 40}\t{label}")
    file = tmp_path / "labelled.tsv"
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(file)


@pytest.mark.long
def test_only_own_pairs_and_labelled_texts_are_scored(pairs_file, labelled_file, tmp_path):
    encoded = []

    def counting(texts):
        encoded.extend(texts)
        return letters(texts)

    settings = {"protocol": "exact", "folds": 3, "resamples": 20, "progress": False}
    result = evaluate(counting, pairs=[pairs_file], labelled=[labelled_file], output=tmp_path / "r.json", **settings)
    assert len(encoded) == len(set(encoded)) == result.texts
    assert list(result.tasks) == [pairs_file]
    assert list(result.transfer.tasks) == [labelled_file]
    probed = result.transfer.tasks[labelled_file]
    assert probed.accuracy.low <= probed.accuracy.score
    assert probed.accuracy.score > 90
    assert EvaluationResult.load(tmp_path / "r.json") == result
    assert "labelled.tsv | 120 | accuracy |" in (tmp_path / "r.md").read_text()
    separate = evaluate(letters, labelled=labelled_file, **settings)
    assert separate.tasks == {}
    assert separate.transfer.tasks == result.transfer.tasks
    with pytest.raises(NearfarError, match="both by --tasks and by --labelled"):
        evaluate(letters, tasks=[labelled_file], labelled=[labelled_file], progress=False)


@pytest.mark.long
def test_probe_settings_are_used_recorded_and_compared(labelled_file, tmp_path):
    settings = {"labelled": labelled_file, "resamples": 0, "progress": False, "folds": 3}
    usual = evaluate(letters, output=tmp_path / "usual.json", **settings)
    fast = evaluate(letters, probe_preset="liao", probe_l2=[1e-2, 1e-1], output=tmp_path / "fast.json", **settings)
    fixed = {"seed": 1111, "fold_seed": 1111, "optimiser": "adam", "learning_rate": 1e-3, "max_epochs": 200}
    fixed |= {"batch_size": 64, "tenacity": 5, "epoch_size": 4, "l2": [1e-5, 1e-4, 1e-3, 1e-2]}
    assert usual.transfer.probe.to_dict() == {"preset": "senteval", **fixed}
    assert (fast.transfer.probe.preset, fast.transfer.probe.optimiser, fast.transfer.folds) == ("liao", "rmsprop", 3)
    assert fast.transfer.tasks[labelled_file].grid.l2 == [1e-2, 1e-1]
    assert "protocol senteval, 0 hidden units, 3 folds, rmsprop, batch size 128" in (tmp_path / "fast.md").read_text()
    assert EvaluationResult.load(tmp_path / "fast.json") == fast
    exact = evaluate(letters, protocol="exact", probe_preset="liao", **settings)
    assert exact.transfer.probe.to_dict() == {"preset": "liao", "seed": 1111, "fold_seed": 1111}
    refused = r"or in different ways.* 3 folds; .*3 folds, rmsprop, batch size 128, tenacity 3, a check every 2 epochs"
    with pytest.raises(NearfarError, match=refused):
        compare(tmp_path / "usual.json", tmp_path / "fast.json", progress=False)
    # a model is evaluated as the file was, and runs of other probe seeds are comparable
    assert compare(tmp_path / "fast.json", letters, progress=False).tasks[labelled_file].difference == 0
    seeded = [evaluate(letters, probe_seed=seed, **settings) for seed in (1, 2, 3)]
    assert [one.transfer.probe.seed for one in seeded] == [1, 2, 3]
    dev = {str(one.transfer.tasks[labelled_file].grid.dev_accuracy) for one in seeded}
    assert len(dev) > 1
    assert compare(seeded, usual, progress=False).tasks[labelled_file].difference is not None


@pytest.mark.long
def test_a_nan_leaves_out_only_the_tasks_with_that_text(pairs_file, labelled_file):
    def broken(texts):
        vectors = letters(texts)
        vectors[[text == "xyz" for text in texts]] = np.nan
        return vectors

    settings = {"protocol": "exact", "folds": 3, "resamples": 0, "progress": False}
    result = evaluate(broken, pairs=pairs_file, labelled=labelled_file, **settings)
    assert "'xyz'" in result.unavailable[pairs_file]
    assert result.transfer.tasks[labelled_file].accuracy.score > 90
    with pytest.raises(NearfarError, match=r"mine\.tsv: the vectors of 1 of its texts hold NaN or infinity"):
        evaluate(broken, pairs=pairs_file, progress=False)


@pytest.mark.long
def test_a_baseline_fitted_on_a_task_does_not_depend_on_other_tasks(pairs_file, tmp_path):
    """A task on which the baseline cannot be fitted does not affect the others."""
    save_tiny(tmp_path / "tiny")
    texts = sentences(120)
    for name, task_texts in (("few", texts[:40]), ("many", texts)):
        pairs = zip(task_texts[::2], task_texts[1::2], strict=True)
        lines = [f"{number % 6}\t{first}\t{second}" for number, (first, second) in enumerate(pairs)]
        (tmp_path / name).with_suffix(".tsv").write_text(
            "\n".join(["score\tsentence1\tsentence2", *lines]) + "\n", encoding="utf-8"
        )
    many, few = (str(tmp_path / f"{name}.tsv") for name in ("many", "few"))
    settings = {"resamples": 0, "progress": False}
    for baseline in ("whitening", "flow"):
        spec = f"{baseline}:{tmp_path / 'tiny'}"
        separate = evaluate(spec, tasks=[many], **settings)
        together = evaluate(spec, tasks=[few, many], **settings)
        assert together.tasks[many] == separate.tasks[many]
    assert list(together.tasks) == [many]  # a flow's batch has 64 texts
    assert "batch_size is 64" in together.unavailable[few]


PUBLISHED = {  # Spearman over all pairs, from MTEB's results repository
    "sts12": 72.37,
    "sts13": 80.60,
    "sts14": 75.59,
    "sts15": 85.39,
    "sts16": 78.99,
    "stsb": 82.03,
    "sickr-full": 77.58,
}


@pytest.mark.nightly
@pytest.mark.realdata
def test_all_minilm_has_its_published_scores(nearfar_data: Path) -> None:
    result = evaluate("sentence-transformers/all-MiniLM-L6-v2", tasks=tuple(PUBLISHED), resamples=0, progress=False)
    for task, published in PUBLISHED.items():
        assert result.tasks[task].spearman.all.score == pytest.approx(published, abs=0.03), task
