"""Work that takes hours and can be continued: a folder, the settings that must agree, and the parts that are done."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

from nearfar.disk import check_characters
from nearfar.disk.folders import FolderBusyError, folder_lock
from nearfar.disk.places import OWN, Place
from nearfar.types import NearfarError

PLAN, PARTS = f"{OWN}/plan.json", f"{OWN}/parts"
_WAIT_SECONDS = 0.2
_THREADS = 16
"""Number of records that are read at the same time."""
_MOST_CHANGES, _MOST_CHARACTERS = 5, 200


class Work:
    """Work in a folder that a later call continues, here or on another machine.

    ``_nearfar/plan.json`` has the settings: everything that determines the results. It exists while there is something
    to continue. ``_nearfar/parts`` has a record of each part that is done, written after the part.

    Args:
        place: the folder.
        kind: what the folder is, as the file says it.
        version: of the layout of the folder.
    """

    def __init__(self, place: Place, kind: str, version: int = 1) -> None:
        self.place, self._kind, self._version = place, kind, version

    @property
    def exists(self) -> bool:
        """Whether there is work that can be continued."""
        return PLAN.rpartition("/")[2] in self.place.names(OWN)

    def settings(self) -> dict[str, Any] | None:
        """The settings of the work; None if there is none.

        Raises:
            NearfarError: they are damaged, or a newer version of nearfar wrote them.
        """
        content = self.place.read(PLAN)
        if content is None:
            return None
        try:
            found = json.loads(content)
            check_characters(found, content.decode())
            if found.pop("kind") != self._kind or type(found["format"]) is not int:
                raise ValueError("it has another kind")
            if found["format"] > self._version:
                raise NearfarError(f"{self.place.address}/{PLAN}: has the format {found['format']}; update nearfar.")
            del found["format"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self.damaged(error) from None
        return dict(found)

    def damaged(self, why: object) -> NearfarError:
        """The error of settings that are not what was written."""
        return NearfarError(
            f"{self.place.address}/{PLAN}: is damaged ({why}). Remove it and the parts in the folder to start again."
        )

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Write the settings; from then on there is something to continue."""
        text = json.dumps({"kind": self._kind, "format": self._version, **settings}, indent=1, ensure_ascii=False)
        self.place.write(PLAN, (text + "\n").encode())

    def agree(self, make: Callable[[], None]) -> dict[str, Any]:
        """The settings that all processes use that work in the folder: those that are there, or new ones.

        Of processes that start at once on one file system, one calls ``make``, which calls :meth:`begin`, and the
        others wait for it. In an object store each of them does; what they write is the same.
        """
        while (settings := self.settings()) is None:
            try:
                shared = self.place.shared
                with folder_lock(shared / OWN) if shared is not None else nullcontext():
                    if not self.exists:
                        self.place.clean(PLAN)
                        make()
            except FolderBusyError:
                time.sleep(_WAIT_SECONDS)
        return settings

    def recorded(self) -> list[str]:
        """The names of the parts that have a record."""
        return [name.removesuffix(".json") for name in self.place.names(PARTS) if name.endswith(".json")]

    def record(self, part: str) -> dict[str, Any] | None:
        """The record of a part; None if there is none, or a damaged one."""
        try:
            found = json.loads(self.place.read(f"{PARTS}/{part}.json") or "")
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def records(self, parts: Sequence[str]) -> dict[str, dict[str, Any] | None]:
        """The records of many parts."""
        with ThreadPoolExecutor(_THREADS) as threads:
            return dict(zip(parts, threads.map(self.record, parts), strict=True))

    def finish_part(self, part: str, record: Mapping[str, Any]) -> None:
        """Record that a part is done."""
        self.place.write(f"{PARTS}/{part}.json", (json.dumps(record, indent=1) + "\n").encode())

    def forget_parts(self) -> None:
        """Remove all records: no part is done."""
        for part in self.recorded():
            self.place.remove(f"{PARTS}/{part}.json")


def list_changes(before: Mapping[str, Any], now: Mapping[str, Any], words: Mapping[str, str]) -> list[str]:
    """What differs between two sets of settings; ``words`` says what a setting is called that is no flag.

    >>> list_changes({"max_length": 9, "model": "a"}, {"max_length": None, "model": "b"}, {"model": "the model"})
    ['--max-length was 9, is not given', 'the model changed']
    """
    return [
        f"{words[name]} changed"
        if name in words
        else f"--{name.replace('_', '-')} was {_shown(before.get(name))}, is {_shown(now.get(name))}"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    ]


def join_changes(changes: Sequence[str]) -> str:
    r"""Changes for an error message: at most five, each on one line of at most 200 characters.

    >>> join_changes(["--seed was 1, is 2", "the input\nchanged"])
    "--seed was 1, is 2; 'the input\\nchanged'"
    >>> join_changes(["x" * 1000] * 7) == "; ".join(["x" * 200] * 5) + "; and 2 more"
    True
    """
    shown = [
        (change if change.isprintable() else repr(change))[:_MOST_CHARACTERS] for change in changes[:_MOST_CHANGES]
    ]
    more = len(changes) - len(shown)
    return "; ".join([*shown, *[f"and {more:,} more"] * (more > 0)])


def refuse_changes(where: object, changes: Sequence[str], *, way: str = "choose another --output") -> None:
    """Refuse to continue work whose settings or inputs have changed.

    Raises:
        NearfarError: there is a change.
    """
    if changes:
        raise NearfarError(
            f"{where}: was started with different inputs or settings: {join_changes(changes)}. Give the same ones, or "
            f"{way}."
        )


def _shown(value: object) -> str:
    if value is None:
        return "not given"
    return (" ".join(map(str, value)) or "none") if isinstance(value, list) else str(value) or "''"
