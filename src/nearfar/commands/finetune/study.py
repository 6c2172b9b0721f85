"""A fine-tuning study: many short runs of one task, with cross-entropy and with SCL on the same samples.

``nearfar finetune`` runs a study if it gets several sizes, noises or batch sizes, or a grid. The study's folder holds
``config.toml``; ``cells.jsonl``, one line for each finished run; and at the end ``study.json`` and ``study.md`` (see
:mod:`nearfar.evaluation.finetune_summary`) and, for a grid, a heat map. An interrupted study can be resumed.
"""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from nearfar.commands.finetune.cells import read_cells, summarise_run
from nearfar.commands.finetune.command import finetune_in_memory
from nearfar.commands.finetune.plan import SAMPLES, check_rows, plan_runs
from nearfar.commands.finetune.rows import apply_noise, draw_sample, fingerprints, load_task, resolve_splits
from nearfar.config import FinetuneStudyConfig, dump_toml, split_list
from nearfar.config.calls import accepts_settings
from nearfar.data.classification import ClassificationTask
from nearfar.disk import disk_errors, path_errors, read_text, write_text
from nearfar.encoder.device import check_device
from nearfar.evaluation.finetune_summary import best_variant, study_markdown, summarise
from nearfar.evaluation.plots import heat_map
from nearfar.evaluation.results import StudyResult, provenance
from nearfar.runs.fingerprints import fingerprint_model, fingerprint_rows
from nearfar.runs.folder import RunFolder
from nearfar.runs.precision import resolve_run_precision
from nearfar.types import NearfarError

STUDY, PAGE = "study.json", "study.md"


@accepts_settings(FinetuneStudyConfig)
@path_errors()
def finetune_study(
    config: FinetuneStudyConfig, *, resume: bool = False, console: "Console | None" = None
) -> StudyResult:
    """Run all runs of a study that are not finished yet, and summarise them; returns the result in study.json.

    Settings can be given by name: ``finetune_study(task="sst2", few_shot="20,100", output="runs/study")``; see
    :class:`nearfar.FinetuneStudyConfig`. Both variants of a sample run one after the other, so that changes in the load
    of the machine affect both alike.

    Args:
        config: the settings.
        resume: continue an interrupted study in ``config.output``; data and models must be unchanged.
        console: where to print progress; by default nothing is printed.

    Raises:
        NearfarError: as :func:`nearfar.finetune`; more than one process.
        nearfar.training.loop.Interrupted, KeyboardInterrupt: after Ctrl-C; finished runs are kept.
    """
    from nearfar.training.processes import Processes

    console = console or Console(quiet=True)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise NearfarError("a study runs in one process; start several studies, or a single run by torchrun.")
    check_device(config.device)
    config = replace(config, samples=config.samples or SAMPLES)
    with RunFolder(config, Processes(), info_file=STUDY, what="study") as run_dir:
        if run_dir.acquire(resume=resume) == "finished" and (study := _finished(run_dir.path)) is not None:
            message = f"{run_dir.path}: this study is already finished; nothing to do."
            console.print(message, markup=False, highlight=False)
            return study
        return _execute(config, run_dir, console)


def _finished(folder: Path) -> StudyResult | None:
    """The result in study.json; None if it or study.md is missing or damaged and must be written again."""
    try:
        read_text(folder / PAGE)
        return StudyResult.load(folder / STUDY)
    except NearfarError:
        return None


def _execute(config: FinetuneStudyConfig, run_dir: RunFolder, console: "Console") -> StudyResult:
    from nearfar.training.processes import Processes

    folder = run_dir.path
    settings_file = {"config.toml": dump_toml(config)}
    config = replace(config, precision=resolve_run_precision(config, run_dir, Processes(), config.device))
    file = folder / "cells.jsonl"
    done = read_cells(file)
    base = load_task(replace(config.single, sample_size=None, noise="none", splits=resolve_splits(config)))
    runs = plan_runs(config, scores=not base.label_names)
    check_rows(runs, base)
    _verify_inputs(run_dir, config, base)
    run_dir.begin(settings_file)
    write_text(
        file, "".join(json.dumps(run.to_dict()) + "\n" for run in done.values())
    )  # without an incomplete last line
    for fact in (*base.sources, *base.labels):
        console.print(fact, markup=False, highlight=False)
    console.print(f"{len(runs)} runs, {sum(one.key in done for one in runs)} of them already finished", highlight=False)
    for number, one in enumerate(runs, start=1):
        if one.key in done:
            continue
        found = finetune_in_memory(one.config, apply_noise(one.config, draw_sample(one.config, base)))
        done[one.key] = summarise_run(one, found, base)
        with disk_errors(file), file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(done[one.key].to_dict()) + "\n")
        (metric, score), *_ = done[one.key].test.items()
        console.print(
            f"run {number} of {len(runs)}: {one.setting}, {one.variant}, sample {one.sample}: "
            f"{metric} {score:.2f}, validation {done[one.key].validation:.2f}",
            markup=False,
            highlight=False,
        )
    kept = [done[one.key] for one in runs]
    grid = bool(config.scl_weights or config.temperatures)
    settings = summarise(kept)
    study = StudyResult(
        title=f"{config.task}: {'lambda and temperature' if grid else ', '.join(settings[0].variants)}",
        config=asdict(config),
        provenance=provenance(),
        facts=list(base.sources),
        settings=settings,
        chosen=list(best_variant(settings)) if grid else None,
        cells=kept,
    )
    write_text(folder / PAGE, study_markdown(study))
    if grid:
        _plot_grid(study, config, folder / "grid.png")
    write_text(folder / STUDY, study.to_json())  # last: this file marks the study as finished
    return study


def _verify_inputs(run_dir: RunFolder, config: FinetuneStudyConfig, base: "ClassificationTask") -> None:
    """Fingerprint everything that the study reads."""
    for name, model in (("model", config.model), ("scl-model", config.scl_model)):
        if model is not None:
            run_dir.verify_input(f"--{name} {model}", lambda model=model: fingerprint_model(model))  # type: ignore[misc]
    for what, fingerprint in fingerprints(replace(config.single, noise="none"), base).items():
        run_dir.verify_input(what, fingerprint)
    for noise in dict.fromkeys([*split_list(config.noises), config.noise]):
        if (file := Path(noise)).is_file():
            run_dir.verify_input(f"--noises {noise}", lambda file=file: fingerprint_rows([read_text(file)]))  # type: ignore[misc]


def _plot_grid(study: StudyResult, config: FinetuneStudyConfig, file: Path) -> None:
    """Plot the mean validation score of each grid point."""
    weights = [float(value) for value in split_list(config.scl_weights)] or [config.scl_weight]
    temperatures = [float(value) for value in split_list(config.temperatures)] or [config.temperature]
    variants = study.settings[0].variants
    scores = [
        [variants[f"lambda {weight:g}, temperature {temperature:g}"].validation for temperature in temperatures]
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
