"""A folder on this machine or at an fsspec address (``s3://``, ``memory://``), in which files appear complete, or not.

On a file system with a rename, a file is written aside, in ``_nearfar/writing``, and renamed. In an object store an
upload appears when it is complete, so it has its final name at once.
"""

import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from nearfar.disk import check_regular, create_folder, disk_errors, path_errors, publish, read_errors, sha256_of
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

OWN = "_nearfar"
"""The subfolder of nearfar's own files. Readers of Parquet folders skip names that begin with an underscore."""
WRITING = f"{OWN}/writing"
PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}
"""Protocol -> the package that implements it."""
OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "az", "adl", "oci", "oss", "r2", "hf"}
"""Protocols where an upload appears when it is complete, and a rename is a copy."""
FILE = "file://"
_CHUNK = 2**20
_BLOCK_BYTES = 2**23
"""Number of bytes that are read ahead from a remote file."""


class LocalFolder:
    """A folder of this machine's file system, which other machines may mount too. Files are named relative to it."""

    def __init__(self, address: str) -> None:
        self._path = local_path(address)
        self.address = str(self._path)

    @property
    def shared(self) -> Path:
        """The folder on this machine's file system, which all workers must see; None for a remote address."""
        return self._path

    @path_errors()
    def names(self, inside: str = "") -> list[str]:
        """The names of the files in the folder, or in a subfolder; empty if there is no such folder."""
        try:
            return sorted(entry.name for entry in os.scandir(self._path / inside))
        except FileNotFoundError:
            return []

    @path_errors()
    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""
        file = self._path / name
        with suppress(FileNotFoundError):
            check_regular(file)
            with file.open("rb") as stream, read_errors(file):
                return stream.read()
        return None

    def size(self, name: str) -> int | None:
        """The number of bytes of a file; None if there is none."""
        try:
            return (self._path / name).stat().st_size
        except OSError:
            return None

    @path_errors()
    def digest(self, name: str) -> str:
        """The SHA-256 of a file, which is read once, in pieces."""
        return sha256_of(self._path / name)

    def writing(self, name: str, scratch: Path) -> Path:  # noqa: ARG002
        """See :class:`Place`."""
        folder = self._path / WRITING
        with disk_errors(self._path / name):
            create_folder(folder)
        return folder / f"{Path(name).name}.{secrets.token_hex(4)}"

    def publish(self, written: Path, name: str) -> None:
        """Give a complete file its name; a file of that name is replaced at once."""
        target = self._path / name
        with disk_errors(target):
            create_folder(target.parent)
            publish(written, target)

    def clean(self, name: str) -> None:
        """Remove what killed workers left of a file that they wrote aside."""
        for left in (self._path / WRITING).glob(f"{Path(name).name}.*"):
            with suppress(OSError):
                left.unlink()

    def write(self, name: str, content: bytes) -> None:
        """Write a small file at once."""
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
        """Remove a file, if there is one."""
        with disk_errors(self._path / name):
            (self._path / name).unlink(missing_ok=True)

    def free_bytes(self) -> int | None:
        """Free space; None if there is no limit that can be asked for."""
        existing = next(folder for folder in (self._path, *self._path.parents) if folder.exists())
        return shutil.disk_usage(existing).free


