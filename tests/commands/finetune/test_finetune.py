"""Fine-tuning by the public functions: learning, output files, resuming, and errors."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from nearfar import FinetuneConfig
from nearfar.commands.finetune import (
    FinetuneResult,
    finetune,
    load_task,
    open_classifier,
    prepare,
    recommended_settings,
)
from nearfar.data.classification import ClassificationTask
from nearfar.encoder.classifier import Classifier
from nearfar.evaluation import results
from nearfar.settings import dump_toml
from nearfar.types import NearfarError
from tests import interrupted_runs
from tests.encoder.tiny_pairs import save_tiny_for_pairs
from tests.interrupted_runs import interrupt_at_step, lines_of
from tests.tiny import WORDS

pytestmark = pytest.mark.long

LABELS = {"fruit": ("apple", "ball"), "pet": ("dog", "cat"), "water": ("river", "by")}
NEUTRAL = [word for word in WORDS if not any(word in words for words in LABELS.values())]


def separable(count: int, *, seed: int = 0, labels: tuple[str, ...] = ("fruit", "pet")) -> list[tuple[str, str]]:
    """Texts and their labels; each text contains a word of its label."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        label = labels[number % len(labels)]
        words = [*draw.choices(NEUTRAL, k=draw.randint(2, 6)), draw.choice(LABELS[label])]
        draw.shuffle(words)
        rows.append((" ".join(words), label))
    draw.shuffle(rows)
    return rows


def write(file: Path, rows: list[tuple[str, ...]], header: str = "text\tlabel") -> str:
    file.write_text("\n".join([header, *("\t".join(row) for row in rows)]) + "\n", encoding="utf-8")
    return str(file)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[FinetuneConfig, FinetuneResult]:
    """A finished run of 32 steps of 10 rows, evaluated every 5, a checkpoint every 3."""
    folder = tmp_path_factory.mktemp("whole")
    rows = enumerate({"task": 80, "validation": 40, "test": 60}.items())
    files = {part: write(folder / f"{part}.tsv", separable(count, seed=seed)) for seed, (part, count) in rows}
    steps = {"batch_size": 10, "epochs": 4, "evaluate_every": 5, "checkpoint_every": 3}
    loss = {"scl_weight": 0.5, "scl_reduction": "mean", "learning_rate": 3e-3, "max_length": 20}
    model = str(save_tiny_for_pairs(folder / "tiny"))
    config = FinetuneConfig(output=str(folder / "run"), model=model, **files, **steps, **loss)
    return config, finetune(config)


@pytest.fixture
def config(finished_run: tuple[FinetuneConfig, FinetuneResult], tmp_path: Path) -> FinetuneConfig:
    """The same config with another folder."""
    return replace(finished_run[0], output=str(tmp_path / "run"))


def entry_of(result: results.EvaluationResult) -> results.TransferScores:
    (entry,) = result.transfer.tasks.values()
    return entry


def assert_same_run(first: str, second: str) -> None:
    """Check that metrics, weights and predictions are bit-identical."""
    interrupted_runs.assert_same_run(first, second)
    entries = [entry_of(results.EvaluationResult.load(Path(run) / "result.json")) for run in (first, second)]
    assert entries[0].predicted == entries[1].predicted


# --- results and output files ---


def test_a_run_beats_chance_and_writes_model_result_and_run_info(
    finished_run: tuple[FinetuneConfig, FinetuneResult],
) -> None:
    config, finished = finished_run
    run = Path(config.output)
    expected_files = ["config.toml", "metrics.jsonl", "model", "nearfar_seen.safetensors"]
    expected_files += ["result.json", "result.md", "run.json"]
    assert sorted(path.name for path in run.iterdir()) == expected_files
    assert (run / "config.toml").read_text() == dump_toml(config)
    assert finished.steps == 32
    result = results.EvaluationResult.load(run / "result.json")
    assert result == finished.result
    assert (result.model, result.config["training_seed"]) == (config.output, config.seed)
    entry = entry_of(result)
    assert list(result.all_tasks) == [config.test]
    assert (entry.rows, entry.classes, entry.protocol) == (60, ["fruit", "pet"], "finetune")
    assert entry.accuracy.low > 60

    steps = [line for line in lines_of(config.output) if "loss" in line]
    assert [line["step"] for line in steps] == list(range(1, 33))
    assert np.mean([line["ce"] for line in steps[-8:]]) < 0.75 * steps[0]["ce"]
    scores = [(line["step"], line["accuracy"]) for line in lines_of(config.output) if "metric" in line]
    assert [step for step, _ in scores] == [0, 5, 10, 15, 20, 25, 30, 32]
    assert (finished.start_score, finished.best_score) == (scores[0][1], max(score for _, score in scores[1:]))
    assert dict(scores)[finished.best_step] == finished.best_score
    assert entry.dev_accuracy == pytest.approx(100 * finished.best_score)
    training = result.training
    assert (training.validation, training.metric) == (entry.dev_accuracy, "accuracy")
    assert (training.steps, training.best_step) == (finished.steps, finished.best_step)
    assert json.loads((run / "run.json").read_text())["data"] == result.config["data"]


