"""Fine-tuning studies on the command line: errors before the first run, settings, tables, Ctrl-C."""

import json
import os
import signal
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nearfar.cli import main
from nearfar.commands.finetune import command as single_runs
from nearfar.commands.finetune import study as module
from nearfar.commands.finetune.plan import plan_runs
from nearfar.commands.finetune.rows import load_task
from nearfar.commands.finetune.study import finetune_study
from nearfar.config import FinetuneConfig, FinetuneStudyConfig, build, dump_toml, load_toml
from nearfar.data.classification import ClassificationTask
from nearfar.evaluation.results import StudyResult
from nearfar.runs.execute import Job
from nearfar.training.loop import Evaluation, Interrupted
from nearfar.types import NearfarError
from tests.finetune_study_helpers import Runs, keys, lines_of, write

pytestmark = pytest.mark.long

# --- errors before the first run ---


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"few_shot": "4,9999"}, "A sample of 9999 rows cannot be drawn"),
        ({"few_shot": "4,30"}, "The label 'cat' has 14 rows, but a balanced sample of 30 needs 15"),
        ({"noises": "none,word-dropot:0.1"}, "--noise word-dropot: is none of word-dropout, word-swap, characters"),
        (
            {"noises": "word-dropout:abc"},
            "--noises word-dropout:abc: must be KIND:RATE, as in word-dropout:0.1, or the name of a file",
        ),
        ({"noises": "word-dropout:2"}, "--noise-rate 2.0: must be between 0 and 1"),
        ({"noises": "nowhere.tsv"}, "--noise nowhere.tsv: .* there is no such file"),
        ({"noises": "none,none"}, "give each setting once"),
        ({"few_shot": None, "scl_weights": "0.3,0.30000001"}, "give each setting once"),
        ({"batch_sizes": "16,0"}, "--batch-size 0: must be at least 1"),
        ({"few_shot": None, "scl_weights": "0.1,1.5"}, "--scl-weight 1.5: must be between 0 and 1"),
    ],
)
def test_errors_are_found_before_the_first_run(
    config: FinetuneStudyConfig, runs: Runs, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    write(tmp_path / "train.tsv", 0, seed=1, shares=(14, 26))
    with pytest.raises(NearfarError, match=message):
        finetune_study(replace(config, **change))
    assert not runs.configs
    assert not Path(config.output).exists()


def test_missing_translations_of_any_sample_are_found_before_the_first_run(
    config: FinetuneStudyConfig, runs: Runs, tmp_path: Path
) -> None:
    tasks = [load_task(replace(config.single, sample_size=4, sample_seed=seed)) for seed in (1, 2)]
    first, second = (task.train.texts for task in tasks)
    assert set(second) - set(first)
    file = tmp_path / "bt.tsv"

    def translate(texts: list[tuple[str, ...]]) -> None:
        file.write_text("sentence\ttranslation\n" + "".join(f"{text}\tübersetzt {text}\n" for (text,) in texts))

    translate(first)
    noisy = replace(config, few_shot="4", noises=f"none,{file}")
    with pytest.raises(NearfarError, match=r"bt\.tsv: no translation of "):
        finetune_study(noisy)
    assert not runs.configs
    translate(sorted({*first, *second}))
    finetune_study(noisy)
    assert [one.noise for one in runs.configs] == ["none", "none", str(file), str(file)] * 2
    assert [{text[:3] for (text,) in task.train.texts} for task in runs.tasks[2:4]] == [{"übe"}, {"übe"}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"few_shot": "4,x"}, "--few-shot 4,x: must be whole numbers separated by commas"),
        ({"few_shot": "4.5"}, "--few-shot 4.5: must be whole numbers"),
        ({"few_shot": "4,"}, "--few-shot 4,: must be whole numbers"),
        ({"batch_sizes": "16;64"}, "--batch-sizes 16;64: must be whole numbers"),
        ({"scl_weights": "a", "few_shot": None}, "--scl-weights a: must be numbers"),
        ({"few_shot": "4,04"}, "--few-shot 4,04: must be 2 or above, each once"),
        ({"few_shot": "4,1"}, "--few-shot 4,1: must be 2 or above, each once"),
        ({"temperatures": "0.1,0.10", "few_shot": None}, "--temperatures 0.1,0.10: .* each once"),
        ({"temperatures": "-0.1", "few_shot": None}, "--temperatures -0.1: must be 0 or above"),
        ({"scl_weights": "0.1"}, "--few-shot: a grid needs a single value here"),
        (
            {"temperatures": "0.1", "few_shot": None, "batch_sizes": "4,8"},
            "--batch-sizes: a grid needs a single value here",
        ),
        ({"samples": 0}, "--samples 0: must be at least 1"),
        ({"sample_size": 20}, "--sample-size and --few-shot exclude each other"),
        ({"noise": "characters", "noises": "none"}, "--noise and --noises exclude each other"),
    ],
)
def test_errors_are_found_before_any_file_is_read(
    config: FinetuneStudyConfig, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(NearfarError, match=message):
        replace(config, **change)


def test_several_processes_are_refused(
    config: FinetuneStudyConfig, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(NearfarError, match="a study runs in one process"):
        finetune_study(config)


# --- its config ---


@pytest.mark.parametrize(
    "flags",
    [
        {"few_shot": "20,100"},
        {"noises": "none,characters:0.1"},
        {"batch_sizes": "16"},
        {"scl_weights": "0.1", "temperatures": "0.3"},
        {"temperatures": "0.3"},
        {"samples": 3},
        {"scl_model": "other"},
    ],
)
def test_each_study_flag_selects_a_study(flags: dict[str, Any], tmp_path: Path) -> None:
    plain = FinetuneStudyConfig(output="x", task="rte", epochs=7, text_columns=("a", "b"), sample_size=None)
    assert not plain.is_study
    config = replace(plain, **flags)
    assert config.is_study
    assert config.single == plain.single == FinetuneConfig(output="x", task="rte", epochs=7, text_columns=("a", "b"))
    (tmp_path / "study.toml").write_text(dump_toml(config))
    assert 'method = "scl-finetune-study"' in (tmp_path / "study.toml").read_text()
    kind, values = load_toml(tmp_path / "study.toml")
    assert kind is FinetuneStudyConfig
    assert build(kind, values, source="study.toml") == config


# --- on the command line ---


def flags_of(config: FinetuneStudyConfig, **more: str) -> list[str]:
    values = {"validation": config.validation, "test": config.test, "model": config.model, "device": "cpu"}
    values |= {"learning-rate": "3e-3", "output": config.output, "samples": "2", **more}
    return ["finetune", config.task, *(word for name, value in values.items() for word in (f"--{name}", str(value)))]


def test_main_from_flags_to_tables(config: FinetuneStudyConfig, capsys: pytest.CaptureFixture[str]) -> None:
    flags = flags_of(config, **{"few-shot": "4,8", "epochs": "4"})
    assert main(flags) == 0
    output = capsys.readouterr().out
    assert "run 8 of 8: 8 rows, balanced, CE+SCL, sample 2: accuracy " in output
    assert Path(config.output, "study.md").read_text().strip() in output
    study = StudyResult.load(Path(config.output, "study.json"))
    assert [(cell.setting, cell.variant, cell.sample) for cell in study.cells] == keys(config)
    steps = {cell.setting: cell.steps for cell in study.cells}
    assert steps == {"4 rows, balanced": 4, "8 rows, balanced": 4}  # a sample smaller than a batch is one batch
    for row in study.settings:
        for scores in row.variants.values():
            assert scores.samples == 2
            assert 0 <= scores.test["accuracy"].min <= scores.test["accuracy"].max <= 100
    assert len({json.dumps(cell.test) for cell in study.cells}) > 1
    assert main(flags) == 2
    assert "finished" in capsys.readouterr().err


def test_a_run_of_a_study_equals_a_single_run(config: FinetuneStudyConfig) -> None:
    study = finetune_study(replace(config, samples=1, few_shot="8"))
    for cell, one in zip(study.cells, plan_runs(replace(config, samples=1, few_shot="8")), strict=True):
        single = single_runs.finetune(replace(one.config, output=f"{config.output}-{cell.variant}"))
        (entry,) = single.result.transfer.tasks.values()
        assert cell.test["accuracy"] == entry.accuracy.score
        assert (cell.digest, cell.validation) == (entry.digest, entry.dev_accuracy)


@pytest.mark.parametrize("at", [7, 10], ids=["a run's first step", "a run's last step"])
def test_ctrl_c_says_how_to_resume(
    config: FinetuneStudyConfig, at: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run has five evaluations, the first before training; the second run is interrupted."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
    evaluations = count(1)
    make = single_runs.make_job

    def making(*args: Any, **settings: Any) -> Job:
        job = make(*args, **settings)

        def evaluate() -> Evaluation:
            if next(evaluations) == at:
                os.kill(os.getpid(), signal.SIGINT)
            return job.evaluate()

        return replace(job, evaluate=evaluate)

    monkeypatch.setattr(single_runs, "make_job", making)
    flags = flags_of(config, **{"few-shot": "4", "epochs": "4", "evaluate-every": "1"})
    assert main(flags) == 130
    output = capsys.readouterr().out
    assert "finished runs are kept" in output
    assert " ".join(["nearfar", *flags, "--resume"]) in output
    assert len(lines_of(config)) == 1
    assert main([*flags, "--resume"]) == 0
    assert "4 runs, 1 of them already finished" in capsys.readouterr().out


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), Interrupted()])
def test_ctrl_c_between_steps_and_before_the_first(
    config: FinetuneStudyConfig,
    runs: Runs,
    stop: BaseException,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs.stop, runs.stop_after = stop, 2
    flags = flags_of(config, **{"few-shot": "4"})
    assert main([*flags]) == 130
    runs.stop_after = 0
    runs.configs.clear()
    assert main([*flags, "--resume"]) == 130
    assert capsys.readouterr().out.count("--resume") == 2  # once each
    assert len(lines_of(config)) == 2

    def reading(*_: Any) -> ClassificationTask:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "load_task", reading)
    assert main(flags_of(replace(config, output=f"{config.output}-2"), **{"few-shot": "4"})) == 130
    output = capsys.readouterr()
    assert "--resume" not in output.out  # there is nothing to resume
    assert "stopped" in output.err


def test_flags_override_a_config_file(
    config: FinetuneStudyConfig, runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "study.toml").write_text(dump_toml(config))
    assert main(["finetune", str(tmp_path / "study.toml"), "--samples", "1", "--noises", "characters:0.1"]) == 0
    assert {one.noise for one in runs.configs} == {"characters"}
    assert len(runs.configs) == 4
    assert main(["train", str(tmp_path / "study.toml"), "--output", "x"]) == 2
    assert "nearfar finetune" in capsys.readouterr().err
