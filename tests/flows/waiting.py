"""Wait for servers and processes: a busy machine may need a minute for what takes a second."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, TypeVar

import httpx

Known = TypeVar("Known")


def wait(known: Callable[[], Known], seconds: float = 120.0, every: float = 0.2) -> Known:
    """Return what `known` returns as soon as that is true, full or not None.

    It may fail an assertion of its own. After so many seconds the test fails.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if value := known():
            return value
        time.sleep(every)
    raise AssertionError(f"not within {seconds:g} s")


class SilentHandler(BaseHTTPRequestHandler):
    """Answers requests, and prints nothing of them."""

    def answer(self, status: int = 200, body: bytes = b"", **headers: object) -> None:
        """Send an answer; a header such as Content-Length is called Content_Length."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def served(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve on a free port, from threads, in the block; yield the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def ask(method: str, url: str, **more: Any) -> httpx.Response:
    """Return the answer of a server to a request."""
    return httpx.request(method, url, timeout=60.0, **more)


def answers(address: str) -> bool:
    """Return whether a server answers, and well."""
    with suppress(httpx.TransportError):
        return ask("GET", address).is_success
    return False