@pytest.mark.parametrize(
    ("rows", "width", "given", "epochs", "rate"),
    [
        (30, 32, {}, 60, 1e-4),
        (96, 768, {}, 25, 2e-5),
        (96, None, {"batch_size": 4}, 7, 2e-5),
        (5000, 384, {"sample_size": 100, "learning_rate": 3e-5}, 24, 3e-5),
    ],
)
def test_rows_and_encoder_choose_the_settings(
    rows: int, width: int | None, given: dict[str, Any], epochs: int, rate: float, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({} if width is None else {"hidden_size": width}))
    task = write(tmp_path / "rows.tsv", separable(rows))
    settings = {"task": task, "model": str(tmp_path), "output": str(tmp_path / "run"), **given}
    made = recommended_settings(FinetuneConfig(**settings)) | given
    assert (made["epochs"], made["learning_rate"]) == (epochs, rate)
    assert (made["scl_weight"], made["scl_reduction"]) == (0.5, "mean")


def test_settings_by_name_get_those_of_the_recipe_and_a_config_its_own(config: FinetuneConfig, tmp_path: Path) -> None:
    """The same as on the command line."""
    short = {name: getattr(config, name) for name in ("task", "model", "batch_size")} | {"max_steps": 1}
    for name, run in (("one", finetune), ("two", lambda **own: finetune(FinetuneConfig(**own)))):
        run(output=str(tmp_path / name), epochs=9, **short)
    made, default = (json.loads((tmp_path / name / "run.json").read_text())["config"] for name in ("one", "two"))
    assert (made["epochs"], made["learning_rate"], made["scl_weight"]) == (9, 1e-4, 0.5)
    assert (default["epochs"], default["learning_rate"], default["scl_weight"]) == (9, 1e-5, 0.9)


def test_the_model_gives_the_results_predictions(finished_run: tuple[FinetuneConfig, FinetuneResult]) -> None:
    entry, folder = entry_of(finished_run[1].result), Path(finished_run[0].output) / "model"
    assert len(set(entry.predicted)) == 2
    texts = [text for text, _ in separable(60, seed=2)]
    theirs = AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert theirs.config.id2label == {0: "fruit", 1: "pet"}
    with torch.no_grad():
        found = [int(theirs(**tokenizer(text, return_tensors="pt")).logits.argmax()) for text in texts]
    assert found == entry.predicted
    ours = Classifier.from_pretrained(folder)
    assert (ours.label_names, ours.max_length) == (("fruit", "pet"), 20)
    assert ours.predict([(text,) for text in texts]).argmax(axis=1).tolist() == entry.predicted


def test_the_loss_changes_neither_the_rows_nor_the_head_nor_the_batches(config: FinetuneConfig) -> None:
    """Cross-entropy and SCL can be compared run by run."""
    heads, batches = [], []
    for seed, weight in ((1, 0.0), (1, 0.9), (2, 0.0)):
        one = replace(config, sample_size=8, sample_seed=seed, seed=seed, scl_weight=weight, batch_size=3)
        task = load_task(one)
        classifier = open_classifier(one, task, device="cpu")
        heads.append(torch.cat([parameter.flatten() for parameter in classifier.model.classifier.parameters()]))
        mixture = prepare(one, task, classifier).mixture
        rows = [parts[0][1].rows for epoch in range(3) for parts in mixture.epoch(epoch)]
        batches.append([[task.train.texts[row] for row in batch] for batch in rows])
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])
    assert batches[0] == batches[1] != batches[2]


# --- interrupted and resumed ---


