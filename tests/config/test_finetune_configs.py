"""Every shipped config of ``nearfar finetune`` loads, matches the experiment in its file name, and can start."""

from pathlib import Path
from typing import Any

import pytest

from nearfar.commands.finetune import study as module
from nearfar.commands.finetune.plan import plan_runs
from nearfar.commands.finetune.study import finetune_study
from nearfar.config import FinetuneConfig, FinetuneStudyConfig, build, dump_toml, load_toml, split_list
from nearfar.data.named_sets import FINETUNING_TASKS
from tests.finetune_study_helpers import Runs, write

ROOT = Path(__file__).parents[2]
CONFIGS = [file for file in sorted((ROOT / "configs").glob("*.toml")) if not file.stem.startswith("back-translate")]
FINETUNES = [file for file in CONFIGS if issubclass(load_toml(file)[0], FinetuneConfig)]


def finetuned(file: Path) -> FinetuneStudyConfig:
    _, values = load_toml(file)
    return build(FinetuneStudyConfig, {"output": "x", **values}, source=file)


AXES = {
    "few-shot": {"few_shot": "20,100,1000"},
    "full": {},
    "noise": {"sample_size": 100},
    "batch-size": {"batch_sizes": "16,64,256"},
    "grid": {"sample_size": 100, "scl_weights": "0.1,0.3,0.5,0.7,0.9,1.0", "temperatures": "0.1,0.3,0.5,0.7"},
    "transfer": {"few_shot": "40"},
}
SPLITS = {"few-shot": "few-shot", "noise": "few-shot", "grid": "few-shot", "full": "full", "batch-size": "full"}
"""Experiment of Gunel et al. 2021 -> what makes it one."""
TABLES = {"few-shot": 2, "noise": 3, "full": 5, "batch-size": 6, "transfer": 7, "grid": 2}
TASKS_OF = {
    "few-shot": "mnli qnli sst2",
    "noise": "mnli qnli sst2",
    "full": "cola mnli mrpc qnli rte sst2",
    "batch-size": "cola mnli qnli sst2",
    "transfer": "amazon2 sst2 yelp2",
    "grid": "sst2",
}


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
    kind, values = load_toml(file)
    config = build(kind, {"output": "x", **values}, source=file)
    assert config.task in FINETUNING_TASKS
    assert file.stem.endswith(config.task.removesuffix("-glue"))
    (tmp_path / "again.toml").write_text(dump_toml(config))
    again, values = load_toml(tmp_path / "again.toml")
    assert (again, build(again, values, source=file)) == (kind, config)
    assert finetuned(file).is_study == (kind is FinetuneStudyConfig)


@pytest.mark.parametrize("file", GUNEL, ids=lambda file: file.stem)
def test_a_config_of_gunel_matches_the_experiment_in_its_name(file: Path) -> None:
    experiment_name, task = experiment(file)
    text = file.read_text(encoding="utf-8")
    head = text.partition("method =")[0]
    assert head.startswith("# Gunel et al. 2021, ")
    assert f"Table {TABLES[experiment_name]}" in head
    assert "# ours" in text  # the tables do not give the number of epochs
    config = finetuned(file)
    size = "base" if experiment_name == "batch-size" else "large"
    starts = ("runs/sst2-ce/model", "runs/sst2-scl/model")
    assert (config.model, config.scl_model) in ((f"FacebookAI/roberta-{size}", None), starts)
    assert config.splits == SPLITS.get(experiment_name, "full" if task == "sst2" else "auto")
    assert config.noise_mode == ("add" if experiment_name == "noise" else "replace")
    assert config.metric == ("accuracy" if task == "cola" else None)
    assert (config.model == starts[0]) == (task in ("amazon2", "yelp2"))
    assert (config.scl_weight, config.temperature, config.learning_rate, config.batch_size) == (0.9, 0.3, 1e-5, 16)
    if file.stem == "gunel-transfer-sst2":
        assert not config.is_study
        assert all(f"--output {start.removesuffix('/model')}" in head for start in starts)
        return
    assert config.samples == 10
    expected = (
        dict.fromkeys(("few_shot", "batch_sizes", "scl_weights", "temperatures", "sample_size")) | AXES[experiment_name]
    )
    assert {name: getattr(config, name) for name in expected} == expected
    noises = ["none", *(f"bt-{task}-{temperature}.tsv" for temperature in (0.3, 0.5, 0.7, 0.9))]
    assert split_list(config.noises) == (noises if experiment_name == "noise" else [])
    runs = {"few-shot": 60, "noise": 100, "full": 20, "batch-size": 60, "transfer": 20, "grid": 240}
    assert len(plan_runs(config)) == runs[experiment_name]


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


STUDIES = [file for file in GUNEL if load_toml(file)[0] is FinetuneStudyConfig]


@pytest.mark.long
@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_a_study_of_gunel_can_start(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = Runs()
    monkeypatch.setattr(module, "finetune_in_memory", runs)
    monkeypatch.setattr(module, "fingerprint_model", str)  # the models of the configs are on the hub
    changes: dict[str, Any] = {"task": write(tmp_path / "rows.tsv", 2000, seed=1), "samples": 1, "output": "study"}
    changes["test"] = write(tmp_path / "test.tsv", 400, seed=2)
    for noise in split_list(finetuned(file).noises)[1:]:
        texts = [line.split("\t")[1] for line in Path("rows.tsv").read_text().splitlines()[1:]]
        Path(noise).write_text("sentence\ttranslation\n" + "".join(f"{text}\tnoisy {text}\n" for text in texts))
    _, values = load_toml(file)
    config = build(FinetuneStudyConfig, {**values, **changes}, source=file)
    assert len(finetune_study(config).cells) == len(runs.configs) == len(plan_runs(config))
