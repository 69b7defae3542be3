"""Exceptions that `storage` raises, and the hint for a misspelt name."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import ClassVar


class StorageError(Exception):
    """Base class of all errors that `storage` raises deliberately.

    Attributes
    ----------
    file, what : str
        The path of a damaged file relative to its store (empty if unknown), and the defect.
    status : int
        Exit status of a command that ends so: 2 if it has named something that does not exist.
    settings : tuple of str
        The parameters that the message names, each as `name`: a command has options for them.
    """

    status: ClassVar[int] = 1
    file: str = ""

    def __init__(self, message: str, *settings: str) -> None:
        super().__init__(message)
        self.what, self.settings = message, settings


class UnsafeName(StorageError, ValueError):  # noqa: N818 - reads as the fact it states
    """A name that is not a plain file name, or that leads out of its folder."""

    status = 2


class DatasetNotFound(StorageError, LookupError):  # noqa: N818
    """No data set or split of that name is registered or stored."""

    status = 2


class RunNotFound(StorageError, LookupError):  # noqa: N818
    """No run of that name is saved, or the saved run has no model."""

    status = 2


class UnfitRows(StorageError, ValueError):  # noqa: N818
    """Rows that a model cannot project: wrong number of columns, or non-finite values."""


class DamagedStore(StorageError):  # noqa: N818
    """A file of a stored data set or model is missing, altered or cut short."""

    def __init__(self, message: str, file: str = "", what: str = "") -> None:
        super().__init__(message)
        self.file, self.what = file, what or message


class TableError(StorageError, ValueError):
    """A table that cannot be ingested as it is: its files, columns or values."""


def misfit(parameter: str, actual: object, expected: str) -> StorageError:
    """Return the error for a parameter that does not fit the data."""
    return StorageError(f"`{parameter}` is {actual}; expected {expected}.")


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """Return the hint "did you mean ...? " for a misspelt name, empty if no name is close."""
    spelt = {each.casefold(): each for each in names}
    close = [spelt[each] for each in get_close_matches(name.casefold(), list(spelt))]
    return f"did you mean {' or '.join(map(repr, close))}? " if close else ""
