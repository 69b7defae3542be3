"""Partial sums of long passes over the rows, on disk, from which a killed pass goes on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import zarr

from storage.atomic import explain_os_errors, remove_folder
from storage.checkpoints import values_from_json, values_to_json
from storage.errors import DamagedStore
from storage.manifest import damaged_store
from storage.paths import resolve_under
from storage.records import dumps, loads
from storage.runs import run_folder
from storage.store import commit_group, get_array, open_checked, put_array

PASSES = "passes"
_VERSION = 1
_NUMBERS = "numbers"
_PASS, _SUM = re.compile("[0-9a-f]{64}"), re.compile("[0-9]{4}")


class PassSums:
    """The saved sums of the passes of a fit: a folder for each pass, and in it one for each sum.

    A pass belongs to a request, such as settings and digests of data. Those of another request are
    not found. The passes since the last but one checkpoint stay: a fit that continues from the last
    checkpoint begins with the pass at its W.

    Parameters
    ----------
    folder : Path
        Is there as long as there are sums.
    request : Mapping
        All that decides the result of the fit, in plain JSON.
    check : callable
        Called before each sum is saved; raises an error if it must not be.
    tell : callable
        Called with a message about each pass that goes on, and each sum that is damaged.
    """

    def __init__(
        self,
        folder: Path,
        request: Mapping[str, Any],
        check: Callable[[], None] = lambda: None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.folder, self._request = folder, dumps(request)
        self._check, self._tell = check, tell
        self._recent: set[str] = set()

    @classmethod
    def of_run(
        cls, name: str, request: Mapping[str, Any], **calls: Callable[..., None]
    ) -> PassSums:
        """Return the sums in the folder of a run, whether or not there are any."""
        return cls(resolve_under(run_folder(name), PASSES), request, **calls)

    @property
    def is_empty(self) -> bool:
        """Whether there are no saved sums."""
        return not self.folder.is_dir()

    def find(self, key: str) -> dict[int, Any]:
        """Return the undamaged sums of a pass, by the number of the part."""
        folder = self._folder(key)
        sums: dict[int, Any] = {}
        for number in numbers_in(folder):
            try:
                sums[number] = read_sum(sum_path(folder, number))
            except DamagedStore as error:
                self._tell(f"{error} It is computed again")
        if sums:
            self._recent.add(folder.name)
            count = f"{len(sums)} saved sum{'s' if len(sums) > 1 else ''}"
            self._tell(f"resuming within a pass over the rows, from {count}")
        return sums

    def save(self, key: str, number: int, total: Any) -> None:
        """Save a sum of a pass: a float, a float64 array, None, or a tuple of these."""
        self._check()
        record, numbers = values_to_json(total)
        text = dumps(record)

        def fill(group: zarr.Group) -> str:
            put_array(group, _NUMBERS, numbers)
            return sha256(text.encode() + numbers.tobytes()).hexdigest()

        folder = self._folder(key)
        self._recent.add(folder.name)
        attributes = {"format_version": _VERSION, "record": text}
        commit_group(sum_path(folder, number), attributes, fill)

    def remove(self, key: str) -> None:
        """Remove the sums of a pass."""
        remove_folder(self._folder(key))

    def retire(self) -> None:
        """Remove the passes of which no sum was found or saved since the last call."""
        for each in pass_folders(self.folder):
            if each.name not in self._recent:
                remove_folder(each)
        self._recent = set()

    def clear(self) -> None:
        """Remove all sums."""
        remove_folder(self.folder)

    def _folder(self, key: str) -> Path:
        return resolve_under(self.folder, sha256(f"{self._request}\n{key}".encode()).hexdigest())


def pass_folders(folder: Path) -> list[Path]:
    """Return the folders of the passes in the folder of all of them."""
    with explain_os_errors(folder, "read"):
        entries = folder.iterdir() if folder.is_dir() else ()
        return sorted(each for each in entries if is_pass(each.name))


def is_pass(name: str) -> bool:
    """Return whether a folder of that name has the sums of a pass."""
    return _PASS.fullmatch(name) is not None


def numbers_in(folder: Path) -> list[int]:
    """Return the numbers of the sums in the folder of a pass."""
    with explain_os_errors(folder, "read"):
        entries = folder.iterdir() if folder.is_dir() else ()
        return sorted(int(each.name) for each in entries if is_sum(each.name))


def is_sum(name: str) -> bool:
    """Return whether a folder of that name is a sum of a pass."""
    return _SUM.fullmatch(name) is not None


def sum_path(folder: Path, number: int) -> Path:
    """Return the path of a sum in the folder of a pass, whether or not it exists."""
    return resolve_under(folder, f"{number:04d}")


def read_sum(path: Path) -> Any:
    """Return a saved sum; raise DamagedStore if it is missing or not as it was written."""
    _, group = open_checked(path)
    try:
        attributes = group.attrs.asdict()
        if attributes["format_version"] != _VERSION:
            raise ValueError(f"`format_version` is {attributes['format_version']!r}")  # noqa: TRY301
        record, numbers = loads(str(attributes["record"])), get_array(group, _NUMBERS)
        return values_from_json(record, numbers, "sum of a pass")
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise damaged_store(path, "zarr.json", f"not a sum of a pass ({error})") from error
