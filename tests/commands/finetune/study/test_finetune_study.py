"""Fine-tuning studies: planned runs, variants that differ only in the loss, output files, resuming."""

import json
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from nearfar.commands.finetune import command as single_runs
from nearfar.commands.finetune import study as study_module
from nearfar.commands.finetune.job import make_job, open_classifier
from nearfar.commands.finetune.plan import plan_runs
from nearfar.commands.finetune.rows import load_task
from nearfar.commands.finetune.study import finetune_study
from nearfar.config import FinetuneStudyConfig, dump_toml
from nearfar.training.loop import Interrupted
from nearfar.types import NearfarError
from tests.finetune_study_helpers import Runs, keys, lines_of
from tests.tiny import sentences

pytestmark = pytest.mark.long

# --- planned runs ---


def test_few_shot_samples_have_every_setting_with_both_variants(config: FinetuneStudyConfig) -> None:
    assert keys(config) == [
        ("4 rows, balanced", "CE", 1),
        ("4 rows, balanced", "CE+SCL", 1),
        ("8 rows, balanced", "CE", 1),
        ("8 rows, balanced", "CE+SCL", 1),
        ("4 rows, balanced", "CE", 2),
        ("4 rows, balanced", "CE+SCL", 2),
        ("8 rows, balanced", "CE", 2),
        ("8 rows, balanced", "CE+SCL", 2),
    ]


def test_axes_are_crossed(config: FinetuneStudyConfig) -> None:
    crossed = replace(
        config, noises="none,word-dropout:0.2,characters", batch_sizes="16, 64", sample_balanced=False, noise_rate=0.3
    )
    cells = plan_runs(crossed)
    noises = [("none", 0.3), ("word-dropout", 0.2), ("characters", 0.3)]
    expected = product((1, 2), (4, 8), noises, (16, 64), (0.0, 0.9))
    assert [
        (
            c.sample,
            c.config.sample_size,
            (c.config.noise, c.config.noise_rate),
            c.config.batch_size,
            c.config.scl_weight,
        )
        for c in cells
    ] == list(expected)
    assert {cell.config.sample_balanced for cell in cells} == {False}
    names = dict.fromkeys(cell.setting for cell in cells)
    assert len(names) == 12
    assert list(names)[:3] == [
        "4 rows, proportional, batch 16",
        "4 rows, proportional, batch 64",
        "4 rows, proportional, word-dropout:0.2, batch 16",
    ]


def test_noise_may_be_added_to_the_sample(config: FinetuneStudyConfig, runs: Runs) -> None:
    study = finetune_study(replace(config, few_shot="4", noises="none,characters:0.5", noise_mode="add", samples=1))
    assert [row.setting for row in study.settings] == ["4 rows, balanced", "4 rows, balanced, characters:0.5 added"]
    clean, noisy = runs.tasks[0].train, runs.tasks[2].train
    assert (len(clean.texts), len(noisy.texts)) == (4, 8)
    assert noisy.texts[:4] == clean.texts != noisy.texts[4:]
    assert noisy.targets == clean.targets * 2
    assert "characters:0.5 added" in Path(config.output, "study.md").read_text()


