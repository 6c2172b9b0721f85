"""The command line: the table of verbs. A verb parses its flags, calls the command of its name, and prints the outcome.

``nearfar --help`` and ``nearfar VERB --help`` do not import torch; the modules of a verb are imported when it runs.
"""

import os
import sys
import tomllib
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

from nearfar.runtime import memory, threads
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console


class Verb(NamedTuple):
    """How ``nearfar --help`` presents a verb."""

    group: str
    usage: str
    """The verb and its positional arguments."""
    summary: str
    arguments: Sequence[tuple[str, str, str]] = ()
    """Name, name in ``--help`` and text of each positional argument."""


_FOLDER = Path(__file__).parent
DESCRIPTION = "nearfar fine-tunes sentence encoders by contrastive learning and tests whether they got better."
VERBS = {name: Verb(**entry) for name, entry in tomllib.loads((_FOLDER / "verbs.toml").read_text("utf-8")).items()}
"""Every verb. The function of its name in the module of its group in :mod:`nearfar.cli` runs it, and returns the exit
status: ``train(arguments, make_console)``."""


def overview() -> str:
    """The text of ``nearfar --help``."""
    from nearfar.registry import METHODS

    width = max(len(verb.usage) for verb in VERBS.values())
    lines = [DESCRIPTION, "", "Usage: nearfar VERB ... [flags]"]
    for group in dict.fromkeys(verb.group for verb in VERBS.values()):
        lines += ["", f"{group}:"]
        lines += [f"  {verb.usage:<{width}}  {verb.summary}" for verb in VERBS.values() if verb.group == group]
    methods = wrap(", ".join(METHODS), 98, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join([*lines, "", "Methods:", *methods, "", (_FOLDER / "example.txt").read_text("utf-8")])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status.

    The status is 0 for success, 2 for a user error, 70 for a bug in nearfar, 130 after Ctrl-C, and 141 if the reader of
    the output closed it. With ``NEARFAR_DEBUG=1`` the exception of a bug is raised.
    """
    threads.set_up()
    if arguments is None:  # run as a program, not called from Python
        memory.skip_at_exit()
    argv = list(sys.argv[1:] if arguments is None else arguments)
    show = warnings.showwarning
    warnings.showwarning = lambda message, *_, **__: _print_message(f"warning: {message}")
    try:
        try:
            return _run(argv)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # report output that cannot be written here, not at Python's exit
    except NearfarError as error:
        _print_message(f"nearfar: {error}", style="red")
        return 2
    except KeyboardInterrupt:
        _print_message("nearfar: stopped.")
        return 130
    except Exception as error:
        from nearfar.cli.errors import describe_exception

        status, sentence = describe_exception(error, argv)
        if sentence:
            _print_message(f"nearfar: {sentence}", style="red")
        return status
    finally:
        warnings.showwarning = show


def _run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        sys.stdout.write(overview())
        return 0 if argv else 2
    if argv[0] in ("-V", "--version"):
        from nearfar import __version__

        sys.stdout.write(f"nearfar {__version__}\n")
        return 0
    if argv[0] not in VERBS:
        from nearfar.validation import unknown_name_message

        raise NearfarError(unknown_name_message(argv[0], VERBS, what="command"))
    module = import_module(f"nearfar.cli.{VERBS[argv[0]].group.lower()}")
    status: int = getattr(module, argv[0].replace("-", "_"))(argv[1:], _make_console)
    return status


def _make_console() -> "Console":
    """The console for results. Of several processes that train together, only the first one prints."""
    from rich.console import Console

    return Console(soft_wrap=True, emoji=False, quiet=os.environ.get("RANK", "0") != "0")


def _print_message(message: str, style: str | None = None) -> None:
    from rich.console import Console

    message = "".join(one if one >= " " or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in message)
    Console(stderr=True, soft_wrap=True, emoji=False).print(message, markup=False, highlight=False, style=style)
