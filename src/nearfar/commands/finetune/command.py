"""``nearfar finetune``: trains a classifier and tests it.

In the run folder, ``model/`` is a transformers folder for sequence classification, and ``result.json`` is a result file
with the predictions for the test rows.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from nearfar.commands.finetune.job import make_job, open_classifier
from nearfar.commands.finetune.rows import fingerprints, load_task, training_texts
from nearfar.commands.finetune.scores import evaluate_test_rows
from nearfar.commands.push.card import write_card
from nearfar.config import FinetuneConfig, dump_toml
from nearfar.config.calls import accepts_settings
from nearfar.data.classification import ClassificationTask
from nearfar.disk import SeenHashes, path_errors, write_seen
from nearfar.evaluation.results import EvaluationResult
from nearfar.evaluation.seen import add_seen
from nearfar.evaluation.tables.files import save_with_tables
from nearfar.runs.execute import execute, join_processes
from nearfar.runs.fingerprints import fingerprint_model
from nearfar.runs.folder import RunFolder
from nearfar.runs.precision import resolve_run_precision
from nearfar.runs.records import read_run_info
from nearfar.runs.seen import seen_hashes

if TYPE_CHECKING:
    from nearfar.encoder.classifier import Classifier
    from nearfar.training.checkpoint import Progress


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


@accepts_settings(FinetuneConfig)
@path_errors()
def finetune(config: FinetuneConfig, *, resume: bool = False, console: "Console | None" = None) -> FinetuneResult:
    """Fine-tune a classifier, test it, and write it to ``config.output``/model.

    Settings can be given by name: ``finetune(task="sst2", output="runs/sst2")``; see :class:`nearfar.FinetuneConfig`.
    The best step is chosen on the validation rows only.

    Args:
        config: the settings.
        resume: continue an interrupted run in ``config.output``, as in :func:`nearfar.train`.
        console: where to print progress; by default nothing is printed.

    Raises:
        NearfarError: invalid data, model or settings; a run folder that holds something else or is in use; data that
            changed since the run started; a loss that is not finite; a file that cannot be written.
        nearfar.training.loop.Interrupted: after Ctrl-C, with everything saved.
    """
    processes, device, console = join_processes(config, console)
    with RunFolder(config, processes) as run_dir:
        if run_dir.acquire(resume=resume) == "finished":
            done = processes.broadcast_from_first(lambda: load_finetune_result(run_dir.path))
            processes.broadcast_from_first(lambda: write_card(run_dir.path))
            console.print(
                f"{run_dir.path}: this run is already finished; nothing to do.", markup=False, highlight=False
            )
            return done
        settings = {"config.toml": dump_toml(config)}
        config = replace(config, precision=resolve_run_precision(config, run_dir, processes, device))
        with processes.joint_errors():
            task = load_task(config)
            for what, fingerprint in fingerprints(config, task).items():
                run_dir.verify_input(what, fingerprint)
            run_dir.verify_input(f"--model {config.model}", lambda: fingerprint_model(config.model))
        classifier = open_classifier(config, task, device=device)
        job = replace(make_job(config, task, classifier, processes=processes.size), settings=settings)
        test_results: list[EvaluationResult] = []
        classifier.seen = _seen(config, task, classifier)

        def run_info(progress: "Progress") -> dict[str, Any]:
            result = _test(config, task, classifier, progress)
            save_with_tables(result, Path(config.output) / "result.json")
            write_seen(run_dir.path, classifier.seen)
            test_results.append(result)
            return job.run_info(progress)

        progress = execute(
            config, replace(job, run_info=run_info), run_dir=run_dir, processes=processes, console=console
        )
        processes.broadcast_from_first(lambda: write_card(run_dir.path))
        return _finetune_result(progress, processes.broadcast_from_first(lambda: test_results[0]))


def load_finetune_result(folder: Path) -> FinetuneResult:
    """The result of the finished run in ``folder``.

    Raises:
        NearfarError: its run.json or result.json is missing or damaged.
    """
    run_info = read_run_info(folder)
    steps, best_step = (int(run_info.get(key) or 0) for key in ("step", "best_step"))
    start, best, seconds = (float(run_info.get(key) or 0) for key in ("start_score", "best_score", "seconds"))
    return FinetuneResult(steps, best_step, start, best, seconds, EvaluationResult.load(folder / "result.json"))


def _seen(config: FinetuneConfig, task: "ClassificationTask", classifier: "Classifier") -> SeenHashes | None:
    """The hashes of the texts of this run, and of those before it."""
    return seen_hashes(config, trained=training_texts(config, task), dev=task.validation.texts, before=classifier.seen)


def _test(
    config: FinetuneConfig, task: "ClassificationTask", classifier: "Classifier", progress: "Progress"
) -> EvaluationResult:
    """The result of the kept weights on the test rows."""
    result = evaluate_test_rows(config, task, classifier, progress)
    return result if classifier.seen is None else add_seen(result, classifier.seen, tested={task.name: task.test.texts})


def _finetune_result(progress: "Progress", result: EvaluationResult) -> FinetuneResult:
    return FinetuneResult(
        progress.step,
        progress.best_step or 0,
        progress.start_score or 0.0,
        progress.best_score or 0.0,
        progress.seconds,
        result,
    )
