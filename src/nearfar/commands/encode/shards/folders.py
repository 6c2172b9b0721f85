"""The output folder, on this machine's file system or at a remote address: files appear in it complete, or not at all.

On a file system with a rename, a file is written aside, in ``_nearfar/writing``, and renamed. In an object store an
upload appears when it is complete, so it has its final name at once.
"""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from nearfar.commands.encode.shards.addresses import (
    OBJECT_STORES,
    file_system,
    is_remote,
    join,
    local_path,
    protocol,
    remote_errors,
)
from nearfar.disk import (
    FolderBusyError,
    check_regular,
    check_writable_folder,
    create_folder,
    disk_errors,
    flush,
    flush_entries,
    folder_lock,
    path_errors,
    read_errors,
)
from nearfar.types import NearfarError

OWN = "_nearfar"
"""The subfolder of nearfar's own files. Readers of Parquet folders skip names that begin with an underscore."""
WRITING = f"{OWN}/writing"
_CHUNK = 2**20


class OutputFolder(Protocol):
    """Files by their names relative to the folder."""

    @property
    def address(self) -> str:
        """The absolute path or address of the folder."""

    @property
    def shared(self) -> Path | None:
        """The folder on this machine's file system, which all workers must see; None for a remote address."""

    def names(self, inside: str = "") -> list[str]:
        """The names of the files in the folder, or in a subfolder; empty if there is no such folder."""

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""

    def size(self, name: str) -> int | None:
        """The number of bytes of a file; None if there is none."""

    def digest(self, name: str) -> str:
        """The SHA-256 of a file, which is read once, in pieces."""

    def writing(self, name: str, scratch: Path) -> Path:
        """Where to write a file aside that :meth:`publish` gives its name; ``scratch`` is a temporary folder."""

    def publish(self, written: Path, name: str) -> None:
        """Give a complete file its name; a file of that name is replaced at once."""

    def clean(self, name: str) -> None:
        """Remove what killed workers left of a file that they wrote aside."""

    def write(self, name: str, content: bytes) -> None:
        """Write a small file at once."""

    def remove(self, name: str) -> None:
        """Remove a file, if there is one."""

    def free_bytes(self) -> int | None:
        """Free space; None if there is no limit that can be asked for."""


class LocalFolder:
    """A folder of this machine's file system, which other machines may mount too."""

    def __init__(self, address: str) -> None:
        self._path = local_path(address)
        self.address, self.shared = str(self._path), self._path

    @path_errors()
    def names(self, inside: str = "") -> list[str]:
        """See :class:`OutputFolder`."""
        folder = self._path / inside
        try:
            return sorted(entry.name for entry in os.scandir(folder))
        except FileNotFoundError:
            return []

    @path_errors()
    def read(self, name: str) -> bytes | None:
        """See :class:`OutputFolder`."""
        file = self._path / name
        with suppress(FileNotFoundError):
            check_regular(file)
            with file.open("rb") as stream, read_errors(file):
                return stream.read()
        return None

    def size(self, name: str) -> int | None:
        """See :class:`OutputFolder`."""
        try:
            return (self._path / name).stat().st_size
        except OSError:
            return None

    @path_errors()
    def digest(self, name: str) -> str:
        """See :class:`OutputFolder`."""
        file = self._path / name
        check_regular(file)
        with file.open("rb") as stream, read_errors(file):
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def writing(self, name: str, scratch: Path) -> Path:  # noqa: ARG002
        """See :class:`OutputFolder`."""
        folder = self._path / WRITING
        with disk_errors(self._path / name):
            create_folder(folder)
        return folder / f"{Path(name).name}.{secrets.token_hex(4)}"

    def publish(self, written: Path, name: str) -> None:
        """See :class:`OutputFolder`."""
        target = self._path / name
        with disk_errors(target):
            create_folder(target.parent)
            flush(written)
            written.replace(target)
            flush(target)
            flush_entries(written.parent)

    def clean(self, name: str) -> None:
        """See :class:`OutputFolder`."""
        for left in (self._path / WRITING).glob(f"{Path(name).name}.*"):
            with suppress(OSError):
                left.unlink()

    def write(self, name: str, content: bytes) -> None:
        """See :class:`OutputFolder`."""
        aside = self.writing(name, self._path)
        try:
            with disk_errors(self._path / name):
                aside.write_bytes(content)
            self.publish(aside, name)
        except BaseException:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
            raise

    def remove(self, name: str) -> None:
        """See :class:`OutputFolder`."""
        with disk_errors(self._path / name):
            (self._path / name).unlink(missing_ok=True)

    def free_bytes(self) -> int | None:
        """See :class:`OutputFolder`."""
        existing = next(folder for folder in (self._path, *self._path.parents) if folder.exists())
        return shutil.disk_usage(existing).free


