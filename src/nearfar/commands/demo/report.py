"""The report of the demo: printed step by step, and written as Markdown at the end."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from rich.console import Console

from nearfar.config.values import flag
from nearfar.disk import write_text
from nearfar.evaluation.render import Table, to_markdown, to_rich
from nearfar.evaluation.results import provenance

INTRODUCTION = (
    "Written by `nearfar demo`: a pretrained sentence encoder is trained on pairs of generated sentences and tested on "
    "held-out pairs. Each command works the same way on other rows."
)


def command_line(verb: str, *arguments: str, **settings: str | PathLike[str] | float) -> str:
    """The command line of a verb with these settings.

    >>> command_line("train", data="my pairs.tsv", hold_out=100)
    "nearfar train --data 'my pairs.tsv' --hold-out 100"
    """
    flags = [word for name, value in settings.items() for word in (flag(name), str(value))]
    return shlex.join(["nearfar", verb, *arguments, *flags])


class Report:
    """Steps with their commands and results, on the console and as Markdown."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._steps = 0
        self._lines = ["# Before and after training", "", INTRODUCTION]

    def step(self, title: str, *commands: str) -> None:
        """Begin a step, with the command lines that a user would type."""
        self._steps += 1
        heading = f"{self._steps}. {title}"
        self.console.rule(heading)
        self._lines += ["", f"## {heading}"]
        if commands:
            self.code(commands, language="sh", prefix="$ ")

    def text(self, paragraph: str) -> None:
        """Add a paragraph; backquotes mark code and are not printed."""
        self.console.print(paragraph.replace("`", ""), markup=False, highlight=False)
        self._lines += ["", paragraph]

    def code(self, lines: Sequence[str], *, language: str = "", prefix: str = "") -> None:
        """Add lines as they are; on the console, with a prefix."""
        self.console.print("\n".join(f"{prefix}{line}".rstrip() for line in lines), markup=False, highlight=False)
        self._lines += ["", f"```{language}", *lines, "```"]

    def link(self, file: str) -> None:
        """Add a link to a file beside the report; it is not printed."""
        self._lines += ["", f"[{file}]({file})"]

    def table(self, table: Table) -> None:
        """Add a table."""
        self.console.print(to_rich(table), soft_wrap=False)
        self._lines += ["", to_markdown(replace(table, title=f"{table.title}:"))]

    def finish(self, file: Path, *, minutes: float, processor_minutes: float) -> None:
        """Write the Markdown file, with the provenance, and print where it is."""
        took = f"{minutes:.1f} minutes ({processor_minutes:.1f} minutes of processor time)"
        self._lines += ["", "## Provenance", "", f"- time: {took}"]
        self._lines += [f"- {key}: {value}" for key, value in provenance().to_dict().items()]
        write_text(file, "\n".join(self._lines) + "\n")
        self.console.rule()
        self.console.print(f"Done in {took}. Report: {file}", markup=False, highlight=False)
        self.console.print("On your own pairs: nearfar train --data FILE --output RUN", markup=False, highlight=False)
