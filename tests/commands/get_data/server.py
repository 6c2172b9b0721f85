"""A local HTTP server whose answers a test chooses, and that records the requests."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Answer:
    """What the server answers for a path."""

    body: bytes = b""
    stop_after: int | None = None
    """Close the connection after this number of bytes of the body."""
    ranges: bool = True
    before: Callable[[], None] = field(default=lambda: None)


@dataclass
class Server:
    """A running server."""

    address: str
    answers: dict[str, Answer]
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    """Path and Range header of each request."""


@contextmanager
def serve(answers: dict[str, Answer]) -> Iterator[Server]:
    """Serve ``answers`` by path on 127.0.0.1."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            running.requests.append((self.path, wanted))
            answer = running.answers.get(self.path)
            if answer is None:
                self.send_error(404)
                return
            answer.before()
            start = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted and answer.ranges else 0
            body = answer.body[start:]
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(answer.body) - 1}/{len(answer.body)}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if answer.stop_after is None else body[: answer.stop_after])

        do_HEAD = do_GET  # noqa: N815, the name that http.server calls

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        running = Server(f"http://127.0.0.1:{server.server_port}", answers)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield running
        finally:
            server.shutdown()
            thread.join()
