"""Find flow runs whose process has died, and let the Prefect server know of their end."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from flows.services.prefect import prefect_environment, without_password
from flows.services.records import MARK, ProcessIdentity, service_mark
from flows.services.service import launch_process
from storage import DamagedStore, home
from storage.records import read_sealed

# What a receipt is in messages.
RECEIPT = "what is known of a flow run"
_NAME = "lost-runs"
# Seconds between two looks, and between two reports of the same runs.
_EVERY = 5.0
_AGAIN = 30.0
_REPORT_SECONDS = 20.0


def receipts_folder() -> Path:
    """Return the folder of the receipts of flow runs, one file each."""
    return home() / "flow-runs"


@dataclass
class LostRuns:
    """Reports the flow runs of this machine whose process has died to the server that `up` uses.

    A process of its own does that: to import Prefect takes a second and much memory.

    Attributes
    ----------
    api : str
        Address of the API of the server.
    """

    api: str
    _reporter: psutil.Popen | None = None
    _reported: frozenset[Path] = frozenset()
    _looked_at: float = field(default=-_EVERY)
    _reported_at: float = 0.0

    def look(self) -> None:
        """Look for lost runs, unless that was done a moment ago, and let them be reported."""
        now = time.monotonic()
        if now < self._looked_at + _EVERY:
            return
        self._looked_at = now
        if self._reporter is not None and self._reporter.poll() is None:
            return
        lost = self._lost()
        # The server may be away, or a worker may have to report the end of a run first.
        if lost and (lost != self._reported or now > self._reported_at + _AGAIN):
            self._reported, self._reported_at = lost, now
            self._reporter = self._report()

    def report_now(self) -> None:
        """Report the runs that are lost now, and wait for it."""
        if self._lost():
            with suppress(psutil.TimeoutExpired):
                self._report().wait(_REPORT_SECONDS)

    def _report(self) -> psutil.Popen:
        own = {"PREFECT_API_URL": self.api, MARK: service_mark(_NAME)}
        return launch_process(["flows.tracking.outbox"], _NAME, "wb", prefect_environment(), **own)

    def _lost(self) -> frozenset[Path]:
        """Return the receipts of runs of this server whose process has died on this machine."""
        return frozenset(path for path in receipts_folder().glob("*.json") if self._is_lost(path))

    def _is_lost(self, path: Path) -> bool:
        with suppress(OSError, DamagedStore, ValueError, TypeError, KeyError):
            receipt = read_sealed(path, RECEIPT)
            process = ProcessIdentity(receipt["host"], receipt["pid"], receipt["created"])
            is_ours = process.is_of_this_machine and receipt["api"] == without_password(self.api)
            return is_ours and not process.lives
        return False
