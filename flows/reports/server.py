"""Serve the reports over HTTP to browsers on this machine: `python -m flows.reports.server`.

The server only reads. Its pages load nothing, and run no script but the one that sorts the list of
runs, which the security policy names by its digest.
In a container it has to listen on another address, and to know the names under
which it is published.
"""

from __future__ import annotations

import argparse
import os
import re
import traceback
from base64 import b64encode
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import unquote

from flows.errors import FlowError, SettingsError
from flows.reports.html import render_index, render_notice, render_run, script_source
from flows.reports.metrics import CONTENT_TYPE, render_metrics
from flows.services.service import HOST, HOSTS, REPORTS_SIGNATURE
from storage import StorageError, UnsafeName, list_runs, safe_name

_PORT = re.compile(r":\d{1,5}$")
# Where Prometheus looks by default. The page of a run of that name is not to be had here.
_METRICS = "metrics"
# The environment variable with the NAME:PASSWORD that a browser has to give; by default none.
_AUTH_VARIABLE = "ISM_DASK_REPORTS_AUTH"
_HTML = "text/html; charset=utf-8"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    f"script-src {script_source()}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class ReportHandler(BaseHTTPRequestHandler):
    """Answers `GET /` with the list of runs and `GET /NAME` with the report of a run.

    `GET /metrics` is answered with the numbers of runs, for Prometheus.
    """

    # Against DNS rebinding: another site may resolve a name of its own to this address, so only
    # requests whose `Host` is ours are answered.
    names: ClassVar[frozenset[str]] = frozenset(HOSTS)
    server_version, sys_version = REPORTS_SIGNATURE, ""
    timeout = 10  # seconds within which a request must arrive

    def do_GET(self) -> None:
        """Answer with the page of the requested path."""
        self._answer(*(self._refusal() or self._page()))

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

    def _refusal(self) -> tuple[HTTPStatus, str] | None:
        """Return why this request gets no page, whatever its path; None if it may have one."""
        if _PORT.sub("", self.headers.get("Host", "").lower()) not in self.names:
            names = " or ".join(sorted(self.names))
            return HTTPStatus.FORBIDDEN, render_notice(f"come to {names} by that name")
        if not self._has_password():
            return HTTPStatus.UNAUTHORIZED, render_notice("name or password is missing or wrong")
        return None

    def _page(self) -> tuple[HTTPStatus, str] | tuple[HTTPStatus, str, str]:
        name = unquote(self.path.partition("?")[0]).removeprefix("/")
        try:
            if name == _METRICS:
                return HTTPStatus.OK, render_metrics(), CONTENT_TYPE
            return HTTPStatus.OK, render_run(safe_name(name)) if name else render_index(list_runs())
        except (UnsafeName, SettingsError) as error:
            return HTTPStatus.NOT_FOUND, render_notice(str(error))
        except (StorageError, FlowError) as error:
            return HTTPStatus.INTERNAL_SERVER_ERROR, render_notice(str(error))
        except Exception:  # a run that cannot be rendered must still get an answer
            traceback.print_exc()
            message = "this page could not be made; the log of the server says why"
            return HTTPStatus.INTERNAL_SERVER_ERROR, render_notice(message)

    def _has_password(self) -> bool:
        given, expected = self.headers.get("Authorization", ""), os.environ.get(_AUTH_VARIABLE)
        if not expected:
            return True
        ours = f"Basic {b64encode(expected.encode()).decode()}"
        return compare_digest(given.encode(), ours.encode())

    def _answer(self, status: HTTPStatus, page: str, content_type: str = _HTML) -> None:
        body = page.encode()
        self.send_response(status)
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Basic realm="ism-dask", charset="UTF-8"')
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def main() -> None:
    """Serve the pages until the process ends."""
    parser = argparse.ArgumentParser(prog="flows.reports.server")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default=HOST, help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another name under which browsers may come, without its port; may be repeated",
    )
    given = parser.parse_args()
    ReportHandler.names |= {name.lower() for name in given.allow_host}
    with ThreadingHTTPServer((given.host, given.port), ReportHandler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
