"""Archives are read in place; unsafe, oversized and damaged ones are refused."""

import gzip
import io
import random
import tarfile
import zipfile
from pathlib import Path

import pytest

from nearfar.commands.get_data import download as archives
from nearfar.commands.get_data.download import list_files
from tests.commands.get_data.downloads import tar_of, write_folder, zip_of
from tests.data.files import error_of

FILES = {"MR/rt-polarity.pos": "good\n", "MR/rt-polarity.neg": "bad\n"}


def contents(source: Path) -> dict[str, bytes]:
    found = {}
    for file in list_files(source)[0]:
        with file.open() as stream:
            found[file.path] = stream.read()
    return found


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_tar_archives(tmp_path: Path, mode: str) -> None:
    archive = tmp_path / ("a.tar" + mode[1:].replace(":", "."))
    archive.write_bytes(tar_of(FILES, mode))
    assert contents(archive) == {f"{archive.name}/{name}": text.encode() for name, text in sorted(FILES.items())}


def test_a_folder_with_archives(tmp_path: Path) -> None:
    write_folder(tmp_path / "raw", {"b.zip": zip_of(FILES), "sub/c.tgz": tar_of(FILES), "d.txt": "x", ".hidden/e": "y"})
    assert list(contents(tmp_path / "raw")) == sorted(
        [f"raw/b.zip/{name}" for name in FILES] + ["raw/d.txt"] + [f"raw/sub/c.tgz/{name}" for name in FILES]
    )
    assert list(tmp_path.iterdir()) == [tmp_path / "raw"]  # nothing was unpacked


UNSAFE = ["../outside.txt", "a/../../outside.txt", "/etc/outside.txt", "C:/outside.txt", "..\\outside.txt"]


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_names_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.zip").write_bytes(zip_of({"ok.txt": "x", name: "evil"}))
    (tmp_path / "a.tar").write_bytes(tar_of({"ok.txt": "x", name: "evil"}, "w"))
    for archive in ("a.zip", "a.tar"):
        message = error_of(list_files, tmp_path / archive)
        assert message.startswith(f"{tmp_path / archive}: holds a file named ")
        assert "which is outside the archive; it is refused" in message
    assert not (tmp_path.parent / "outside.txt").exists()


def test_links_in_archives_are_ignored(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        link = tarfile.TarInfo("rt-polarity.pos")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    (tmp_path / "a.tar").write_bytes(buffer.getvalue())
    assert list_files(tmp_path / "a.tar") == ([], [])


def test_decompression_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "RATIO_FROM", 2**20)
    bomb = {"a.txt": b"\0" * 2**22}
    (tmp_path / "a.zip").write_bytes(zip_of(bomb))
    (tmp_path / "a.tgz").write_bytes(tar_of(bomb))
    for archive in ("a.zip", "a.tgz"):
        assert "unpacks to over 4,194,304 bytes, from" in error_of(list_files, tmp_path / archive)
    (tmp_path / "b.tar").write_bytes(tar_of(bomb, "w"))  # not compressed
    assert len(list_files(tmp_path / "b.tar")[0]) == 1
    monkeypatch.setattr(archives, "MAX_BYTES", 2**21)
    assert "it is refused" in error_of(list_files, tmp_path / "b.tar")


def test_a_zip_that_lies_about_a_size_is_not_read_further(tmp_path: Path) -> None:
    raw = bytearray(zip_of({"a.txt": b"\0" * 1000}))
    for header, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = raw.index(header) + offset
        raw[at : at + 4] = (10).to_bytes(4, "little")
    (tmp_path / "a.zip").write_bytes(raw)
    message = error_of(contents, tmp_path / "a.zip")
    assert "a.zip: a.txt: cannot be read (Bad CRC-32" in message


def test_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_FILES", 1)
    (tmp_path / "a.zip").write_bytes(zip_of(FILES))
    assert error_of(list_files, tmp_path / "a.zip") == f"{tmp_path / 'a.zip'}: holds over 1 files."
    assert "holds over 1 files; name the folder of the download" in error_of(
        list_files, write_folder(tmp_path / "b", FILES)
    )


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tgz"])
def test_damaged_archives(tmp_path: Path, name: str) -> None:
    files = {"a.txt": random.Random(0).randbytes(50_000)}
    whole = zip_of(files) if name == "a.zip" else tar_of(files, "w" if name == "a.tar" else "w:gz")
    for content in (b"", b"no archive at all" * 100, whole[: len(whole) // 2]):
        (tmp_path / name).write_bytes(content)
        message = error_of(contents, tmp_path / name)
        assert message.startswith(f"{tmp_path / name}: ")
        assert "is not a readable archive" in message or "cannot be read" in message


def test_an_encrypted_zip(tmp_path: Path) -> None:
    raw = bytearray(zip_of({"a.txt": "x"}))
    for header, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        raw[raw.index(header) + offset] |= 1
    (tmp_path / "a.zip").write_bytes(raw)
    assert "a.txt: cannot be read (" in error_of(contents, tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.infolist()[0].flag_bits & 1


def test_folders_of_an_archive_are_counted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for number in range(30):
            folder = tarfile.TarInfo(f"folder{number}")
            folder.type = tarfile.DIRTYPE
            archive.addfile(folder)
    (tmp_path / "a.tgz").write_bytes(buffer.getvalue())
    assert list_files(tmp_path / "a.tgz") == ([], [])
    monkeypatch.setattr(archives, "MAX_FILES", 20)
    assert error_of(list_files, tmp_path / "a.tgz") == f"{tmp_path / 'a.tgz'}: holds over 20 files and folders."


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_huge_name_in_a_tar_archive_is_not_read(tmp_path: Path, kind: bytes) -> None:
    """A few kilobytes of gzip would otherwise become gigabytes of memory."""
    header = tarfile.TarInfo("name")
    header.type, header.size = kind, 2**33
    content = header.tobuf(tarfile.GNU_FORMAT) + b"\0" * 2**16
    for first in (b"", tarfile.TarInfo("usual").tobuf(tarfile.GNU_FORMAT)):
        (tmp_path / "a.tgz").write_bytes(gzip.compress(first + content))
        message = error_of(list_files, tmp_path / "a.tgz")
        assert "is not a readable archive" in message
        assert "the name of a file has 8,589,934,592 bytes" in message
        assert "\n" not in message
