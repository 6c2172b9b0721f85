"""What all verbs share: flags from a function's parameters, and how to go on after Ctrl-C."""

import shlex
from collections.abc import Callable, Sequence
from typing import TypeVar

import tyro
from rich.console import Console

Parsed = TypeVar("Parsed")


def parse(command: Callable[..., Parsed], flags: Sequence[str], *, prog: str, description: str) -> Parsed:
    """What ``command`` returns for the ``flags``; its parameters and the fields of its configs are the flags."""
    settings = (tyro.conf.FlagCreatePairsOff,)
    return tyro.cli(command, args=flags, prog=prog, description=description, config=settings)


def stopped(what: str, console: Console, verb: str, given: Sequence[str], *, resume: bool) -> int:
    """Say ``what`` Ctrl-C left and by which command it goes on; returns the exit status.

    ``given`` is what stood behind the verb, ``resume`` whether it held --resume.
    """
    again = shlex.join(["nearfar", verb, *given, *([] if resume else ["--resume"])])
    console.print(f"\nStopped{what}. Go on with:\n  {again}", markup=False)
    return 130