@pytest.mark.parametrize("sizes", ["4,8", None])
def test_the_splits_of_a_glue_task_depend_on_whether_rows_are_sampled(
    config: FinetuneStudyConfig, runs: Runs, sizes: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEARFAR_DATA", str(tmp_path))
    for part, rows in (("train", 100), ("dev", 30)):
        (tmp_path / "glue/CoLA").mkdir(parents=True, exist_ok=True)
        lines = [f"{number % 2}\t{part} {number}" for number in range(rows)]
        (tmp_path / f"glue/CoLA/{part}.tsv").write_text("\n".join(["label\ttext", *lines]) + "\n")
    study = finetune_study(replace(config, task="cola", validation=None, test=None, few_shot=sizes))
    parts = {(task.splits, len(task.validation.texts), len(task.test.texts)) for task in runs.tasks}
    assert parts == {("few-shot", 15, 15) if sizes else ("full", 30, 30)}
    assert len({tuple(task.test.texts) for task in runs.tasks}) == 1
    assert all(task.splits == load_task(one).splits for one, task in zip(runs.configs, runs.tasks, strict=True))
    assert ("half of " in study.facts[2]) == bool(sizes)


def test_a_grid_has_one_setting(config: FinetuneStudyConfig) -> None:
    grid = replace(config, few_shot="8", scl_weights="0.1,0.5,1", temperatures="0.1,0.3", samples=1)
    cells = plan_runs(grid)
    assert [(cell.config.scl_weight, cell.config.temperature) for cell in cells] == list(
        product((0.1, 0.5, 1.0), (0.1, 0.3))
    )
    assert {(cell.setting, cell.sample, cell.config.sample_size) for cell in cells} == {("8 rows, balanced", 1, 8)}
    assert cells[1].variant == "lambda 0.1, temperature 0.3"
    one_line = plan_runs(replace(grid, temperatures=None, temperature=0.7))
    assert [cell.variant for cell in one_line] == [
        f"lambda {weight}, temperature 0.7" for weight in ("0.1", "0.5", "1")
    ]


def test_samples_of_all_rows_differ_in_the_seed(config: FinetuneStudyConfig) -> None:
    cells = plan_runs(replace(config, few_shot=None, samples=None, scl_model="other"))
    assert {cell.setting for cell in cells} == {"all rows"}
    assert [cell.sample for cell in cells] == [sample for sample in range(1, 11) for _ in range(2)]  # the paper's ten


def test_without_a_weight_only_cross_entropy_is_planned(config: FinetuneStudyConfig) -> None:
    assert {cell.variant for cell in plan_runs(replace(config, scl_weight=0.0))} == {"CE"}


def test_both_variants_differ_only_in_the_loss(config: FinetuneStudyConfig, runs: Runs) -> None:
    finetune_study(replace(config, noises="none,word-swap:0.5"))
    assert len(runs.configs) == 16
    pairs = list(zip(runs.configs[::2], runs.configs[1::2], strict=True))
    for (without, scl), one, two in zip(pairs, runs.tasks[::2], runs.tasks[1::2], strict=True):
        assert replace(without, scl_weight=0.9) == scl
        assert without.scl_weight == 0
        assert one == two  # the same rows, with the same noise
        assert len(one.train.texts) == scl.sample_size
    by_sample = {
        (c.sample_seed, c.sample_size, c.noise): tuple(t.train.texts)
        for c, t in zip(runs.configs, runs.tasks, strict=True)
    }
    assert len(by_sample) == len(set(by_sample.values())) == 8


def test_both_variants_have_the_same_initial_head_and_batches(config: FinetuneStudyConfig, runs: Runs) -> None:
    finetune_study(replace(config, batch_sizes="3"))
    heads, batches = [], []
    for one, task in zip(runs.configs, runs.tasks, strict=True):
        classifier = open_classifier(one, task, device="cpu")
        heads.append(torch.cat([parameter.flatten() for parameter in classifier.model.classifier.parameters()]))
        job = make_job(one, task, classifier)
        batches.append([parts[0][1].rows for epoch in range(3) for parts in job.mixture.epoch(epoch)])
    assert all(torch.equal(heads[index], heads[index + 1]) for index in range(0, 8, 2))
    assert not torch.equal(heads[0], heads[4])  # another sample has another head
    assert batches[::2] == batches[1::2]
    assert len(batches[0]) == 6
    assert batches[0] != batches[4]


def test_scl_may_start_from_another_encoder(config: FinetuneStudyConfig, tiny: str) -> None:
    other = replace(config, scl_model="other")
    assert [cell.config.model for cell in plan_runs(other)][:2] == [tiny, "other"]
    grid = replace(other, few_shot="4", scl_weights="0,0.9")
    assert [cell.config.model for cell in plan_runs(grid)] == [tiny, "other", tiny, "other"]


# --- output files ---


def test_output_files(config: FinetuneStudyConfig, runs: Runs) -> None:
    runs.scores = lambda one: (40.0 + one.seed, 60.0 + (2 * one.seed if one.scl_weight else 0))
    study = finetune_study(config)
    folder = Path(config.output)
    expected_files = ["cells.jsonl", "config.toml", "inputs.json", "study.json", "study.md"]
    assert sorted(path.name for path in folder.iterdir()) == expected_files
    assert json.loads((folder / "study.json").read_text()) == json.loads(json.dumps(study.to_dict()))
    assert (folder / "config.toml").read_text() == dump_toml(config)
    assert [json.loads(line) for line in lines_of(config)] == [cell.to_dict() for cell in study.cells]
    assert study.cells[3].to_dict() == {
        "setting": "8 rows, balanced",
        "variant": "CE+SCL",
        "sample": 1,
        "validation": 41.0,  # score of the kept weights, not the best score
        "test": {"accuracy": 62.0, "matthews": 0.0},
        "best_step": 4,
        "steps": 8,
        "seconds": 2.0,
        "updates_per_second": 4.0,
        "digest": "0",
        "commit": "abc",
    }
    assert study.config == asdict(config) | {"precision": "fp32"}  # auto resolves to this
    assert study.chosen is None
    assert study.title.endswith("train.tsv: CE, CE+SCL")
    (first, second) = study.settings
    assert [row.setting for row in (first, second)] == ["4 rows, balanced", "8 rows, balanced"]
    assert first.difference.difference == 3.0  # mean of 2 and 4
    page = (folder / "study.md").read_text()
    assert "| 8 rows, balanced | CE+SCL | 2 | 41.50 | 63.00 (1.41) |" in page
    assert "- train: " in page
    assert all(fact in page for fact in study.facts)


def test_the_best_grid_cell_is_chosen_by_validation_and_plotted(
    config: FinetuneStudyConfig, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[dict[str, Any]] = []
    draw = study_module.heat_map

    def drawing(scores: Any, file: Path, **words: Any) -> None:
        drawn.append({"scores": scores, **words})
        draw(scores, file, **words)

    monkeypatch.setattr(study_module, "heat_map", drawing)
    runs.scores = lambda one: (100 * one.scl_weight - 10 * one.temperature, 50 - 40 * one.scl_weight)
    study = finetune_study(replace(config, few_shot="4", scl_weights="0.1,0.9", temperatures="0.3,0.1,0.5"))
    assert study.chosen == ["4 rows, balanced", "lambda 0.9, temperature 0.1"]
    assert study.title.endswith("train.tsv: lambda and temperature")
    means = {name: summary.test["accuracy"].mean for name, summary in study.settings[0].variants.items()}
    # test rows have no effect on the choice
    assert means["lambda 0.9, temperature 0.1"] == min(means.values()) < max(means.values())
    assert "Best on the validation rows: lambda 0.9, temperature 0.1." in Path(config.output, "study.md").read_text()
    assert Path(config.output, "grid.png").read_bytes().startswith(b"\x89PNG")
    assert drawn[0]["scores"] == [[pytest.approx(100 * w - 10 * t) for t in (0.3, 0.1, 0.5)] for w in (0.1, 0.9)]
    assert (drawn[0]["rows"], drawn[0]["columns"]) == (["0.1", "0.9"], ["0.3", "0.1", "0.5"])
    assert drawn[0]["titles"] == ("lambda", "temperature")


def test_rows_with_scores_have_one_variant(config: FinetuneStudyConfig, runs: Runs, tmp_path: Path) -> None:
    for part, number in (("train", 12), ("validation", 6), ("test", 6)):
        texts = sentences(number, seed=number, longest=4)
        rows = [f"{index / 4}\t{text}\t{text[::-1]}" for index, text in enumerate(texts)]
        (tmp_path / f"{part}.tsv").write_text("label\tsentence1\tsentence2\n" + "\n".join(rows) + "\n")
    scored = replace(config, few_shot=None, batch_sizes="4,8")
    study = finetune_study(scored)
    assert [list(row.variants) for row in study.settings] == [["MSE"], ["MSE"]]
    assert [row.difference for row in study.settings] == [None, None]
    assert len(runs.configs) == 4
    for change in ({"scl_weights": "0.1"}, {"scl_model": "other"}):
        with pytest.raises(NearfarError, match="SCL needs labels, but these rows have scores"):
            finetune_study(replace(scored, output=f"{config.output}-2", batch_sizes=None, **change))
    with pytest.raises(NearfarError, match="--sample-size and --few-shot sample rows by label"):
        finetune_study(replace(scored, output=f"{config.output}-2", few_shot="4"))
    assert len(runs.configs) == 4


# --- resuming ---


def test_an_interrupted_study_resumes(config: FinetuneStudyConfig, runs: Runs) -> None:
    runs.scores = lambda one: (50.0, 10.0 * one.seed + one.sample_size + one.scl_weight)
    uninterrupted = finetune_study(replace(config, output=f"{config.output}-whole"))
    runs.configs.clear()
    runs.stop_after = 3
    with pytest.raises(Interrupted):
        finetune_study(config)
    assert len(lines_of(config)) == 3
    assert not Path(config.output, "study.json").exists()
    with pytest.raises(NearfarError, match=r"unfinished\. Continue it with --resume"):
        finetune_study(config)
    runs.configs.clear()
    runs.stop_after = None
    study = finetune_study(config, resume=True)
    assert [one.key for one in plan_runs(config)[3:]] == [
        (f"{one.sample_size} rows, balanced", "CE+SCL" if one.scl_weight else "CE", one.seed) for one in runs.configs
    ]
    assert study.cells == uninterrupted.cells
    assert study.settings == uninterrupted.settings


@pytest.mark.parametrize(("cut", "again"), [(30, 1), (1, 0)], ids=["in the line", "before its end"])
def test_an_incomplete_last_line_is_run_again(config: FinetuneStudyConfig, runs: Runs, cut: int, again: int) -> None:
    runs.stop_after = 5
    with pytest.raises(Interrupted):
        finetune_study(config)
    file = Path(config.output, "cells.jsonl")
    file.write_bytes(file.read_bytes()[:-cut])
    runs.configs.clear()
    runs.stop_after = 1 + again
    with pytest.raises(Interrupted):
        finetune_study(config, resume=True)
    assert [json.loads(line)["sample"] for line in lines_of(config)] == [1, 1, 1, 1, 2, 2]  # all lines are complete
    runs.configs.clear()
    runs.stop_after = None
    study = finetune_study(config, resume=True)
    assert len(runs.configs) == 2
    assert [(cell.setting, cell.variant, cell.sample) for cell in study.cells] == keys(config)


def test_other_settings_are_refused(config: FinetuneStudyConfig, runs: Runs) -> None:
    runs.stop_after = 1
    with pytest.raises(Interrupted):
        finetune_study(config)
    with pytest.raises(NearfarError, match=r"with other settings \(--few-shot, --learning-rate\)"):
        finetune_study(replace(config, few_shot="4", learning_rate=1e-5), resume=True)
    with pytest.raises(NearfarError, match="holds a run of another method"):
        single_runs.finetune(config.single)
    assert len(runs.configs) == 1


def test_a_finished_study_does_not_start_again(config: FinetuneStudyConfig, runs: Runs) -> None:
    study = finetune_study(config)
    runs.configs.clear()
    with pytest.raises(
        NearfarError, match=r"already holds this study, and it is finished; its tables are in .*study\.md"
    ):
        finetune_study(config)
    with pytest.raises(NearfarError, match="with other settings"):
        finetune_study(replace(config, epochs=9))
    Path(config.output, "study.md").unlink()
    assert finetune_study(config, resume=True).settings == study.settings  # the tables are computed again
    assert Path(config.output, "study.md").exists()
    assert not runs.configs
    with pytest.raises(NearfarError, match="there is no study to resume"):
        finetune_study(replace(config, output=f"{config.output}-2"), resume=True)
