"""Training callbacks that show progress on the console and write metrics.jsonl."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from nearfar.disk import disk_errors, read_text, write_text
from nearfar.training.trainer import Evaluation, StepReport
from nearfar.types import NearfarError, metric_title


class Display:
    """Shows loss terms, learning rate, items per second and remaining time in a progress bar.

    Without a terminal it prints about twenty lines per run. A context manager, inside which the bar is shown.
    """

    def __init__(
        self,
        console: Console,
        *,
        total_steps: int,
        start: int = 0,
        metric: str = "spearman",
        evaluated_on: str = "the dev pairs",
    ) -> None:
        self.console = console
        self.metric, self.evaluated_on = metric_title(metric), evaluated_on
        self.every = max(1, total_steps // 20)
        columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.description}"))
        self.bar = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)
        self.task = self.bar.add_task("starting", total=total_steps, completed=start)

    def __enter__(self) -> "Display":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def on_step(self, report: StepReport) -> None:
        """Update the progress bar."""
        terms = "  ".join(f"{name} {value:.3f}" for name, value in report.terms.items())
        line = f"{terms}  lr {report.learning_rate:.1e}  {report.items_per_second:.0f} items/s"
        self.bar.update(self.task, completed=report.step, description=line)
        if not self.console.is_terminal and report.step % self.every == 0:
            self.console.print(f"step {report.step}: {line}", highlight=False)

    def on_evaluate(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        """Print the score and the further metrics."""
        note = "before training" if step == 0 else "best so far" if best else ""
        shown = f"{self.metric} {100 * evaluation.score:.2f} on" if evaluation.score is not None else "geometry of"
        self.bar.console.print(f"step {step}: {shown} {self.evaluated_on}  {note}".rstrip(), highlight=False)
        measures = "  ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in evaluation.measures.items())
        if measures:
            self.bar.console.print(f"  {measures}", highlight=False)


class MetricsFile:
    """``metrics.jsonl``: one JSON object per step or evaluation; lines after the step ``resume_at`` are removed.

    With ``resume_at`` 0, all lines are removed: a run that stopped before its first checkpoint starts again with the
    evaluation before training.
    """

    def __init__(self, file: Path, *, resume_at: int, metric: str = "spearman") -> None:
        self.file, self.metric = file, metric
        kept = lines_up_to_step(file, up_to=resume_at) if resume_at else []
        write_text(file, "".join(line + "\n" for line in kept))

    def on_step(self, report: StepReport) -> None:
        """Append a line for the step."""
        rounded = {name: round(value, 6) for name, value in report.terms.items()}
        self._append(
            {"step": report.step, "epoch": report.epoch, **rounded, "learning_rate": report.learning_rate}
            | {
                "gradient_norm": round(report.gradient_norm, 6),
                "items_per_second": round(report.items_per_second, 1),
            }
        )

    def on_evaluate(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        """Append a line for the evaluation."""
        rounded = {name: round(value, 6) for name, value in evaluation.measures.items()}
        if evaluation.score is None:
            scored: dict[str, object] = {"metric": None}
        else:
            scored = {"metric": self.metric, self.metric: evaluation.score}
        self._append({"step": step, **scored, "best": best, **rounded})

    def _append(self, record: Mapping[str, object]) -> None:
        with disk_errors(self.file), self.file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record) + "\n")


def lines_up_to_step(file: Path, *, up_to: int) -> list[str]:
    """The lines of a metrics.jsonl up to a step, without an incomplete last line; none if the file does not exist.

    Raises:
        NearfarError: the file cannot be read, or a line other than the last is damaged.
    """
    if not file.exists():
        return []
    lines = read_text(file).split("\n")
    kept = []
    for number, line in enumerate(lines, start=1):
        try:
            step = json.loads(line)["step"]
        except (ValueError, TypeError, KeyError, RecursionError):
            if number == len(lines):  # after the last line end: empty, or an incomplete line of a killed run
                continue
            step = None
        if type(step) is not int:
            raise NearfarError(f"{file}, line {number}: is damaged: no JSON object with a step. Remove this line.")
        if step <= up_to:
            kept.append(line)
    return kept