def test_a_resumed_run_ends_bit_identical(
    config: FinetuneConfig, finished_run: tuple[FinetuneConfig, FinetuneResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    for resume, step in ((False, 4), (True, 31)):
        interrupt_at_step(step, monkeypatch, lambda: finetune(config, resume=resume))  # noqa: B023  (called at once)
        assert not (Path(config.output) / "result.json").exists()
        kept = json.loads((Path(config.output) / "checkpoint" / "progress.json").read_text())["step"]
        assert kept == (step - 1) // 3 * 3
    finished = finetune(config, resume=True)
    assert_same_run(config.output, finished_run[0].output)
    assert (finished.best_step, finished.start_score) == (finished_run[1].best_step, finished_run[1].start_score)


# --- what the best step depends on ---


def test_steps_are_chosen_by_the_validation_rows_only(
    config: FinetuneConfig, finished_run: tuple[FinetuneConfig, FinetuneResult], tmp_path: Path
) -> None:
    texts, labels = zip(*separable(60, seed=2), strict=True)
    mixed = random.Random(0).sample(labels, len(labels))
    test = write(tmp_path / "test.tsv", list(zip(texts, mixed, strict=True)))
    finished, other = finished_run[1], finetune(replace(config, test=test))
    assert lines_of(config.output) == lines_of(finished_run[0].output)
    assert (other.best_step, other.best_score) == (finished.best_step, finished.best_score)
    entries = entry_of(finished.result), entry_of(other.result)
    assert entries[0].predicted == entries[1].predicted
    assert entries[0].accuracy != entries[1].accuracy


# --- labels, pairs, scores ---


def test_three_labels_in_pairs_by_named_columns(config: FinetuneConfig, tmp_path: Path) -> None:
    rows = [("a dog runs", text, label) for text, label in separable(120, labels=("fruit", "pet", "water"))]
    file = write(tmp_path / "pairs.tsv", rows, "question\tanswer\tkind")
    changes = {"task": file, "validation": None, "test": None, "validation_rows": 24}
    changes |= {"text_columns": ("question", "answer"), "label_column": "kind", "epochs": 10}
    finished = finetune(replace(config, **changes, balanced=True, batch_size=9))
    entry = entry_of(finished.result)
    assert (entry.classes, entry.rows) == (["fruit", "pet", "water"], 24)
    assert entry.accuracy.score > 60
    assert finished.result.config["data"][1].startswith("validation: of train, drawn by seed 0")


def test_scores_are_a_regression(config: FinetuneConfig, tmp_path: Path) -> None:
    def scored(count: int, seed: int) -> list[tuple[str, str]]:
        return [(text, "0.5" if label == "fruit" else "4") for text, label in separable(count, seed=seed)]

    parts = enumerate({"task": 80, "validation": 40, "test": 60}.items())
    files = {part: write(tmp_path / f"{part}.tsv", scored(count, seed)) for seed, (part, count) in parts}
    config = replace(config, **files, epochs=6)
    finished = finetune(config)
    entry = entry_of(finished.result)
    assert entry.kind == "relatedness"
    assert entry.pearson.low > 30
    assert finished.best_score == pytest.approx(entry.dev_pearson / 100)
    assert 0 < entry.dev_spearman != entry.dev_pearson
    assert (finished.result.training.metric, finished.result.training.validation) == ("pearson", entry.dev_pearson)
    theirs = AutoModelForSequenceClassification.from_pretrained(Path(config.output) / "model")
    assert (theirs.config.num_labels, theirs.config.problem_type) == (1, "regression")


# --- samples and noise ---


def changed(config: FinetuneConfig, **changes: object) -> tuple[ClassificationTask, ClassificationTask]:
    """The task with and without the changes to the config; validation and test rows must be the same."""
    before, after = load_task(config), load_task(replace(config, **changes))  # type: ignore[arg-type]
    assert (after.validation, after.test, after.label_names) == (before.validation, before.test, before.label_names)
    assert after.sources[:3] == before.sources
    return before, after


def test_samples_are_balanced_or_proportional(config: FinetuneConfig, tmp_path: Path) -> None:
    rows = [row for number, row in enumerate(separable(160)) if row[1] == "pet" or number % 4 == 0]
    config = replace(config, task=write(tmp_path / "uneven.tsv", rows))
    share = sum(label == "fruit" for _, label in rows) / len(rows)
    before, balanced = changed(config, sample_size=20)
    assert [balanced.train.targets.count(label) for label in (0, 1)] == [10, 10]
    _, proportional = changed(config, sample_size=20, sample_balanced=False)
    assert proportional.train.targets.count(0) == round(20 * share) < 10
    whole = dict(zip(before.train.texts, before.train.targets, strict=True))
    assert all(whole[text] == target for text, target in zip(balanced.train.texts, balanced.train.targets, strict=True))
    assert balanced.sources[3] == f"20 of {len(rows)} training rows drawn, balanced over labels, sample 1"


def test_noise_changes_only_the_training_texts(config: FinetuneConfig) -> None:
    before, after = changed(config, noise="word-swap", noise_rate=0.5)
    assert after.train.targets == before.train.targets
    differ = sum(one != other for one, other in zip(before.train.texts, after.train.texts, strict=True))
    assert 40 < differ <= 80
    _, added = changed(config, noise="word-swap", noise_rate=0.5, noise_mode="add")
    assert added.train.texts == before.train.texts + after.train.texts
    assert added.train.targets == before.train.targets * 2
    assert added.sources[3] == "noise: word-swap at 0.5, as copies beside the originals: 160 training rows"


def test_translations_replace_training_texts(config: FinetuneConfig, tmp_path: Path) -> None:
    pairs = [(text, f"the {number}", label) for number, (text, label) in enumerate(separable(80))]
    file = write(tmp_path / "pairs.tsv", pairs, "sentence1\tsentence2\tlabel")
    config = replace(config, task=file, validation=None, test=None)
    texts = dict.fromkeys(text for pair in pairs for text in pair[:2])
    back = write(tmp_path / "back.tsv", [(text, f"so {text}") for text in texts], "sentence\ttranslation")
    before, after = changed(config, noise=back)
    assert after.train.texts == [tuple(f"so {text}" for text in row) for row in before.train.texts]
    with pytest.raises(NearfarError, match="--noise word-drop: is none of word-dropout, word-swap, characters, and"):
        load_task(replace(config, noise="word-drop"))
