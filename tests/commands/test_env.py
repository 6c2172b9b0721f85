"""``nearfar env`` shows every part that works, and no user names or secrets."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from nearfar.cli import main
from nearfar.commands import env
from nearfar.encoder import kernels
from nearfar.encoder.kernels import build

PARTS = {
    "versions": set("python nearfar torch transformers tokenizers sentence-transformers numpy commit".split()),
    "platform": {"system", "python"},
    "processor": {"name", "instruction_sets", "bfloat16", "cores", "usable", "quota"},
    "threads": {"computing", "between_operations", "runtime", "variables"},
    "gpu": {"cuda_of_torch", "devices", "mps"},
    "kernels": {"available"},
    "folders": {"kernels", "hub", "datasets", "temporary"},
    "data": {"folder"},
    "hub": {"address", "reachable", "answer"},
}


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NEARFAR_KERNELS", "0")
    for name in ("NEARFAR_DATA", "HF_ENDPOINT", *env.OFFLINE):
        monkeypatch.delenv(name, raising=False)
    kernels.kernels.cache_clear()
    kernels._built.cache_clear()
    yield
    kernels.kernels.cache_clear()
    kernels._built.cache_clear()


def env_report(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    assert main(["env", "--json", *flags]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_text_and_json_show_all_parts(capsys: pytest.CaptureFixture[str]) -> None:
    report = env_report(capsys, "--offline")
    assert list(report) == list(PARTS)
    assert report["hub"]["answer"] == "not tested, because of --offline"
    assert report["kernels"]["why_not"] == "NEARFAR_KERNELS=0"
    assert main(["env", "--offline"]) == 0
    printed = capsys.readouterr().out
    for part, names in PARTS.items():
        assert names <= set(report[part]), part
        assert f"\n{part}\n" in f"\n{printed}"
        assert all((name if part == "versions" else f"{name}:") in " ".join(printed.split()) for name in names), part
    assert max(map(len, printed.splitlines())) <= env.WIDTH
    assert len(printed.splitlines()) < 60


def test_no_names_and_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "anneliese"
    (home / "sets").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NEARFAR_DATA", str(home / "sets"))
    monkeypatch.setenv("HF_DATASETS_CACHE", "/scratch/anneliese/sets")
    monkeypatch.setenv("CXX", str(home / "bin" / "c++"))
    monkeypatch.setenv("NEARFAR_KERNELS", "1")  # the reason for no kernels names that file
    monkeypatch.setenv("HF_TOKEN", "hf_geheim")
    monkeypatch.setenv("HF_ENDPOINT", "http://anneliese:geheim@127.0.0.1:1/hub")
    for flags in (["--json"], []):
        assert main(["env", *flags]) == 0
        output = capsys.readouterr()
        assert "anneliese" not in output.out + output.err
        assert "geheim" not in output.out + output.err
        assert "~/sets" in output.out
        assert "/scratch/<user>/sets" in output.out
        assert "CXX is ~/bin/c++, but there is no such program" in output.out
        assert "http://127.0.0.1:1/hub" in output.out


@pytest.mark.long
def test_any_part_may_fail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> None:
        raise OSError("out of order\nby far")

    failing = [part for part in PARTS if part != "hub"][::2]
    for part in failing:
        monkeypatch.setattr(env, f"_{part}", broken)
    found = env_report(capsys, "--offline")
    assert {found.pop(part) for part in failing} == {"unknown: OSError: out of order"}
    assert all(isinstance(rest, dict) for rest in found.values())
    assert main(["env", "--offline"]) == 0
    assert capsys.readouterr().out.count("  unknown: OSError: out of order") == len(failing)


def test_kernels_show_their_compiler_or_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NEARFAR_KERNELS", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "COMPILERS", ("no-such-compiler",))
    monkeypatch.delenv("CXX", raising=False)
    assert env_report(capsys, "--offline")["kernels"] == {
        "available": False,
        "why_not": "no C++ compiler was found (no-such-compiler, or the program in CXX)",
    }


def test_named_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("NEARFAR_DATA", str(tmp_path / "none"))
    assert env_report(capsys, "--offline")["data"]["why"] == "this folder does not exist"
    for name in ("nli/SNLI/train", "sts/STSB/dev", "senteval/MR", "sts/multilingual/STS14.es.news"):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / f"{name}.tsv").touch()
    monkeypatch.setenv("NEARFAR_DATA", str(tmp_path / "data"))
    data = env_report(capsys, "--offline")["data"]
    assert data["whole"] == ["snli", "mr"]
    assert data["in_part"] == ["sts14-es:news", "stsb:dev", "stsb-text:dev", "stsb-clean:dev"]
    assert "sts17" in data["missing"]


class Hub(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response(503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_hub_that_responds_and_one_that_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(env, "TIMEOUT", 0.5)
    with HTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        hub = env_report(capsys)["hub"]
    assert hub["reachable"] is True
    assert hub["answer"].startswith("status 503 after ")
    monkeypatch.setattr(env, "TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert env_report(capsys)["hub"]["reachable"] is False
    for endpoint in ("http://127.0.0.1:1", "nonsense", "http://[broken"):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        hub = env_report(capsys)["hub"]
        assert hub.startswith("unknown: ValueError") if isinstance(hub, str) else hub["reachable"] is False


@pytest.mark.parametrize("name", env.OFFLINE)
def test_offline(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("asked"))
    monkeypatch.setenv(name, "1")
    assert env_report(capsys)["hub"]["answer"] == f"not tested, because {name} is set"
