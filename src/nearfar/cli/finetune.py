"""``nearfar finetune``: a classifier."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nearfar.cli.parsing import SAVED, ExtraOption, parse, report_interrupt
from nearfar.settings import load_toml
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.config.finetune import FinetuneConfig


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Fine-tune a classifier; returns the exit status."""
    positional = argv[0] if argv and not argv[0].startswith("-") else None
    config, resume = _parse(positional, argv[1:] if positional else argv)
    console = make_console()

    from nearfar.commands.finetune.command import finetune
    from nearfar.evaluation.render import to_rich
    from nearfar.evaluation.tables.evaluation import evaluation_tables
    from nearfar.training.trainer import Interrupted

    try:
        done = finetune(config, resume=resume, console=console)
    except Interrupted:
        return report_interrupt(SAVED, console, "finetune", argv, resume=resume)
    for table in evaluation_tables(done.result, screen=True):
        console.print(to_rich(table), soft_wrap=False)
    metric = f" ({done.result.training.metric})" if done.result.training else ""
    console.print(
        f"Validation score{metric}: {100 * done.start_score:.2f} before training, {100 * done.best_score:.2f} at the "
        f"best step, {done.best_step}. The {config.keep} weights are in {config.output}/model",
        highlight=False,
        markup=False,
    )
    return 0


def _parse(task_or_file: str | None, flags: list[str]) -> "tuple[FinetuneConfig, bool]":
    """The config, and whether to resume. Flags override the values of a config file."""
    from nearfar.config.finetune import FinetuneConfig

    values: dict[str, Any] = {} if task_or_file is None else {"task": task_or_file}
    source = None
    if task_or_file is not None and task_or_file.endswith(".toml"):
        source = task_or_file
        kind, values = load_toml(source)
        if not issubclass(kind, FinetuneConfig):
            raise NearfarError(f"{source}: is a config for training an encoder; use nearfar train {source}")
    resume = ExtraOption("resume", bool, "Resume the run in OUTPUT; all settings must be the same.", False)
    prog = "nearfar finetune [TASK|FILE|FILE.toml]"
    config, extra_values = parse(FinetuneConfig, flags, prog=prog, extras=(resume,), values=values, source=source)
    return config, extra_values["resume"]
