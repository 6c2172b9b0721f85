"""``sources.json`` in the local data folder: where each file is from, and the checksum of each download."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nearfar.commands.get_data.convert import ConvertedFile
from nearfar.disk import read_json, write_text
from nearfar.types import NearfarError

NAME = "sources.json"
_FIX = "Move it away; it is written again, without the checksums of earlier downloads."


class Record:
    """The content of ``sources.json``; it is written after each change, sorted by name."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / NAME
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

    def add_file(self, converted: ConvertedFile, *, source: str, licence: str | None) -> None:
        """Record a file and where it is from: an address, or a path."""
        entry = {name: value for name, value in asdict(converted).items() if name != "file"}
        self._files[converted.file] = {"source": source, "licence": licence, **entry}
        self._write()

    def _write(self) -> None:
        content = {"downloads": dict(sorted(self._downloads.items())), "files": dict(sorted(self._files.items()))}
        write_text(self._file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
