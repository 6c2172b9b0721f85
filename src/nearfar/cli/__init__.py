"""The command line: parses flags and TOML, calls a composition, prints what came out. Nothing else.

``nearfar --help`` and every ``nearfar VERB --help`` cost no torch: a verb's modules are imported when it runs.
"""

import os
import sys
import warnings
from collections.abc import Callable, Sequence

from rich.console import Console

from nearfar import threads
from nearfar.cli.env import env_verb
from nearfar.cli.evaluating import compare_verb, evaluate_verb, geometry_verb, report_verb
from nearfar.cli.texts import back_translate_verb, encode_verb, predict_verb
from nearfar.cli.training import finetune_verb, train_verb
from nearfar.config import METHODS, nearest
from nearfar.types import NearfarError

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
"""

VERBS: dict[str, Callable[[list[str], Console], int]] = {
    "train": train_verb,
    "finetune": finetune_verb,
    "predict": predict_verb,
    "evaluate": evaluate_verb,
    "compare": compare_verb,
    "encode": encode_verb,
    "geometry": geometry_verb,
    "report": report_verb,
    "back-translate": back_translate_verb,
    "env": env_verb,
}
"""Verb -> what it does with the words behind it; returns the exit status."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 2 for a mistake that the user can mend, 130 after Ctrl-C."""
    threads.set_up()
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Of several processes that train together, the first one talks.
    console, errors = (
        Console(soft_wrap=True, emoji=False, quiet=os.environ.get("RANK", "0") != "0"),
        Console(stderr=True, soft_wrap=True, emoji=False),
    )
    show = warnings.showwarning
    warnings.showwarning = lambda message, *_, **__: errors.print(f"warning: {message}", markup=False, highlight=False)
    try:
        if not given or given[0] in ("-h", "--help", "help"):
            console.print(OVERVIEW.format(methods=", ".join(METHODS)), markup=False, highlight=False)
            return 0 if given else 2
        if given[0] not in VERBS:
            raise NearfarError(nearest(given[0], VERBS, what="command"))
        return VERBS[given[0]](given[1:], console)
    except NearfarError as error:
        errors.print(f"nearfar: {error}", markup=False, highlight=False, style="red")
        return 2
    except KeyboardInterrupt:
        errors.print("nearfar: stopped.")
        return 130
    finally:
        warnings.showwarning = show
