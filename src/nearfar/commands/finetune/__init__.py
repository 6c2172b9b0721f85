"""``nearfar finetune``: trains a classifier and tests it.

In the run folder, ``model/`` is a transformers folder for sequence classification, and ``result.json`` is a result file
with the predictions for the test rows.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.commands.model_card import write_card
from nearfar.commands.train.choose import count_rows, read_start
from nearfar.commands.train.recipes import RECIPE_WIDTH
from nearfar.config.calls import accepts_settings
from nearfar.config.training import FinetuneConfig
from nearfar.data.memory import takes_rows
from nearfar.data.named_sets import FINETUNING_TASKS
from nearfar.disk import path_errors
from nearfar.evaluation.results import EvaluationResult
from nearfar.runs.fingerprints import fingerprint_model
from nearfar.runs.folder import RunFolder, read_run_info

if TYPE_CHECKING:
    from rich.console import Console


STEPS, MOST_EPOCHS = 150, 60
"""Steps that :func:`recommended_settings` gives few rows, in at most so many epochs."""


@dataclass(frozen=True)
class FinetuneResult:
    """Result of :func:`finetune`."""

    steps: int
    best_step: int
    start_score: float
    """The metric that chooses the step, on the validation rows before training, in [-1, 1]."""
    best_score: float
    seconds: float
    """Duration of the training steps, without evaluation."""
    result: EvaluationResult
    """Scores on the test rows, in the format of a result file."""


def recommended_settings(config: FinetuneConfig) -> dict[str, Any]:
    """Epochs, learning rate and the weight of SCL for the number of rows and the kind of encoder of ``config``.

    An encoder as narrow as all-MiniLM-L6-v2 gets a higher rate than the paper's, which is for RoBERTa-large; few rows
    get as many epochs as :data:`STEPS` steps take, at most :data:`MOST_EPOCHS`. They were tried on SUBJ.
    """
    name, _, split = config.task.partition(":")
    named = FINETUNING_TASKS.get(name)
    spec = config.task if named is None else f"{named.source}:{split or 'train'}"
    column = config.label_column if named is None else named.label_column
    limits = [number for number in (config.sample_size, config.limit) if number is not None]
    rows = min([count_rows([spec], column, STEPS * config.batch_size), *limits])
    start = read_start(config.model)
    narrow = start is not None and start.width is not None and start.width <= RECIPE_WIDTH
    return {
        "epochs": max(FinetuneConfig.epochs, min(MOST_EPOCHS, -(-STEPS * config.batch_size // rows))),
        "learning_rate": 1e-4 if narrow else 2e-5,
        "scl_weight": 0.5,
        "scl_reduction": "mean",
    }


@takes_rows
@accepts_settings(FinetuneConfig, recommended_settings)
@path_errors()
def finetune(config: FinetuneConfig, *, resume: bool = False, console: "Console | None" = None) -> FinetuneResult:
    """Fine-tune a classifier, test it, and write it to ``config.output``/model.

    Settings can be given by name: ``finetune(task="sst2", output="runs/sst2")``; see :class:`nearfar.FinetuneConfig`.
    ``task``, ``validation`` and ``test`` take rows in memory too, as :func:`nearfar.train` does.
    Epochs, learning rate, lambda and the reduction of SCL are then those of :func:`recommended_settings` unless they
    are given. The best step is chosen on the validation rows only.

    Args:
        config: the settings.
        resume: continue an interrupted run in ``config.output``, as in :func:`nearfar.train`.
        console: where to print progress; by default it is printed in notebooks only.

    Raises:
        NearfarError: invalid data, model or settings; a run folder that holds something else or is in use; data that
            changed since the run started; a loss that is not finite; a file that cannot be written.
        nearfar.training.Interrupted: after Ctrl-C, with everything saved.
    """
    from nearfar.commands.finetune.run import ClassifierRun, fingerprints, load_task, open_classifier
    from nearfar.runs.run import join_processes, run_in_folder

    context = join_processes(config, console)
    processes = context.processes

    def start(config: FinetuneConfig, folder: RunFolder) -> ClassifierRun:
        with processes.joint_errors():
            task = load_task(config)
            for what, fingerprint in fingerprints(config, task).items():
                folder.verify_input(what, fingerprint)
            folder.verify_input(f"--model {config.model}", partial(fingerprint_model, config.model))
        classifier = open_classifier(config, task, device=context.device)
        return ClassifierRun(config, task, classifier, folder=folder, context=context)

    result = run_in_folder(config, context, start, load_finetune_result, resume=resume)
    processes.broadcast_from_first(partial(write_card, Path(config.output)))
    return result


def load_finetune_result(folder: Path) -> FinetuneResult:
    """The result of the finished run in ``folder``.

    Raises:
        NearfarError: its run.json or result.json is missing or damaged.
    """
    run_info = read_run_info(folder)
    steps, best_step = (int(run_info.get(key) or 0) for key in ("step", "best_step"))
    start, best, seconds = (float(run_info.get(key) or 0) for key in ("start_score", "best_score", "seconds"))
    return FinetuneResult(steps, best_step, start, best, seconds, EvaluationResult.load(folder / "result.json"))
