"""The file of a study's finished runs, ``cells.jsonl``: one line of scores for each run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.disk import read_text
from nearfar.evaluation.results import StudyRun
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.commands.finetune.command import FinetuneResult
    from nearfar.commands.finetune.plan import PlannedRun
    from nearfar.data.classification import ClassificationTask

METRICS = ("accuracy", "f1", "matthews", "pearson", "spearman")
"""The order of metrics in a line, after the metric that chooses the step."""


def summarise_run(one: "PlannedRun", found: "FinetuneResult", task: "ClassificationTask") -> StudyRun:
    """The line of one finished run; scores are x 100."""
    assert found.result.transfer is not None
    assert found.result.training is not None
    entry, training = found.result.transfer.tasks[task.name], found.result.training
    order = sorted(METRICS, key=lambda metric: metric != training.metric)
    return StudyRun(
        setting=one.setting,
        variant=one.variant,
        sample=one.sample,
        validation=training.validation,
        test={metric: estimate.score or 0.0 for metric in order if (estimate := entry.metric(metric)) is not None},
        best_step=found.best_step,
        steps=found.steps,
        seconds=round(found.seconds, 3),
        updates_per_second=training.updates_per_second or 0.0,
        digest=entry.digest,
        commit=found.result.provenance.commit,
    )


def read_cells(file: Path) -> dict[tuple[str, str, int], StudyRun]:
    """The finished runs of a study, by their key. An incomplete last line is ignored.

    Raises:
        NearfarError: the file cannot be read, or a line other than the last is damaged.
    """
    done: dict[tuple[str, str, int], StudyRun] = {}
    lines = read_text(file).split("\n") if file.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            run = StudyRun.from_dict(json.loads(line))
        except (ValueError, RecursionError, NearfarError):
            if number < len(lines):
                raise NearfarError(
                    f"{file}, line {number}: is damaged: it is not a run of a study. Remove the line to repeat the run."
                ) from None
        else:
            done[run.setting, run.variant, run.sample] = run
    return done
