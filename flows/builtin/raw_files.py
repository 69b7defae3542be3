"""Find the raw files of a data set on disk, or download them from their public address."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from flows.builtin.raw_data import DATA_VARIABLE, RawFileError
from storage.paths import home, safe_name


@dataclass(frozen=True)
class RawFile:
    """A raw file and where to get it.

    Attributes
    ----------
    names : tuple of str
        File names it may have; a downloaded copy gets the first.
    url : str or None
        Public address.
    sha256 : str or None
        Digest of the bytes at `url`, if they have only one form. It does not apply to a copy on
        disk, which may be packed differently: its values are checked instead.
    """

    names: tuple[str, ...]
    url: str | None = None
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
    # httpx takes a tenth of a second to import and is seldom needed.
    from flows.builtin.download import fetch  # noqa: PLC0415

    return fetch(raw.url, downloads / raw.names[0], sha256=raw.sha256)
