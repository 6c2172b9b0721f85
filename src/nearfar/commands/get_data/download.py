"""The files of a download: received by HTTP, or those of a folder, of the archives in it, of one archive, or one file.

A download is resumed where it stopped, checked by size and SHA-256, and in place only when it is complete.
``sources.json`` in the local data folder records where each file is from, and the checksum of each download.

Nothing is unpacked: members of archives are read in place, so that no archive can write a file. Archives with unsafe
names or with members that unpack to far more than their size are refused.
"""

import http.client
import json
import lzma
import os
import ssl
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from nearfar.data.named_sets import Download
from nearfar.data.paths import as_path, check_file, is_folder, status
from nearfar.disk import create_folder, disk_errors, publish, read_json, sha256_of, write_text
from nearfar.types import NearfarError
from nearfar.validation import InvalidValueError, convert

TIMEOUT = 30.0
"""Seconds to wait for a connection, and for further data."""
MAX_DOWNLOAD = 2**32
"""Maximum size of a download whose size is not published: 4 GiB."""
_BLOCK = 2**18
RECORD = "sources.json"
_FIX = "Move it away; it is written again, without the checksums of earlier downloads."


class DownloadError(NearfarError):
    """A download failed, but another source may have the same data."""


def download(
    wanted: Download,
    folder: Path,
    *,
    recorded: str | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> tuple[Path, str]:
    """Return the downloaded file in ``folder``, and its SHA-256; a complete file is not downloaded again.

    Args:
        wanted: the address, and checksum and size where they are published.
        folder: where the file is kept. An interrupted download is kept as NAME.part and resumed if the server says
            that its file is unchanged.
        recorded: the checksum of an earlier download, for a file without a published one.
        advance: called with each number of bytes received.

    Raises:
        DownloadError: the server cannot be reached or answers with an error, the download is incomplete, too large, or
            has another checksum. The message names the address.
    """
    file = folder / file_name(wanted.address)
    expected = wanted.sha256 or recorded
    with disk_errors(file):
        create_folder(folder)
        if file.is_file():
            found = sha256_of(file)
            if expected in (None, found):
                return file, found
        part = file.with_name(file.name + ".part")
        _receive(wanted, part, advance)
        found = sha256_of(part)
        if expected not in (None, found):
            _discard(part)
            source = "published" if wanted.sha256 else "recorded from an earlier download"
            raise DownloadError(
                f"{wanted.address}: the SHA-256 of the download is {found}, but {expected} is {source}. "
                + (
                    "The file was changed or damaged on the way; try again later."
                    if wanted.sha256
                    else "If the file was republished, delete its entry in sources.json and run the command again."
                )
            )
        publish(part, file)
        _discard(part)
    return file, found


def file_name(address: str) -> str:
    """Return the last part of the path of an address, as a safe file name."""
    name = PurePosixPath(unquote(urlsplit(address).path)).name.replace("\\", "_")
    return name if name not in ("", ".", "..") else "download"


def _receive(wanted: Download, part: Path, advance: Callable[[int], None]) -> None:
    """Receive the file into ``part``, or the rest of it."""
    address = wanted.address
    if urlsplit(address).scheme not in ("http", "https"):
        raise DownloadError(f"{address}: only http and https addresses are downloaded.")
    start, version = _resumable(part)
    headers = {"User-Agent": "nearfar", "Accept-Encoding": "identity"}
    if start and version:
        headers |= {"Range": f"bytes={start}-", "If-Range": version}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=TIMEOUT) as answer:
            if wanted.sha256 is None and answer.headers.get_content_type() == "text/html":
                raise DownloadError(f"{address}: the server sent a web page, not the file.")
            resumed = answer.status == http.client.PARTIAL_CONTENT
            if resumed and not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                _discard(part)
                raise DownloadError(f"{address}: the server sent another part of the file; run the command again.")
            length = answer.headers.get("Content-Length") or ""
            done = start if resumed else 0
            total = done + int(length) if length.isdigit() else None
            _check_size(wanted, total or 0, part)
            tag = answer.headers.get("ETag") or "W/"  # a weak one does not name the bytes
            version = answer.headers.get("Last-Modified") or "" if tag.startswith("W/") else tag
            write_text(_version_file(part), json.dumps({"version": version}) + "\n")
            advance(done)
            with part.open("ab" if resumed else "wb") as stream:
                while block := answer.read(_BLOCK):
                    done += len(block)
                    _check_size(wanted, done, part)
                    stream.write(block)
                    advance(len(block))
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and "Range" in headers:
            _discard(part)
            _receive(wanted, part, advance)
            return
        raise DownloadError(f"{address}: the server answered {error.code} ({error.reason}).") from None
    except urllib.error.URLError as error:
        raise DownloadError(f"{address}: cannot be reached ({error.reason}).") from None
    except (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
        raise _incomplete(address, part, str(error) or type(error).__name__) from None
    if total is not None and done < total:
        raise _incomplete(address, part, f"it ended after {done:,} of {total:,} bytes")


def _incomplete(address: str, part: Path, why: str) -> DownloadError:
    kept = " It is resumed there if you run the command again." if part.exists() else ""
    return DownloadError(f"{address}: the download was interrupted ({why}).{kept}")


def _check_size(wanted: Download, size: int, part: Path) -> None:
    most = wanted.size or MAX_DOWNLOAD
    if size > most:
        _discard(part)
        kind = "its published size" if wanted.size else "the maximum"
        raise DownloadError(f"{wanted.address}: the download has over {most:,} bytes, {kind}; it was stopped.")


def _version_file(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _resumable(part: Path) -> tuple[int, str]:
    """The number of bytes in an interrupted download, and its version; 0 if it cannot be resumed."""
    with suppress(OSError, NearfarError, AttributeError):
        version = str(read_json(_version_file(part)).get("version", ""))
        return os.path.getsize(part), version
    return 0, ""


def _discard(part: Path) -> None:
    for file in (part, _version_file(part)):
        with suppress(OSError):
            file.unlink()


class Record:
    """The content of ``sources.json``; it is written after each change, sorted by name."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / RECORD
        content = read_json(self._file, otherwise=_FIX) if self._file.exists() else {}
        try:
            parts = convert(content, dict[str, dict[str, dict[str, Any]]])
        except InvalidValueError as error:
            raise NearfarError(f"{self._file}: is damaged ({error}). {_FIX}") from None
        self._parts = {part: parts.get(part, {}) for part in ("downloads", "files")}

    def checksum(self, address: str) -> str | None:
        """The recorded SHA-256 of a download."""
        found = self._parts["downloads"].get(address, {}).get("sha256")
        return found if isinstance(found, str) else None

    def add(self, part: Literal["downloads", "files"], name: str, entry: Mapping[str, Any]) -> None:
        """Record what is known of a download, by its address, or of a file of the data folder."""
        self._parts[part][name] = dict(entry)
        content = {part: dict(sorted(entries.items())) for part, entries in self._parts.items()}
        write_text(self._file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


ZIP = ".zip"
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
    opener: Callable[[], AbstractContextManager[IO[bytes]]]

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
        return sorted(_list_file(root, root.name)), []
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
                found += _list_file(path, str(relative))
            except NearfarError as error:
                skipped.append(str(error))
            if len(found) > MAX_FILES:
                raise NearfarError(f"{root}: holds over {MAX_FILES:,} files; name the folder of the download alone.")
    return sorted(found), skipped


def _list_file(path: Path, name: str) -> list[SourceFile]:
    """A file as it is, or the files of an archive.

    Raises:
        NearfarError: see :func:`list_files`.
    """
    archive = path.name.lower().endswith((ZIP, *TAR))
    return list(_members(path, name)) if archive else [SourceFile(name, str(path), lambda: path.open("rb"))]


def _members(path: Path, name: str) -> Iterator[SourceFile]:
    packed, unpacked, files = path.stat().st_size, 0, 0
    try:
        for number, (member, size) in enumerate(_entries(path), start=1):
            parts = member.replace("\\", "/").split("/")
            if ".." in parts or parts[0] == "" or ":" in parts[0] or "\0" in member:
                raise NearfarError(
                    f"{path}: holds a file named {member[:80]!r}, which is outside the archive; it is refused. "
                    "Download it again from its source."
                )
            files += size is not None
            if number > MAX_FILES:
                raise NearfarError(f"{path}: holds over {MAX_FILES:,} files{' and folders' * (files < number)}.")
            if size is None:
                continue
            unpacked += size
            if unpacked > MAX_BYTES or (unpacked > RATIO_FROM and unpacked > MAX_RATIO * packed):
                raise NearfarError(
                    f"{path}: unpacks to over {unpacked:,} bytes, from {packed:,}; it is refused, because no known "
                    "data set does. If it is what you want, unpack it by hand and name the folder."
                )
            clean = str(PurePosixPath(member))
            yield SourceFile(f"{name}/{clean}", f"{path}: {clean}", partial(_open_member, path, member))
    except _DAMAGED as error:
        raise NearfarError(
            f"{path}: is not a readable archive ({_reason(error)}). If the download was interrupted, download it again."
        ) from error


def _entries(path: Path) -> Iterator[tuple[str, int | None]]:
    """The name of each member of an archive, and its unpacked size; None for folders, links and devices."""
    if path.name.lower().endswith(ZIP):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                yield info.filename, None if info.is_dir() else info.file_size
        return
    with tarfile.open(path, tarinfo=_TarInfo) as tar:
        for member in tar:
            yield member.name, member.size if member.isfile() else None


@contextmanager
def _open_member(path: Path, name: str) -> Iterator[IO[bytes]]:
    if path.name.lower().endswith(ZIP):
        with zipfile.ZipFile(path) as archive, archive.open(name) as stream:
            yield stream
        return
    with tarfile.open(path, tarinfo=_TarInfo) as tar:
        member = tar.extractfile(name)
        if member is None:
            raise tarfile.TarError(f"no file {name}")
        with member:
            yield member


class _TarInfo(tarfile.TarInfo):
    """Refuses a huge name or comment of a member, which tarfile would read into memory as a whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """The member that a header describes."""
        found = super().frombuf(buf, encoding, errors)
        if found.type in _NAME_TYPES and found.size > MAX_NAME:
            raise tarfile.ReadError(f"the name of a file has {found.size:,} bytes")
        return found


def _reason(error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return " ".join(text.split())
