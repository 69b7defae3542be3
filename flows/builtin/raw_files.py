"""Find the raw files of a data set on disk, or download them from their public address."""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import httpx
from rich.console import Console
from rich.progress import DownloadColumn, Progress

from storage.atomic import explain_os_errors, sync, workspace
from storage.errors import StorageError
from storage.paths import home, safe_name

DATA_VARIABLE = "ISM_DASK_DATA"
_SIZE_LIMIT = 2**28
_TIMEOUT = httpx.Timeout(30.0, connect=10.0)


class RawFileError(StorageError):
    """A raw file is missing, unreadable, truncated, hostile, or of another format or edition."""


class DownloadError(StorageError):
    """A raw file could not be downloaded from its public address."""

    transient = True


@dataclass(frozen=True)
class RawFile:
    """A raw file and where to get it."""

    names: tuple[str, ...]  # file names it may have; a downloaded copy gets the first
    url: str | None = None
    # Digest of the bytes at `url`, if they have only one form. A copy on disk may be packed
    # differently: its values are checked instead.
    sha256: str | None = None


def find_or_download(dataset: str, raw: RawFile) -> Path:
    """Return the path of a raw file; download it into the home if it is nowhere on disk.

    The function looks for `$ISM_DASK_DATA/<dataset>/<file>`, `$ISM_DASK_DATA/<file>` and
    `<home>/raw/<dataset>/<file>`, in this order.
    """
    downloads = home() / "raw" / safe_name(dataset)
    named = os.environ.get(DATA_VARIABLE)
    data = Path(named or downloads).expanduser()
    folders = [data / dataset, data, downloads] if named else [downloads]
    for folder, name in product(folders, raw.names):
        if (folder / name).is_file():
            return folder / name
    if raw.url is None:
        raise RawFileError(
            f"{dataset} needs {' or '.join(raw.names)}, which has no public home and was not found "
            f"in {', '.join(map(str, folders))}. Put the file into a folder and set "
            f"{DATA_VARIABLE} to that folder."
        )
    return fetch(raw.url, downloads / raw.names[0], sha256=raw.sha256)


def fetch(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    size_limit: int = _SIZE_LIMIT,
    timeout: httpx.Timeout = _TIMEOUT,
) -> Path:
    """Download `url` to the file `target`, which appears only when complete and verified.

    `sha256` is the expected digest of the bytes as sent, of which there may be `size_limit`.
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
    columns = (*Progress.get_default_columns(), DownloadColumn())
    console, is_quiet = Console(stderr=True), not sys.stderr.isatty()
    with (
        httpx.Client(timeout=timeout, follow_redirects=True, headers=headers) as client,
        client.stream("GET", url) as response,
        explain_os_errors(path),
        path.open("wb") as handle,
        Progress(*columns, console=console, disable=is_quiet) as bar,
    ):
        response.raise_for_status()
        length = response.headers.get("Content-Length", "")
        task = bar.add_task(Path(url).name, total=int(length) if length.isdigit() else None)
        for piece in response.iter_raw(2**16):
            if response.num_bytes_downloaded > size_limit:
                raise _failed(url, f"more than {size_limit} bytes, the most expected")
            digest.update(piece)
            handle.write(piece)
            bar.update(task, completed=response.num_bytes_downloaded)
    return digest.hexdigest()


def _failed(url: str, why: str) -> DownloadError:
    """Return the error that names the address, the reason and a workaround."""
    return DownloadError(
        f"could not fetch {url}: {why}. Check the network, or put the file into a folder and set "
        f"{DATA_VARIABLE} to that folder."
    )
