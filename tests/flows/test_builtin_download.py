"""Downloads from a real server on this machine."""

import gzip
import hashlib

import httpx
import pytest
from waiting import SilentHandler, served

from flows.builtin import raw_files
from flows.builtin.raw_files import DownloadError, RawFile, fetch, find_or_download

BODY = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(BODY).hexdigest()
PACKED = gzip.compress(BODY)
# Status, body and headers by path.
ANSWERS = {
    "/good.bin": (200, BODY, {"Content_Length": len(BODY)}),
    "/unsized": (200, BODY, {"Connection": "close"}),
    "/packed": (200, PACKED, {"Content_Encoding": "gzip", "Content_Length": len(PACKED)}),
    "/short": (200, BODY, {"Content_Length": len(BODY) + 1, "Connection": "close"}),
    "/moved": (302, b"", {"Location": "/good.bin", "Content_Length": 0}),
    "/astray": (302, b"", {"Location": "file:///etc/passwd", "Content_Length": 0}),
    "/nowhere": (404, b"", {"Content_Length": 0}),
}


class Handler(SilentHandler):
    """Answers each path with another way to behave; /silent never."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path not in ANSWERS:
            self.rfile.read(1)  # until the other side has gone away
            return
        status, body, headers = ANSWERS[self.path]
        self.answer(status, body, **headers)


@pytest.fixture
def server(monkeypatch):
    """Serve on a free port and give the address."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with served(Handler) as address:
        yield address


@pytest.mark.parametrize("path", ["good.bin", "unsized", "moved", "packed"])
def test_a_good_file_arrives_whole_and_as_sent(server, tmp_path, path):
    target, body = tmp_path / "raw" / "file", PACKED if path == "packed" else BODY
    assert fetch(f"{server}/{path}", target, hashlib.sha256(body).hexdigest()) == target
    assert target.read_bytes() == body
    assert sorted(p.name for p in target.parent.iterdir()) == [".lock", "file"]


@pytest.mark.parametrize(
    ("path", "message", "limits"),
    [
        ("nowhere", "404", {}),
        ("short", "incomplete|without sending", {}),
        ("silent", "timed out", {"_TIMEOUT": httpx.Timeout(0.3)}),
        ("astray", "file://|protocol", {}),
        ("packed", f"expected {SHA256}", {}),
        ("unsized", "more than 1000 bytes", {"_SIZE_LIMIT": 1000}),
        ("file:///etc/passwd", "", {}),
        ("http://", "", {}),
        ("http://127.0.0.1:9/x", "", {}),
    ],
)
def test_what_goes_wrong_names_the_address_and_keeps_the_old(
    server, tmp_path, monkeypatch, path, message, limits
):
    for name, value in limits.items():
        monkeypatch.setattr(raw_files, name, value)
    target = tmp_path / "raw" / "file"
    target.parent.mkdir()
    target.write_text("old")
    url = path if "/" in path else f"{server}/{path}"
    with pytest.raises(DownloadError, match=f"(?s){url}.*ISM_DASK_DATA") as caught:
        fetch(url, target, SHA256)
    assert caught.match(f"(?i){message}")
    assert target.read_text() == "old"
    assert sorted(p.name for p in target.parent.iterdir()) == [".lock", "file"]


def test_raw_files_are_looked_for_before_they_are_fetched(server, tmp_path, monkeypatch):
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
