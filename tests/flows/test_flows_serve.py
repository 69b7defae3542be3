"""The report server, under hostile requests; names that are not meant to be text."""

from __future__ import annotations

import http.client
import shutil
import socket
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import Browsing
from commandline import Command

from flows.reports.markdown import run_page
from flows.reports.server import HOST, ReportHandler
from storage import DatasetInfo, dataset_path, home, run_folder, save_results, write_dataset

SECRET = "for nobody's eyes"
# What a terminal would obey: colours, a cleared screen, a title, a link, the bell.
ESCAPES = ("\x1b[31mred", "\x1b[2J", "\x1b]0;title\x07", "\x9b5m", "a\rb", "\x1b]8;;http://x\x1b\\")


@pytest.fixture
def port(fitted_wine: str) -> Iterator[int]:
    """Serve the runs of a home with one run in it, and a secret beside the runs."""
    (home() / "secret.html").write_text(SECRET)
    with ThreadingHTTPServer((HOST, 0), ReportHandler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def answer_of(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """Return status and page for a path that nobody has put in order before."""
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        assert reply.headers["Content-Security-Policy"].startswith("default-src 'none'")
        return reply.status, reply.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.html",
        "/..%2fsecret.html",
        "/%2e%2e/secret.html",
        "/%252e%252e%252fsecret.html",
        "/mine/../../secret.html",
        "/mine/model/manifest.json",
        "//secret.html",
        "/..\\secret.html",
        "/..%5csecret.html",
        "/secret.html%00",
        "/%c0%ae%c0%ae/secret.html",
        "/.hidden",
        "/.",
        "/~",
        f"http://{HOST}/mine",
        "file:///etc/passwd",
        "/" + "a" * 129,
    ],
)
def test_no_path_leads_out(port: int, path: str) -> None:
    status, page = answer_of(port, path)
    assert status == 404
    assert SECRET not in page


def test_no_link_leads_out(port: int, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.copytree(run_folder("mine"), outside)
    run_folder("mine").with_name("link").symlink_to(outside)
    shutil.copytree(run_folder("mine"), run_folder("part"))
    shutil.rmtree(run_folder("part") / "model")
    (run_folder("part") / "model").symlink_to(outside / "model")
    shutil.copytree(run_folder("mine"), run_folder("file"))
    chunk = run_folder("file") / "model/components/c/0/0"
    chunk.unlink()
    chunk.symlink_to(home() / "secret.html")
    for name in ("link", "part", "file"):
        status, page = answer_of(port, f"/{name}")
        assert status >= 400, name
        assert SECRET not in page
    assert answer_of(port, "/mine")[0] == answer_of(port, "/")[0] == 200


def test_only_our_names_are_heard(port: int) -> None:
    for name in (f"{HOST}:{port}", "localhost", f"localhost:{port}"):
        assert answer_of(port, "/mine", Host=name)[0] == 200
    for name in ("example.org", f"example.org:{port}", f"{HOST}.example.org", f"x@{HOST}", "[::1]"):
        status, page = answer_of(port, "/mine", Host=name)
        assert status == 403
        assert "wine" not in page


def test_only_pages_are_to_be_had(port: int) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        assert answer_of(port, "/mine", method)[0] == 405
    for method in ("TRACE", "CONNECT", "BREW"):
        assert answer_of(port, "/mine", method)[0] == 501
    assert answer_of(port, "/mine", "HEAD") == (200, "")


@pytest.mark.parametrize(
    "bytes_",
    [
        b"GET /mine HTTP/1.1\r\n\r\n",
        b"GET /mine HTTP/1.1\r\nHost: example.org\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /mine\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /mine HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_request_of_a_browser_gets_no_page(port: int, bytes_: bytes) -> None:
    with socket.create_connection((HOST, port), timeout=30) as connection:
        connection.sendall(bytes_)
        connection.shutdown(socket.SHUT_WR)
        found = b""
        while part := connection.recv(65536):
            found += part
    assert b"wine" not in found
    assert answer_of(port, "/mine")[0] == 200


def test_the_list_of_runs_is_sorted_by_a_click(port: int, browser: Browsing) -> None:
    for day, seconds in enumerate((100.0, 3.0, 20.0), start=1):
        mean = {"accuracy": 0.9, "cost": -10.0 * day, "seconds": seconds}
        metrics = {"mean": mean, "title": "<script>alert(1)</script>"}
        save_results(f"n-2026-11-0{day}", "crossval", config={}, metrics=metrics, versions={})

    def look(page: Any) -> dict[str, list[str]]:
        def names() -> list[str]:
            return [each[-1] for each in page.locator("tbody th").all_inner_texts() if "n-" in each]

        def after(title: str) -> list[str]:
            page.get_by_role("button", name=title, exact=True).click()
            return names()

        return {
            "at first": names(),
            "seconds": after("seconds"),
            "again": after("seconds"),
            "J": after("J"),
            "pictures": page.locator("figure h3").all_inner_texts(),
        }

    visit = browser.visit(f"http://{HOST}:{port}/", look)
    assert visit.found == {
        "at first": ["3", "2", "1"],
        "seconds": ["2", "3", "1"],
        "again": ["1", "3", "2"],
        "J": ["1", "2", "3"],
        "pictures": ["n: J", "n: accuracy", "n: seconds"],
    }
    assert visit.complaints == []
    assert visit.requests == [f"http://{HOST}:{port}/"]


def test_no_script_runs_but_the_one_of_the_list(port: int, browser: Browsing) -> None:
    def look(page: Any) -> Any:
        page.evaluate("document.body.innerHTML = '<p></p>'")
        page.evaluate(
            "() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
            " document.body.append(s); }"
        )
        return page.evaluate("window.ran === undefined")

    for path in ("", "mine"):
        visit = browser.visit(f"http://{HOST}:{port}/{path}", look)
        assert visit.found is True
        assert "Content Security Policy" in visit.complaints[0]


def test_names_do_nothing_to_a_terminal(here: Command) -> None:
    names = (*ESCAPES, "<script>alert(1)</script>", "](javascript:alert(1))")
    classes = (ESCAPES[0], ESCAPES[1], "c")
    X = np.random.default_rng(0).normal(size=(200, len(names)))
    info = DatasetInfo("odd", feature_names=names, class_names={"y": classes}, default_label="y")
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    write_dataset(dataset_path("odd"), info, [X], {"y": y})
    fitted = here("fit", "odd", "--plain", "-q", 2, "--run", "odd")
    shown = [fitted, here("show", "odd"), here("runs"), here("datasets"), here("show", "\x1b[2J")]
    assert "red" in shown[1].out
    for each in shown:
        text = (each.out + each.err).replace("\n", "")
        assert text.isprintable(), each
    page = run_page("odd")
    assert "<script" not in page
    assert "](javascript" not in page.replace("\\](", "")
    assert not [each for each in ESCAPES if each in page]
