"""Find raw files on disk, or fetch them from their public home."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from storage.errors import RawFileError
from storage.home import DATA_VARIABLE, data_folder, home, safe_name


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
    from storage.fetch import fetch  # noqa: PLC0415

    return fetch(raw.url, folders[-1] / raw.names[0], sha256=raw.sha256)


def _folders(dataset: str) -> Iterator[Path]:
    """Yield the folders to look in; the last is the home's own."""
    data = data_folder()
    if data is not None:
        yield data / safe_name(dataset)
        yield data
    yield home() / "raw" / safe_name(dataset)
