"""Results of many small pieces of work, each kept as soon as it is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.atomic import exists_settled, explain_os_errors, remove_folder, workspace, write_synced
from storage.errors import DamagedStore
from storage.paths import resolve_under
from storage.records import dumps, read_sealed, to_sealed_json
from storage.runs import run_folder

LEDGER = "ledger"


@dataclass(frozen=True)
class PieceStore:
    """What is known so far of a run that is done piece by piece.

    A result counts for what was asked for: where anything of that is another, it is not found.

    Attributes
    ----------
    folder : Path
        One file for each piece.
    """

    folder: Path

    @classmethod
    def of_run(cls, name: str) -> PieceStore:
        """Return the ledger in the folder of a run, whether or not the run is kept already."""
        return cls(resolve_under(run_folder(name), LEDGER))

    def keep(self, piece: str, asked: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Keep the result of a piece, whole or not at all, in place of an earlier one."""
        text = to_sealed_json({"asked": asked, "result": result})
        with workspace(self._path(piece)) as work:
            with explain_os_errors(self._path(piece)):
                write_synced(work.payload, text)
            work.publish()

    def find(self, piece: str, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the result of a piece for what is asked, None where it is not there.

        Raises
        ------
        DamagedStore
            When the file was altered or cut short.
        """
        path = self._path(piece)
        if not exists_settled(path):
            return None
        found = read_piece(path)
        # As JSON has it: tuples come back as lists.
        same = dumps(found["asked"]) == dumps(asked)
        return dict(found["result"]) if same else None

    @property
    def entries(self) -> list[Path]:
        """The files of all results that are kept."""
        return sorted(each for each in self.folder.glob("*.json") if each.name[0] != ".")

    def clear(self) -> None:
        """Forget all of it."""
        remove_folder(self.folder)

    def _path(self, piece: str) -> Path:
        return resolve_under(self.folder, f"{piece}.json")


def read_piece(path: Path) -> dict[str, Any]:
    """Return what was asked for, and the result, of a file of a ledger, or raise DamagedStore."""
    try:
        found = read_sealed(path, "a result")
    except FileNotFoundError as error:
        raise DamagedStore(f"{path} is missing", path.name, "it is missing") from error
    if not all(isinstance(found.get(key), dict) for key in ("asked", "result")):
        told = "no result that was kept"
        raise DamagedStore(f"{path} is damaged: {told}.", path.name, told)
    return found
