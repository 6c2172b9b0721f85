"""The command line: parses flags and TOML, calls a composition, prints what came out. Nothing else.

``nearfar --help`` and every ``nearfar VERB --help`` cost no torch, and a verb's modules are imported when it is asked
for.
"""

import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from nearfar.runtime import garbage_collection, threads
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console

OVERVIEW = """nearfar fine-tunes sentence encoders by contrastive learning and proves that they got better.

  nearfar train METHOD --output RUN [flags]     train an encoder; METHOD is one of {methods}
  nearfar train FILE.toml [flags]               the same, settings from a file; flags override it
  nearfar finetune TASK|FILE --output RUN       fine-tune a classifier: sst2, rte ... or a labelled file
  nearfar predict MODEL --input FILE --output FILE        label texts by a fine-tuned classifier
  nearfar evaluate MODEL ... [flags]            score encoders on semantic textual similarity and transfer tasks
  nearfar compare FIRST SECOND ... [flags]      is the first better? models, result files or folders of them
  nearfar geometry MODEL ... --output FOLDER    alignment, uniformity, layers, and plots of the embedding space
  nearfar report RUN|RESULT ... --output FILE.html        one page on what runs came to, that opens anywhere
  nearfar encode MODEL --input FILE --output FILE.npy     vectors of any number of lines; also .parquet
  nearfar back-translate --input FILE --output FILE.tsv   pairs for the methods bt and bt+sg-opt
  nearfar env                                   versions, processor, kernels, folders: what a bug report needs

Each has its own --help, for example: nearfar train scl --help
nearfar --version prints the version.
"""

VERBS = {
    "train": "training",
    "finetune": "training",
    "predict": "texts",
    "evaluate": "evaluating",
    "compare": "evaluating",
    "encode": "texts",
    "geometry": "evaluating",
    "report": "evaluating",
    "back-translate": "texts",
    "env": "env",
}
"""Verb -> the module with ``VERB_verb``, which does what the words behind it say and returns the exit status."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status.

    0; 2 for a mistake that the user can mend; 70 for a fault of nearfar; 130 after Ctrl-C; 141 where what reads the
    output has gone. ``NEARFAR_DEBUG=1`` lets the exception of a fault through.
    """
    threads.set_up()
    if arguments is None:  # this is the program, and not a call in another
        garbage_collection.skip_at_exit()
    argv = list(sys.argv[1:] if arguments is None else arguments)
    show = warnings.showwarning
    warnings.showwarning = lambda message, *_, **__: _print_message(f"warning: {message}")
    try:
        try:
            return _run(argv)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # so that what cannot be written is told here, and not by Python as it leaves
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
        from nearfar.registry import METHODS

        sys.stdout.write(OVERVIEW.format(methods=", ".join(METHODS)))
        return 0 if argv else 2
    if argv[0] in ("-V", "--version"):
        from nearfar.cli.errors import version

        sys.stdout.write(f"nearfar {version('nearfar')}\n")
        return 0
    if argv[0] not in VERBS:
        from nearfar.config.files import unknown_name_message

        raise NearfarError(unknown_name_message(argv[0], VERBS, what="command"))
    module = import_module(f"nearfar.cli.{VERBS[argv[0]]}")
    status: int = getattr(module, f"{argv[0].replace('-', '_')}_verb")(argv[1:], _make_console)
    return status


def _make_console() -> "Console":
    """Where results go. Of several processes that train together, the first one talks."""
    from rich.console import Console

    return Console(soft_wrap=True, emoji=False, quiet=os.environ.get("RANK", "0") != "0")


def _print_message(message: str, style: str | None = None) -> None:
    from rich.console import Console

    Console(stderr=True, soft_wrap=True, emoji=False).print(message, markup=False, highlight=False, style=style)
