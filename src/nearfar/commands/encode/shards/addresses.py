"""Paths and fsspec addresses (``s3://``, ``gs://``, ``memory://``): one way to name files, and one kind of error."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.data.paths import as_path
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}
"""Protocol -> the package that implements it."""
OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "az", "adl", "oci", "oss", "r2", "hf"}
"""Protocols where an upload appears when it is complete, and a rename is a copy."""
FILE = "file://"
_BLOCK_BYTES = 2**23
"""Number of bytes that are read ahead from a remote file."""


def is_remote(address: str) -> bool:
    """Whether it is an address of a file system other than this machine's."""
    return "://" in address and not address.startswith(FILE)


def local_path(address: str) -> Path:
    """The absolute path of an address on this machine's file system."""
    return as_path(address.removeprefix(FILE)).absolute()


def join(folder: str, name: str) -> str:
    """The address of a file in a folder."""
    return f"{folder.rstrip('/')}/{name}"


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
        found, path = url_to_fs(address)
    except ImportError:
        package = PACKAGES.get(kind.partition("::")[0])
        how = f"the package {package}; install it with: pip install {package}" if package else "a further package"
        raise NearfarError(f"{flag} {address}: {kind}:// needs {how}.") from None
    except Exception as error:  # fsspec and the libraries below it raise their own
        raise NearfarError(f"{flag} {address}: cannot be opened ({_reason(error)}).") from error
    return found, path


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


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def expand(source: str) -> list[tuple[str, int]]:
    """The files that ``--input`` names, sorted by name, each with its size in bytes.

    Raises:
        NearfarError: there are none, or the file system cannot be reached.
    """
    if is_remote(source):
        system, path = file_system(source, flag="--input")
        with remote_errors(source, what="cannot be listed"):
            if has_magic(path):
                listed = system.glob(path, detail=True)
                found = [(name, info) for name, info in listed.items() if info.get("type") != "directory"]
            else:
                found = [(path, system.info(path))]
            kind = protocol(source)
            files = sorted((_address(system, kind, name), int(info["size"] or 0)) for name, info in found)
    else:
        import glob

        pattern = str(local_path(source))
        names = [pattern] if os.path.exists(pattern) else glob.glob(pattern, recursive=True)
        files = sorted((name, os.stat(name).st_size) for name in names if os.path.isfile(name))
        if not files and os.path.isdir(pattern):
            raise NearfarError(f"--input {source}: is a folder; name its files, as in --input '{source}/*.parquet'.")
    if not files:
        raise NearfarError(f"--input {source}: no file matches.")
    return files


def _address(system: "AbstractFileSystem", kind: str, path: str) -> str:
    found = str(system.unstrip_protocol(path))
    return found if found.startswith(f"{kind}:") else f"{kind}://{path.lstrip('/')}"


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