class RemoteFolder:
    """A folder at an fsspec address, with the same methods as :class:`LocalFolder`."""

    def __init__(self, address: str) -> None:
        self.address, self.shared = address.rstrip("/"), None
        self._system, self._path = file_system(self.address, flag="--output")
        self._path = self._path.rstrip("/")
        self._uploads_appear_complete = protocol(address) in OBJECT_STORES

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    def names(self, inside: str = "") -> list[str]:
        """See :class:`LocalFolder`."""
        folder = self._at(inside).rstrip("/")
        with remote_errors(f"{self.address}/{inside}", what="cannot be listed"):
            self._system.invalidate_cache()
            try:
                found = self._system.ls(folder, detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found if name.rstrip("/") != folder)

    def read(self, name: str) -> bytes | None:
        """See :class:`LocalFolder`."""
        with remote_errors(f"{self.address}/{name}"):
            try:
                return bytes(self._system.cat_file(self._at(name)))
            except FileNotFoundError:
                return None

    def size(self, name: str) -> int | None:
        """See :class:`LocalFolder`."""
        with remote_errors(f"{self.address}/{name}"):
            self._system.invalidate_cache()
            try:
                return int(self._system.info(self._at(name))["size"])
            except FileNotFoundError:
                return None

    def digest(self, name: str) -> str:
        """See :class:`LocalFolder`."""
        found = hashlib.sha256()
        with remote_errors(f"{self.address}/{name}"), self._system.open(self._at(name), "rb") as file:
            while piece := file.read(_CHUNK):
                found.update(piece)
        return found.hexdigest()

    def writing(self, name: str, scratch: Path) -> Path:
        """See :class:`LocalFolder`."""
        return scratch / Path(name).name

    def publish(self, written: Path, name: str) -> None:
        """See :class:`LocalFolder`."""
        self._upload(lambda path: self._system.put_file(str(written), path), name)

    def write(self, name: str, content: bytes) -> None:
        """See :class:`LocalFolder`."""
        self._upload(lambda path: self._system.pipe_file(path, content), name)

    def _upload(self, upload: Callable[[str], object], name: str) -> None:
        target = self._at(name)
        with remote_errors(f"{self.address}/{name}", what="cannot be written"):
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
        """See :class:`LocalFolder`."""
        left = [] if self._uploads_appear_complete else self.names(WRITING)
        for other in left:
            if other.startswith(f"{Path(name).name}."):
                self.remove(f"{WRITING}/{other}")

    def remove(self, name: str) -> None:
        """See :class:`LocalFolder`."""
        with remote_errors(f"{self.address}/{name}", what="cannot be removed"), suppress(FileNotFoundError):
            self._system.rm_file(self._at(name))

    def free_bytes(self) -> int | None:
        """See :class:`LocalFolder`."""
        return None


Place: TypeAlias = LocalFolder | RemoteFolder


def open_place(address: str) -> Place:
    """The folder at a path or address; it need not exist."""
    return RemoteFolder(address) if is_remote(address) else LocalFolder(address)


def is_remote(address: str) -> bool:
    """Whether it is an address of a file system other than this machine's."""
    return "://" in address and not address.startswith(FILE)


def local_path(address: str) -> Path:
    """The absolute path of an address on this machine's file system.

    Raises:
        NearfarError: it is in the home of an unknown user.
    """
    try:
        return Path(address.removeprefix(FILE)).expanduser().absolute()
    except RuntimeError as error:
        raise NearfarError(f"{address}: {error} Write the full path.") from None


def protocol(address: str) -> str:
    """The protocol of a remote address."""
    return address.partition("://")[0]


def file_system(address: str, *, flag: str) -> "tuple[AbstractFileSystem, str]":
    """The file system of an address, and the path in it.

    Raises:
        NearfarError: the protocol is unknown, or its package is not installed.
    """
    from fsspec.core import url_to_fs

    kind = protocol(address)
    try:
        system, path = url_to_fs(address)
    except ImportError:
        package = PACKAGES.get(kind.partition("::")[0])
        how = f"the package {package}; install it with: pip install {package}" if package else "a further package"
        raise NearfarError(f"{flag} {address}: {kind}:// needs {how}.") from None
    except Exception as error:  # fsspec and the libraries below it raise their own
        raise NearfarError(f"{flag} {address}: cannot be opened ({_reason(error)}).") from error
    return system, path


@contextmanager
def remote_errors(address: str, *, what: str = "cannot be read") -> Iterator[None]:
    """Turn the exceptions of a remote file system, of whatever library, into a :class:`NearfarError`."""
    try:
        yield
    except NearfarError:
        raise
    except FileNotFoundError:
        raise NearfarError(f"{address}: no such file.") from None
    except Exception as error:
        raise NearfarError(f"{address}: {what} ({_reason(error)}).") from error


@contextmanager
def opened(address: str) -> Iterator[Any]:
    """The binary file at an address, for reading."""
    if is_remote(address):
        system, path = file_system(address, flag="--input")
        with remote_errors(address), system.open(path, "rb", block_size=_BLOCK_BYTES) as file:
            yield file
        return
    try:
        with Path(address).open("rb") as file:
            yield file
    except OSError as error:
        raise NearfarError(f"{address}: cannot be read ({error.strerror or error}).") from error


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
