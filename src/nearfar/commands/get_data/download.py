"""The files of a download: received by huggingface_hub, or those of a folder, of archives, or a single file.

A download is continued where it stopped if its checksum is published, and in place only when it is complete.
``sources.json`` in the local data folder records where each file is from, and the checksum of each download.

Nothing is unpacked: members of archives are read in place, so that no archive can write a file. Archives with unsafe
names or with members that unpack to far more than their size are refused.
"""

import json
import lzma
import re
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, NamedTuple, Self

from nearfar.data.named_sets import Download
from nearfar.data.paths import as_path, check_file
from nearfar.disk import create_folder, disk_errors, publish, read_json, sha256_of, write_text
from nearfar.types import NearfarError
from nearfar.validation import InvalidValueError, convert

RECORD = "sources.json"
_FIX = "Move it away; it is written again, without the checksums of earlier downloads."
_ON_HUB = re.compile(r"https://huggingface\.co/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


def download(wanted: Download, folder: Path, *, recorded: str | None = None) -> Path:
    """Return the downloaded file in ``folder``; a complete file is not downloaded again.

    Args:
        wanted: the address, and checksum and size where they are published.
        folder: where the file is kept. An interrupted download is kept as NAME.part, and continued if its checksum is
            published; huggingface_hub continues those from the hub.
        recorded: the checksum of an earlier download, for a file without a published one.

    Raises:
        NearfarError: the server cannot be reached or answers with an error, the download is incomplete, is a web page
            or has another checksum. The message names the address.
    """
    file = folder / wanted.address.rpartition("/")[2]
    expected = wanted.sha256 or recorded
    with disk_errors(file):
        create_folder(folder)
        if file.is_file() and expected in (None, sha256_of(file)):
            return file
        file.unlink(missing_ok=True)
        received = _receive(wanted, file)
        checksum = sha256_of(received)
        with received.open("rb") as stream:
            is_page = stream.read(100).lstrip().lower().startswith((b"<!doctype html", b"<html"))
        if checksum == expected or (expected is None and not is_page):
            publish(received, file)
            return file
        received.unlink()
    if is_page:
        raise NearfarError(f"{wanted.address}: the server sent a web page, not the file.")
    raise NearfarError(
        f"{wanted.address}: the SHA-256 of the download is {checksum}, but {expected} is "
        + ("published; try again later." if wanted.sha256 else f"that of an earlier one; delete it in {RECORD}.")
    )


def _receive(wanted: Download, file: Path) -> Path:
    """Receive the file, or the rest of it, and return where it is: aside, or in place if the hub has it."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.file_download import http_get

    address, part = wanted.address, file.with_name(file.name + ".part")
    start = part.stat().st_size if wanted.sha256 and part.is_file() else 0
    start = 0 if start > (wanted.size or 0) else start
    try:
        if on_hub := _ON_HUB.fullmatch(address):
            repository, revision, name = on_hub.groups()
            how: dict[str, Any] = {"repo_type": "dataset", "revision": revision, "local_dir": file.parent}
            return Path(hf_hub_download(repository, name, **how))
        with part.open("ab" if start else "wb") as stream:
            headers = {"Accept-Encoding": "identity"}
            http_get(address, stream, resume_size=start, expected_size=wanted.size, headers=headers)
        return part
    except Exception as error:
        if not wanted.sha256 or (part.is_file() and not part.stat().st_size):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:  # of the disk
            raise
        resumed = " The same command resumes it." if part.is_file() else ""
        raise NearfarError(f"{address}: could not be downloaded ({_reason(error)}).{resumed}") from error


class Record:
    """The content of ``sources.json``; it is written after each change, sorted by name."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / RECORD
        content = read_json(self._file, otherwise=_FIX) if self._file.exists() else {}
        self._parts: dict[str, dict[str, dict[str, Any]]] = {"downloads": {}, "files": {}}
        try:
            self._parts |= convert(content, dict[str, dict[str, dict[str, Any]]])
        except InvalidValueError as error:
            raise NearfarError(f"{self._file}: is damaged ({error}). {_FIX}") from None

    def checksum(self, address: str) -> str | None:
        """The recorded SHA-256 of a download."""
        return self._parts["downloads"].get(address, {}).get("sha256")

    def add(self, part: Literal["downloads", "files"], name: str, entry: Mapping[str, Any]) -> None:
        """Record what is known of a download, by its address, or of a file of the data folder."""
        self._parts[part][name] = dict(entry)
        write_text(self._file, json.dumps(self._parts, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


ZIP = ".zip"
TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
MAX_FILES = 200_000
"""Maximum number of files in a folder, or members in an archive."""
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
    """A file of a download, or a member of an archive."""

    path: str
    """With ``/`` between its parts; begins with the name of the folder or archive."""
    file: Path
    member: str = ""
    """Its name in the archive ``file``; empty if that is the file itself."""

    def __str__(self) -> str:
        return f"{self.file}: {PurePosixPath(self.member)}" if self.member else str(self.file)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the file for reading; raises NearfarError if it, or its archive, is damaged."""
        try:
            if not self.member:
                with self.file.open("rb") as stream:
                    yield stream
                return
            with _opened(self.file) as (_, extract):
                member = extract(self.member)
                if member is None:
                    raise tarfile.TarError("it is no file")
                with member:
                    yield member
        except _DAMAGED as error:
            raise NearfarError(f"{self}: cannot be read ({_reason(error)}).") from error

    @property
    def parent(self) -> str:
        """The path of its folder."""
        return self.path.rpartition("/")[0]


def list_files(source: str | Path) -> list[SourceFile]:
    """Return the files of ``source``: a folder (with the archives in it), an archive, or a single file; sorted by path.

    An archive in a folder that cannot be read is skipped with a warning.

    Raises:
        NearfarError: no such file, not a regular file, too many files, or ``source`` is an archive that is damaged, has
            a member with an unsafe name or too many members, or unpacks to too much (:data:`MAX_BYTES`,
            :data:`MAX_RATIO`).
    """
    root = as_path(source)
    if not root.is_dir():
        check_file(root)
        return sorted(_list_file(root, root.name))
    files: list[SourceFile] = []
    for path in root.rglob("*"):
        inner = path.relative_to(root).parts
        if path.is_file() and not any(part.startswith(".") for part in inner):
            try:
                files += _list_file(path, str(PurePosixPath(root.resolve().name, *inner)))
            except NearfarError as error:
                warnings.warn(f"{error} It is skipped.", stacklevel=2)
            if len(files) > MAX_FILES:
                raise NearfarError(f"{root}: holds over {MAX_FILES:,} files; name the folder of the download alone.")
    return sorted(files)


def _list_file(path: Path, name: str) -> list[SourceFile]:
    """A file as it is, or the files of an archive."""
    if not path.name.lower().endswith((ZIP, *TAR)):
        return [SourceFile(name, path)]
    try:
        with _opened(path) as (entries, _):
            return [SourceFile(f"{name}/{PurePosixPath(member)}", path, member) for member in _checked(path, entries)]
    except _DAMAGED as error:
        raise NearfarError(
            f"{path}: is not a readable archive ({_reason(error)}). If the download was interrupted, download it again."
        ) from error


def _checked(path: Path, entries: Iterator[tuple[str, int | None]]) -> Iterator[str]:
    """The names of the files among the entries of an archive.

    Raises:
        NearfarError: an unsafe name, too many entries, or more bytes than any data set has.
    """
    packed, unpacked = path.stat().st_size, 0
    for number, (member, size) in enumerate(entries, start=1):
        parts = member.replace("\\", "/").split("/")
        unpacked += size or 0
        if ".." in parts or parts[0] == "" or ":" in parts[0] or "\0" in member:
            problem = f"holds a file named {member[:80]!r}, which is outside the archive"
        elif number > MAX_FILES:
            problem = f"holds over {MAX_FILES:,} files and folders"
        elif unpacked > min(MAX_BYTES, max(RATIO_FROM, MAX_RATIO * packed)):
            problem = f"unpacks to over {unpacked:,} bytes, from {packed:,}, as no known data set does"
        else:
            if size is not None:
                yield member
            continue
        raise NearfarError(
            f"{path}: {problem}; it is refused. Download it again from its source, or unpack it by hand and name the "
            "folder."
        )


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Iterator[tuple[str, int | None]], Callable[[str], IO[bytes] | None]]]:
    """The names and unpacked sizes in an archive (None for folders, links and devices), and what opens a member."""
    if path.name.lower().endswith(ZIP):
        with zipfile.ZipFile(path) as archive:
            yield (
                ((info.filename, None if info.is_dir() else info.file_size) for info in archive.infolist()),
                archive.open,
            )
        return
    with tarfile.open(path, tarinfo=_TarInfo) as tar:
        yield ((member.name, member.size if member.isfile() else None) for member in tar), tar.extractfile


class _TarInfo(tarfile.TarInfo):
    """Refuses a huge name or comment of a member, which tarfile would read into memory as a whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """The member that a header describes."""
        member = super().frombuf(buf, encoding, errors)
        if member.type in _NAME_TYPES and member.size > MAX_NAME:
            raise tarfile.ReadError(f"the name of a file has {member.size:,} bytes")
        return member


def _reason(error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return " ".join(text.split())
