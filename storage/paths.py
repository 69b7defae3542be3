"""Paths of the home folder, and checks of the names that are used in it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from storage.errors import UnsafeName

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


def home() -> Path:
    """Return the folder of data sets and runs: `ISM_DASK_HOME` or `~/.ism-dask`."""
    return Path(os.environ.get("ISM_DASK_HOME") or "~/.ism-dask").expanduser()


def safe_name(name: str, what: str = "name") -> str:
    """Return `name`; raise UnsafeName, labelled `what`, unless it is a plain file name.

    Names with a leading dot are refused, `.` and `..` among them: hidden names are reserved for
    work in progress.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UnsafeName(
            f"`{what}` is {str(name)[:140]!r}; expected 1 to 128 of the characters "
            "A-Z a-z 0-9 . _ - not starting with a dot.",
            what,
        )
    return name


def resolve_under(root: Path, name: str) -> Path:
    """Return `root / name`; raise UnsafeName for a name or a link that leads out of `root`."""
    path = root / safe_name(name)
    if not path.resolve().is_relative_to(root.resolve()):
        raise UnsafeName(
            f"{path} is a link to {path.resolve()}, outside {root}; expected a folder inside it. "
            "Remove the link, or open its target with a pathlib.Path."
        )
    return path
