"""What can go wrong with files, each kind with its own name."""

from __future__ import annotations


class StorageError(Exception):
    """Base of every error that `storage` raises on purpose."""


class UnsafeName(StorageError, ValueError):  # noqa: N818 - reads as the fact it states
    """A name that is not a plain file name, or that leads out of its folder."""


class DatasetNotFound(StorageError, LookupError):  # noqa: N818
    """No data set or split of that name is known or stored."""


class RunNotFound(StorageError, LookupError):  # noqa: N818
    """No run of that name is kept, or it keeps no model."""


class UnfitRows(StorageError, ValueError):  # noqa: N818
    """Rows that a model cannot project: of another width, or not of finite numbers."""


class RawFileError(StorageError):
    """A raw file is missing, unreadable, truncated, hostile or of another format."""


class ChecksumMismatch(StorageError):  # noqa: N818
    """Bytes are readable, but are not the ones that were expected."""


class DamagedStore(StorageError):  # noqa: N818
    """A file of a stored data set or model is missing, altered or cut short.

    Attributes
    ----------
    file, what : str
        The path of the file in its store, where that is known, and what is wrong with it.
    """

    def __init__(self, message: str, file: str = "", what: str = "") -> None:
        super().__init__(message)
        self.file, self.what = file, what or message


class DownloadError(StorageError):
    """A raw file could not be fetched from its public home."""
