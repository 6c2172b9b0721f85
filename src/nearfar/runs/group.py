"""Reads the folder of a group of runs: one setting trained with several seeds.

The folder holds a run folder for each seed, ``seed-1`` and so on, and ``group.json`` once all runs are finished.
"""

import re
from pathlib import Path

from nearfar.data.paths import is_file
from nearfar.disk import path_errors, read_json
from nearfar.types import NearfarError

GROUP_FILE = "group.json"


@path_errors()
def runs_of(folder: str | Path) -> list[Path] | None:
    """The run folders of a group, or None if the folder is not a finished group.

    Raises:
        NearfarError: its file cannot be read or is damaged.
    """
    file = Path(folder) / GROUP_FILE
    if not is_file(file):
        return None
    again = "Resume the group with nearfar train --resume to write the file again."
    group = read_json(file, otherwise=again)
    names = group.get("runs") if isinstance(group, dict) else None
    if not isinstance(names, list) or not names or not all(is_run_name(name) for name in names):
        raise NearfarError(f"{file}: is damaged: it does not list the group's runs. {again}")
    return [file.parent / name for name in names]


def is_run_name(name: object) -> bool:
    """Whether this is the name of a run folder in a group: ``seed-1``."""
    return isinstance(name, str) and re.fullmatch(r"seed-\d+", name) is not None
