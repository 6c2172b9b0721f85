"""``nearfar get-data``: downloads the public data sets, converts them, and lists the named sets."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from nearfar.commands.get_data.download import Record, SourceFile, download, list_files
from nearfar.commands.get_data.recipes import RECIPES, ConvertedFile, convert, examples, plan
from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import GetDataConfig
from nearfar.data import named_sets
from nearfar.data.named_sets import Download
from nearfar.data.paths import as_path
from nearfar.disk import sha256_of
from nearfar.disk.checks import path_errors
from nearfar.disk.folders import folder_lock
from nearfar.types import NearfarError
from nearfar.validation import unknown_name_message

DOWNLOADS = "downloads"
"""Folder in the data folder that keeps the downloads."""
SUITES = ("sts", "transfer")


@dataclass(frozen=True, kw_only=True)
class SetStatus:
    """A named set."""

    name: str
    rows: dict[str, int | None]
    """File in the data folder -> its number of rows; None if it is missing."""
    licence: str
    """Of its first public source; empty if it has none."""
    cite: str

    @property
    def place(self) -> str:
        """``local``, ``local, in part`` or ``missing``."""
        local = [rows is not None for rows in self.rows.values()]
        return "local" if all(local) else "local, in part" if any(local) else "missing"


@dataclass(kw_only=True)
class GetDataResult:
    """What was done, or the list of sets."""

    folder: Path | None
    """The data folder."""
    converted: list[ConvertedFile] = field(default_factory=list)
    """The files that were written."""
    existing: list[str] = field(default_factory=list)
    """The files that existed already."""
    listed: tuple[SetStatus, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about rows that are not the published ones, and text that is not the official."""
        return tuple(warning for file in self.converted for warning in file.warnings)


@path_errors()
@accepts_settings(GetDataConfig)
def get_data(names: Sequence[str] = (), config: GetDataConfig | None = None) -> GetDataResult:
    """Download and convert named data sets, convert downloads (``source``), or list the sets.

    Args:
        names: named sets (``mr``), mixtures (``snli+mnli``), tasks (``sick-e``) or the suites ``sts`` and
            ``transfer``. With ``source``, only the files of these sets are made; none means all that it has. Without
            ``names`` and ``source``, or with ``list``, the sets are listed.
        config: the settings; see :class:`nearfar.GetDataConfig`.

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
    with folder_lock(folder):
        maker = _Maker(folder, overwrite=config.overwrite)
        maker.fetch(sets) if config.source is None else maker.convert_source(config.source, sets)
    if maker.errors:
        several = ["not all files could be made; the others are complete."] if maker.errors[1:] else []
        raise NearfarError("\n  ".join([*several, *maker.errors]))
    return maker.result


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
                raise NearfarError(unknown_name_message(name, [*SUITES, *chain(*tables)], what="data set or suite"))
            every += sets
    return tuple(dict.fromkeys(every))


class _Maker:
    """Makes files in the data folder; ``result`` is what was done so far, ``errors`` what was not."""

    def __init__(self, folder: Path, *, overwrite: bool) -> None:
        self._folder, self._overwrite, self._record = folder, overwrite, Record(folder)
        self.errors: list[str] = []
        self.result = GetDataResult(folder=folder)

    def convert_source(self, source: str, sets: Sequence[str]) -> None:
        """Convert the files of ``sets``, or all, that a download has."""
        files = list_files(source)
        wanted = {file for name in sets for file in named_sets.files_of(name)} or {recipe.target for recipe in RECIPES}
        available = plan(files, wanted).keys()
        lacking = [name for name in sets if available.isdisjoint(named_sets.files_of(name))]
        if lacking or not available:
            name, made = ", ".join(lacking) or "a known data set", chain(*map(named_sets.files_of, lacking))
            raise NearfarError(
                f"{source}: has no file of {name}, which is made from {examples({*made} or wanted)}. nearfar get-data "
                "--list lists the sets."
            )
        self._convert(files, self._to_make(available), source=str(source), licence=None)

    def fetch(self, sets: Sequence[str]) -> None:
        """Download what the files of ``sets`` need, and convert it."""
        wanted: set[str] = set()
        for name in sets:
            public = {file for file in named_sets.files_of(name) if named_sets.sources_of(file)}
            if not public:
                raise NearfarError(f"{name}: cannot be downloaded. {named_sets.how_to_get(name)}")
            wanted |= public
        missing = self._to_make(wanted)
        for name, source in named_sets.SOURCES.items():
            if targets := {file for file in missing if source.makes(file)}:
                missing -= self._fetch_source(source, self._folder / DOWNLOADS / name, targets)
        if missing:
            self.errors.append(
                f"Missing: {', '.join(sorted(missing))}. To download by hand: save the files of one source in a "
                f"folder, and run nearfar get-data {' '.join(sets)} --source FOLDER"
            )
        else:
            self.errors.clear()  # another source had the files

    def _fetch_source(self, source: named_sets.Source, folder: Path, targets: set[str]) -> set[str]:
        """Download a source and convert ``targets`` from it; returns those that were made.

        A download without a published checksum is recorded only if it could be converted, and otherwise deleted: it may
        be a web page that a server sent instead.
        """
        paths: dict[Download, Path] = {}
        made: set[str] = set()
        try:
            for wanted in source.downloads:
                paths[wanted] = download(wanted, folder, recorded=self._record.checksum(wanted.address))
            files = [file for path in paths.values() for file in list_files(path)]
            addresses = ", ".join(wanted.address for wanted in source.downloads)
            made = self._convert(files, targets, source=addresses, licence=source.licence)
        except NearfarError as error:
            self.errors.append(str(error))
        for wanted, path in paths.items():
            if made:
                entry = {"sha256": sha256_of(path), "bytes": path.stat().st_size}
                self._record.add("downloads", wanted.address, entry)
            elif wanted.sha256 is None:
                path.unlink()
        return made

    def _to_make(self, files: Iterable[str]) -> set[str]:
        """Those of the files that are to be made; the others are there already."""
        there = {file for file in files if not self._overwrite and (self._folder / file).exists()}
        self.result.existing += sorted(there)
        return set(files) - there

    def _convert(self, files: Sequence[SourceFile], targets: set[str], **origin: str | None) -> set[str]:
        made = set()
        for recipe, inputs in plan(files, targets).values():
            try:
                self.result.converted.append(convert(recipe, inputs, self._folder, self._record, **origin))
                made.add(recipe.target)
            except NearfarError as error:
                self.errors.append(str(error))
        return made


def status_of(name: str, folder: Path | None) -> SetStatus:
    """Return where the set ``name`` is; ``folder`` is the local data folder."""
    files = named_sets.files_of(name)
    source = next((named_sets.SOURCES[one] for file in files for one in named_sets.sources_of(file)), None)
    return SetStatus(
        name=name,
        rows={file: None if folder is None else _count_rows(folder / file) for file in files},
        licence=source.licence if source else "",
        cite=named_sets.CATALOG[name].cite or (source.cite if source else ""),
    )


def _count_rows(file: Path) -> int | None:
    """The number of rows of a file: lines that are not blank, without the header of a table; None if it is missing."""
    if not file.is_file():
        return None
    with file.open("rb") as stream:
        return sum(1 for line in stream if line.strip()) - (file.suffix == ".tsv")
