"""Serve the reports over HTTP to browsers on this machine: `python -m flows.reports.server`.

The server only reads. Its pages load nothing, and run no script but the one that sorts the list of
runs, which the security policy names by its digest.
"""

from __future__ import annotations

import argparse
import re
import traceback
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from flows.reports.html import render_index, render_notice, render_run, script_source
from storage import RunNotFound, StorageError, UnsafeName, list_runs, safe_name

HOST = "127.0.0.1"
# The `Server` header of every answer: a client recognises this server by it.
SIGNATURE = "ism-dask-reports"

# Against DNS rebinding: another site may resolve a name of its own to this address, so we answer
# only requests whose `Host` is ours.
_OUR_NAMES = re.compile(r"(127\.0\.0\.1|localhost)(:\d{1,5})?")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    f"script-src {script_source()}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class ReportHandler(BaseHTTPRequestHandler):
    """Answers `GET /` with the list of runs and `GET /NAME` with the report of a run."""

    server_version, sys_version = SIGNATURE, ""
    timeout = 10  # seconds within which a request must arrive

    def do_GET(self) -> None:
        """Answer with the page of the requested path."""
        self._answer(*self._page())

    do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    def refuse(self) -> None:
        """Refuse every method that could change something."""
        self._answer(
            HTTPStatus.METHOD_NOT_ALLOWED, render_notice("there is nothing but pages to get")
        )

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = refuse  # noqa: N815

    def end_headers(self) -> None:
        """Add the security headers to every answer, errors included."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log no successful request; `http.server` still logs errors."""

    def _page(self) -> tuple[HTTPStatus, str]:
        if not _OUR_NAMES.fullmatch(self.headers.get("Host", "")):
            return HTTPStatus.FORBIDDEN, render_notice(f"come to {HOST} or localhost by that name")
        name = unquote(self.path.partition("?")[0]).removeprefix("/")
        try:
            return HTTPStatus.OK, render_run(safe_name(name)) if name else render_index(list_runs())
        except (UnsafeName, RunNotFound) as error:
            return HTTPStatus.NOT_FOUND, render_notice(str(error))
        except StorageError as error:
            return HTTPStatus.INTERNAL_SERVER_ERROR, render_notice(str(error))
        except Exception:  # a run that cannot be rendered must still get an answer
            traceback.print_exc()
            message = "this page could not be made; the log of the server says why"
            return HTTPStatus.INTERNAL_SERVER_ERROR, render_notice(message)

    def _answer(self, status: HTTPStatus, page: str) -> None:
        body = page.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def main() -> None:
    """Serve the pages until the process ends."""
    parser = argparse.ArgumentParser(prog="flows.reports.server")
    parser.add_argument("--port", type=int, required=True)
    with ThreadingHTTPServer((HOST, parser.parse_args().port), ReportHandler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
