"""A fine-tuning study: many short runs of one task, cross-entropy against SCL on the same samples, as one folder.

What ``nearfar finetune`` calls where it is asked for several sizes, noises, batch sizes or a grid, and a notebook can
call too. The folder holds ``config.toml``; ``cells.jsonl``, a line for each run, as soon as it is done; and at the end
``study.json`` and ``study.md``, of which :mod:`nearfar.evaluation.finetune_summary` says what they hold, and a heat map
of a grid. A study that was stopped goes on where it was.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nearfar.commands.finetune.command import (
    NOISES,
    FinetuneResult,
    apply_noise,
    draw_sample,
    finetune_in_memory,
    fingerprints,
    load_task,
)
from nearfar.config import FinetuneConfig, FinetuneStudyConfig, dump_toml, split_list
from nearfar.disk import disk_errors, path_errors, read_json, read_text, write_text
from nearfar.evaluation import results
from nearfar.runs.fingerprints import fingerprint_model, fingerprint_rows
from nearfar.runs.folder import RunFolder
from nearfar.runs.precision import resolve_run_precision
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.data.classification import ClassificationTask

CE, SCL, MSE = "CE", "CE+SCL", "MSE"
SAMPLES = 10
"""Of each setting, where nothing else is said (Gunel et al. 2021)."""
METRICS = ("accuracy", "f1", "matthews", "pearson", "spearman")
PRIMARY_METRIC = {"matthews": "matthews"}
"""Metric of a task -> which number comes first, where it is not the first of :data:`METRICS` that there is."""
STUDY, PAGE = "study.json", "study.md"
VALIDATION = ("dev_matthews", "dev_accuracy", "dev_pearson")
"""Where an entry has the score of the kept weights on the validation rows."""


class PlannedRun(NamedTuple):
    """A run to be done."""

    setting: str
    variant: str
    sample: int
    config: FinetuneConfig

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells it from the others."""
        return self.setting, self.variant, self.sample


@path_errors()
def finetune_study(
    config: FinetuneStudyConfig, *, resume: bool = False, console: "Console | None" = None
) -> dict[str, Any]:
    """Do the runs that ``config.output`` does not hold yet, and sum all of them up; returns what study.json holds.

    Both variants of a sample follow each other, so that what the machine does meets them alike. With ``resume`` the
    data and the models must be those that the study began with.

    Raises:
        NearfarError: as :func:`nearfar.finetune`; several processes.
        nearfar.training.loop.Interrupted, KeyboardInterrupt: after Ctrl-C; the runs that were done are kept.
    """
    from rich.console import Console

    from nearfar.encoder.device import check_device
    from nearfar.training.processes import Processes

    console = console or Console(quiet=True)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise NearfarError("a study runs in one process; start several studies, or a single run by torchrun.")
    check_device(config.device)
    config = replace(config, samples=config.samples or SAMPLES)
    with RunFolder(config, Processes(), info_file=STUDY, what="study") as run_dir:
        if run_dir.acquire(resume=resume) == "finished" and (study := _finished(run_dir.path)) is not None:
            told = f"{run_dir.path}: this study was finished before; nothing to do."
            console.print(told, markup=False, highlight=False)
            return study
        return _execute(config, run_dir, console)


def _finished(folder: Path) -> dict[str, Any] | None:
    """What study.json holds; None where it or its page is missing or damaged, and is to be made anew of the cells."""
    try:
        study = read_json(folder / STUDY)
        read_text(folder / PAGE)
    except NearfarError:
        return None
    return study if isinstance(study, dict) and study.get("kind") == "finetune-study" else None


