"""A folder on this machine or at an fsspec address (``s3://``, ``memory://``), in which files appear complete, or not.

On a file system with a rename, a file is written aside, in ``_nearfar/writing``, and renamed. In an object store an
upload appears when it is complete, so it has its final name at once.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.disk import check_regular, create_folder, disk_errors, publish, read_errors, sha256_of
from nearfar.disk.checks import expanded, path_errors
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

OWN = "_nearfar"
"""The subfolder of nearfar's own files. Readers of Parquet folders skip names that begin with an underscore."""
WRITING = f"{OWN}/writing"
OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "az", "adl", "oci", "oss", "r2", "hf"}
"""Protocols where an upload appears when it is complete, and a rename is a copy."""
FILE = "file://"
_BLOCK_BYTES = 2**23
"""Number of bytes that are read ahead from a remote file."""


class Place:
    """A folder at an fsspec address. Files are named relative to it."""

    shared: Path | None = None
    """The folder on this machine's file system, which all workers must see; None for a remote address."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self._system, path = file_system(self.address, flag="--output")
        self._path = path.rstrip("/")
        self._uploads_appear_complete = address.partition("://")[0] in OBJECT_STORES

    def names(self, inside: str = "") -> list[str]:
        """The names of the files in the folder, or in a subfolder; empty if there is no such folder."""
        folder = f"{self._path}/{inside}".rstrip("/")
        with remote_errors(f"{self.address}/{inside}", what="cannot be listed"):
            self._system.invalidate_cache()
            try:
                found = self._system.ls(folder, detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found if name.rstrip("/") != folder)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""
        content: bytes | None = self._call("cat_file", name, "cannot be read")
        return content

    def size(self, name: str) -> int | None:
        """The number of bytes of a file; None if there is none."""
        self._system.invalidate_cache()
        about = self._call("info", name, "cannot be read")
        return int(about["size"]) if about else None

    def digest(self, name: str) -> str:
        """The SHA-256 of a file, which is read once, in pieces."""
        with remote_errors(f"{self.address}/{name}"), self._system.open(f"{self._path}/{name}", "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def writing(self, name: str, scratch: Path) -> Path:
        """Where to write a file before :meth:`publish`; ``scratch`` is a folder of this machine."""
        return scratch / Path(name).name

    def publish(self, written: Path, name: str) -> None:
        """Give a complete file its name; a file of that name is replaced at once."""
        self._upload(lambda path: self._system.put_file(str(written), path), name)

    def write(self, name: str, content: bytes) -> None:
        """Write a small file at once."""
        self._upload(lambda path: self._system.pipe_file(path, content), name)

    def _upload(self, upload: Callable[[str], object], name: str) -> None:
        target = f"{self._path}/{name}"
        with remote_errors(f"{self.address}/{name}", what="cannot be written"):
            if self._uploads_appear_complete:
                upload(target)
                return
            aside = f"{self._path}/{WRITING}/{Path(name).name}.{secrets.token_hex(4)}"
            for path in (aside, target):
                self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
            upload(aside)
            if self._system.exists(target):  # not every file system replaces a file by a rename
                self._system.rm_file(target)
            self._system.mv(aside, target)

    def clean(self, name: str) -> None:
        """Remove what killed workers left of a file that they wrote aside."""
        for other in [] if self._uploads_appear_complete else self.names(WRITING):
            if other.startswith(f"{Path(name).name}."):
                self.remove(f"{WRITING}/{other}")

    def remove(self, name: str) -> None:
        """Remove a file, if there is one."""
        self._call("rm_file", name, "cannot be removed")

    def _call(self, method: str, name: str, problem: str) -> Any:
        """What a method of the file system returns for a file; None if there is none."""
        with remote_errors(f"{self.address}/{name}", what=problem), suppress(FileNotFoundError):
            return getattr(self._system, method)(f"{self._path}/{name}")
        return None


class LocalFolder(Place):
    """A folder of this machine's file system, which other machines may mount too."""

    shared: Path

    def __init__(self, address: str) -> None:
        from fsspec.implementations.local import LocalFileSystem

        self.shared = local_path(address)
        self.address = self._path = self.shared.as_posix()
        self._system, self._uploads_appear_complete = LocalFileSystem(), False

    def read(self, name: str) -> bytes | None:
        """See :class:`Place`; a pipe is refused."""
        with suppress(FileNotFoundError), path_errors():
            check_regular(self.shared / name)
        return super().read(name)

    def digest(self, name: str) -> str:
        """See :class:`Place`; a pipe is refused."""
        with path_errors():
            return sha256_of(self.shared / name)

    def writing(self, name: str, scratch: Path) -> Path:  # noqa: ARG002
        """See :class:`Place`."""
        folder = self.shared / WRITING
        with disk_errors(self.shared / name):
            create_folder(folder)
        return folder / f"{Path(name).name}.{secrets.token_hex(4)}"

    def publish(self, written: Path, name: str) -> None:
        """See :class:`Place`."""
        target = self.shared / name
        with disk_errors(target):
            create_folder(target.parent)
            publish(written, target)

    def write(self, name: str, content: bytes) -> None:
        """See :class:`Place`."""
        with disk_errors(self.shared / name):
            (aside := self.writing(name, self.shared)).write_bytes(content)
        self.publish(aside, name)


def open_place(address: str) -> Place:
    """The folder at a path or address; it need not exist."""
    return Place(address) if is_remote(address) else LocalFolder(address)


def is_remote(address: str) -> bool:
    """Whether it is an address of a file system other than this machine's."""
    return "://" in address and not address.startswith(FILE)


def local_path(address: str) -> Path:
    """The absolute path of an address on this machine's file system.

    Raises:
        NearfarError: it is in the home of an unknown user.
    """
    return expanded(address.removeprefix(FILE)).absolute()


def file_system(address: str, *, flag: str) -> "tuple[AbstractFileSystem, str]":
    """The file system of an address, and the path in it.

    Raises:
        NearfarError: the protocol is unknown, or its package is not installed.
    """
    from fsspec.core import url_to_fs

    try:
        system, path = url_to_fs(address)
    except Exception as error:  # fsspec and the libraries below it raise their own; it says what is to be installed
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
    with read_errors(address), Path(address).open("rb") as file:
        yield file


def _reason(error: BaseException) -> str:
    said = (isinstance(error, OSError) and error.strerror) or str(error)
    return " ".join(said.split())[:300] or type(error).__name__
