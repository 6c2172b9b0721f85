"""Download a file: resumed where it stopped, checked by size and SHA-256, and in place only when it is complete.

``sources.json`` in the local data folder records where each file is from, and the checksum of each download.
"""

import hashlib
import http.client
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from nearfar.data.public_sources import Download
from nearfar.disk import create_folder, disk_errors, publish, read_json, write_text
from nearfar.types import NearfarError

TIMEOUT = 30.0
"""Seconds to wait for a connection, and for further data."""
MAX_BYTES = 2**32
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


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _receive(wanted: Download, part: Path, advance: Callable[[int], None]) -> None:
    """Receive the file into ``part``, or the rest of it."""
    address = wanted.address
    if urlsplit(address).scheme not in ("http", "https"):
        raise DownloadError(f"{address}: only http and https addresses are downloaded.")
    start, version = _resumable(part)
    request = urllib.request.Request(address, headers={"User-Agent": "nearfar", "Accept-Encoding": "identity"})
    if start and version:
        request.add_header("Range", f"bytes={start}-")
        request.add_header("If-Range", version)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            if wanted.sha256 is None and answer.headers.get_content_type() == "text/html":
                raise DownloadError(f"{address}: the server sent a web page, not the file.")
            resumed = answer.status == http.client.PARTIAL_CONTENT and _first_byte(answer) == start
            if answer.status == http.client.PARTIAL_CONTENT and not resumed:
                _discard(part)
                raise DownloadError(f"{address}: the server sent another part of the file; run the command again.")
            length = answer.headers.get("Content-Length")
            done = start if resumed else 0
            total = done + int(length) if length and length.isdigit() else None
            _check_size(wanted, total or 0, part)
            _remember_version(part, answer.headers)
            advance(done)
            with part.open("ab" if resumed else "wb") as stream:
                while block := answer.read(_BLOCK):
                    done += len(block)
                    _check_size(wanted, done, part)
                    stream.write(block)
                    advance(len(block))
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and request.has_header("Range"):
            _discard(part)
            _receive(wanted, part, advance)
            return
        raise DownloadError(f"{address}: the server answered {error.code} ({error.reason}).") from None
    except http.client.HTTPException as error:
        raise _incomplete(address, part, str(error) or type(error).__name__) from None
    except urllib.error.URLError as error:
        raise DownloadError(f"{address}: cannot be reached ({error.reason}).") from None
    except (ConnectionError, TimeoutError, ssl.SSLError) as error:
        raise _incomplete(address, part, str(error) or type(error).__name__) from None
    if total is not None and done < total:
        raise _incomplete(address, part, f"it ended after {done:,} of {total:,} bytes")


def _incomplete(address: str, part: Path, why: str) -> DownloadError:
    kept = " It is resumed there if you run the command again." if part.exists() else ""
    return DownloadError(f"{address}: the download was interrupted ({why}).{kept}")


def _check_size(wanted: Download, size: int, part: Path) -> None:
    most = wanted.size or MAX_BYTES
    if size > most:
        _discard(part)
        kind = "its published size" if wanted.size else "the maximum"
        raise DownloadError(f"{wanted.address}: the download has over {most:,} bytes, {kind}; it was stopped.")


def _first_byte(answer: Any) -> int:
    text = answer.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return int(text) if text.isdigit() else -1


def _version_file(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _remember_version(part: Path, headers: Any) -> None:
    """Record the server's name of the file's version, by which a later request resumes only the same version."""
    tag = headers.get("ETag") or ""
    version = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified") or ""
    write_text(_version_file(part), json.dumps({"version": version}) + "\n")


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
        if not isinstance(content, dict):
            raise NearfarError(f"{self._file}: is damaged: it is not a JSON object. {_FIX}")
        self._downloads = self._part(content, "downloads")
        self._files = self._part(content, "files")

    def _part(self, content: Mapping[str, Any], name: str) -> dict[str, dict[str, Any]]:
        part = content.get(name, {})
        if not isinstance(part, dict) or not all(isinstance(entry, dict) for entry in part.values()):
            raise NearfarError(f"{self._file}: is damaged: {name} does not map names to objects. {_FIX}")
        return part

    def checksum(self, address: str) -> str | None:
        """The recorded SHA-256 of a download."""
        found = self._downloads.get(address, {}).get("sha256")
        return found if isinstance(found, str) else None

    def add_download(self, address: str, sha256: str, size: int) -> None:
        """Record the checksum and the size in bytes of a download."""
        self._downloads[address] = {"sha256": sha256, "bytes": size}
        self._write()

    def add_file(self, file: str, entry: Mapping[str, Any]) -> None:
        """Record a file of the data folder, and what is known of it."""
        self._files[file] = dict(entry)
        self._write()

    def _write(self) -> None:
        content = {"downloads": dict(sorted(self._downloads.items())), "files": dict(sorted(self._files.items()))}
        write_text(self._file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
