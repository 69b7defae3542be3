"""A fit on a cluster that may be lost: it goes on from its last checkpoint, there or on another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from flows.compute.joining import joined
from flows.compute.losing import ClusterLost
from flows.compute.session import Session
from flows.errors import FlowError
from flows.progress import note
from flows.settings import KeptSettings
from flows.work.undertaking import Undertaking
from storage import run_folder
from storage.runs import STALLED

T = TypeVar("T")

# Losses one after the other, without an iteration between them, that are too many.
_LOSSES = 3


def steadily(settings: KeptSettings, this: Undertaking, work: Callable[[], T], **piece: Any) -> T:
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
    with joined(settings.scheduler) as session:
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
    note(f"{lost.what}: joining it again, to go on from the last checkpoint")
    try:
        session.renew()
    except FlowError as error:
        raise ClusterAwayError(f"{lost.what}, and could not be joined again: {error}") from error
