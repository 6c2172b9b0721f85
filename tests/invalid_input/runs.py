"""Run folders in every state, created once: finished and interrupted runs."""

import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from nearfar.cli import main
from tests.encode_helpers import Killed
from tests.interrupted_runs import interrupt_at_step
from tests.invalid_input.cli_runner import copy_workspace

TRAIN = "train scl --model tiny --data nli.tsv --evaluate-on pairs.tsv --batch-size 10 --max-steps 2".split()
FINETUNE = "finetune labelled.tsv --model tiny --batch-size 8 --validation-rows 20 --max-steps 2".split()

STEPS = [*"--max-steps 3 --checkpoint-every 1 --evaluate-every 1 --learning-rate 1e-3".split()]
STOPPED = [*TRAIN[:-2], *STEPS, "--output", "stopped"]
STOPPED_FINETUNE = [*FINETUNE[:-2], *STEPS, "--output", "tuning"]


def make_runs(folder: Path, workspace: Path | None) -> Path:
    """Copy the valid files, if they are elsewhere; create ``stopped`` and ``tuning``, killed in their third step."""
    if workspace is not None:
        copy_workspace(workspace, folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for argv in (STOPPED, STOPPED_FINETUNE):
            interrupt_at_step(3, patch, partial(main, argv), error=Killed)
    return folder


def link_runs(base: Path, folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Link valid files into the working directory of one test. They are hard links: replace, never modify them."""
    shutil.copytree(base, folder, dirs_exist_ok=True, copy_function=os.link)
    patch.chdir(folder)
    patch.setenv("HF_HUB_OFFLINE", "1")
    patch.delenv("NEARFAR_DATA", raising=False)
    return folder
