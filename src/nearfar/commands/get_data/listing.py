"""Where each named set is: in the local data folder, in the hub's cache, or missing; its rows, licence and source."""

import os
from dataclasses import dataclass
from pathlib import Path

from nearfar.data.files import extension
from nearfar.data.how_to_get import how_to_get
from nearfar.data.named_sets import CATALOG
from nearfar.data.public_sources import CITE, SOURCES, USED_IN, sources_of
from nearfar.data.published_rows import PUBLISHED_ROWS, files_of


@dataclass(frozen=True, kw_only=True)
class FileStatus:
    """A file of a named set; ``rows`` is None if it is missing."""

    file: str
    rows: int | None
    published: int | None


@dataclass(frozen=True, kw_only=True)
class SetStatus:
    """A named set."""

    name: str
    files: tuple[FileStatus, ...]
    hub: str | None
    in_hub_cache: bool
    licence: str
    """Of its first public source; empty if it has none."""
    cite: str
    used_in: tuple[str, ...]
    """The tables of the papers that need it."""
    get: str
    """How to get it."""

    @property
    def place(self) -> str:
        """``local``, ``local, in part``, ``hub cache`` or ``missing``."""
        local = [file.rows is not None for file in self.files]
        if all(local):
            return "local"
        cache = "hub cache" if self.in_hub_cache else ""
        return ", ".join(filter(None, ["local, in part" if any(local) else "", cache])) or "missing"


def status_of(name: str, folder: Path | None) -> SetStatus:
    """Return where the set ``name`` is; ``folder`` is the local data folder."""
    entry = CATALOG[name]
    names = list(files_of(name))
    if folder is not None and not entry.files:
        other = sorted(path.name for path in (folder / entry.folder).glob("*.tsv"))
        names = list(dict.fromkeys([*names, *(f"{entry.folder}/{file}" for file in other)]))
    source = next((SOURCES[one] for file in names for one in sources_of(file)), None)
    return SetStatus(
        name=name,
        files=tuple(
            FileStatus(
                file=file,
                rows=_count_rows(folder / file) if folder is not None else None,
                published=PUBLISHED_ROWS.get(file),
            )
            for file in names
        ),
        hub=entry.hub,
        in_hub_cache=bool(entry.hub) and _in_hub_cache("/".join((entry.hub or "").split("/")[:2])),
        licence=source.licence if source else "",
        cite=CITE.get(name, source.cite if source else ""),
        used_in=USED_IN.get(name, ()),
        get=how_to_get(name),
    )


def _count_rows(file: Path) -> int | None:
    """The number of rows of a file: lines that are not blank, without the header of a table; None if it is missing."""
    if not file.is_file():
        return None
    if extension(file).endswith(".gz"):
        import gzip

        with gzip.open(file) as stream:
            lines = sum(1 for line in stream if line.strip())
    else:
        with file.open("rb") as stream:
            lines = sum(1 for line in stream if line.strip())
    return lines - (extension(file) == ".tsv")


def _in_hub_cache(repository: str) -> bool:
    """Whether ``datasets`` has prepared the data set, without importing it."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = Path(os.environ.get("HF_HOME") or Path(cache) / "huggingface")
    datasets = Path(os.environ.get("HF_DATASETS_CACHE") or home / "datasets").expanduser()
    return (datasets / repository.replace("/", "___")).is_dir()
