"""Every shipped config of ``nearfar finetune`` loads, matches the experiment in its file name, and can start."""

from pathlib import Path
from typing import Any

import pytest

from nearfar.config import FinetuneConfig, build, dump_toml, load_toml
from nearfar.data.named_sets import FINETUNING_TASKS

ROOT = Path(__file__).parents[2]
CONFIGS = [file for file in sorted((ROOT / "configs").glob("*.toml")) if not file.stem.startswith("back-translate")]
FINETUNES = [file for file in CONFIGS if issubclass(load_toml(file)[0], FinetuneConfig)]


def finetuned(file: Path, **changes: Any) -> FinetuneConfig:
    _, values = load_toml(file)
    return build(FinetuneConfig, {"output": "x", **values, **changes}, source=file)


TABLES = {"few-shot": 2, "noise": 3, "full": 5, "transfer": 7}
"""Experiment of Gunel et al. 2021 -> its table."""
TASKS_OF = {
    "few-shot": "sst2",
    "noise": "sst2",
    "full": "cola mnli mrpc qnli rte sst2",
    "transfer": "amazon2 sst2 yelp2",
}
SAMPLE_SIZES = {"few-shot": 100, "noise": 100, "full": None}


def experiment(file: Path) -> tuple[str, str]:
    """Return the experiment and the task in a file name."""
    author, _, rest = file.stem.partition("-")
    assert author == "gunel"
    experiment_name, _, task = rest.rpartition("-")
    return experiment_name, task


GUNEL = [file for file in FINETUNES if file.stem.startswith("gunel")]
KIM = [file for file in FINETUNES if file.stem.startswith("kim")]


def test_every_experiment_of_gunel_has_configs() -> None:
    found: dict[str, list[str]] = {}
    for file in GUNEL:
        experiment_name, task = experiment(file)
        found.setdefault(experiment_name, []).append(task)
    assert {experiment_name: " ".join(tasks) for experiment_name, tasks in found.items()} == TASKS_OF


@pytest.mark.parametrize("file", FINETUNES, ids=lambda file: file.stem)
def test_a_finetune_config_loads_and_survives_a_round_trip(file: Path, tmp_path: Path) -> None:
    config = finetuned(file)
    assert config.task in FINETUNING_TASKS
    assert file.stem.endswith(config.task.removesuffix("-glue"))
    (tmp_path / "again.toml").write_text(dump_toml(config))
    assert finetuned(tmp_path / "again.toml") == config


@pytest.mark.parametrize("file", GUNEL, ids=lambda file: file.stem)
def test_a_config_of_gunel_matches_the_experiment_in_its_name(file: Path) -> None:
    experiment_name, task = experiment(file)
    text = file.read_text(encoding="utf-8")
    head = text.partition("method =")[0]
    assert head.startswith("# Gunel et al. 2021, ")
    assert f"Table {TABLES[experiment_name]}" in head
    assert "# ours" in text  # the tables do not give the number of epochs
    config = finetuned(file)
    reviews = task in ("amazon2", "yelp2")
    assert config.model == ("runs/sst2-scl/model" if reviews else "FacebookAI/roberta-large")
    assert config.splits == ("auto" if reviews else "few-shot" if experiment_name in ("few-shot", "noise") else "full")
    assert config.sample_size == SAMPLE_SIZES.get(experiment_name, 40 if reviews else None)
    noise = ("bt-0.9.tsv", "add") if experiment_name == "noise" else ("none", "replace")
    assert (config.noise, config.noise_mode) == noise
    assert config.metric == ("accuracy" if task == "cola" else None)
    assert (config.scl_weight, config.temperature, config.learning_rate, config.batch_size) == (0.9, 0.3, 1e-5, 16)
    if file.stem == "gunel-transfer-sst2":
        assert all(f"--output runs/sst2-{loss}" in head for loss in ("ce", "scl"))


def test_the_glue_configs_of_kim_divide_the_validation_set() -> None:
    assert [file.stem for file in KIM] == [f"kim-glue-{task}" for task in ("cola", "mrpc", "qnli", "rte", "sst2")]
    for file in KIM:
        config = finetuned(file)
        assert (config.model, config.splits, config.scl_weight) == ("google-bert/bert-base-uncased", "10-90", 0)
        assert "(Table 10)" in file.read_text(encoding="utf-8")


def test_the_config_of_the_review_equals_its_command() -> None:
    config = finetuned(ROOT / "configs" / "simcse-review-stsb.toml")
    assert (config.batch_size, config.epochs, config.learning_rate, config.max_length) == (16, 10, 2e-5, 128)
    assert round(config.warmup * 10 * -(-5749 // 16)) == 214
    assert (config.keep, config.weight_decay, config.schedule) == ("last", 0.0, "linear")
