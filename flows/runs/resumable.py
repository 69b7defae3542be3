"""A fit on a cluster that may be lost: it goes on from its last checkpoint, there or on another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar

from flows.compute.health import ClusterLost
from flows.compute.session import Session, joined_cluster
from flows.errors import FlowError
from flows.interface.progress import progress_note
from flows.runs.lease import HeldLease, hold_lease
from flows.runs.saving import check_name_is_free
from flows.settings.runs import KeptSettings
from ism_dask.records.checkpoint import Checkpoint, CheckpointedFit, saving_checkpoints
from storage import Checkpoints, DamagedStore, PieceStore, run_folder
from storage.runs import STALLED

T = TypeVar("T")

# Losses one after the other, without an iteration between them, that are too many.
_LOSSES = 3


def fit_on_cluster(
    settings: KeptSettings, this: ResumableRun, work: Callable[[], T], **piece: Any
) -> T:
    """Return what `work` gives where `settings` say; it is begun again where a cluster is lost.

    Parameters
    ----------
    settings : KeptSettings
    this : Undertaking
    work : callable
        One fit, which goes on from where it was kept.
    **piece : Any
        Which fit of the run it is, as for `Undertaking.fit`.
    """
    with joined_cluster(settings.scheduler) as session:
        if session is None:
            with this.fit(**piece):
                return work()
        losses = 0
        while True:
            try:
                watched = session.watched(settings.stall, run_folder(this.run) / STALLED)
                with watched, this.fit(**piece) as kept:
                    return work()
            except ClusterLost as lost:
                losses = 1 if kept.moved else losses + 1
                _join_again(session, lost, losses)


class ClusterAwayError(FlowError):
    """A cluster that was joined is lost, and stays so."""

    transient = True


def _join_again(session: Session, lost: ClusterLost, losses: int) -> None:
    """Join the cluster that was lost, or raise ClusterAwayError where that is in vain."""
    if losses == _LOSSES:
        raise ClusterAwayError(
            f"{lost.what}, the last of {losses} such losses without an iteration between them; "
            f"{lost.advice}"
        ) from lost
    progress_note(f"{lost.what}: joining it again, to go on from the last checkpoint")
    try:
        session.renew()
    except FlowError as error:
        raise ClusterAwayError(f"{lost.what}, and could not be joined again: {error}") from error


Result = Mapping[str, Any]


@dataclass(frozen=True)
class ResumableRun:
    """A run that is under way.

    Attributes
    ----------
    run : str
    asked : Mapping
        What decides its result, in plain JSON: what was kept for something else is no use.
    every : float
        Seconds between two checkpoints of a fit.
    hold : Hold
    """

    run: str
    asked: Mapping[str, Any]
    every: float
    hold: HeldLease

    @contextmanager
    def fit(self, **piece: Any) -> Iterator[CheckpointThrottle]:
        """Keep how far the fit of the block is, which goes on from where it was cut off.

        `piece` says which one it is, where there are several. Yields who keeps it.
        """
        asked = {**self.asked, **piece}
        checkpoints = Checkpoints.of_run(self.run)
        known = checkpoints.find(asked, progress_note)
        if known is not None:
            which = "".join(f"{name} {value}, " for name, value in piece.items())
            progress_note(f"going on from {which}{known.progress} (--afresh begins anew)")

        def keep(checkpoint: Checkpoint) -> None:
            self.hold.check()
            checkpoints.keep(asked, checkpoint)

        keeper = CheckpointThrottle(keep, self.every)
        try:
            with saving_checkpoints(CheckpointedFit(known, keeper.take)):
                yield keeper
        except BaseException:
            # Interrupted, or without its cluster: what is known is kept first.
            keeper.rescue()
            raise
        self.hold.check()

    def piece(self, name: str, number: int, work: Callable[[], Result]) -> dict[str, Any]:
        """Return the result of a piece of the run, which `work` makes unless it is known."""
        ledger, asked = PieceStore.of_run(self.run), {**self.asked, name: number}
        found = None
        try:
            found = ledger.find(f"{name}-{number}", asked)
        except DamagedStore as error:
            progress_note(f"{error}: it is computed again")
        if found is None:
            found = dict(work())
            self.hold.check()
            ledger.keep(f"{name}-{number}", asked, found)
        return found


class CheckpointThrottle:
    """Keeps what it is given, but not more often than every so many seconds.

    Attributes
    ----------
    moved : bool
        Whether the fit has come further than it was, and that is kept.
    """

    def __init__(self, keep: Callable[[Checkpoint], None], every: float) -> None:
        self._keep, self._every = keep, every
        self._pending: Checkpoint | None = None
        self._last = time.monotonic()
        self.moved = self._failed = False

    def take(self, checkpoint: Checkpoint) -> None:
        """Take note of how far the fit is, and keep that unless it was just done."""
        self._pending = checkpoint
        if time.monotonic() - self._last >= self._every:
            self.flush()

    def rescue(self) -> None:
        """Keep what is not kept yet, at the end of a fit that failed for another reason."""
        if not self._failed:
            self.flush()

    def flush(self) -> None:
        """Keep what is not kept yet."""
        if self._pending is not None:
            try:
                self._keep(self._pending)
            except Exception:
                self._failed = True
                raise
            self._pending, self.moved = None, True
            self._last = time.monotonic()


_CURRENT: ContextVar[ResumableRun | None] = ContextVar("undertaking", default=None)


@contextmanager
def resumable_run(
    run: str, kind: str, settings: KeptSettings, known: Mapping[str, Any], replaces: str = ""
) -> Iterator[ResumableRun]:
    """Hold a run, which nobody else computes, and clear away what was kept of it at its end.

    Parameters
    ----------
    run, kind : str
    settings : KeptSettings
    known : Mapping
        What decides the result beside the settings: digests of data, in plain JSON.
    replaces : str
        What of an earlier run may be replaced unasked, as for `refuse_existing`.
    """
    asked = {**settings.identity, **known, "kind": kind, "version": version("ism-dask")}
    check_name_is_free(run, settings, replaces)
    with hold_lease(run, kind, settings.to_json(), partial(_is_begun, run)) as hold:
        # Another process may have held it until now, and kept what came of it.
        check_name_is_free(run, settings, replaces)
        this = ResumableRun(run, asked, settings.checkpoint, hold)
        if hold.before is not None:
            progress_note(f"this run was begun before: {hold.before.told}")
        # Tried once more after a failure, what was begun afresh goes on.
        if settings.afresh and not hold.begins_again:
            _clear(run)
        token = _CURRENT.set(this)
        try:
            yield this
        finally:
            _CURRENT.reset(token)
        hold.check()
        _clear(run)


def current_resumable_run() -> ResumableRun:
    """Return the run that is under way, of which this is a step."""
    this = _CURRENT.get()
    if this is None:
        raise LookupError("a step of a run was asked for where no run is under way")
    return this


def _is_begun(run: str) -> bool:
    """Say whether there is anything that a later run of that name can go on from."""
    return bool(Checkpoints.of_run(run).numbers) or PieceStore.of_run(run).folder.is_dir()


def _clear(run: str) -> None:
    Checkpoints.of_run(run).clear()
    PieceStore.of_run(run).clear()
