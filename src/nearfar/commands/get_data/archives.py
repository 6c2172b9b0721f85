"""The files of a download: of a folder, of the archives in it, of one archive, or a single file. Nothing is unpacked.

Members of archives are read in place, so that no archive can write a file. Archives with unsafe names or with members
that unpack to far more than their size are refused.
"""

import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, Self

from nearfar.data.paths import as_path, check_file, is_folder, status
from nearfar.types import NearfarError

ZIP = (".zip",)
TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
MAX_FILES = 200_000
"""Maximum number of files in a folder or members in an archive."""
MAX_BYTES = 2**34
"""Maximum size of the unpacked members of an archive: 16 GiB."""
MAX_NAME = 2**20
"""Maximum bytes of the name, link and comments of a member of a tar archive."""
_NAME_TYPES = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)
MAX_RATIO, RATIO_FROM = 200, 2**26
"""An archive that unpacks to over RATIO_FROM bytes may unpack to at most MAX_RATIO times its size. Text is compressed
to between a half and a tenth."""
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, RuntimeError)
"""What the archive libraries raise for damaged, truncated or encrypted archives."""


class SourceFile(NamedTuple):
    """A file of a download; ``path`` has ``/`` between its parts and begins with the name of the folder or archive."""

    path: str
    shown: str
    """Its location, for messages."""
    opener: Callable[[], IO[bytes]]

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the file for reading; raises NearfarError if it, or its archive, is damaged."""
        try:
            with self.opener() as stream:
                yield stream
        except _DAMAGED as error:
            raise NearfarError(f"{self.shown}: cannot be read ({_reason(error)}).") from error

    @property
    def parent(self) -> str:
        """The path of its folder."""
        return self.path.rpartition("/")[0]


def list_files(source: str | Path) -> tuple[list[SourceFile], list[str]]:
    """Return the files of ``source``: a folder (with the archives in it), an archive, or a single file; sorted by path.

    An archive in a folder that cannot be read is skipped; the second value has one sentence about each.

    Raises:
        NearfarError: no such file, not a regular file, too many files, or ``source`` is an archive that is damaged,
            has a member with an unsafe name, or unpacks to too much (:data:`MAX_BYTES`, :data:`MAX_RATIO`).
    """
    root = as_path(source)
    if status(root) is None or not is_folder(root):
        check_file(root)
        return sorted(_one(root, root.name)), []
    found: list[SourceFile] = []
    skipped: list[str] = []
    base = root.resolve().name
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if name.startswith(".") or not path.is_file():
                continue
            relative = PurePosixPath(base, *path.relative_to(root).parts)
            try:
                found += _one(path, str(relative))
            except NearfarError as error:
                skipped.append(str(error))
            if len(found) > MAX_FILES:
                raise NearfarError(f"{root}: holds over {MAX_FILES:,} files; name the folder of the download alone.")
    return sorted(found), skipped


def _one(path: Path, name: str) -> list[SourceFile]:
    lower = path.name.lower()
    if lower.endswith(ZIP):
        return list(_members(path, name, _zip_members))
    if lower.endswith(TAR):
        return list(_members(path, name, _tar_members))
    return [SourceFile(name, str(path), partial(_open_file, path))]


def _open_file(path: Path) -> IO[bytes]:
    return path.open("rb")


Members = Iterator[tuple[str, int, Callable[[], IO[bytes]]]]
"""Name, unpacked size and opener of each file in an archive."""


def _members(path: Path, name: str, list_members: Callable[[Path], Members]) -> Iterator[SourceFile]:
    packed, unpacked, count = path.stat().st_size, 0, 0
    try:
        for member, size, opener in list_members(path):
            _check_name(path, member)
            unpacked, count = unpacked + size, count + 1
            if count > MAX_FILES:
                raise NearfarError(f"{path}: holds over {MAX_FILES:,} files.")
            if unpacked > MAX_BYTES or (unpacked > RATIO_FROM and unpacked > MAX_RATIO * packed):
                raise NearfarError(
                    f"{path}: unpacks to over {unpacked:,} bytes, from {packed:,}; it is refused, because no known "
                    "data set does. If it is what you want, unpack it by hand and name the folder."
                )
            clean = str(PurePosixPath(member))
            yield SourceFile(f"{name}/{clean}", f"{path}: {clean}", opener)
    except _DAMAGED as error:
        raise NearfarError(
            f"{path}: is not a readable archive ({_reason(error)}). If the download was interrupted, download it again."
        ) from error


def _check_name(path: Path, member: str) -> None:
    parts = member.replace("\\", "/").split("/")
    if ".." in parts or parts[0] == "" or ":" in parts[0] or "\0" in member:
        raise NearfarError(
            f"{path}: holds a file named {member[:80]!r}, which is outside the archive; it is refused. Download it "
            "again from its source."
        )


def _zip_members(path: Path) -> Members:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.is_dir():
                _check_name(path, info.filename)
            else:
                yield info.filename, info.file_size, partial(_open_zip_member, path, info.filename)


def _open_zip_member(path: Path, member: str) -> IO[bytes]:
    with zipfile.ZipFile(path) as archive:
        return archive.open(member)  # keeps the archive's file open until it is closed itself


def _tar_members(path: Path) -> Members:
    with tarfile.open(path, tarinfo=_TarInfo) as archive:
        for number, info in enumerate(archive):
            if number >= MAX_FILES:
                raise NearfarError(f"{path}: holds over {MAX_FILES:,} files and folders.")
            if info.isfile():
                yield info.name.removeprefix("./"), info.size, partial(_open_tar_member, path, info.name)
            else:  # a folder; links and devices are ignored
                _check_name(path, info.name)


def _open_tar_member(path: Path, member: str) -> IO[bytes]:
    with ExitStack() as stack:
        archive = stack.enter_context(tarfile.open(path, tarinfo=_TarInfo))
        stream = archive.extractfile(member)
        if stream is None:
            raise tarfile.TarError(f"no file {member}")
        stack.callback(stream.close)
        return _TarMember(stream, stack.pop_all())
    raise AssertionError


class _TarInfo(tarfile.TarInfo):
    """Refuses a huge name or comment of a member, which tarfile would read into memory as a whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """The member that a header describes."""
        found = super().frombuf(buf, encoding, errors)
        if found.type in _NAME_TYPES and found.size > MAX_NAME:
            raise tarfile.ReadError(f"the name of a file has {found.size:,} bytes")
        return found


class _TarMember(io.BufferedReader):
    """A member of a tar archive that closes the archive with it."""

    def __init__(self, stream: Any, stack: ExitStack) -> None:
        super().__init__(stream)
        self._stack = stack

    def close(self) -> None:
        super().close()
        self._stack.close()


def _reason(error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return " ".join(text.split())
