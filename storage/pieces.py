"""Partial results of a run that is computed piece by piece, each saved once it is computed."""

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
    """The saved partial results (the ledger) of one run.

    Each result is stored with the request that it answers, the mapping `request`. `find` returns it
    for an equal request only.

    Attributes
    ----------
    folder : Path
        Has one file for each piece.
    """

    folder: Path

    @classmethod
    def of_run(cls, name: str) -> PieceStore:
        """Return the ledger in the folder of a run, whether or not the run is saved already."""
        return cls(resolve_under(run_folder(name), LEDGER))

    def save(self, piece: str, request: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Save the result of a piece atomically, replacing an earlier one."""
        text = to_sealed_json({"asked": request, "result": result})
        with workspace(self._path(piece)) as work:
            with explain_os_errors(self._path(piece)):
                write_synced(work.payload, text)
            work.publish()

    def find(self, piece: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the saved result of a piece, or None if there is none for this request.

        Raises
        ------
        DamagedStore
            If the file was altered or cut short.
        """
        path = self._path(piece)
        if not exists_settled(path):
            return None
        record = read_piece(path)
        # Compared as JSON, from which tuples come back as lists.
        same = dumps(record["asked"]) == dumps(request)
        return dict(record["result"]) if same else None

    @property
    def entries(self) -> list[Path]:
        """Return the paths of all saved results."""
        return sorted(each for each in self.folder.glob("*.json") if each.name[0] != ".")

    def clear(self) -> None:
        """Remove all saved results."""
        remove_folder(self.folder)

    def _path(self, piece: str) -> Path:
        return resolve_under(self.folder, f"{piece}.json")


def read_piece(path: Path) -> dict[str, Any]:
    """Return the request and the result in a file of a ledger; raise DamagedStore if it is bad."""
    try:
        record = read_sealed(path, "a result")
    except FileNotFoundError as error:
        raise DamagedStore(f"{path} is missing", path.name, "it is missing") from error
    if not all(isinstance(record.get(key), dict) for key in ("asked", "result")):
        defect = "no saved result"
        raise DamagedStore(f"{path} is damaged: {defect}.", path.name, defect)
    return record
