"""Find raw files on disk, or download them from their public home."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from storage.atomic import explain_os_errors, sync, workspace
from storage.errors import DownloadError, RawFileError
from storage.paths import DATA_VARIABLE, data_folder, home, safe_name

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
        Expected digest of the bytes sent.
    size_limit : int
        Most bytes to accept.
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
    """Write the body as it comes to `path` and return its SHA-256."""
    digest = hashlib.sha256()
    # The bytes are hashed as sent: a server must not pack an already packed file once more.
    headers = {"Accept-Encoding": "identity"}
    with (
        httpx.Client(timeout=timeout, follow_redirects=True, headers=headers) as client,
        client.stream("GET", url) as response,
    ):
        response.raise_for_status()
        with explain_os_errors(path), path.open("wb") as handle:
            for piece in _with_bar(response, Path(httpx.URL(url).path).name):
                if response.num_bytes_downloaded > size_limit:
                    raise _failed(url, f"more than {size_limit} bytes, the most expected")
                digest.update(piece)
                handle.write(piece)
    return digest.hexdigest()


def _with_bar(response: httpx.Response, title: str) -> Iterator[bytes]:
    """Yield the body in pieces, moving a bar when a person looks on."""
    length = response.headers.get("Content-Length", "")
    with _bar() as progress:
        task = progress.add_task(title, total=int(length) if length.isdigit() else None)
        for piece in response.iter_raw(2**16):
            progress.update(task, completed=response.num_bytes_downloaded)
            yield piece


@contextmanager
def _bar() -> Iterator[Progress]:
    """Give a progress bar on stderr, mute when that is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    mute = not sys.stderr.isatty()
    with Progress(
        *columns, TransferSpeedColumn(), console=Console(stderr=True), disable=mute
    ) as bar:
        yield bar


def _failed(url: str, why: str) -> DownloadError:
    """Return the error that names the address and the way around it."""
    return DownloadError(
        f"could not fetch {url}: {why}. Check the network, or put the file into a folder and set "
        f"{DATA_VARIABLE} to that folder."
    )


@dataclass(frozen=True)
class RawFile:
    """A raw file and where to get it.

    Attributes
    ----------
    names : tuple of str
        File names it may have; the first is used for a fetched copy.
    url : str or None
        Public home.
    sha256 : str or None
        Digest of the bytes at `url`, where they have but one form. A copy on disk may be packed
        differently; it is judged by the values it holds.
    """

    names: tuple[str, ...]
    url: str | None = None
    sha256: str | None = None


def find_raw(dataset: str, raw: RawFile) -> Path:
    """Return the path of a raw file, fetching it into the home if it is nowhere on disk.

    Looked for as `$ISM_DASK_DATA/<dataset>/<file>`, `$ISM_DASK_DATA/<file>` and
    `<home>/raw/<dataset>/<file>`, in this order.
    """
    folders = tuple(_folders(dataset))
    for folder in folders:
        for name in raw.names:
            if (folder / name).is_file():
                return folder / name
    if raw.url is None:
        raise RawFileError(
            f"{dataset} needs {' or '.join(raw.names)}, which has no public home and was not found "
            f"in {', '.join(map(str, folders))}. Put the file into a folder and set "
            f"{DATA_VARIABLE} to that folder."
        )
    # The client takes a tenth of a second to import, which is seldom needed.
    from storage.download import fetch  # noqa: PLC0415

    return fetch(raw.url, folders[-1] / raw.names[0], sha256=raw.sha256)


def _folders(dataset: str) -> Iterator[Path]:
    """Yield the folders to look in; the last is the home's own."""
    data = data_folder()
    if data is not None:
        yield data / safe_name(dataset)
        yield data
    yield home() / "raw" / safe_name(dataset)
