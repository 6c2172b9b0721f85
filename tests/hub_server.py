"""A local server with the part of the Hugging Face Hub's interface that an upload uses."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml

TOKEN = "hf_test"
LARGE = 20_000
"""Bytes from which a file is uploaded to the storage (LFS) and not within the commit."""


class Hub:
    """What was uploaded: repository -> settings, and path -> content; large files by their hash."""

    def __init__(self) -> None:
        self.address = ""
        self.repositories: dict[str, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        self.storage: dict[str, bytes] = {}
        self.commits: list[dict[str, Any]] = []
        self.fail: dict[str, tuple[int, str]] = {}
        """Part of a path -> status and message that the server answers with."""


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

        def answer(self, content: object, status: int = 200) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_PUT(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            hub.storage[self.path.rpartition("/")[2]] = content
            self.answer({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            for part, (status, message) in hub.fail.items():
                if part in self.path:
                    return self.answer({"error": message}, status)
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                return self.answer({"error": "Invalid credentials in Authorization header"}, 401)
            if self.path == "/api/repos/create":
                asked = json.loads(body)
                name = f"{asked.get('organization') or 'me'}/{asked['name']}"
                status = 409 if name in hub.repositories else 200
                hub.repositories.setdefault(name, asked)
                return self.answer({"url": f"{hub.address}/{name}"}, status)
            if self.path == "/api/validate-yaml":
                metadata = yaml.safe_load(json.loads(body)["content"].split("---")[1])
                errors = [] if isinstance(metadata, dict) else [{"message": "metadata is no mapping"}]
                return self.answer({"errors": errors, "warnings": []}, 400 if errors else 200)
            if "/preupload/" in self.path:
                files = json.loads(body)["files"]
                modes = [
                    {"path": one["path"], "uploadMode": "lfs" if one["size"] > LARGE else "regular",
                     "shouldIgnore": False} for one in files
                ]  # fmt: skip
                return self.answer({"files": modes})
            if self.path.endswith("/info/lfs/objects/batch"):
                objects = [
                    {"oid": one["oid"], "size": one["size"], "authenticated": True,
                     "actions": {"upload": {"href": f"{hub.address}/storage/{one['oid']}", "header": {}}}}
                    for one in json.loads(body)["objects"]
                ]  # fmt: skip
                return self.answer({"transfer": "basic", "objects": objects})
            if "/commit/" in self.path:
                return self.answer(self.commit(body))
            return self.answer({"error": f"unknown: {self.path}"}, 404)

        def commit(self, body: bytes) -> dict[str, Any]:
            for line in map(json.loads, body.decode().splitlines()):
                if line["key"] == "header":
                    hub.commits.append({**line["value"], "path": self.path})
                elif line["key"] == "file":
                    hub.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                elif line["key"] == "lfsFile":
                    content = hub.storage[line["value"]["oid"]]
                    assert hashlib.sha256(content).hexdigest() == line["value"]["oid"]
                    hub.files[line["value"]["path"]] = content
            pull_request = f"{hub.address}/me/mine/discussions/1" if "create_pr" in self.path else None
            return {
                "commitOid": "0" * 40,
                "commitUrl": f"{hub.address}/me/mine/commit/0",
                "pullRequestUrl": pull_request,
            }

    return Handler


@contextmanager
def hub_server() -> Iterator[Hub]:
    """Serve a new, empty hub on this machine."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
