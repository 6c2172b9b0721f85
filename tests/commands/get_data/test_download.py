"""Files of a download: over HTTP, continued and checked; members of archives, read in place, hostile ones too."""

import gzip
import hashlib
import importlib
import io
import json
import random
import socket
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import nearfar
from nearfar.cli import main
from nearfar.commands.get_data.download import download, list_files
from nearfar.data import named_sets
from nearfar.data.labelled import load_transfer
from nearfar.data.named_sets import Download, Source
from tests.commands.get_data.downloads import classification, tar_of, write_folder, zip_of
from tests.commands.get_data.server import Answer, Server, serve
from tests.data.files import error_of

module = importlib.import_module("nearfar.commands.get_data.download")  # the package has a function of this name
BODY = bytes(range(256)) * 40
SHA = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def server(data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 500)
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)
    with serve({"/a.bin": Answer(BODY)}) as running:
        yield running


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def test_a_download_is_checked_and_not_repeated(server: Server, tmp_path: Path) -> None:
    wanted, folder = Download(f"{server.address}/a.bin", SHA, len(BODY)), tmp_path / "d"
    assert download(wanted, folder) == download(wanted, folder) == folder / "a.bin"
    assert (folder / "a.bin").read_bytes() == BODY
    assert (files_in(folder), len(server.requests)) == (["a.bin"], 1)
    (folder / "a.bin").write_bytes(b"damaged")
    assert download(wanted, folder).read_bytes() == BODY


def test_an_interrupted_download_is_continued(server: Server, tmp_path: Path) -> None:
    wanted, answer = Download(f"{server.address}/a.bin", SHA, len(BODY)), server.answers["/a.bin"]
    answer.before = lambda: setattr(answer, "stop_after", 0 if server.requests[1:] else 1000)
    message = error_of(download, wanted, tmp_path)
    assert message.startswith(f"{server.address}/a.bin: could not be downloaded (")
    assert message.endswith("). The same command resumes it.")
    assert files_in(tmp_path) == ["a.bin.part"]
    server.requests.clear()
    answer.stop_after, answer.before = None, lambda: None
    assert download(wanted, tmp_path).read_bytes() == BODY
    assert server.requests == [("/a.bin", "bytes=1000-")]
    assert files_in(tmp_path) == ["a.bin"]


