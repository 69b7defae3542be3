"""Build something beside its target, then swing it into place with one rename."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from storage.durable import explained, locked, make_folder, sync

_HIDDEN = re.compile(r"\.(?P<target>.+)\.[0-9a-f]{32}")


@dataclass(frozen=True)
class Workspace:
    """A hidden folder next to `target`, on the same file system, locked while its maker lives.

    Attributes
    ----------
    target : Path
        What will be created or replaced.
    folder : Path
        Holds `payload` (the new thing), `old` (the replaced one, briefly) and `lock`.
    """

    target: Path
    folder: Path

    @property
    def payload(self) -> Path:
        """Return where the new file or folder is to be built."""
        return self.folder / "payload"

    def publish(self, keep: Callable[[Path], bool] | None = None) -> None:
        """Move `payload` to `target`, unless `keep(target)` says that what is there stays."""
        with explained(self.target), _gate(self.target.parent):
            # Never asked about a missing target: looking for that one would wait for this lock.
            if keep is not None and self.target.exists() and keep(self.target):
                return
            if self.target.is_dir():  # a folder, unlike a file, cannot be renamed over
                self.target.rename(self.folder / "old")
            self.payload.rename(self.target)
            sync(self.target.parent)


@contextmanager
def workspace(target: Path) -> Iterator[Workspace]:
    """Make a workspace for `target` and remove it whatever happens; clear those of dead runs."""
    parent = target.parent
    folder = _hidden(target)
    with ExitStack() as held:
        with explained(target):
            make_folder(parent)
            with _gate(parent):
                _sweep(parent)
                folder.mkdir()
                held.enter_context(locked(folder / "lock"))
        try:
            yield Workspace(target, folder)
        finally:
            with suppress(OSError), _gate(parent):
                _discard(folder, target)


def settle(target: Path) -> bool:
    """Return whether `target` exists.

    When it seems not to, a swap under way is waited for, and one whose maker died is undone.
    """
    with explained(target, "read"):
        if not target.exists():
            tidy(target.parent)
        return target.exists()


def tidy(parent: Path) -> None:
    """Clear away what those have left in `parent` who died while they built something there."""
    with suppress(OSError):  # in a folder that cannot be written nobody has left anything
        if parent.is_dir():
            with _gate(parent):
                _sweep(parent)


def discard(path: Path) -> None:
    """Remove a folder, if it is there, and at no time let a part of it be taken for the whole."""
    hidden = _hidden(path)
    with explained(path):
        if not path.exists():
            return
        with _gate(path.parent):
            path.rename(hidden)
    # Whoever dies here leaves what the next workspace beside it clears away.
    shutil.rmtree(hidden, ignore_errors=True)


def _hidden(target: Path) -> Path:
    return target.parent / f".{target.name}.{uuid.uuid4().hex}"


def _gate(parent: Path) -> AbstractContextManager[object]:
    """Let one process at a time create, swap or clear workspaces in `parent`."""
    return locked(parent / ".lock")


def _sweep(parent: Path) -> None:
    """Discard the workspaces in `parent` that no living process holds."""
    for folder in parent.iterdir():
        match = _HIDDEN.fullmatch(folder.name)
        if match and folder.is_dir() and not folder.is_symlink():
            with suppress(OSError), locked(folder / "lock", wait=False):
                _discard(folder, parent / match["target"])


def _discard(folder: Path, target: Path) -> None:
    """Remove a workspace; what it had set aside goes back if nothing took its place."""
    old = folder / "old"
    if old.exists() and not target.exists():
        old.rename(target)
    shutil.rmtree(folder, ignore_errors=True)
