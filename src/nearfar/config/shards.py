"""``--shard 3/40``, in all commands that divide their work into shards."""

import re

from nearfar.types import NearfarError
from nearfar.validation import format_text

_SHARD = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})")


def parse_shard(text: str | None) -> tuple[int, int]:
    """``3/40`` as (3, 40); (1, 1) without a text.

    Raises:
        NearfarError: it is not written so, or the first number is larger than the second.
    """
    if text is None:
        return 1, 1
    found = _SHARD.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        raise NearfarError(
            f"--shard {format_text(text)}: must be NUMBER/COUNT, with a number from 1 to COUNT, as in 3/40."
        )
    return int(found[1]), int(found[2])
