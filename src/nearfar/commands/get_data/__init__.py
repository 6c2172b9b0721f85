"""``nearfar get-data``: downloads the public data sets, converts them, and lists the named sets."""

import gzip
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from nearfar.commands.get_data.download import DownloadError, Record, SourceFile, download, list_files
from nearfar.commands.get_data.recipes import RECIPES, ConvertedFile, convert, examples, plan
from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import GetDataConfig
from nearfar.data import named_sets
from nearfar.data.paths import as_path
from nearfar.disk import path_errors, sha256_of
from nearfar.disk.folders import folder_lock
from nearfar.types import NearfarError

DOWNLOADS = "downloads"
"""Folder in the data folder that keeps the downloads."""
SUITES = ("sts", "transfer")


class FileStatus(NamedTuple):
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


@dataclass(kw_only=True)
class GetDataResult:
    """What was done, or the list of sets."""

    folder: Path | None
    """The data folder."""
    converted: list[ConvertedFile] = field(default_factory=list)
    """The files that were written."""
    existing: list[str] = field(default_factory=list)
    """The files that existed already."""
    missing: list[str] = field(default_factory=list)
    """The files of the named sets that are not in ``source``."""
    listed: tuple[SetStatus, ...] = ()

    skipped: list[str] = field(default_factory=list)
    """One sentence for each archive in the folder ``source`` that could not be read."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about rows that are not the published ones, text that is not the official, and skipped archives."""
        return (*(warning for file in self.converted for warning in file.warnings), *self.skipped)


@path_errors()
@accepts_settings(GetDataConfig)
def get_data(names: Sequence[str] = (), config: GetDataConfig | None = None, *, progress: bool = True) -> GetDataResult:
    """Download and convert named data sets, convert downloads (``source``), or list the sets.

    Args:
        names: named sets (``mr``), mixtures (``snli+mnli``), tasks (``sick-e``) or the suites ``sts`` and
            ``transfer``. With ``source``, only the files of these sets are made; none means all that it has. Without
            ``names`` and ``source``, or with ``list``, the sets are listed.
        config: the settings; see :class:`nearfar.GetDataConfig`.
        progress: show a progress bar.

    Files that exist are left as they are, unless ``overwrite``. Each file is written atomically; ``sources.json``
    records its source, and the checksum of each download.

    Raises:
        NearfarError: an unknown name, no data folder, a set without a public source, a failed download (with the
            address to download by hand), a download that is damaged or not in its published format.
    """
    assert config is not None
    sets = _resolve([names] if isinstance(names, str) else names)
    root = config.output or os.environ.get("NEARFAR_DATA")
    folder = as_path(root) if root else None
    if config.list or not (sets or config.source):
        every = [name for name, entry in named_sets.CATALOG.items() if not entry.packaged]
        return GetDataResult(folder=folder, listed=tuple(status_of(name, folder) for name in sets or every))
    if folder is None:
        raise NearfarError("No data folder: name one by --output, or set the environment variable NEARFAR_DATA to it.")
    if folder.exists() and not folder.is_dir():
        raise NearfarError(f"--output {folder}: is a file; name a folder.")
    with folder_lock(folder), _progress(progress):
        maker = _Maker(folder, overwrite=config.overwrite)
        if config.source is not None:
            maker.convert_source(config.source, sets)
        else:
            maker.fetch(sets)
        return maker.result