def test_a_file_of_the_hub_is_downloaded_as_such(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def from_hub(repository: str, name: str, *, local_dir: Path, **how: str) -> str:
        asked.append((repository, name, how))
        (local_dir / name).write_bytes(BODY)
        return str(local_dir / name)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", from_hub)
    wanted = Download("https://huggingface.co/datasets/owner/name/resolve/main/a.bin")
    assert download(wanted, tmp_path).read_bytes() == BODY
    assert asked == [("owner/name", "a.bin", {"repo_type": "dataset", "revision": "main"})]


def test_a_wrong_checksum(server: Server, tmp_path: Path) -> None:
    message = error_of(download, Download(f"{server.address}/a.bin", "0" * 64), tmp_path)
    assert f"the SHA-256 of the download is {SHA}, but {'0' * 64} is published;" in message
    message = error_of(download, Download(f"{server.address}/a.bin"), tmp_path, recorded="1" * 64)
    assert f"but {'1' * 64} is that of an earlier one; delete it in sources.json." in message
    assert not files_in(tmp_path)


def test_a_missing_file_and_a_missing_server(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = error_of(download, Download(f"{server.address}/b.bin"), tmp_path)
    assert message.startswith(f"{server.address}/b.bin: could not be downloaded (Client error '404 Not Found'")
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/a.bin"
    assert f"{address}: could not be downloaded (" in error_of(download, Download(address), tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "offline mode is enabled" in error_of(download, Download(f"{server.address}/a.bin"), tmp_path)


def sources(monkeypatch: pytest.MonkeyPatch, **found: Source) -> None:
    """Replace the public sources."""
    monkeypatch.setattr(named_sets, "SOURCES", found)


def source(*addresses: str, gives: tuple[str, ...] = ("senteval/",), sha256: str | None = None) -> Source:
    downloads = tuple(Download(address, sha256) for address in addresses)
    return Source(downloads=downloads, gives=gives, licence="a licence", cite="A 2000")


def test_sets_are_downloaded_converted_and_recorded(
    server: Server, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers["/senteval.tar"] = Answer(tar_of(classification(), "w"))
    sources(monkeypatch, senteval=source(f"{server.address}/senteval.tar"))
    assert main(["get-data", "mr", "trec"]) == 0
    assert "senteval/MR.tsv: 60 rows" in capsys.readouterr().out
    assert len(load_transfer("mr").splits["all"].texts) == 60
    assert load_transfer("trec").label_names[0] == "ABBR"
    record = json.loads((data / "sources.json").read_text())
    assert record["downloads"][f"{server.address}/senteval.tar"]["bytes"] == len(server.answers["/senteval.tar"].body)
    entry = record["files"]["senteval/MR.tsv"]
    assert (entry["source"], entry["licence"]) == (f"{server.address}/senteval.tar", "a licence")
    assert main(["get-data", "cr"]) == 0  # from the same download
    assert len(server.requests) == 1
    files = list(json.loads((data / "sources.json").read_text())["files"])
    assert "senteval/CR.tsv" in files
    assert files == sorted(files)
    assert main(["get-data", "mr", "trec", "cr"]) == 0
    assert "4 files exist already" in capsys.readouterr().out
    server.answers["/senteval.tar"].body = tar_of({"other": "x"}, "w")
    (data / "downloads/senteval/senteval.tar").unlink()
    message = error_of(nearfar.get_data, "mr", overwrite=True)
    assert "is that of an earlier one" in message
    assert len(load_transfer("mr").splits["all"].texts) == 60


def test_another_source_is_used_if_one_fails(server: Server, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = classification()
    server.answers["/trec.zip"] = Answer(zip_of({"TREC_10.label": files["TREC/TREC_10.label"]}))
    server.answers["/all.zip"] = Answer(zip_of({**files, "TREC/train_5500.label": files["TREC/train_5500.label"]}))
    sources(
        monkeypatch,
        gone=source(f"{server.address}/gone.zip"),
        broken=source(f"{server.address}/trec.zip", sha256="0" * 64),
        part=source(f"{server.address}/trec.zip", gives=("senteval/TREC/",)),
        whole=source(f"{server.address}/all.zip"),
    )
    result = nearfar.get_data("trec")
    assert [file.file for file in result.converted] == ["senteval/TREC/test.tsv", "senteval/TREC/train.tsv"]
    assert [path for path, _ in server.requests] == ["/gone.zip", "/trec.zip", "/trec.zip", "/all.zip"]


def test_a_failure_names_the_addresses_and_the_way_out(
    server: Server, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers["/other.zip"] = Answer(zip_of({"x": "y"}))
    server.answers["/bad.zip"] = Answer(b"no archive")
    sources(
        monkeypatch,
        gone=source(f"{server.address}/gone.zip", "http://h/b"),
        other=source(f"{server.address}/other.zip"),
    )
    assert main(["get-data", "mr", "cr"]) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert "Missing: senteval/CR.tsv, senteval/MR.tsv." in printed
    assert f"{server.address}/gone.zip: could not be downloaded (Client error '404" in printed
    assert "run nearfar get-data mr cr --source FOLDER" in printed
    sources(monkeypatch, bad=source(f"{server.address}/bad.zip"))
    assert "bad.zip: is not a readable archive" in error_of(nearfar.get_data, "mr")
    assert not [path for path in data.rglob("*") if path.is_file()]  # neither kept nor recorded
    server.answers["/bad.zip"] = Answer(zip_of({**classification(), "../x": "x"}))
    assert "which is outside the archive" in error_of(nearfar.get_data, "mr")
    server.answers["/bad.zip"] = Answer(zip_of(classification()))
    assert len(nearfar.get_data("mr").converted) == 1


def test_a_web_page_is_not_a_data_set(server: Server, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.answers["/wiki1m_for_simcse.txt"] = Answer(b"\n<!DOCTYPE html>Please log in")
    wiki = source(f"{server.address}/wiki1m_for_simcse.txt", gives=("text/",))
    sources(monkeypatch, wiki1m=wiki)
    assert "the server sent a web page, not the file." in error_of(nearfar.get_data, "wiki1m")
    server.answers["/wiki1m_for_simcse.txt"].body = b"A sentence.\n"
    (warning,) = nearfar.get_data("wiki1m").warnings
    assert warning.startswith("text/wiki1m_for_simcse.txt: 1 rows, but 1,000,000 are published.")


FILES = {"MR/rt-polarity.pos": "good\n", "MR/rt-polarity.neg": "bad\n"}


def contents(source: Path) -> dict[str, bytes]:
    found = {}
    for file in list_files(source):
        with file.open() as stream:
            found[file.path] = stream.read()
    return found


@pytest.mark.parametrize("mode", ["w", "w:xz"])
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
    assert list_files(tmp_path / "a.tar") == []


def test_decompression_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RATIO_FROM", 2**20)
    bomb = {"a.txt": b"\0" * 2**22}
    (tmp_path / "a.zip").write_bytes(zip_of(bomb))
    (tmp_path / "a.tgz").write_bytes(tar_of(bomb))
    for archive in ("a.zip", "a.tgz"):
        assert "unpacks to over 4,194,304 bytes, from" in error_of(list_files, tmp_path / archive)
    (tmp_path / "b.tar").write_bytes(tar_of(bomb, "w"))  # not compressed
    assert len(list_files(tmp_path / "b.tar")) == 1
    monkeypatch.setattr(module, "MAX_BYTES", 2**21)
    assert "unpacks to over 4,194,304 bytes, from" in error_of(list_files, tmp_path / "b.tar")


def test_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 1)
    (tmp_path / "a.zip").write_bytes(zip_of({"folder/": "", **FILES}))
    assert "a.zip: holds over 1 files and folders; it is refused" in error_of(list_files, tmp_path / "a.zip")
    (tmp_path / "a.zip").unlink()
    for name in "ab":
        (tmp_path / f"{name}.txt").touch()
    assert "holds over 1 files; name the folder of the download alone" in error_of(list_files, tmp_path)


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tgz"])
def test_damaged_archives(tmp_path: Path, name: str) -> None:
    files = {"a.txt": random.Random(0).randbytes(50_000)}
    whole = zip_of(files) if name == "a.zip" else tar_of(files, "w" if name == "a.tar" else "w:gz")
    for content in (b"", b"no archive at all" * 100, whole[: len(whole) // 2]):
        (tmp_path / name).write_bytes(content)
        message = error_of(contents, tmp_path / name)
        assert message.startswith(f"{tmp_path / name}: ")
        assert "is not a readable archive" in message or "cannot be read" in message


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
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
