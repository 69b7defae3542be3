"""Results of many small pieces of work, each kept as soon as it is there."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from storage.durable import write_synced
from storage.errors import DamagedStore
from storage.home import resolve_under
from storage.jsontext import dumps, loads
from storage.runs import run_folder
from storage.workspace import settle, workspace

_ENTRIES = "ledger"


@dataclass(frozen=True)
class Ledger:
    """What is known so far of a run that is done piece by piece.

    A result counts for what was asked for: where anything of that is another, it is not found.

    Attributes
    ----------
    folder : Path
        One file for each piece.
    """

    folder: Path

    @classmethod
    def of_run(cls, name: str) -> Ledger:
        """Return the ledger in the folder of a run, whether or not the run is kept already."""
        return cls(run_folder(name) / _ENTRIES)

    def keep(self, piece: str, asked: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Keep the result of a piece, whole or not at all, in place of an earlier one."""
        entry = {"asked": asked, "result": result}
        with workspace(self._path(piece)) as work:
            write_synced(work.payload, dumps({**entry, "digest": _digest(entry)}))
            work.publish()

    def find(self, piece: str, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the result of a piece for what is asked, None where it is not there.

        Raises
        ------
        DamagedStore
            When the file was altered or cut short.
        """
        path = self._path(piece)
        if not settle(path):
            return None
        try:
            found = loads(path.read_text(encoding="utf-8"))
            entry = {key: found[key] for key in ("asked", "result")}
            whole = found["digest"] == _digest(entry)
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedStore(f"{path} is not a result that was kept ({error})") from error
        if not whole:
            raise DamagedStore(f"{path} has been altered: its digest is another")
        # As JSON has it: tuples come back as lists.
        same = dumps(entry["asked"]) == dumps(asked)
        return dict(entry["result"]) if same else None

    def clear(self) -> None:
        """Forget all of it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, piece: str) -> Path:
        return resolve_under(self.folder, f"{piece}.json")


def _digest(entry: Mapping[str, Any]) -> str:
    return sha256(dumps(entry).encode()).hexdigest()
