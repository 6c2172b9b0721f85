"""The SHA-256 of weights: a large file is read once, and again after a change."""

import hashlib
import os
from pathlib import Path

import pytest

from nearfar.encoder import weights


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were read."""
    seen: list[str] = []
    digest = hashlib.file_digest

    def watched(stream, name):
        seen.append(Path(stream.name).name)
        return digest(stream, name)

    monkeypatch.setattr(hashlib, "file_digest", watched)
    monkeypatch.setattr(weights, "_DIGESTS", {})
    return seen


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_large_file_is_read_once(hashed: list[str], tmp_path: Path) -> None:
    large, small = tmp_path / "large", tmp_path / "small"
    large.write_bytes(bytes(weights.LARGE))
    small.write_bytes(b"few")
    for _ in range(2):
        assert weights.sha256_of(large) == sha256(bytes(weights.LARGE))
        assert weights.sha256_of(small) == sha256(b"few")
    assert hashed == ["large", "small", "small"]


def test_a_file_that_has_changed_is_read_again(hashed: list[str], tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_bytes(bytes(weights.LARGE))
    weights.sha256_of(file)
    before = file.stat()
    content = b"\x01" * weights.LARGE
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert weights.sha256_of(file) == sha256(content)
    other.write_bytes(bytes(weights.LARGE))
    other.replace(file)
    assert weights.sha256_of(file) == sha256(bytes(weights.LARGE))
    assert len(hashed) == 3
