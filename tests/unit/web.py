"""A web server on this machine that plays the mirrors: well-behaved and in every bad mood."""

from __future__ import annotations

import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

from tests.unit.sweep_processes import wait_for
from ttabench.system.progress import OnProgress, silent

T = TypeVar("T")


@dataclass
class Mirror:
    """What the server does, per path, and what it was asked for."""

    files: dict[str, bytes] = field(default_factory=dict)
    status: dict[str, int] = field(default_factory=dict)
    breaks: list[int] = field(default_factory=list)  # bytes to send before the connection breaks, per request
    html: bool = False
    resumes: bool = True
    announces: bool = True
    ranges: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def serving() -> Iterator[Mirror]:
    """A :class:`Mirror` on this machine, until the block ends."""
    state = Mirror()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.strip("/")
            state.asked.append(path)
            status = state.status.get(path, 200 if path in state.files else 404)
            if status == 200:
                self._answer(state.files[path])
            else:
                self.send_error(status)

        def _answer(self, content: bytes) -> None:
            wanted = self.headers.get("Range", "")
            state.ranges.append(wanted)
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and state.resumes else 0
            if start and start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Type", "text/html" if state.html else "application/octet-stream")
            if state.announces:
                self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            if state.breaks:
                self.wfile.write(content[start : start + state.breaks.pop(0)])
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
            else:
                self.wfile.write(content[start:])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


def two_at_once(call: Callable[[OnProgress], T]) -> tuple[list[T], list[str]]:
    """What two calls give, and what is told. The second call begins while the first one is in its middle.

    The first one goes on once something was told. The second one must not have ended then.
    """
    output: dict[int, T] = {}
    arrived, goes_on = threading.Event(), threading.Event()

    def stops_in_the_middle(*_: object) -> None:
        arrived.set()
        goes_on.wait(300)

    def run(number: int, progress: OnProgress) -> None:
        output[number] = call(progress)

    threads = [
        threading.Thread(target=run, args=(number, progress))
        for number, progress in enumerate((stops_in_the_middle, silent))
    ]
    with warnings.catch_warnings(record=True, action="always") as told:
        threads[0].start()
        assert arrived.wait(300)
        threads[1].start()
        try:
            wait_for(lambda: told or not threads[1].is_alive())
            assert threads[1].is_alive()
        finally:
            goes_on.set()
            for thread in threads:
                thread.join()
    return [output[0], output[1]], [str(each.message) for each in told]