def _execute(config: FinetuneStudyConfig, run_dir: RunFolder, console: "Console") -> dict[str, Any]:
    from nearfar.evaluation.finetune_summary import best_variant, study_markdown, summarise
    from nearfar.training.processes import Processes

    folder = run_dir.path
    settings_file = {"config.toml": dump_toml(config)}
    config = replace(config, precision=resolve_run_precision(config, run_dir, Processes(), config.device))
    file = folder / "cells.jsonl"
    done = _read(file)
    base = load_task(replace(config.single, sample_size=None, noise="none"))
    cells = plan_runs(config, scores=not base.label_names)
    _check_rows(cells, base)
    _verify_inputs(run_dir, config, base)
    run_dir.begin(settings_file)
    write_text(file, "".join(json.dumps(cell) + "\n" for cell in done.values()))  # without a last line that was cut
    for fact in (*base.sources, *base.labels):
        console.print(fact, markup=False, highlight=False)
    console.print(f"{len(cells)} runs, {sum(one.key in done for one in cells)} of them done before", highlight=False)
    for number, one in enumerate(cells, start=1):
        if one.key in done:
            continue
        found = finetune_in_memory(one.config, apply_noise(one.config, draw_sample(one.config, base)))
        done[one.key] = _cell(one, found, base)
        with disk_errors(file), file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(done[one.key]) + "\n")
        (metric, score), *_ = done[one.key]["test"].items()
        console.print(
            f"run {number} of {len(cells)}: {one.setting}, {one.variant}, sample {one.sample}: "
            f"{metric} {score:.2f}, validation {done[one.key]['validation']:.2f}",
            markup=False,
            highlight=False,
        )
    kept = [done[one.key] for one in cells]
    grid = bool(config.scl_weights or config.temperatures)
    settings = summarise(kept)
    study = {
        "schema": results.SCHEMA,
        "kind": "finetune-study",
        "title": f"{config.task}: {'lambda and temperature' if grid else ', '.join(settings[0]['variants'])}",
        "config": asdict(config),
        "provenance": results.provenance(),
        "facts": list(base.sources),
        "settings": settings,
        "chosen": list(best_variant(settings)) if grid else None,
        "cells": kept,
    }
    write_text(folder / PAGE, study_markdown(study))
    if grid:
        _plot_grid(study, config, folder / "grid.png")
    write_text(folder / STUDY, json.dumps(study, indent=1) + "\n")  # last: with it the study is finished
    return study


def _verify_inputs(run_dir: RunFolder, config: FinetuneStudyConfig, base: "ClassificationTask") -> None:
    """Fingerprint all that the study reads."""
    for name, model in (("model", config.model), ("scl-model", config.scl_model)):
        if model is not None:
            run_dir.verify_input(f"--{name} {model}", lambda model=model: fingerprint_model(model))  # type: ignore[misc]
    for what, fingerprint in fingerprints(replace(config.single, noise="none"), base).items():
        run_dir.verify_input(what, fingerprint)
    for noise in dict.fromkeys([*split_list(config.noises), config.noise]):
        if (file := Path(noise)).is_file():
            run_dir.verify_input(f"--noises {noise}", lambda file=file: fingerprint_rows([read_text(file)]))  # type: ignore[misc]


def plan_runs(config: FinetuneStudyConfig, *, scores: bool = False) -> list[PlannedRun]:
    """Every run of the study: sample by sample, within it setting by setting, within it variant by variant.

    Rows with ``scores`` have no SCL: a single variant, and no grid.
    """
    single = config.single
    cells = []
    for sample in range(1, (config.samples or SAMPLES) + 1):
        for setting, of_setting in _settings(config, replace(single, sample_seed=sample, seed=sample)):
            cells += [
                PlannedRun(setting, name, sample, one) for name, one in _variants(config, of_setting, scores=scores)
            ]
    if len({one.key for one in cells}) < len(cells):
        raise NearfarError("--noises, --scl-weights and --temperatures: name each setting once.")
    return cells


def _check_rows(cells: list[PlannedRun], base: "ClassificationTask") -> None:
    """Refuse what cannot be drawn or has no translation before the first run."""
    seen = set()
    for one in cells:
        asked = one.config
        what = (asked.sample_size, asked.sample_size and one.sample, asked.noise, asked.noise_rate)
        # Noise that is made here is as good for one sample as for another; a file may lack some sample's rows.
        if what not in seen and (one.sample == 1 or asked.noise not in ("none", *NOISES)):
            seen.add(what)
            apply_noise(asked, draw_sample(asked, base))


def _settings(config: FinetuneStudyConfig, single: FinetuneConfig) -> Iterator[tuple[str, FinetuneConfig]]:
    kind = "balanced" if config.sample_balanced else "proportional"
    sizes: list[int | None] = [int(value) for value in split_list(config.few_shot)]
    noises: list[str | None] = [*split_list(config.noises)]
    batches = [int(value) for value in split_list(config.batch_sizes)]
    for size in sizes or [single.sample_size]:
        for noise in noises or [None]:
            for batch in batches or [single.batch_size]:
                one = replace(single, sample_size=size, batch_size=batch)
                words = [f"{size} rows, {kind}" if size else "all rows"]
                if noise is not None:
                    name, _, rate = noise.rpartition(":")
                    try:
                        one = replace(one, noise=name or noise, noise_rate=float(rate) if name else one.noise_rate)
                    except ValueError:
                        raise NearfarError(f"--noises {noise}: write kind:rate, as in word-dropout:0.1.") from None
                if one.noise != "none":
                    words.append(noise or f"{one.noise}:{one.noise_rate:g}")
                if config.batch_sizes:
                    words.append(f"batch {batch}")
                yield ", ".join(words), one


