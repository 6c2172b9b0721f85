"""What all verbs share: a function that gets the settings of one call, prints, and says how to go on after Ctrl-C."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, TypeAlias

import nearfar
from nearfar.cli import VERBS
from nearfar.cli.parsing import Option, parse
from nearfar.config.bounds import File

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.evaluation.render import Table

MakeConsole: TypeAlias = "Callable[[], Console]"
Main: TypeAlias = Callable[[list[str], MakeConsole], int]
"""Runs a verb with its arguments; returns the exit status."""
_NO_FILES = ("query", "names", "name")
"""Arguments that name no file or folder, and may be longer than such a name."""
SAVED = " after a complete step; everything is saved"
"""What Ctrl-C leaves of a training run."""


@dataclass
class Call:
    """One call of a verb: its name, its arguments, and the console to print to."""

    verb: str
    argv: Sequence[str]
    make_console: MakeConsole

    @cached_property
    def console(self) -> "Console":
        """The console for results."""
        return self.make_console()

    def say(self, *lines: str) -> None:
        """Print lines as they are."""
        self.console.print("\n".join(lines), markup=False, highlight=False)

    def show(self, table: "Table") -> None:
        """Print a table, as wide as the terminal."""
        from nearfar.evaluation.render import to_rich

        self.console.print(to_rich(table), soft_wrap=False)

    def stopped(self, what: str, *flags: str, console: "Console | None" = None) -> int:
        """Print what Ctrl-C left, and the command that goes on, with ``flags`` added; returns the exit status."""
        again = shlex.join(["nearfar", self.verb, *self.argv, *flags])
        (console or self.console).print(f"\nStopped{what}:\n  {again}", markup=False, highlight=False)
        return 130

    def interrupted(self, what: str, *, resumed: bool, console: "Console | None" = None) -> int:
        """:meth:`stopped`, of a command that goes on with ``--resume``, which it was given or not."""
        return self.stopped(f"{what}. Resume with", *([] if resumed else ["--resume"]), console=console)

    def kept_vectors(self, output: str | None) -> int:
        """:meth:`stopped`, of a command that keeps the vectors of its texts beside ``output``.

        Raises:
            KeyboardInterrupt: nothing is kept.
        """
        from nearfar.commands.encode.vectors import kept_vectors

        if output is None or not kept_vectors(output).exists():
            raise KeyboardInterrupt
        return self.stopped(f"; finished parts are kept in {kept_vectors(output)}. Continue with")


def verb(*extras: Option, name: str | None = None) -> Callable[[Callable[..., int | None]], Main]:
    """Make a verb of ``run(call, config, **extras)``, which calls a command of Python and prints what it returns.

    The type of ``config``, written as ``"nearfar.NAME"``, has its flags; it is imported when the verb runs. ``extras``
    are options beside it and the positional arguments of ``verbs.toml``. ``name`` is the verb's, by default that of the
    function.
    """

    def decorate(run: Callable[..., int | None]) -> Main:
        @wraps(run)
        def main(argv: list[str], make_console: MakeConsole) -> int:
            call = Call(name or run.__name__.replace("_", "-"), argv, make_console)
            kind = getattr(nearfar, run.__annotations__["config"].rpartition(".")[2])
            given, values = parse(kind, argv, prog=f"nearfar {call.verb}", extras=[*positionals(call.verb), *extras])
            return run(call, given, **values) or 0

        return main

    return decorate


def positionals(verb: str) -> list[Option]:
    """The positional arguments of a verb: one that ends in ``...`` takes any number, one in brackets may be missing."""
    options = []
    for name, shown, text in VERBS[verb].arguments:
        kind: Any = str if name in _NO_FILES else File
        if shown.strip("[]").endswith("..."):
            options.append(Option(name, tuple[kind, ...], text, (), positional_name=shown))
        elif shown.startswith("["):
            options.append(Option(name, kind | None, text, None, positional_name=shown))
        else:
            options.append(Option(name, kind, text, positional_name=shown))
    return options


def short(text: str, most: int) -> str:
    """A text from a file on one line, of at most this number of characters."""
    from nearfar.evaluation.render import one_line

    text = one_line(text)
    return text if len(text) <= most else text[: most - 3] + "..."
