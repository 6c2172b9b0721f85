"""The part inputs: malformed and valid files, flags and folders for every reader and command.

A case changes one valid file, or gives one flag another value. Nothing may raise, hang or use much memory; what is
refused is refused in a sentence that names the file or flag; what is read is what a plain reader finds.
"""

import os
from collections.abc import Iterator

from tests.campaign import (
    input_commands,
    input_files,
    input_flags,
    input_models,
    input_parquet,
    input_records,
    input_unfinished,
)
from tests.campaign.case import Case, SkipPartError


def cases(seed: int) -> Iterator[Case]:
    """All cases."""
    if not hasattr(os, "fork"):
        raise SkipPartError("needs os.fork")
    for module in (
        input_files,
        input_parquet,
        input_records,
        input_unfinished,
        input_models,
        input_flags,
        input_commands,
    ):
        yield from module.cases(seed)