def _variants(config: FinetuneStudyConfig, one: FinetuneConfig, *, scores: bool) -> list[tuple[str, FinetuneConfig]]:
    weights = [float(value) for value in split_list(config.scl_weights)] or [one.scl_weight]
    temperatures = [float(value) for value in split_list(config.temperatures)] or [one.temperature]
    start = config.scl_model or one.model
    if scores:
        if config.scl_weights or config.temperatures or config.scl_model:
            raise NearfarError("--scl-weights, --temperatures, --scl-model: these rows have scores, and so no SCL.")
        return [(MSE, one)]
    if config.scl_weights or config.temperatures:
        return [
            (
                f"lambda {weight:g}, temperature {temperature:g}",
                replace(one, scl_weight=weight, temperature=temperature, model=start if weight else one.model),
            )
            for weight in weights
            for temperature in temperatures
        ]
    without = (CE, replace(one, scl_weight=0.0))
    return [without, (SCL, replace(one, model=start))] if one.scl_weight else [without]


def _cell(one: PlannedRun, found: FinetuneResult, task: "ClassificationTask") -> dict[str, Any]:
    entry = found.result["transfer"]["tasks"][task.name]
    order = sorted(METRICS, key=lambda metric: metric != PRIMARY_METRIC.get(task.metric))
    test = {metric: entry[metric]["score"] or 0.0 for metric in order if metric in entry}
    return {
        "setting": one.setting,
        "variant": one.variant,
        "sample": one.sample,
        "validation": next(entry[key] for key in VALIDATION if entry.get(key) is not None),
        "test": test,
        "best_step": found.best_step,
        "steps": found.steps,
        "seconds": round(found.seconds, 3),
        "updates_per_second": round(found.steps / found.seconds, 4),
        "digest": entry["digest"],
        "commit": found.result["provenance"]["commit"],
    }


def _read(file: Path) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Runs that were done before, by what tells them apart; a last line that was cut short does not count.

    Raises:
        NearfarError: the file cannot be read, or another line is damaged.
    """
    done: dict[tuple[str, str, int], dict[str, Any]] = {}
    lines = read_text(file).split("\n") if file.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            cell = json.loads(line)
        except (ValueError, RecursionError):
            cell = None
        if _is_cell(cell):
            done[cell["setting"], cell["variant"], cell["sample"]] = cell
        elif number < len(lines):
            raise NearfarError(
                f"{file}, line {number}: is damaged: no run of this study. Remove the line to run it again."
            )
    return done


def _is_cell(cell: Any) -> bool:
    if not isinstance(cell, dict) or not all(isinstance(cell.get(key), str) for key in ("setting", "variant")):
        return False
    test = cell.get("test")
    if type(cell.get("sample")) is not int or not isinstance(test, dict) or not test:
        return False
    numbers = [cell.get("validation"), cell.get("updates_per_second"), *test.values()]
    return all(type(number) in (int, float) and abs(number) < 1e12 for number in numbers)


def _plot_grid(study: dict[str, Any], config: FinetuneStudyConfig, file: Path) -> None:
    """The grid's means on the validation rows."""
    from nearfar.evaluation.plots import heat_map

    weights = [float(value) for value in split_list(config.scl_weights)] or [config.scl_weight]
    temperatures = [float(value) for value in split_list(config.temperatures)] or [config.temperature]
    variants = study["settings"][0]["variants"]
    scores = [
        [variants[f"lambda {weight:g}, temperature {temperature:g}"]["validation"] for temperature in temperatures]
        for weight in weights
    ]
    heat_map(
        scores,
        file,
        rows=[f"{weight:g}" for weight in weights],
        columns=[f"{temperature:g}" for temperature in temperatures],
        titles=("lambda", "temperature"),
        title=f"{config.task}: mean over samples",
        label="validation rows, x 100",
    )