@contextmanager
def _progress(shown: bool) -> Iterator[None]:
    """Hide the progress bars of downloads unless they are ``shown``."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if shown or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def _resolve(names: Iterable[str]) -> tuple[str, ...]:
    """The named sets of the names, each once."""
    every: list[str] = []
    for name in names:
        if ":" in name:
            raise NearfarError(f"{name}: name the whole set, {name.partition(':')[0]}; its splits belong together.")
        for member in named_sets.suite_tasks(name) if name in SUITES else (name,):
            sets = named_sets.sets_of(member)
            if not sets:
                tables = named_sets.CATALOG, named_sets.MIXTURES, named_sets.PROBE_TASKS, named_sets.FINETUNING_TASKS
                known = [one for table in (SUITES, *tables) for one in table]
                hint = "".join(f" Did you mean {close!r}?" for close in get_close_matches(name, known, n=1))
                raise NearfarError(
                    f"{name}: no such data set.{hint} nearfar get-data --list lists them; sts and transfer are the "
                    "sets of these suites."
                )
            every += sets
    return tuple(dict.fromkeys(every))


class _Maker:
    """Makes files in the data folder; ``result`` is what was done so far."""

    def __init__(self, folder: Path, *, overwrite: bool) -> None:
        self._folder, self._overwrite, self._record = folder, overwrite, Record(folder)
        self._errors: list[str] = []
        self.result = GetDataResult(folder=folder)

    def convert_source(self, source: str, sets: Sequence[str]) -> None:
        """Convert the files of ``sets``, or all, that a download has."""
        files, self.result.skipped = list_files(source)
        skipped = "".join(f"\n  {reason}" for reason in self.result.skipped)
        wanted = {file for name in sets for file in named_sets.files_of(name)} or {recipe.target for recipe in RECIPES}
        available = plan(files, wanted).keys()
        for name in sets:
            if available.isdisjoint(named_sets.files_of(name)):
                raise NearfarError(
                    f"{source}: has no file of {name}. It is made from {examples(named_sets.files_of(name))}.{skipped}"
                )
        if not available:
            raise NearfarError(
                f"{source}: has no file of a known data set, such as "
                f"{examples(['senteval/MR.tsv', 'sts/STSB/dev.tsv', 'glue/RTE/dev.tsv'])}. nearfar get-data --list "
                f"lists the sets.{skipped}"
            )
        if sets:
            self.result.missing = sorted(file for file in wanted - available if not (self._folder / file).exists())
        self._convert(files, self._to_make(available), source=str(source), licence=None)
        if len(self._errors) == 1:
            raise NearfarError(self._errors[0])
        if self._errors:
            reasons = "\n  ".join(self._errors)
            raise NearfarError(f"{len(self._errors)} files could not be made; the others are complete.\n  {reasons}")

    def fetch(self, sets: Sequence[str]) -> None:
        """Download what the files of ``sets`` need, and convert it."""
        for name in sets:
            if not any(named_sets.sources_of(file) for file in named_sets.files_of(name)):
                raise NearfarError(f"{name}: cannot be downloaded. {named_sets.how_to_get(name)}")
        missing = self._to_make(
            {file for name in sets for file in named_sets.files_of(name) if named_sets.sources_of(file)}
        )
        for name, source in named_sets.SOURCES.items():
            if targets := {file for file in missing if source.makes(file)}:
                missing -= self._fetch_source(source, self._folder / DOWNLOADS / name, targets)
        if not missing:
            return
        files = sorted(missing)
        shown = ", ".join(files[:6]) + (f" and {len(files) - 6} more" if len(files) > 6 else "")
        reasons = "".join(f"\n  {error}" for error in self._errors) or "\n  The downloads do not contain them."
        raise NearfarError(
            f"{', '.join(sets)}: could not be downloaded; missing: {shown}.{reasons}\n  To do it by hand: download the "
            f"files of one source with a browser into a folder, and run nearfar get-data {' '.join(sets)} --source "
            "FOLDER"
        )

    def _fetch_source(self, source: named_sets.Source, folder: Path, targets: set[str]) -> set[str]:
        """Download a source and convert ``targets`` from it; returns those that were made.

        A download without a published checksum is recorded only if it could be converted, and otherwise deleted: it may
        be a web page that a server sent instead.
        """
        paths: dict[str, Path] = {}
        made: set[str] = set()
        addresses = [wanted.address for wanted in source.downloads]
        try:
            for wanted in source.downloads:
                recorded = self._record.checksum(wanted.address)
                paths[wanted.address] = download(wanted, folder, recorded=recorded)
            files = [file for path in paths.values() for file in list_files(path)[0]]
            made = self._convert(files, targets, source=", ".join(addresses), licence=source.licence)
        except DownloadError as error:
            others = ", ".join(address for address in addresses if not str(error).startswith(address))
            self._errors.append(f"{error} This source also has {others}." if others else str(error))
        except NearfarError as error:
            self._errors.append(str(error))
        for wanted in source.downloads:
            path = paths.get(wanted.address)
            if made and path:
                entry = {"sha256": sha256_of(path), "bytes": path.stat().st_size}
                self._record.add("downloads", wanted.address, entry)
            elif path and wanted.sha256 is None:
                path.unlink()
        return made

    def _to_make(self, files: Iterable[str]) -> set[str]:
        """Those of the files that are to be made; the others are there already."""
        wanted = set(files)
        there = set() if self._overwrite else {file for file in wanted if (self._folder / file).exists()}
        self.result.existing += sorted(there)
        return wanted - there

    def _convert(self, files: Sequence[SourceFile], targets: set[str], **origin: str | None) -> set[str]:
        made = set()
        for recipe, inputs in plan(files, targets).values():
            try:
                self.result.converted.append(convert(recipe, inputs, self._folder, self._record, **origin))
                made.add(recipe.target)
            except NearfarError as error:
                self._errors.append(str(error))
        return made


def status_of(name: str, folder: Path | None) -> SetStatus:
    """Return where the set ``name`` is; ``folder`` is the local data folder."""
    entry, names = named_sets.CATALOG[name], list(named_sets.files_of(name))
    if folder is not None and not entry.files:
        other = sorted(path.name for path in (folder / entry.folder).glob("*.tsv"))
        names = list(dict.fromkeys([*names, *(f"{entry.folder}/{file}" for file in other)]))
    source = next((named_sets.SOURCES[one] for file in names for one in named_sets.sources_of(file)), None)
    counts = {file: _count_rows(folder / file) if folder is not None else None for file in names}
    return SetStatus(
        name=name,
        files=tuple(FileStatus(file, rows, named_sets.PUBLISHED_ROWS.get(file)) for file, rows in counts.items()),
        hub=entry.hub,
        in_hub_cache=bool(entry.hub) and _in_hub_cache("/".join((entry.hub or "").split("/")[:2])),
        licence=source.licence if source else "",
        cite=entry.cite or (source.cite if source else ""),
        used_in=entry.used_in,
        get=named_sets.how_to_get(name),
    )


def _count_rows(file: Path) -> int | None:
    """The number of rows of a file: lines that are not blank, without the header of a table; None if it is missing."""
    if not file.is_file():
        return None
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
        return sum(1 for line in stream if line.strip()) - (file.suffix == ".tsv")


def _in_hub_cache(repository: str) -> bool:
    """Whether ``datasets`` has prepared the data set, without importing it or huggingface_hub."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = Path(os.environ.get("HF_HOME") or Path(cache) / "huggingface")
    datasets = Path(os.environ.get("HF_DATASETS_CACHE") or home / "datasets").expanduser()
    return (datasets / repository.replace("/", "___")).is_dir()
