"""Downloads from a real server on this machine."""

from __future__ import annotations

import gzip
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from flows.builtin.raw_files import DownloadError, RawFile, fetch, find_or_download

BODY = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(BODY).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Answers each path with another way to behave."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        {"/good.bin": self.good, "/short": self.short, "/moved": self.moved}.get(
            self.path, getattr(self, self.path.strip("/"), self.missing)
        )()

    def head(self, status: int, **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def good(self) -> None:
        self.head(200, Content_Length=len(BODY))
        self.wfile.write(BODY)

    def unsized(self) -> None:
        self.head(200, Connection="close")
        self.wfile.write(BODY)
        self.close_connection = True

    def packed(self) -> None:
        data = gzip.compress(BODY)
        self.head(200, Content_Encoding="gzip", Content_Length=len(data))
        self.wfile.write(data)

    def short(self) -> None:
        self.head(200, Content_Length=len(BODY) + 1)
        self.wfile.write(BODY)
        self.close_connection = True

    def moved(self) -> None:
        self.head(302, Location="/good.bin", Content_Length=0)

    def astray(self) -> None:
        self.head(302, Location="file:///etc/passwd", Content_Length=0)

    def circle(self) -> None:
        self.head(302, Location="/circle", Content_Length=0)

    def silent(self) -> None:
        self.server.stop.wait(120)  # type: ignore[attr-defined]
        self.close_connection = True

    def missing(self) -> None:
        self.head(404, Content_Length=0)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve on a free port and give the address."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        serving.stop = threading.Event()  # type: ignore[attr-defined]
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.stop.set()  # type: ignore[attr-defined]
        serving.shutdown()
        thread.join()


@pytest.mark.parametrize("path", ["good.bin", "unsized", "moved"])
def test_a_good_file_arrives_whole(server: str, tmp_path: Path, path: str) -> None:
    target = tmp_path / "raw" / "file"
    assert fetch(f"{server}/{path}", target, sha256=SHA256) == target
    assert target.read_bytes() == BODY
    assert sorted(p.name for p in target.parent.iterdir()) == [".lock", "file"]


def test_bytes_are_kept_as_sent(server: str, tmp_path: Path) -> None:
    fetch(f"{server}/packed", tmp_path / "file.gz")
    assert gzip.decompress((tmp_path / "file.gz").read_bytes()) == BODY


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere", "404"),
        ("short", "incomplete|without sending"),
        ("silent", "timed out"),
        ("astray", "file://|protocol"),
        ("circle", "redirect"),
    ],
)
def test_what_goes_wrong_names_the_address_and_keeps_the_old(
    server: str, tmp_path: Path, path: str, message: str
) -> None:
    target = tmp_path / "raw" / "file"
    target.parent.mkdir()
    target.write_text("old")
    url = f"{server}/{path}"
    seconds = 0.3 if path == "silent" else 60.0
    with pytest.raises(DownloadError, match=f"(?s){url}.*ISM_DASK_DATA") as caught:
        fetch(url, target, timeout=httpx.Timeout(seconds))
    assert caught.match(f"(?i){message}")
    assert target.read_text() == "old"
    assert sorted(p.name for p in target.parent.iterdir()) == [".lock", "file"]


def test_the_wrong_bytes_are_refused(server: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=f"{SHA256}, expected 00"):
        fetch(f"{server}/good.bin", tmp_path / "file", sha256="00")
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("path", ["good.bin", "unsized"])
def test_too_many_bytes_are_refused(server: str, tmp_path: Path, path: str) -> None:
    with pytest.raises(DownloadError, match="more than 1000 bytes"):
        fetch(f"{server}/{path}", tmp_path / "file", size_limit=1000)


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://127.0.0.1/x", "/etc/passwd", "http://", "http://127.0.0.1:9/x"],
)
def test_addresses_without_a_server_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(DownloadError, match="set ISM_DASK_DATA"):
        fetch(url, tmp_path / "file")


def test_raw_files_are_looked_for_before_they_are_fetched(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = RawFile(("a.bin", "b.bin"), f"{server}/good.bin", SHA256)
    monkeypatch.delenv("ISM_DASK_DATA", raising=False)
    fetched = find_or_download("set", raw)
    assert fetched == tmp_path / "home" / "raw" / "set" / "a.bin"
    folder = tmp_path / "data"
    (folder / "set").mkdir(parents=True)
    monkeypatch.setenv("ISM_DASK_DATA", str(folder))
    assert find_or_download("set", raw) == fetched
    for closer in (folder / "b.bin", folder / "a.bin", folder / "set" / "b.bin"):
        closer.write_bytes(b"")
        assert find_or_download("set", raw) == closer