class RemoteFolder:
    """A folder at an fsspec address."""

    def __init__(self, address: str) -> None:
        self.address, self.shared = address.rstrip("/"), None
        self._system, self._path = file_system(self.address, flag="--output")
        self._path = self._path.rstrip("/")
        self._uploads_appear_complete = protocol(address) in OBJECT_STORES

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    def names(self, inside: str = "") -> list[str]:
        """See :class:`OutputFolder`."""
        folder = self._at(inside).rstrip("/")
        with remote_errors(join(self.address, inside), what="cannot be listed"):
            self._system.invalidate_cache()
            try:
                found = self._system.ls(folder, detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found if name.rstrip("/") != folder)

    def read(self, name: str) -> bytes | None:
        """See :class:`OutputFolder`."""
        with remote_errors(join(self.address, name)):
            try:
                return bytes(self._system.cat_file(self._at(name)))
            except FileNotFoundError:
                return None

    def size(self, name: str) -> int | None:
        """See :class:`OutputFolder`."""
        with remote_errors(join(self.address, name)):
            self._system.invalidate_cache()
            try:
                return int(self._system.info(self._at(name))["size"])
            except FileNotFoundError:
                return None

    def digest(self, name: str) -> str:
        """See :class:`OutputFolder`."""
        found = hashlib.sha256()
        with remote_errors(join(self.address, name)), self._system.open(self._at(name), "rb") as file:
            while piece := file.read(_CHUNK):
                found.update(piece)
        return found.hexdigest()

    def writing(self, name: str, scratch: Path) -> Path:
        """See :class:`OutputFolder`."""
        return scratch / Path(name).name

    def publish(self, written: Path, name: str) -> None:
        """See :class:`OutputFolder`."""
        self._upload(lambda path: self._system.put_file(str(written), path), name)

    def write(self, name: str, content: bytes) -> None:
        """See :class:`OutputFolder`."""
        self._upload(lambda path: self._system.pipe_file(path, content), name)

    def _upload(self, upload: "Upload", name: str) -> None:
        target = self._at(name)
        with remote_errors(join(self.address, name), what="cannot be written"):
            if self._uploads_appear_complete:
                upload(target)
                return
            aside = self._at(f"{WRITING}/{Path(name).name}.{secrets.token_hex(4)}")
            for folder in (aside, target):
                self._system.makedirs(folder.rpartition("/")[0], exist_ok=True)
            upload(aside)
            if self._system.exists(target):  # not every file system replaces a file by a rename
                self._system.rm_file(target)
            self._system.mv(aside, target)

    def clean(self, name: str) -> None:
        """See :class:`OutputFolder`."""
        left = [] if self._uploads_appear_complete else self.names(WRITING)
        for other in left:
            if other.startswith(f"{Path(name).name}."):
                self.remove(f"{WRITING}/{other}")

    def remove(self, name: str) -> None:
        """See :class:`OutputFolder`."""
        with remote_errors(join(self.address, name), what="cannot be removed"), suppress(FileNotFoundError):
            self._system.rm_file(self._at(name))

    def free_bytes(self) -> int | None:
        """See :class:`OutputFolder`."""
        return None


class Upload(Protocol):
    """Uploads a file to a path of the file system."""

    def __call__(self, path: str, /) -> object:
        """Upload it."""


def open_folder(address: str) -> OutputFolder:
    """The output folder at a path or address; it need not exist."""
    return RemoteFolder(address) if is_remote(address) else LocalFolder(address)


@contextmanager
def lock(folder: OutputFolder) -> Iterator[bool]:
    """Lock the folder, if it can be locked; yields False if another process holds the lock."""
    if folder.shared is None:
        yield True
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(folder_lock(folder.shared / OWN))
        except FolderBusyError:
            yield False
        else:
            yield True


def check_folder(folder: OutputFolder, given: str) -> None:
    """Refuse an output that is a file, or that could not be written.

    Raises:
        NearfarError: it says why.
    """
    if folder.shared is None:
        return
    path = folder.shared
    if path.exists() and not path.is_dir():
        raise NearfarError(f"--output {given}: is a file; name a folder for the parts.")
    check_writable_folder(path, given)
