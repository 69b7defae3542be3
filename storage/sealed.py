"""JSON that vouches for itself: with its own digest, and no byte of it other than written."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from storage.errors import DamagedStore, StorageError
from storage.jsontext import dumps, loads

_SEAL = "digest"


def seal_of(entry: Mapping[str, Any]) -> str:
    """Return the digest of what is to be kept."""
    return sha256(dumps(entry).encode()).hexdigest()


def sealed(entry: Mapping[str, Any]) -> str:
    """Return `entry` as JSON text with its digest."""
    return dumps({**entry, _SEAL: seal_of(entry)})


def unsealed(text: str) -> dict[str, Any]:
    """Return what `sealed` was given; raise ValueError for any other text."""
    found = loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"it holds a {type(found).__name__}, not a record")  # noqa: TRY004
    entry = {key: value for key, value in found.items() if key != _SEAL}
    try:
        sound = text == sealed(entry)  # byte for byte, so that no flipped bit passes
    except (RecursionError, StorageError) as error:
        raise ValueError(f"it is none of ours: {error}") from error
    if not sound:
        raise ValueError("it has been altered: it does not agree with its own digest")
    return entry


def read_sealed(path: Path, what: str) -> dict[str, Any]:
    """Read a sealed file; DamagedStore, which calls it `what`, where it is not as written.

    A file that is not there is a FileNotFoundError.
    """
    try:
        return unsealed(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError) as error:
        told = f"not {what} as it was written ({error})"
        raise DamagedStore(f"{path} is damaged: {told}.", path.name, told) from error
