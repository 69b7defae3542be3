"""Download one file over HTTP: the whole file with the right digest, or nothing."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import httpx
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from flows.builtin.raw_data import DATA_VARIABLE, DownloadError
from storage.atomic import explain_os_errors, sync, workspace

SIZE_LIMIT = 2**28
_TIMEOUT = httpx.Timeout(30.0, connect=10.0)


def fetch(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    size_limit: int = SIZE_LIMIT,
    timeout: httpx.Timeout = _TIMEOUT,
) -> Path:
    """Download `url` to the file `target`, which appears only when complete and verified.

    Parameters
    ----------
    url : str
        http or https.
    target : Path
        File to create or replace.
    sha256 : str, optional
        Expected digest of the bytes as sent.
    size_limit : int
        Largest number of bytes to accept.
    timeout : httpx.Timeout
        Limits of one connection and one wait for data.

    Returns
    -------
    Path
        `target`.
    """
    if httpx.URL(url).scheme not in ("http", "https"):
        raise _failed(url, "only http and https are fetched")
    with workspace(target) as work:
        try:
            digest = _stream(url, work.payload, size_limit, timeout)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _failed(url, str(error) or type(error).__name__) from error
        if sha256 not in (None, digest):
            raise _failed(url, f"SHA-256 of what came is {digest}, expected {sha256}")
        with explain_os_errors(target):
            sync(work.payload)
        work.publish()
    return target


def _stream(url: str, path: Path, size_limit: int, timeout: httpx.Timeout) -> str:
    """Write the body of the response to `path` as it arrives, and return its SHA-256."""
    digest = hashlib.sha256()
    # The bytes are hashed as sent, so the server must not compress a compressed file once more.
    headers = {"Accept-Encoding": "identity"}
    with (
        httpx.Client(timeout=timeout, follow_redirects=True, headers=headers) as client,
        client.stream("GET", url) as response,
        explain_os_errors(path),
        path.open("wb") as handle,
        _progress_bar() as bar,
    ):
        response.raise_for_status()
        length = response.headers.get("Content-Length", "")
        task = bar.add_task(
            Path(response.url.path).name, total=int(length) if length.isdigit() else None
        )
        for piece in response.iter_raw(2**16):
            if response.num_bytes_downloaded > size_limit:
                raise _failed(url, f"more than {size_limit} bytes, the most expected")
            digest.update(piece)
            handle.write(piece)
            bar.update(task, completed=response.num_bytes_downloaded)
    return digest.hexdigest()


def _progress_bar() -> Progress:
    """Return a progress bar on stderr, which is disabled if stderr is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    disable = not sys.stderr.isatty()
    return Progress(*columns, TransferSpeedColumn(), console=console, disable=disable)


def _failed(url: str, why: str) -> DownloadError:
    """Return the error that names the address, the reason and a workaround."""
    return DownloadError(
        f"could not fetch {url}: {why}. Check the network, or put the file into a folder and set "
        f"{DATA_VARIABLE} to that folder."
    )
